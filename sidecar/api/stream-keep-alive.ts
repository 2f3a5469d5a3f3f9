import type { Clock } from '../lib/clock.js';

/** Detects intervals in which a stream sent nothing. The first interval begins at the construction. */
export class StreamKeepAlive {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  readonly #idle: () => void;
  #cancelTimer: () => void;
  /** Something was sent in the current interval. */
  #busy = false;

  /** `idle` is called at the end of each interval in which nothing was sent; it sends a keep-alive. */
  constructor(clock: Clock, intervalMs: number, idle: () => void) {
    this.#clock = clock;
    this.#intervalMs = intervalMs;
    this.#idle = idle;
    this.#cancelTimer = this.#nextLook();
  }

  /** Call it with each event that is sent. */
  sent(): void {
    this.#busy = true;
  }

  /** Stops the timer. Idempotent. */
  close(): void {
    this.#cancelTimer();
  }

  #nextLook(): () => void {
    return this.#clock.after(this.#intervalMs, () => {
      if (!this.#busy) this.#idle();
      this.#busy = false;
      this.#cancelTimer = this.#nextLook();
    });
  }
}
