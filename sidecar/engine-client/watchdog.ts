import type { Clock } from '../lib/clock.js';

/**
 * Checks per `hangMs`. A hang is detected after `hangMs` at the earliest, and one or two intervals later at the latest.
 */
const LOOKS = 8;

/** silent: no message at all. stuck: messages arrive and work is pending, but no step is done. */
export type Hang = 'silent' | 'stuck';

/**
 * Detects that an engine hangs, by periodic checks. If a check is late, because this process was paused (a long
 * collection, a suspended machine), that time is not counted, since the engine's messages wait unread.
 */
export class Watchdog {
  readonly #clock: Clock;
  readonly #hangMs: number;
  readonly #intervalMs: number;
  readonly #pending: () => boolean;
  readonly #onHang: (hang: Hang) => void;
  #receivedAt: number;
  #progressAt: number;
  #lookedAt: number;
  #step = -1;
  #cancel: () => void;

  /** Starts checking at once. `pending`: whether the engine has work. `onHang` is called at most once. */
  constructor(clock: Clock, hangMs: number, pending: () => boolean, onHang: (hang: Hang) => void) {
    this.#clock = clock;
    this.#hangMs = hangMs;
    this.#intervalMs = hangMs / LOOKS;
    this.#pending = pending;
    this.#onHang = onHang;
    this.#receivedAt = this.#progressAt = this.#lookedAt = clock.now();
    this.#cancel = clock.after(this.#intervalMs, () => this.#look());
  }

  /** A message arrived. `step`: the engine's count of steps; `moved`: it had results. */
  received(step: number, moved: boolean): void {
    this.#receivedAt = this.#clock.now();
    if (step === this.#step && !moved) return;
    this.#step = step;
    this.#progressAt = this.#receivedAt;
  }

  stop(): void {
    this.#cancel();
  }

  #look(): void {
    const now = this.#clock.now();
    const late = now - this.#lookedAt - this.#intervalMs;
    this.#lookedAt = now;
    if (late > this.#intervalMs) {
      this.#receivedAt = Math.min(this.#receivedAt + late, now);
      this.#progressAt = Math.min(this.#progressAt + late, now);
    }
    // Work may have started at any time since the last check, so a job's start is known only to one interval.
    if (!this.#pending()) this.#progressAt = now;
    if (now - this.#receivedAt >= this.#hangMs) this.#onHang('silent');
    else if (now - this.#progressAt >= this.#hangMs + this.#intervalMs) this.#onHang('stuck');
    else this.#cancel = this.#clock.after(this.#intervalMs, () => this.#look());
  }
}
