/**
 * All states in host memory: whole ones of sequences that were overwritten, and checkpoints of those that cannot be truncated.
 *
 *     a sequence is to be overwritten -> its state is saved here, unless it is short or another place has it too
 *     a request goes on from a saved one by more than a sequence has of it -> that is restored into a free sequence
 *     a prompt comes to where another one may differ -> a checkpoint of its sequence, if that cannot be truncated
 *
 * A saved state stays until its bytes are needed (those go first that a sequence holds as well, then those worth least), until a
 * longer one contains it, until it was not used for the longest age, or until its scope is forgotten. A checkpoint stays until its
 * bytes are needed, or until nothing can go back to it. Both are evicted by one rule (state-store.ts). What copies may take is in
 * copy-times.ts.
 */
import { type CopyTimes, LEAST_SAVED } from './copy-times.js';
import type { SequenceStates, StateNotes, WholeState } from './decoder.js';
import { EngineFault, UncleanSequence } from './faults.js';
import type { PromptPlan } from './prompt-plan.js';
import {
  checkpointStore,
  Held,
  SavedCheckpoint,
  StateStore,
  type Reuse,
  type SequenceTokens,
  type StoredState,
} from './state-store.js';
import { prefixHashes, type CacheKey, type CacheScope, type StateElsewhere } from '../protocol/cache-key.js';
import type { Clock } from '../protocol/clock.js';
import { MOST_SAVED, type CacheCounts, type Eviction, type HeldPrefix } from '../protocol/messages.js';

/** What the sequences' states may take beside the KV memory, and how old they become. */
export interface KeepLimits {
  /** Of all checkpoints, where the state cannot be truncated. */
  readonly checkpointBytes?: number;
  /** Absent: no state is saved when it is overwritten, and none has a longest age. */
  readonly prefixCache?: PrefixCacheLimits;
  /** Sequences beside the seats, which hold what seats held before. Absent: none. */
  readonly parked?: number;
}

export interface PrefixCacheLimits {
  /** The bound of all whole states; 0: none is saved. */
  readonly bytes: number;
  /** A state that was not used for so long is dropped, ms. */
  readonly maxAgeMs: number;
  /** Bytes of memory that may be taken now beside what is kept free; undefined if it is unknown. Absent: as many as `bytes`. */
  readonly available?: () => number | undefined;
}

/** One saved state. Its store owns what it holds. */
export interface SavedState extends StoredState {
  readonly held: Held;
  readonly state: WholeState;
  /** Of the tokens. */
  readonly digest: number;
  /** The number by which it is reported, from 0 on. */
  readonly place: number;
  /** Clock reading. */
  usedAt: number;
}

/** The saved state that saves a prompt the most work, and the leading tokens that need not be evaluated. */
export interface Match {
  readonly entry: SavedState;
  readonly keep: number;
}

/** How a sequence's state is overwritten. */
export interface Overwritten {
  /** Leading tokens that stay. */
  readonly keep: number;
  /** All other sequences. */
  readonly others: readonly Held[];
  /** Replies wait meanwhile. */
  readonly beside: boolean;
  /** Is about to be restored, and not evicted. */
  readonly kept: SavedState | undefined;
}

const NO_CACHE: PrefixCacheLimits = { bytes: 0, maxAgeMs: Infinity };

/** Owns all saved states and checkpoints, and makes the copies between them and sequences. The caller owns what its sequences hold. */
export class SavedStates {
  readonly #states: SequenceStates;
  readonly #limits: PrefixCacheLimits;
  readonly #clock: Clock;
  readonly #times: CopyTimes;
  readonly #memory: FreeMemory;
  readonly #entries: StateStore<SavedState>;
  readonly #checkpoints: StateStore<SavedCheckpoint>;
  readonly #free: number[] = [];
  readonly #changed = new Map<number, SavedState | undefined>();
  readonly #evictions: Record<Eviction, number> = { room: 0, replaced: 0, age: 0, forgotten: 0, failed: 0 };
  #places = 0;
  #hits = 0;
  #restored = 0;
  /** Of the last states: what the next one will take is estimated from it. */
  #bytesPerToken = 0;
  /** What could not be saved before a decode, and is to be saved after it. */
  #waited: Held | undefined;

  constructor(
    states: SequenceStates,
    { checkpointBytes = 0, prefixCache = NO_CACHE, parked = 0 }: KeepLimits,
    times: CopyTimes,
    clock: Clock,
  ) {
    this.#states = states;
    this.#limits = prefixCache;
    this.#clock = clock;
    this.#times = times;
    this.#memory = new FreeMemory(() => states.room ?? prefixCache.available?.(), clock);
    this.#checkpoints = checkpointStore(checkpointBytes);
    this.#entries = new StateStore(prefixCache.bytes, MOST_SAVED - parked, (entry, why) => this.#evicted(entry, why));
  }

  /** After how long without use nothing is kept, ms. */
  get maxAgeMs(): number {
    return this.#limits.maxAgeMs;
  }

  /** Sums since the start, and what there is now, without checkpoints. */
  get counts(): CacheCounts {
    return {
      hits: this.#hits,
      restoredTokens: this.#restored,
      bytes: this.#entries.bytes,
      entries: this.#entries.all.size,
      evictions: { ...this.#evictions },
    };
  }

  /** What a sequence holds that holds nothing yet. */
  nothing(): Held {
    return new Held(this.#checkpoints);
  }

  /**
   * The saved state with most of a prompt; undefined if none spares so much more than the `kept` tokens of a sequence that it is worth a
   * restore. `elsewhere`: a state of another process, which becomes one of this where it may be worth one. `others`: all sequences.
   */
  find(
    plan: PromptPlan,
    reuse: Reuse,
    kept: number,
    elsewhere: StateElsewhere | undefined,
    others: readonly Held[],
  ): Match | undefined {
    let found = this.#find(plan, reuse);
    if (elsewhere && reuse !== 'none') {
      const { tokens } = elsewhere;
      if (tokens - this.#times.restoreCost(tokens) > Math.max(kept, found?.keep ?? 0)) {
        this.#adopt(elsewhere, plan.key, others);
        found = this.#find(plan, reuse);
      }
    }
    return found && this.#times.paysToRestore(found.entry.held.tokens.length, found.keep - kept) ? found : undefined;
  }

  #find(plan: PromptPlan, reuse: Reuse): Match | undefined {
    const truncatable = this.#states.restoredTruncatable ?? this.#states.truncatable;
    let best: Match | undefined;
    for (const entry of this.#entries.all) {
      const { tokens } = entry.held;
      if (!tokens.couldShareMore(plan.tokens, best?.keep ?? 0)) continue;
      const keep = tokens.reusable(plan, reuse, truncatable ? undefined : entry.held.lengths);
      if (keep > (best?.keep ?? 0)) best = { entry, keep };
    }
    return best;
  }

  /**
   * Makes a state of another process an entry, which is compared and restored like those of this one. The other process
   * keeps the file too, so the entry takes no memory. Nothing happens where the state no longer exists, or an entry has
   * all of its tokens.
   */
  #adopt(elsewhere: StateElsewhere, key: CacheKey, others: readonly Held[]): void {
    if (!this.#states.openWhole || this.#limits.bytes === 0) return;
    try {
      const { state, notes } = this.#states.openWhole(elsewhere);
      const held = this.nothing();
      held.tokens.fill(notes.tokens, notes.ends, key);
      notes.tokens.fill(0);
      if (this.#shared(held.tokens) < held.tokens.length) {
        this.#add(held, state, others);
        return;
      }
      held.wipe();
      state.dispose();
    } catch {
      // The other process needed the room, or has ended.
    }
  }

  /** Whether a sequence that is overwritten holds more than a few tokens that are nowhere else. */
  isOnlyHere({ tokens }: Held, { keep, others }: Pick<Overwritten, 'keep' | 'others'>): boolean {
    if (tokens.key === undefined || tokens.length - keep < LEAST_SAVED) return false;
    const elsewhere = others.map((other) => other.tokens.sharedWith(tokens));
    return tokens.length - Math.max(this.#shared(tokens), ...elsewhere) >= LEAST_SAVED;
  }

  /**
   * Saves the state of a sequence before it is overwritten, where that is worth it. Never rejects: a state that cannot be saved is
   * lost, as without a cache. False: it is to be saved, but there is no time for it before the next decode.
   */
  async save(sequence: number, held: Held, { keep, others, beside, kept }: Overwritten): Promise<boolean> {
    const { tokens } = held;
    const scope = tokens.key?.scope;
    if (!this.#states.saveWhole || this.#limits.bytes === 0 || scope === undefined) return true;
    if (!this.isOnlyHere(held, { keep, others })) return true;
    if (!this.#times.paysToSave(scope, tokens.length)) return true;
    if (beside && !this.#times.fits('save', tokens.length)) return false;
    if (!this.#makeRoom(tokens.length, others, kept)) return true;
    const state = await this.#saved(sequence, tokens, scope);
    // The next decode, which the replies make, makes the copies that it still needs. None may come, so this is awaited once.
    const waits = state === 'unclean' && beside && this.#waited !== held;
    this.#waited = waits ? held : undefined;
    if (state === 'unclean' || !state) return !waits;
    const saved = this.nothing();
    saved.become(held);
    this.#add(saved, state, others, kept);
    return true;
  }

  /** Leading tokens that an entry has as well: only what follows them would be lost. */
  #shared(tokens: SequenceTokens): number {
    const all = tokens.tokens;
    let most = 0;
    for (const { held } of this.#entries.all) {
      if (held.tokens.couldShareMore(all, most)) most = Math.max(most, held.tokens.sharedWith(tokens));
    }
    return most;
  }

  /**
   * Frees room for the state of so many tokens, as far as its size is known. False: it is not to be saved, since it would take more
   * than there may be, or than is free now.
   */
  #makeRoom(length: number, others: readonly Held[], kept: SavedState | undefined): boolean {
    const bytes = this.#bytesPerToken * length;
    const { limit, bytes: taken } = this.#entries;
    if (bytes > limit - (kept?.bytes ?? 0)) return false;
    const left = this.#memory.left(taken);
    // Others may have taken memory since the start: no more is taken then, and some is given back.
    const isShort = left !== undefined && left < bytes;
    this.#entries.shrink(isShort ? Math.max(0, taken - bytes) : limit - bytes, kept, isHeldBy(others));
    return !isShort;
  }

  /** With its tokens, unless some stand for an image: what an image is called differs between processes. */
  async #saved(
    sequence: number,
    tokens: SequenceTokens,
    scope: CacheScope,
  ): Promise<WholeState | 'unclean' | undefined> {
    const notes: StateNotes | undefined = tokens.hasImages
      ? undefined
      : { tokens: tokens.tokens.slice(), ends: Uint32Array.from(tokens.ends) };
    try {
      return await this.#times.save(scope, tokens.length, async () => {
        const state = await this.#states.saveWhole?.(sequence, notes);
        if (!state || state.length === tokens.length) return state;
        state.dispose();
        throw new EngineFault('a state of other tokens');
      });
    } catch (error) {
      return error instanceof UncleanSequence ? 'unclean' : undefined;
    } finally {
      notes?.tokens.fill(0);
    }
  }

  /** Takes ownership of all of it. A state larger than what the bound leaves is disposed. */
  #add(held: Held, state: WholeState, others: readonly Held[], kept?: SavedState): void {
    const { tokens } = held;
    this.#bytesPerToken = state.bytes / Math.max(1, tokens.length);
    for (const entry of [...this.#entries.all]) {
      if (entry !== kept && tokens.beginsWith(entry.held.tokens)) this.#entries.drop(entry, 'replaced');
    }
    this.#entries.shrink(this.#entries.limit - state.bytes, kept, isHeldBy(others));
    const place = this.#free.pop() ?? this.#places++;
    const { bytes } = state;
    const spares = tokens.length;
    const entry = { held, state, bytes, spares, digest: tokens.digest, place, usedAt: this.#clock.now(), use: 0 };
    if (this.#entries.add(entry)) {
      this.#changed.set(place, entry);
      return;
    }
    this.#free.push(place);
    held.wipe();
    state.dispose();
  }

  /** Whether a restore of an entry has time before the next decode. */
  fits({ held }: SavedState): boolean {
    return this.#times.fits('restore', held.tokens.length);
  }

  /**
   * Makes a sequence, which holds nothing, hold what an entry does. False: it could not, and the state is unknown; the entry is dropped
   * unless the cause is the sequence.
   */
  async restore(sequence: number, into: Held, entry: SavedState): Promise<boolean> {
    const { held, state, digest } = entry;
    try {
      if (state.length !== held.tokens.length || held.tokens.digest !== digest)
        throw new EngineFault('a saved state of other tokens');
      await this.#times.restore(held.tokens.key?.scope, state.length, async () => {
        if (!this.#states.restoreWhole) throw new EngineFault('states cannot be restored');
        await this.#states.restoreWhole(sequence, state);
      });
    } catch (error) {
      if (!(error instanceof UncleanSequence)) this.#entries.drop(entry, 'failed');
      return false;
    }
    into.become(held);
    return true;
  }

  /** An entry was restored and saved a prompt the evaluation of `tokens` tokens; of none: it is of no use. */
  used(entry: SavedState, tokens: number): void {
    if (tokens === 0) {
      this.#entries.drop(entry, 'failed');
      return;
    }
    entry.usedAt = this.#clock.now();
    this.#entries.used(entry);
    this.#hits += 1;
    this.#restored += tokens;
  }

  /** Saves a checkpoint of what a sequence holds. Rejects when the decoder cannot; what it holds is then unknown. */
  async checkpoint(sequence: number, { tokens, checkpoints }: Held): Promise<void> {
    if (this.#states.truncatable || this.#checkpoints.limit === 0 || checkpoints.at(tokens.length)) return;
    const before = checkpoints.lengths.at(-1) ?? 0;
    const checkpoint = await this.#states.save?.(sequence);
    if (checkpoint) checkpoints.add(new SavedCheckpoint(checkpoint, tokens.tokens, tokens.length - before));
  }

  /** Makes a sequence hold what it held at a checkpoint of this length. Rejects when it cannot; what it holds is then unknown. */
  async goBack(sequence: number, { tokens, checkpoints }: Held, length: number): Promise<void> {
    const state = checkpoints.at(length);
    if (!state || !this.#states.restore) throw new EngineFault('no checkpoint');
    state.check(tokens.tokens);
    await this.#states.restore(sequence, state.checkpoint);
    this.#checkpoints.used(state);
  }

  /** Drops what was not used for the longest age. */
  expire(): void {
    const before = this.#clock.now() - this.#limits.maxAgeMs;
    for (const entry of [...this.#entries.all]) if (entry.usedAt < before) this.#entries.drop(entry, 'age');
  }

  /** Drops all states that requests of a scope left. */
  forget(scope: CacheScope): void {
    for (const entry of [...this.#entries.all])
      if (entry.held.tokens.key?.scope === scope) this.#entries.drop(entry, 'forgotten');
  }

  /** The places that changed since the last call, numbered from `from` on, with the prefixes in them. */
  changes(from: number): HeldPrefix[] {
    const changes = [...this.#changed].map(([place, entry]) => {
      const { tokens } = entry?.held ?? {};
      const scope = tokens?.key?.scope;
      const hashes = tokens && scope !== undefined ? prefixHashes(tokens.tokens, scope) : new Uint32Array(0);
      const shared = entry?.state.shared;
      return { sequence: from + place, hashes, ...(shared && { state: shared }) };
    });
    this.#changed.clear();
    return changes;
  }

  #evicted({ held, state, place }: SavedState, why: Eviction): void {
    this.#evictions[why] += 1;
    this.#free.push(place);
    this.#changed.set(place, undefined);
    held.wipe();
    state.dispose();
  }
}

/** Whether one of these sequences has all tokens of a saved state. */
function isHeldBy(others: readonly Held[]): (saved: SavedState) => boolean {
  return (saved) => others.some(({ tokens }) => tokens.beginsWith(saved.held.tokens));
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

  /** `taken`: bytes that its user has now. Undefined if it is unknown. */
  left(taken: number): number | undefined {
    const at = this.#clock.now();
    if (!this.#reading || at - this.#reading.at >= KEPT_MS) this.#reading = { at, left: this.#read(), taken };
    const { left } = this.#reading;
    return left === undefined ? undefined : left - (taken - this.#reading.taken);
  }
}
