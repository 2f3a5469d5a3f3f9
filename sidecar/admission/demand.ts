/**
 * Counts how many requests come and how many are given a seat, over a decaying window. Plain counts, so that an update
 * is O(1).
 */
export class Demand {
  #arrivals = 0;
  #seatings = 0;
  /** Time that the counts stand for, ms: the window's length once it has passed. */
  #spanMs = 0;
  #at: number | undefined;

  /**
   * A request came at `now`, whether or not it was admitted. `windowMs`: a count loses 63 % of its weight in so much
   * time.
   */
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
   * Requests that come for each that is seated; 1 before anything was counted. The `waiting` ones do not count: they
   * will be seated. Otherwise ten callers that each send a request once the previous one is answered would look like
   * many times the load at their start.
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

/** The share of an account's turns at which no request of it may be waiting. */
const EMPTY_TURNS = 0.0005;

/** Loads are measured and vary: a load above 1 is treated as at least this. */
const LEAST_LOAD = 1.02;

/**
 * How many requests may wait so that one is waiting at almost every turn, where `load` requests come for each that is
 * seated: the smallest K for which M/M/1/K is empty for at most that share of the time, (r - 1) / (r^(K+1) - 1). 32 at
 * a load of 1.2, 10 at 2, 4 at 10.
 */
export function roomFor(load: number, emptyTurns = EMPTY_TURNS): number {
  const r = Math.max(load, LEAST_LOAD);
  return Math.max(1, Math.ceil(Math.log(1 + (r - 1) / emptyTurns) / Math.log(r)) - 1);
}
