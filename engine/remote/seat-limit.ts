import type { Clock } from '../protocol/clock.js';

/** The least time between two decreases, ms: one shortage shows in several answers and readings. */
const DECREASE_MS = 1000;

/** The time without a sign of shortage after which the limit rises by one, ms. */
const INCREASE_MS = 2000;

/** What the limit is multiplied with at a sign of shortage, as TCP's CUBIC does. */
const DECREASE = 0.7;

/**
 * How many requests a server is given at once: at most as many as are configured, fewer when it shows that it has too many,
 * and then slowly more again (additive increase, multiplicative decrease).
 */
export class SeatLimit {
  readonly #clock: Clock;
  readonly #most: number;
  #value: number;
  #loweredAt = -Infinity;
  #changedAt: number;

  constructor(clock: Clock, most: number) {
    this.#clock = clock;
    this.#most = this.#value = most;
    this.#changedAt = clock.now();
  }

  get value(): number {
    return this.#value;
  }

  /** The server refused a request, lets one wait, or had to put one back. */
  short(): void {
    const now = this.#clock.now();
    this.#changedAt = now;
    if (now - this.#loweredAt < DECREASE_MS) return;
    this.#loweredAt = now;
    this.#value = Math.max(1, Math.floor(this.#value * DECREASE));
  }

  /** A reading shows no shortage. Not called while readings fail: the limit then stays the same. */
  ample(): void {
    const now = this.#clock.now();
    if (this.#value >= this.#most || now - this.#changedAt < INCREASE_MS) return;
    this.#changedAt = now;
    this.#value += 1;
  }
}
