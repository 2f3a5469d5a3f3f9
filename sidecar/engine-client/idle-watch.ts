import type { Clock } from '../lib/clock.js';

/** Looks per `idleMs`: the time since the last job is known to so much of it. */
const LOOKS = 8;

/** Tells once when nothing was wanted of an engine for `idleMs`. It judges by its own looks, so that work costs nothing. */
export class IdleWatch {
  readonly #clock: Clock;
  readonly #idleMs: number;
  readonly #busy: () => boolean;
  readonly #onIdle: () => void;
  #idleSince: number;
  #cancel: () => void;

  /** Starts looking at once. `busy`: whether anything is wanted or under way. */
  constructor(clock: Clock, idleMs: number, busy: () => boolean, onIdle: () => void) {
    this.#clock = clock;
    this.#idleMs = idleMs;
    this.#busy = busy;
    this.#onIdle = onIdle;
    this.#idleSince = clock.now();
    this.#cancel = clock.after(idleMs, () => this.#look());
  }

  /** A job came; it may be over before the next look. */
  touch(): void {
    this.#idleSince = this.#clock.now();
  }

  stop(): void {
    this.#cancel();
  }

  #look(): void {
    const now = this.#clock.now();
    if (this.#busy()) this.#idleSince = now;
    const idle = now - this.#idleSince >= this.#idleMs;
    if (idle) this.#onIdle();
    else this.#cancel = this.#clock.after(this.#idleMs / LOOKS, () => this.#look());
  }
}
