import type { ReplicaSeats } from './replica-seats.js';

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

/**
 * A StandingQueue for each length of seats, of the seats that are at least so long: more long requests than the long seats can serve
 * change nothing for short ones while seats for these are free.
 */
export class StandingQueues {
  readonly #lengths: readonly number[];
  #fullMs = 0;
  readonly #queues: readonly StandingQueue[];
  readonly #longest = new StandingQueue();

  /** `lengths`: the tokens that a seat holds, the lowest first. */
  constructor(lengths: readonly number[]) {
    this.#lengths = lengths;
    this.#queues = lengths.map((_, at) => (at === lengths.length - 1 ? this.#longest : new StandingQueue()));
  }

  /** Whether the queue stands for requests of any length. */
  get stand(): boolean {
    return this.#queues.some(({ stands }) => stands);
  }

  /** Whether the queue stands for requests whose seat has to hold so many tokens. */
  standsFor(seatTokens: number): boolean {
    const at = this.#lengths.findIndex((length) => length >= seatTokens);
    return (this.#queues[at] ?? this.#longest).stands;
  }

  /** How often the queue has begun to stand for requests of one length. */
  get periods(): number {
    return this.#queues.reduce((sum, { periods }) => sum + periods, 0);
  }

  /** Time in which no seat of the longest that were up was free, since the beginning, ms. */
  get fullMs(): number {
    return this.#fullMs;
  }

  /**
   * For `ms` the seats were held as they are now, where a request takes `holdMs`. Time in which no replica with seats of a length was
   * up does not count for that length.
   */
  passed(ms: number, replicas: Pick<ReplicaSeats, 'freeShareFor'>, holdMs: number): void {
    let longest: number | undefined;
    this.#queues.forEach((queue, at) => {
      const share = replicas.freeShareFor(this.#lengths[at] ?? 0);
      if (share === undefined) return;
      queue.passed(ms, share, holdMs);
      longest = share;
    });
    if (longest === 0) this.#fullMs += ms;
  }
}

/** Over how long loads are averaged, ms, where a request takes `holdMs`. */
export function windowOf(holdMs: number): number {
  return Math.max(LOAD_MS, LOAD_HOLDS * holdMs);
}
