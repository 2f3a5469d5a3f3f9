/** Weight of the newest gap in the moving average. */
const ALPHA = 0.05;

/**
 * How fast a tenant is given seats while it has somebody waiting: the mean time between two of them. It holds what no
 * sum over the queue does, that others who do not wait now will come and take their share.
 */
export class Pace {
  #gapMs: number | undefined;
  /** When it was last given one, if somebody waited on. */
  #lastAt: number | undefined;

  /** Counts a seat given at `now`; `waiting`: how many wait on. */
  seated(now: number, waiting: number): void {
    if (this.#lastAt !== undefined) {
      const gapMs = now - this.#lastAt;
      this.#gapMs = this.#gapMs === undefined ? gapMs : this.#gapMs + ALPHA * (gapMs - this.#gapMs);
    }
    this.#lastAt = waiting > 0 ? now : undefined;
  }

  /** Nobody waits any more, or there are no seats: the time until the next one says nothing. */
  rest(): void {
    this.#lastAt = undefined;
  }

  /** How long one behind `waiting` others of its tenant would wait, ms; 0 when that is not known. */
  waitMs(waiting: number): number {
    return waiting === 0 ? 0 : (waiting + 1) * (this.#gapMs ?? 0);
  }
}
