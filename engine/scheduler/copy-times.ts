/**
 * What copies of states between sequences and host memory take, and which are made: they are measured, those beside running replies
 * are bounded, and saves are paced where none of what was saved comes back.
 */
import type { CacheScope } from '../protocol/cache-key.js';
import type { Clock } from '../protocol/clock.js';

/** States that are saved before any came back, of all scopes together. */
const FIRST_SAVES = 128;

/** A restore pays for as many saves of its scope: where fewer come back, they are hardly worth their copies for a small model. */
const SAVES_A_RESTORE = 16;

/** The most that restores pay for ahead. */
const MOST_PAID = 128;

/**
 * Any other save is followed by a pause of so many times its length. The copy then takes a quarter of a percent of the time, and its
 * memory takes about as much again.
 */
const PAUSE = 400;

/** Scopes whose restores are remembered, at most. */
const MOST_SCOPES = 4096;

/** Of the time of a step: copies may take longer than expected. */
const OF_STEP = 3 / 4;

/** The weight of the newest copy in the average: about the last four count. */
const NEWEST = 1 / 4;

type Copy = 'save' | 'restore';

/**
 * Measures copies and decides which are made. States that are overwritten are saved by how many of their scope's last ones came back:
 * where none does, a model for which a copy costs much beside a prefill saves few, and one for which it costs little still saves most.
 * Between two decodes running replies wait at most as long as for a step, or for one copy. What a copy will take is expected from
 * the last ones.
 */
export class CopyTimes {
  readonly #clock: Clock;
  #first = FIRST_SAVES;
  /** Saves that restores have paid for, by scope; the first is the one not used for longest. */
  readonly #paid = new Map<CacheScope, number>();
  /** Clock reading. */
  #pauseEnds = -Infinity;
  readonly #msPerToken: Partial<Record<Copy, number>> = {};
  #stepMs = 0;
  #spentMs = 0;
  #copies = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether a state of this scope is to be saved now. */
  paysToSave(scope: CacheScope): boolean {
    return this.#first > 0 || this.#paid.has(scope) || this.#clock.now() >= this.#pauseEnds;
  }

  /** A decode ended, or nothing is decoded. `stepMs`: the expected time of a step of the replies; 0: it is unknown. */
  renew(stepMs: number): void {
    this.#stepMs = stepMs;
    this.#spentMs = 0;
    this.#copies = 0;
  }

  /** Whether there is time for a copy of so many tokens before the next decode. */
  fits(what: Copy, tokens: number): boolean {
    const each = this.#msPerToken[what];
    return this.#copies === 0 || (each !== undefined && this.#spentMs + each * tokens <= OF_STEP * this.#stepMs);
  }

  /** Saves a state of so many tokens, which counts for the pace also where it fails. Rejects as `copy` does. */
  async save<T>(scope: CacheScope, tokens: number, copy: () => Promise<T>): Promise<T> {
    const from = this.#clock.now();
    const paid = this.#paid.get(scope);
    const isPaced = paid === undefined && this.#first === 0;
    if (paid !== undefined) this.#pay(scope, paid - 1);
    else if (!isPaced) this.#first -= 1;
    try {
      return await this.#timed('save', tokens, copy);
    } finally {
      const now = this.#clock.now();
      if (isPaced) this.#pauseEnds = now + PAUSE * (now - from);
    }
  }

  /** Restores a state of so many tokens, which pays for saves of its scope. Rejects as `copy` does, without counting it. */
  async restore(scope: CacheScope | undefined, tokens: number, copy: () => Promise<void>): Promise<void> {
    await this.#timed('restore', tokens, copy);
    if (scope === undefined) return;
    this.#pay(scope, Math.min(MOST_PAID, (this.#paid.get(scope) ?? 0) + SAVES_A_RESTORE));
    const [oldest] = this.#paid.keys();
    if (this.#paid.size > MOST_SCOPES && oldest !== undefined) this.#paid.delete(oldest);
  }

  async #timed<T>(what: Copy, tokens: number, copy: () => Promise<T>): Promise<T> {
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

  #pay(scope: CacheScope, saves: number): void {
    this.#paid.delete(scope);
    if (saves > 0) this.#paid.set(scope, saves);
  }
}
