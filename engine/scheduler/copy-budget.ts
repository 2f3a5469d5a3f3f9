import type { Clock } from '../protocol/clock.js';

/** Of the time of a step: copies may take longer than expected. */
const OF_STEP = 3 / 4;

/** The weight of the newest copy in the average: about the last four count. */
const NEWEST = 1 / 4;

export type Copy = 'save' | 'restore';

/**
 * Bounds what running replies wait for copies of states between two decodes: at most as long as for a step, or for one copy. What a
 * copy will take is expected from the last ones.
 */
export class CopyBudget {
  readonly #clock: Clock;
  readonly #msPerToken: Partial<Record<Copy, number>> = {};
  #stepMs = 0;
  #spentMs = 0;
  #copies = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A decode ended, or nothing is decoded. `stepMs`: the expected time of a step of the replies; 0: it is unknown. */
  renew(stepMs: number): void {
    this.#stepMs = stepMs;
    this.#spentMs = 0;
    this.#copies = 0;
  }

  /** Whether there is time for a copy of so many tokens before the next decode. */
  allows(what: Copy, tokens: number): boolean {
    const each = this.#msPerToken[what];
    return this.#copies === 0 || (each !== undefined && this.#spentMs + each * tokens <= OF_STEP * this.#stepMs);
  }

  /** Makes a copy of so many tokens, and measures it. Rejects as `copy` does, without counting it. */
  async timed<T>(what: Copy, tokens: number, copy: () => Promise<T>): Promise<T> {
    const from = this.#clock.now();
    const made = await copy();
    const ms = this.#clock.now() - from;
    const known = this.#msPerToken[what];
    const each = ms / tokens;
    this.#msPerToken[what] = known === undefined ? each : known + NEWEST * (each - known);
    this.#spentMs += ms;
    this.#copies += 1;
    return made;
  }
}
