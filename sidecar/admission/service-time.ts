import { Survival } from './survival.js';

/**
 * Parts of the requests, from the shortest on, each represented by the time in its middle. They get finer towards the
 * longest, which are few and take much of the seat time.
 */
const PARTS: readonly number[] = [
  ...new Array<number>(12).fill(1 / 16),
  ...new Array<number>(4).fill(1 / 32),
  ...new Array<number>(4).fill(1 / 64),
  ...new Array<number>(8).fill(1 / 128),
];
const MIDDLES: readonly number[] = PARTS.map(
  (part, at) => PARTS.slice(0, at).reduce((sum, before) => sum + before, 0) + part / 2,
);

/** One part: a time, ms, and how much of the requests take about as long. */
export interface Part {
  readonly ms: number;
  readonly weight: number;
}

/**
 * How long a seated caller waits for its answer, from the seat on, by the product-limit estimator: a caller who left
 * earlier counts as one whose answer takes longer than that.
 */
export class ServiceTime {
  readonly #survival = new Survival();
  readonly #parts: { ms: number; weight: number }[] = PARTS.map((weight) => ({ ms: 0, weight }));

  /** The time in parts, shortest first, as of the last fit; all 0 before. */
  get parts(): readonly Part[] {
    return this.#parts;
  }

  /** A seated caller had its answer after `ms`, or had disconnected by then. */
  observe(now: number, halfMs: number, seen: { readonly ms: number; readonly answered: boolean }): void {
    this.#survival.observe(now, halfMs, { ms: seen.ms, left: seen.answered });
  }

  /** Computes the quantiles again. */
  fit(now: number, halfMs: number): void {
    this.#survival.fit(now, halfMs, { callers: 0, hazardOf: undefined });
    // Times longer than callers stay were never observed: the estimate continues at the mean rate of the times that
    // were.
    const { share, ms } = this.#survival.last;
    this.#parts.forEach((part, at) => {
      const shorter = MIDDLES[at] ?? 0;
      const known = this.#survival.timeOf(shorter);
      part.ms = known ?? (share < 1 ? (ms * Math.log(1 - shorter)) / Math.log(share) : 0);
    });
  }
}
