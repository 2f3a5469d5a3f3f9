/** What the queue measures of requests: how long they hold seats, and how fast they come and are given seats. */

/** Weight of the newest lease in the mean hold time (α in docs/admission.md#what-a-429-means). */
const HOLD_ALPHA = 0.1;

/** A session is taken to have at most so many turns while none is seen to end. */
const MOST_TURNS = 20;

/**
 * A moving average of how long a seat is busy until it is free for others. Where it stays with a session (sessions.ts) that is the time
 * of several turns: the mean time of a turn, over the share of the turns after which the seat was free.
 */
export class HoldTime {
  /** Undefined if nothing was observed. */
  meanMs: number | undefined;
  #turnMs = 0;
  #freed = 1;

  /** Counts a lease, and the time for which its seat was kept after it: `ms` together. `isFreed`: the seat was free for others then. */
  observe(ms: number, isFreed = true): void {
    const alpha = this.meanMs === undefined ? 1 : HOLD_ALPHA;
    this.#turnMs += alpha * (ms - this.#turnMs);
    this.#freed += alpha * ((isFreed ? 1 : 0) - this.#freed);
    this.meanMs = this.#turnMs / Math.max(this.#freed, 1 / MOST_TURNS);
  }
}

/** Weight of the newest gap in the mean time between two seats. */
const GAP_ALPHA = 0.05;

/**
 * How fast a class is given seats while it has a request waiting: the mean time between two of them. It includes what no sum over the queue
 * can: requests of others that do not wait yet will take their share.
 */
export class ServiceRate {
  #gapMs: number | undefined;
  /** When it was last given one, if another request still waited. */
  #lastAt: number | undefined;

  /**
   * Counts a seat given at `now` to a request that waited for `waitedMs`; `more`: another request of the class could take one. A
   * class that has but one waiting at a time shows no gaps. A wait shorter than the gap then shows that the gap is out of date:
   * without that, one slow hour would keep it at one waiting forever.
   */
  seated(now: number, waitedMs: number, more: boolean): void {
    const gapMs = this.#lastAt === undefined ? Math.min(waitedMs, this.#gapMs ?? Infinity) : now - this.#lastAt;
    if (this.#gapMs !== undefined) this.#gapMs += GAP_ALPHA * (gapMs - this.#gapMs);
    else if (this.#lastAt !== undefined) this.#gapMs = gapMs;
    this.#lastAt = more ? now : undefined;
  }

  /** No request waits any more, or there are no seats: the time until the next seat is not counted. */
  interrupt(): void {
    this.#lastAt = undefined;
  }

  /** How long a request after `waiting` others of its class would wait, ms; 0 when that is not known. */
  waitMs(waiting: number): number {
    return waiting === 0 ? 0 : (waiting + 1) * (this.#gapMs ?? 0);
  }
}

/** Counts how many requests arrive and how many are given a seat, over a decaying window. An update is O(1). */
export class Demand {
  #arrivals = 0;
  #seatings = 0;
  /** Time that the counts stand for, ms: the window's length once it has passed. */
  #spanMs = 0;
  #at: number | undefined;

  /** A request arrived at `now`, whether or not it was admitted. A count loses 63 % of its weight in `windowMs`. */
  arrived(now: number, windowMs: number): void {
    this.#age(now, windowMs);
    this.#arrivals += 1;
  }

  /** A request was given a seat at `now`. */
  seated(now: number, windowMs: number): void {
    this.#age(now, windowMs);
    this.#seatings += 1;
  }

  /**
   * Requests that arrive for each that is seated; 1 before anything was counted. The `waiting` ones do not count: they will be seated.
   * Otherwise ten callers that each send a request once the previous one is answered would look like many times the load at their start.
   */
  load(waiting: number): number {
    return (Math.max(0, this.#arrivals - waiting) + 1) / (this.#seatings + 1);
  }

  /** Mean time between two seats, ms; Infinity: none was given. */
  get everyMs(): number {
    return this.#seatings < 0.5 ? Infinity : this.#spanMs / this.#seatings;
  }

  #age(now: number, windowMs: number): void {
    const kept = Math.exp(-(now - (this.#at ?? now)) / windowMs);
    this.#at = now;
    this.#arrivals *= kept;
    this.#seatings *= kept;
    this.#spanMs = this.#spanMs * kept + windowMs * (1 - kept);
  }
}
