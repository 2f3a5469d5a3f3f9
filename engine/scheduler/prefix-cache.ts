/**
 * The prefixes in host memory: states of sequences that were overwritten, for the next request that goes on from one.
 *
 *     a sequence is to be overwritten -> its state is saved here, unless it is short or another place has it too
 *     a request goes on from an entry by more than a sequence has of it -> its state is restored into a free sequence
 *
 * An entry stays until its bytes are needed (those go first that a sequence holds as well, then those worth least), until a
 * longer one contains it, until it was not used for the longest age, or until its scope is forgotten. The states are made and
 * restored by sequence-cache.ts; here is what is kept, and for how long.
 */
import type { WholeState } from './decoder.js';
import type { PromptPlan } from './prompt-plan.js';
import type { SequenceCheckpoints } from './sequence-checkpoints.js';
import type { Reuse, SequenceTokens } from './sequence-tokens.js';
import { type CacheScope, PREFIX_CHUNK, prefixHashes } from '../protocol/cache-key.js';
import type { Clock } from '../protocol/clock.js';
import { MOST_SAVED, type CacheCounts, type Eviction, type HeldPrefix } from '../protocol/messages.js';

export interface PrefixCacheLimits {
  /** The bound of all states; 0: nothing is saved. */
  readonly bytes: number;
  /** An entry that was not used for so long is dropped, ms. */
  readonly maxAgeMs: number;
  /** Bytes of memory that may be taken now beside what is kept free; undefined: unknown. Absent: as many as `bytes`. */
  readonly available?: () => number | undefined;
}

/** Fewer tokens that no other place has are not worth a copy: a prefill of as many takes one step. */
export const LEAST_SAVED = PREFIX_CHUNK;

/**
 * What a restore costs in prompt tokens: a call, and a part of what it restores (measured below a hundredth of the prefill,
 * bench/results/restore.md). A sequence's own prefix is preferred unless the saved one is longer by more than this.
 */
export function restoreCost(tokens: number): number {
  return LEAST_SAVED + tokens / 32;
}

/** One saved prefix. The cache owns its tokens, checkpoints and state. */
export interface Entry {
  readonly tokens: SequenceTokens;
  /** The lengths to which a state that cannot be truncated can be reduced from the whole of it. */
  readonly checkpoints: SequenceCheckpoints;
  readonly state: WholeState;
  /** Of the tokens. */
  readonly digest: number;
  /** The number by which it is reported, from 0 on. */
  readonly place: number;
  /** Clock reading. */
  usedAt: number;
  /** The count of uses of the cache at its last one. */
  use: number;
}

/** The entry that saves a prompt the most work, and the leading tokens that need not be evaluated. */
export interface Match {
  readonly entry: Entry;
  readonly keep: number;
}

export class PrefixCache {
  readonly #limits: PrefixCacheLimits;
  readonly #memory: FreeMemory;
  readonly #clock: Clock;
  /** Whether its states can be truncated at any position. */
  readonly #truncatable: boolean;
  readonly #entries = new Set<Entry>();
  readonly #free: number[] = [];
  readonly #changed = new Map<number, Entry | undefined>();
  readonly #evictions: Record<Eviction, number> = { room: 0, replaced: 0, age: 0, forgotten: 0, failed: 0 };
  #places = 0;
  #bytes = 0;
  #uses = 0;
  #hits = 0;
  #restored = 0;
  /** Of the last states: what the next one will take is estimated from it. */
  #bytesPerToken = 0;
  /** It is about to be restored. */
  #pinned: Entry | undefined;

  constructor(limits: PrefixCacheLimits, clock: Clock, truncatable: boolean) {
    this.#limits = limits;
    this.#memory = new FreeMemory(limits.available ?? ((): undefined => undefined), clock);
    this.#clock = clock;
    this.#truncatable = truncatable;
  }

  /** Whether there is room for any. */
  get open(): boolean {
    return this.#limits.bytes > 0;
  }

  /** Sums since the start, and what there is now. */
  get counts(): CacheCounts {
    return {
      hits: this.#hits,
      restoredTokens: this.#restored,
      bytes: this.#bytes,
      entries: this.#entries.size,
      evictions: { ...this.#evictions },
    };
  }

  /** The entry with most of a prompt; undefined: none has any of it that may be reused. */
  find(plan: PromptPlan, reuse: Reuse): Match | undefined {
    let best: Match | undefined;
    for (const entry of this.#entries) {
      if (!entry.tokens.couldShareMore(plan.tokens, best?.keep ?? 0)) continue;
      const keep = entry.tokens.reusable(plan, reuse, this.#lengths(entry));
      if (keep > (best?.keep ?? 0)) best = { entry, keep };
    }
    return best;
  }

  /** Leading tokens that an entry has as well: only what follows them would be lost. */
  shared(tokens: SequenceTokens): number {
    const all = tokens.tokens;
    let most = 0;
    for (const { tokens: saved } of this.#entries) {
      if (saved.couldShareMore(all, most)) most = Math.max(most, saved.sharedWith(tokens));
    }
    return most;
  }

  /**
   * Frees room for the state of so many tokens, as far as its size is known. `held`: whether a sequence has all of these tokens
   * as well. False: it is not to be saved, since it would take more than there may be, or than is free now.
   */
  prepare(length: number, held: (tokens: SequenceTokens) => boolean): boolean {
    const bytes = this.#bytesPerToken * length;
    if (!this.open || bytes > this.#limits.bytes - (this.#pinned?.state.bytes ?? 0)) return false;
    const left = this.#memory.left(this.#bytes);
    // Others may have taken memory since the start: no more is taken then, and some is given back.
    if (left !== undefined && left < bytes) {
      this.#shrink(Math.max(0, this.#bytes - bytes), held);
      return false;
    }
    this.#shrink(this.#limits.bytes - bytes, held);
    return true;
  }

  /** Until the next call this entry is not evicted for another one: it is to be restored. Undefined: any may be evicted. */
  pin(entry: Entry | undefined): void {
    this.#pinned = entry;
  }

  /** The cache takes ownership of all of it. A state larger than what the bound leaves is disposed. */
  add(
    tokens: SequenceTokens,
    checkpoints: SequenceCheckpoints,
    state: WholeState,
    held: (tokens: SequenceTokens) => boolean,
  ): void {
    this.#bytesPerToken = state.bytes / Math.max(1, tokens.length);
    for (const entry of [...this.#entries]) {
      if (entry !== this.#pinned && tokens.beginsWith(entry.tokens)) this.drop(entry, 'replaced');
    }
    this.#shrink(this.#limits.bytes - state.bytes, held);
    if (this.#bytes + state.bytes > this.#limits.bytes) {
      checkpoints.truncate(0);
      tokens.wipe();
      state.dispose();
      return;
    }
    const place = this.#free.pop() ?? this.#places++;
    const entry = {
      tokens,
      checkpoints,
      state,
      digest: tokens.digest,
      place,
      usedAt: this.#clock.now(),
      use: ++this.#uses,
    };
    this.#entries.add(entry);
    this.#bytes += state.bytes;
    this.#changed.set(place, entry);
  }

  /** An entry was restored and saved a prompt the evaluation of `tokens` tokens. */
  used(entry: Entry, tokens: number): void {
    entry.usedAt = this.#clock.now();
    entry.use = ++this.#uses;
    this.#hits += 1;
    this.#restored += tokens;
  }

  drop(entry: Entry, why: Eviction): void {
    if (!this.#entries.delete(entry)) return;
    this.#evictions[why] += 1;
    this.#bytes -= entry.state.bytes;
    this.#free.push(entry.place);
    this.#changed.set(entry.place, undefined);
    entry.checkpoints.truncate(0);
    entry.tokens.wipe();
    entry.state.dispose();
  }

  /** Drops what was not used for the longest age. */
  expire(): void {
    const before = this.#clock.now() - this.#limits.maxAgeMs;
    for (const entry of [...this.#entries]) if (entry.usedAt < before) this.drop(entry, 'age');
  }

  /** Drops all states that requests of a scope left. */
  forget(scope: CacheScope): void {
    for (const entry of [...this.#entries]) if (entry.tokens.key?.scope === scope) this.drop(entry, 'forgotten');
  }

  /** The places that changed since the last call, numbered from `from` on, with the prefixes in them. */
  changes(from: number): HeldPrefix[] {
    const changes = [...this.#changed].map(([place, entry]) => {
      const scope = entry?.tokens.key?.scope;
      const hashes = entry && scope !== undefined ? prefixHashes(entry.tokens.tokens, scope) : new Uint32Array(0);
      const shared = entry?.state.shared;
      return { sequence: from + place, hashes, ...(shared && { state: shared }) };
    });
    this.#changed.clear();
    return changes;
  }

  #lengths(entry: Entry): readonly number[] | undefined {
    return this.#truncatable ? undefined : [...entry.checkpoints.lengths, entry.tokens.length];
  }

  /** Evicts until there are at most so many bytes, and room for one more entry, as far as any may go. */
  #shrink(bytes: number, held: (tokens: SequenceTokens) => boolean): void {
    while (this.#entries.size > 0 && (this.#bytes > bytes || this.#entries.size >= MOST_SAVED)) {
      let least: Entry | undefined;
      let worth = Infinity;
      for (const entry of this.#entries) {
        if (entry === this.#pinned) continue;
        const here = held(entry.tokens) ? 0 : this.#worth(entry);
        if (least && here >= worth) continue;
        least = entry;
        worth = here;
      }
      if (!least) return;
      this.drop(least, 'room');
    }
  }

  /** What a prefill of its tokens costs, against its bytes and how many uses of others there were since its own. */
  #worth({ tokens, state, use }: Entry): number {
    return tokens.length / state.bytes / (1 + this.#uses - use);
  }
}

/** How long a reading is used, ms: it takes as long as the copy of a short prompt's state. */
const KEPT_MS = 1000;

/** Bytes that may still be taken, by a reading from time to time and what its user took since. */
class FreeMemory {
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
