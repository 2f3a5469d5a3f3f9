/** The queue stands once no seat was free for so many times the time of a request. */
const STANDING_HOLDS = 4;

/** Time with a free seat counts so many times as much as time without one, so that the queue stops standing soon. */
const FREE_WEIGHT = 25;

/** Loads are averaged over the time of so many requests on one seat, and over at least so many ms. */
const LOAD_HOLDS = 20;
const LOAD_MS = 10_000;

/**
 * Whether more requests have arrived for some time than the seats can serve. A queue that never empties adds its wait to every
 * request and no throughput (CoDel: K. Nichols and V. Jacobson, ACM Queue 2012), while a burst on an idle service is
 * served. Milliseconds of the queue's clock throughout.
 */
export class StandingQueue {
  #fullHolds = 0;
  #fullMs = 0;
  #periods = 0;

  get stands(): boolean {
    return this.#fullHolds >= STANDING_HOLDS;
  }

  /** How often the queue has begun to stand. */
  get periods(): number {
    return this.#periods;
  }

  /** Time in which no seat was free, since the beginning. */
  get fullMs(): number {
    return this.#fullMs;
  }

  /** For `ms` this share of the seats was free, where a request takes `holdMs`. */
  passed(ms: number, free: number, holdMs: number): void {
    if (ms <= 0) return;
    if (free === 0) this.#fullMs += ms;
    const holds = ms / Math.max(holdMs, 1);
    const stood = this.stands;
    const full = this.#fullHolds + (free === 0 ? holds : -holds * FREE_WEIGHT * free);
    this.#fullHolds = Math.min(Math.max(full, 0), 2 * STANDING_HOLDS);
    if (this.stands && !stood) this.#periods += 1;
  }
}

/** Over how long loads are averaged, ms, where a request takes `holdMs`. */
export function windowOf(holdMs: number): number {
  return Math.max(LOAD_MS, LOAD_HOLDS * holdMs);
}
