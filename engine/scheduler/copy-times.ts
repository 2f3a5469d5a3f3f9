/**
 * What copies of states between sequences and host memory take, against the prefill that they spare, and which are made. Both are
 * measured: on a CPU a copy takes about a hundredth of the prefill, on a GPU it may take longer.
 *
 *     restored: what saves a prompt more time than its copy takes
 *     saved:    what would be restored, if its copy takes less than the prefill that it is expected to spare: the prefill's time times
 *               the share of the states saved before that came back; besides the first ones, for a tenth of a second in all, and any
 *               other one after a pause, to find out whether they come back
 *
 * Between two decodes running replies wait for copies at most as long as for a step, or for one copy.
 */
import { PREFIX_CHUNK, type CacheScope } from '../protocol/cache-key.js';
import type { Clock } from '../protocol/clock.js';

/** What decodes take, as the planner has measured it. */
export interface DecodeCosts {
  /** Of next tokens alone, ms; 0: none was measured. */
  readonly decodeMs: number;
  /** A prompt token after `depth` others, ms; undefined if none was measured. */
  tokenMs(depth: number): number | undefined;
}

/** Fewer tokens are not worth a copy: a prefill of as many takes one step. */
export const LEAST_SAVED = PREFIX_CHUNK;

/** A restore over the prefill of the same tokens, as long as it was not measured; CPUs have a hundredth (bench/results/restore.md). */
const USUAL = 1 / 32;

/** After so many copies that were left out for their cost the next one is made, to measure it again. */
const TRY_EVERY = 256;

/** Before any state was saved this part of them is expected to come back. */
const EXPECTED = 1 / 8;

/** What is expected counts as much as so many saves that were made. */
const PRIOR_SAVES = 8;

/** When as many saves or restores were counted, both are halved: the last ones matter most. */
const MOST_COUNTED = 256;

/** Saves that take less in all are made whatever is expected of them, ms: once in the life of an engine. */
const FIRST_MS = 100;

/**
 * Any other save that is not expected to pay is followed by a pause of so many times its length. The copy then takes a quarter of a percent of
 * the time, and its memory takes about as much again.
 */
const PAUSE = 400;

/** Scopes whose saves are counted, at most. */
const MOST_SCOPES = 4096;

/** Of the time of a step: copies may take longer than expected. */
const OF_STEP = 3 / 4;

/** The weight of the newest copy in the average: about the last four count. */
const NEWEST = 1 / 4;

type Copy = 'save' | 'restore';

interface Counts {
  saves: number;
  restores: number;
}

export class CopyTimes {
  readonly #clock: Clock;
  readonly #costs: DecodeCosts;
  readonly #msPerToken: Partial<Record<Copy, number>> = {};
  /** What a restore took for each token, the faster of the last two, ms; undefined if there were no two. */
  #restoreMs: number | undefined;
  #lastRestoreMs: number | undefined;
  /** Copies left out for their cost since one was measured. */
  #leftOut = 0;
  /** Of {@link FIRST_MS}. */
  #firstMs = FIRST_MS;
  readonly #all: Counts = { saves: 0, restores: 0 };
  /** By scope; the first is the one not used for longest. */
  readonly #scopes = new Map<CacheScope, Counts>();
  /** Clock reading. */
  #pauseEnds = -Infinity;
  /** Copies since the last decode. */
  #spentMs = 0;
  #copies = 0;

  constructor(clock: Clock, costs: DecodeCosts) {
    this.#clock = clock;
    this.#costs = costs;
  }

  /** What a restore of so many tokens costs in prompt tokens: a step, and what its copy takes. */
  restoreCost(tokens: number): number {
    const [copy, prefill] = [this.#restoreMs, this.#costs.tokenMs(tokens / 2)];
    const isKnown = copy !== undefined && prefill !== undefined && prefill > 0;
    return LEAST_SAVED + tokens * (isKnown ? copy / prefill : USUAL);
  }

  /** Whether a restore of so many tokens takes less time than the prefill of `spared` tokens. */
  paysToRestore(tokens: number, spared: number): boolean {
    if (spared > this.restoreCost(tokens)) return true;
    if (spared > LEAST_SAVED + tokens * USUAL) this.#leaveOut();
    return false;
  }

  #leaveOut(): void {
    this.#leftOut += 1;
    if (this.#leftOut < TRY_EVERY) return;
    this.#leftOut = 0;
    this.#restoreMs = this.#lastRestoreMs = undefined;
    delete this.#msPerToken.restore;
  }

  /** Whether a state of so many tokens is to be saved now. */
  paysToSave(scope: CacheScope, tokens: number): boolean {
    if (!this.paysToRestore(tokens, tokens)) return false;
    return this.#firstMs > 0 || this.#clock.now() >= this.#pauseEnds || this.#isExpectedToPay(scope, tokens);
  }

  #isExpectedToPay(scope: CacheScope, tokens: number): boolean {
    const { save, restore = save } = this.#msPerToken;
    const prefill = this.#costs.tokenMs(tokens / 2);
    if (save === undefined || restore === undefined || prefill === undefined) return false;
    return save <= this.#expected(scope) * (prefill - restore);
  }

  /** The part of a scope's saved states that is expected to come back: what those of other scopes did counts as some of its own. */
  #expected(scope: CacheScope): number {
    const own = this.#scopes.get(scope) ?? { saves: 0, restores: 0 };
    const others = { saves: this.#all.saves - own.saves, restores: this.#all.restores - own.restores };
    return share(own, share(others, EXPECTED));
  }

  /** A decode ended, or nothing is decoded. */
  renew(): void {
    this.#spentMs = 0;
    this.#copies = 0;
  }

  /** Whether there is time for a copy of so many tokens before the next decode. */
  fits(what: Copy, tokens: number): boolean {
    const each = this.#msPerToken[what];
    const most = OF_STEP * this.#costs.decodeMs;
    return this.#copies === 0 || (each !== undefined && this.#spentMs + each * tokens <= most);
  }

  /** Saves a state of so many tokens. Rejects as `copy` does; it then counts as one that does not come back. */
  async save<T>(scope: CacheScope, tokens: number, copy: () => Promise<T>): Promise<T> {
    const pays = this.#isExpectedToPay(scope, tokens);
    const from = this.#clock.now();
    this.#count(scope, 'saves');
    try {
      return await this.#timed('save', tokens, copy);
    } finally {
      const now = this.#clock.now();
      this.#firstMs -= now - from;
      if (!pays && this.#firstMs <= 0) this.#pauseEnds = now + PAUSE * (now - from);
    }
  }

  /** Restores a state of so many tokens. Rejects as `copy` does, without counting it. */
  async restore(scope: CacheScope | undefined, tokens: number, copy: () => Promise<void>): Promise<void> {
    const from = this.#clock.now();
    await this.#timed('restore', tokens, copy);
    const each = (this.#clock.now() - from) / tokens;
    if (this.#lastRestoreMs !== undefined) this.#restoreMs = Math.min(each, this.#lastRestoreMs);
    this.#lastRestoreMs = each;
    this.#leftOut = 0;
    if (scope !== undefined) this.#count(scope, 'restores');
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

  #count(scope: CacheScope, what: keyof Counts): void {
    const counts = this.#scopes.get(scope) ?? { saves: 0, restores: 0 };
    this.#scopes.delete(scope);
    this.#scopes.set(scope, counts);
    for (const each of [counts, this.#all]) {
      each[what] += 1;
      if (each[what] < MOST_COUNTED) continue;
      each.saves /= 2;
      each.restores /= 2;
    }
    const [oldest] = this.#scopes.keys();
    if (this.#scopes.size > MOST_SCOPES && oldest !== undefined) this.#scopes.delete(oldest);
  }
}

/** The part of saves that came back, and would by what is expected: 1 at most, though one may come back several times. */
function share({ saves, restores }: Counts, expected: number): number {
  const [made, back] = [Math.max(0, saves), Math.max(0, restores)];
  return Math.min(1, (back + PRIOR_SAVES * expected) / (made + PRIOR_SAVES));
}
