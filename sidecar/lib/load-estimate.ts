/** The initial estimate of a model's load time, ms. */
const FIRST_LOAD_MS = 5000;

/** The least value of `readyInMs` while cold, since loading may take longer than estimated. */
const MIN_READY_IN_MS = 500;

/** The most that `readyInMs` says of a load that takes longer than estimated: clients wait that long. */
const MAX_OVERDUE_MS = 60_000;

/** When the current or next process of an engine is forked and, from how long the last one loaded, when it is ready. */
export class LoadEstimate {
  #forkAt = 0;
  /** No process is loading: the next one is forked at `#forkAt` at the earliest. */
  #waits = true;
  #readyAt: number | undefined;
  #loadMs: number;

  /** `startTimeoutMs`: a load that takes longer is ended. */
  constructor(startTimeoutMs: number) {
    this.#loadMs = Math.min(FIRST_LOAD_MS, startTimeoutMs);
  }

  /** Clock reading of the current or next fork. */
  get forkAt(): number {
    return this.#forkAt;
  }

  /** How long the last load took, or is expected to take, ms. */
  get loadMs(): number {
    return this.#loadMs;
  }

  /** The next process is forked at this clock reading, or once no other engine loads. */
  forksAt(at: number): void {
    this.#forkAt = at;
    this.#waits = true;
  }

  /** A process is forked now. */
  forked(now: number): void {
    this.#forkAt = now;
    this.#waits = false;
    this.#readyAt = undefined;
  }

  ready(now: number): void {
    this.#readyAt = now;
    this.#loadMs = now - this.#forkAt;
  }

  /** How long the process has been ready, ms; undefined if it never was. */
  readyForMs(now: number): number | undefined {
    return this.#readyAt === undefined ? undefined : now - this.#readyAt;
  }

  /**
   * Time until the engine is ready, ms. `hashMs`: until its weights are hashed, which is done while they load. A load that takes longer
   * than estimated is expected to take as long again as it has so far, so that a caller's few tries reach its end.
   */
  readyInMs(now: number, hashMs = 0): number {
    const from = this.#waits ? Math.max(this.#forkAt, now) : this.#forkAt;
    const leftMs = Math.max(from + this.#loadMs - now, hashMs);
    const overdue = leftMs <= 0 ? Math.min(now - from, MAX_OVERDUE_MS) : leftMs;
    return Math.max(overdue, MIN_READY_IN_MS);
  }
}
