/** Weight of the newest gap in the moving average. */
const ALPHA = 0.05;

/**
 * How fast an account is given seats while it has a request waiting: the mean time between two of them. It includes what
 * no sum over the queue can: requests of others that do not wait yet will take their share.
 */
export class ServiceRate {
  #gapMs: number | undefined;
  /** When it was last given one, if another request still waited. */
  #lastAt: number | undefined;

  /**
   * Counts a seat given at `now` to one that waited so long; `more`: another request of the account could take one. An account
   * that has but one waiting at a time shows no gaps. A wait shorter than the gap then shows that the gap is out of date:
   * without that one slow hour would keep it at one waiting forever.
   */
  seated(now: number, waitedMs: number, more: boolean): void {
    const gapMs = this.#lastAt === undefined ? Math.min(waitedMs, this.#gapMs ?? Infinity) : now - this.#lastAt;
    if (this.#gapMs !== undefined) this.#gapMs += ALPHA * (gapMs - this.#gapMs);
    else if (this.#lastAt !== undefined) this.#gapMs = gapMs;
    this.#lastAt = more ? now : undefined;
  }

  /** None waits any more, or there are no seats: the time until the next one is not counted. */
  rest(): void {
    this.#lastAt = undefined;
  }

  /** How long one after `waiting` others of its account would wait, ms; 0 when that is not known. */
  waitMs(waiting: number): number {
    return waiting === 0 ? 0 : (waiting + 1) * (this.#gapMs ?? 0);
  }
}
