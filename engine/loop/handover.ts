import type { Clock } from './clock.js';

/**
 * The share of a step that the next one waits at most for those who take over the seats that were left. A job that comes a
 * moment after a step began stays without its first token for all of it, and its seat empty; the others get their next token
 * this much later, and only where somebody does come.
 */
const OF_STEP = 1 / 4;
/** Less is not waited: timers go by whole milliseconds. */
const LEAST_MS = 1;
/** The weight of the newest seat in what is likely: about the last eight count. */
const NEWEST = 1 / 8;
/** Nothing is waited for where fewer of the seats were taken over in time. */
const LIKELY = 3 / 4;

/**
 * Where jobs queue outside, or callers go on at once, a seat that was left is asked for again within some milliseconds: as long
 * as it takes to tell of it and to be sent the next job. Waits for that where it is likely, by how it was with the seats before.
 */
export class Handover {
  readonly #clock: Clock;
  /** Of each seat that was left and not yet taken: when it will be too late. The earliest first. */
  readonly #deadlines: number[] = [];
  /** Of the seats that were left, those that were taken over in time. */
  #likely = 1;
  #wake: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether seats that are left between steps of such a length are worth a wait. */
  expects(stepMs: number): boolean {
    this.#expire();
    return within(stepMs) >= LEAST_MS && this.#likely >= LIKELY;
  }

  /** Others were told of so many free seats. */
  left(seats: number, stepMs: number): void {
    this.#expire();
    if (within(stepMs) < LEAST_MS) return;
    for (let i = 0; i < seats; i++) this.#deadlines.push(this.#clock.now() + within(stepMs));
  }

  /** A job came. */
  came(): void {
    this.#expire();
    if (this.#deadlines.shift() !== undefined) this.#learn(1);
    if (this.#deadlines.length === 0) this.stop();
  }

  /** Resolves when a job came for each of the seats, or when it is too late. */
  async wait(): Promise<void> {
    this.#expire();
    const last = this.#deadlines.at(-1);
    if (last === undefined) return;
    let cancel: (() => void) | undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      cancel = this.#clock.after(last - this.#clock.now(), resolve);
    });
    cancel?.();
    this.#wake = undefined;
  }

  /** Whoever waits waits no longer. */
  stop(): void {
    this.#wake?.();
  }

  #expire(): void {
    const now = this.#clock.now();
    while ((this.#deadlines[0] ?? Infinity) <= now) {
      this.#deadlines.shift();
      this.#learn(0);
    }
  }

  #learn(taken: number): void {
    this.#likely += NEWEST * (taken - this.#likely);
  }
}

function within(stepMs: number): number {
  return stepMs * OF_STEP;
}
