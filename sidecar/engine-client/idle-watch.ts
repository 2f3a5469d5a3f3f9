import type { Clock } from '../lib/clock.js';

/** Checks per `idleMs`: the precision of the time since the last job. */
const LOOKS = 8;

/** Calls back once when an engine was not needed for `idleMs`. It checks periodically, so that jobs cost nothing. */
export class IdleWatch {
  readonly #clock: Clock;
  readonly #idleMs: number;
  readonly #busy: () => boolean;
  readonly #onIdle: () => void;
  #idleSince: number;
  #cancel: () => void;

  /** Starts checking at once. `busy`: whether a request waits or runs. */
  constructor(clock: Clock, idleMs: number, busy: () => boolean, onIdle: () => void) {
    this.#clock = clock;
    this.#idleMs = idleMs;
    this.#busy = busy;
    this.#onIdle = onIdle;
    this.#idleSince = clock.now();
    this.#cancel = clock.after(idleMs, () => this.#look());
  }

  /** A job started; it may end before the next check. */
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
