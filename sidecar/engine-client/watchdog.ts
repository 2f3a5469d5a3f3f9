import type { Clock } from '../lib/clock.js';

/** Looks per `hangMs`. A hang is seen after `hangMs` at the earliest and an interval or two later at the latest. */
const LOOKS = 8;

/** silent: no message at all. stuck: messages come and work is pending, but nothing gets done. */
export type Hang = 'silent' | 'stuck';

/**
 * Decides that an engine hangs. It judges by its own regular looks, and forgives the time by which a look came late: when
 * this process stood still (a long collection, a suspended machine), the engine's messages wait unread and prove nothing.
 */
export class Watchdog {
  readonly #clock: Clock;
  readonly #hangMs: number;
  readonly #intervalMs: number;
  readonly #pending: () => boolean;
  readonly #onHang: (hang: Hang) => void;
  #heardAt: number;
  #progressAt: number;
  #lookedAt: number;
  #step = -1;
  #cancel: () => void;

  /** Starts looking at once. `pending`: whether the engine owes progress. `onHang` is called at most once. */
  constructor(clock: Clock, hangMs: number, pending: () => boolean, onHang: (hang: Hang) => void) {
    this.#clock = clock;
    this.#hangMs = hangMs;
    this.#intervalMs = hangMs / LOOKS;
    this.#pending = pending;
    this.#onHang = onHang;
    this.#heardAt = this.#progressAt = this.#lookedAt = clock.now();
    this.#cancel = clock.after(this.#intervalMs, () => this.#look());
  }

  /** A message came. `step`: the engine's count of steps; `moved`: it brought results. */
  heard(step: number, moved: boolean): void {
    this.#heardAt = this.#clock.now();
    if (step === this.#step && !moved) return;
    this.#step = step;
    this.#progressAt = this.#heardAt;
  }

  stop(): void {
    this.#cancel();
  }

  #look(): void {
    const now = this.#clock.now();
    const late = now - this.#lookedAt - this.#intervalMs;
    this.#lookedAt = now;
    if (late > this.#intervalMs) {
      this.#heardAt = Math.min(this.#heardAt + late, now);
      this.#progressAt = Math.min(this.#progressAt + late, now);
    }
    // Work may have come at any time since the last look, so a job's own start is known to one interval only.
    if (!this.#pending()) this.#progressAt = now;
    if (now - this.#heardAt >= this.#hangMs) this.#onHang('silent');
    else if (now - this.#progressAt >= this.#hangMs + this.#intervalMs) this.#onHang('stuck');
    else this.#cancel = this.#clock.after(this.#intervalMs, () => this.#look());
  }
}
