import type { Clock } from '../lib/clock.js';

/** Length of the window, and of its steps, ms. */
const WINDOW_MS = 10_000;
const PIECE_MS = 1000;
const PIECES = WINDOW_MS / PIECE_MS;

/** The rate of an event over the last ten seconds, in ten counters, without allocation per event. */
export class Rate {
  readonly #clock: Clock;
  readonly #counts = new Float64Array(PIECES);
  #sum = 0;
  /** Number of the newest piece, from the clock's zero. */
  #piece: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#piece = this.#now;
  }

  add(): void {
    this.#moveOn();
    const at = this.#piece % PIECES;
    this.#counts[at] = (this.#counts[at] ?? 0) + 1;
    this.#sum += 1;
  }

  get perSecond(): number {
    this.#moveOn();
    return (this.#sum * 1000) / WINDOW_MS;
  }

  get #now(): number {
    return Math.floor(this.#clock.now() / PIECE_MS);
  }

  /** Resets counters older than the window. */
  #moveOn(): void {
    const now = this.#now;
    for (let left = Math.min(PIECES, now - this.#piece); left > 0; left--) {
      const at = (now - left + 1) % PIECES;
      this.#sum -= this.#counts[at] ?? 0;
      this.#counts[at] = 0;
    }
    this.#piece = now;
  }
}
