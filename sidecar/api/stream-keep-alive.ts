import type { Clock } from '../lib/clock.js';

/** Notices when a stream has sent nothing for an interval. The first one begins at the construction. */
export class StreamKeepAlive {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  readonly #idle: () => void;
  #cancelTimer: () => void;
  #sentAt: number;

  /** `idle` is called each time that nothing was sent for `intervalMs`; it sends a keep-alive. */
  constructor(clock: Clock, intervalMs: number, idle: () => void) {
    this.#clock = clock;
    this.#intervalMs = intervalMs;
    this.#idle = idle;
    this.#sentAt = clock.now();
    this.#cancelTimer = this.#lookAfter(intervalMs);
  }

  /** Call it with each event that is sent. It sets no timer, since a stream sends many. */
  sent(): void {
    this.#sentAt = this.#clock.now();
  }

  /** Stops the timer. Idempotent. */
  close(): void {
    this.#cancelTimer();
  }

  #lookAfter(ms: number): () => void {
    return this.#clock.after(ms, () => {
      const leftMs = this.#sentAt + this.#intervalMs - this.#clock.now();
      const silent = leftMs <= 0;
      if (silent) this.sent();
      this.#cancelTimer = this.#lookAfter(silent ? this.#intervalMs : leftMs);
      if (silent) this.#idle();
    });
  }
}
