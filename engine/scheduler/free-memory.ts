import type { Clock } from '../protocol/clock.js';

/** How long a reading is used, ms: it takes as long as the copy of a short prompt's state. */
const KEPT_MS = 1000;

/** Bytes that may still be taken, by a reading from time to time and what its user took since. */
export class FreeMemory {
  readonly #read: () => number | undefined;
  readonly #clock: Clock;
  #reading: { readonly at: number; readonly left: number | undefined; readonly taken: number } | undefined;

  /** `read`: undefined where it is unknown. */
  constructor(read: () => number | undefined, clock: Clock) {
    this.#read = read;
    this.#clock = clock;
  }

  /** `taken`: bytes that its user has now. Undefined: it is unknown. */
  left(taken: number): number | undefined {
    const at = this.#clock.now();
    if (!this.#reading || at - this.#reading.at >= KEPT_MS) this.#reading = { at, left: this.#read(), taken };
    const { left } = this.#reading;
    return left === undefined ? undefined : left - (taken - this.#reading.taken);
  }
}
