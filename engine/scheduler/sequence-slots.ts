import { SavedState, type CheckpointStore } from './checkpoint-store.js';
import type { SequenceStates } from './decoder.js';
import { EngineFault } from './faults.js';
import type { Entry } from './prefix-cache.js';
import type { EndedReply } from './job.js';
import type { PromptPlan } from './prompt-plan.js';
import type { SequenceCache } from './sequence-cache.js';
import { SequenceCheckpoints } from './sequence-checkpoints.js';
import type { Slot } from './sequence-choice.js';
import { SequenceTokens } from './sequence-tokens.js';
import type { CacheKey, StateElsewhere } from '../protocol/cache-key.js';

/** A reply in the sequence that was freed with it. */
export interface HeldReply {
  readonly sequence: number;
  readonly reply: EndedReply;
  /** All that the sequence holds: a view. */
  readonly tokens: Uint32Array;
  readonly key: CacheKey;
}

/** One sequence of the context, and what it holds. */
export interface Sequence extends Slot {
  readonly checkpoints: SequenceCheckpoints;
  live: boolean;
  intermittent: boolean;
  usedAt: number;
  /** Clock reading when it was last taken or freed. */
  movedAt: number;
  /** The reply that it was freed with, until it is returned by `Sequences.takeReply`. */
  reply: EndedReply | undefined;
}

/**
 * What the sequences hold, and the truncations, copies and restores that change it. The records here always equal the decoder's state,
 * or are empty.
 */
export class SequenceSlots {
  readonly all: readonly Sequence[];
  readonly #states: SequenceStates;
  readonly #store: CheckpointStore;
  readonly #cache: SequenceCache;

  constructor(states: SequenceStates, count: number, store: CheckpointStore, cache: SequenceCache) {
    this.#states = states;
    this.#store = store;
    this.#cache = cache;
    this.all = Array.from({ length: count }, () => {
      const tokens = new SequenceTokens();
      const checkpoints = new SequenceCheckpoints(store);
      const lengths = (): number[] => [...checkpoints.lengths, tokens.length];
      return {
        tokens,
        checkpoints,
        get lengths() {
          return states.truncatable ? undefined : lengths();
        },
        live: false,
        intermittent: false,
        usedAt: 0,
        movedAt: 0,
        reply: undefined,
      };
    });
  }

  /** As `Sequences.lastReply`. */
  get lastReply(): HeldReply | undefined {
    let last: HeldReply | undefined;
    let lastAt = -1;
    for (const [sequence, { reply, tokens, usedAt }] of this.all.entries()) {
      if (!reply || !tokens.key || usedAt < lastAt) continue;
      last = { sequence, reply, tokens: tokens.tokens, key: tokens.key };
      lastAt = usedAt;
    }
    return last;
  }

  at(sequence: number): Sequence {
    const slot = this.all[sequence];
    if (!slot) throw new RangeError(`no sequence ${sequence}`);
    return slot;
  }

  /** Truncates the record to so many tokens. */
  forget(sequence: number, length: number): void {
    const { tokens, checkpoints } = this.at(sequence);
    tokens.truncate(length);
    checkpoints.truncate(length);
  }

  /** Empties it, including its memory for token ids. Rejects if the decoder cannot. */
  async empty(sequence: number): Promise<void> {
    this.forget(sequence, 0);
    this.at(sequence).tokens.wipe();
    this.at(sequence).reply = undefined;
    await this.#states.truncate(sequence, 0);
  }

  /** Saves a checkpoint of what a sequence holds. Rejects when the decoder cannot; what it holds is then unknown. */
  async checkpoint(sequence: number): Promise<void> {
    const { tokens, checkpoints } = this.at(sequence);
    if (this.#states.truncatable || !this.#store.open || checkpoints.at(tokens.length)) return;
    const before = checkpoints.lengths.at(-1) ?? 0;
    const checkpoint = await this.#states.save?.(sequence);
    if (checkpoint) checkpoints.add(new SavedState(checkpoint, tokens.tokens, tokens.length - before));
  }

  /**
   * Saves in the cache a state of which all but `keep` tokens will be overwritten, if that is worth it. `beside`: replies wait
   * meanwhile. False: it has to wait for the next decode. Never rejects.
   */
  saveWhole(sequence: number, keep: number, beside: boolean): Promise<boolean> {
    const others = this.all.filter((_, id) => id !== sequence);
    return this.#cache.save(sequence, this.at(sequence), { keep, others, beside });
  }

  /** Makes a state of another process an entry of the cache, if it exists. */
  adopt(elsewhere: StateElsewhere, key: CacheKey): void {
    this.#cache.adopt(elsewhere, key, this.all);
  }

  /** False: it failed, and the sequence's state is unknown. */
  async restoreWhole(sequence: number, entry: Entry): Promise<boolean> {
    const { tokens, checkpoints } = this.at(sequence);
    this.forget(sequence, 0);
    try {
      await this.#cache.restore(sequence, entry);
    } catch {
      return false;
    }
    tokens.become(entry.tokens);
    checkpoints.become(entry.checkpoints);
    return true;
  }

  /** False: it failed, and the target's state is unknown. */
  async copy(target: number, source: number): Promise<boolean> {
    const { tokens, checkpoints } = this.at(target);
    this.forget(target, 0);
    try {
      await this.#states.copy(target, source);
    } catch {
      return false;
    }
    tokens.become(this.at(source).tokens);
    checkpoints.become(this.at(source).checkpoints);
    return true;
  }

  /**
   * Truncates it to the first `length` tokens of a plan. Returns what is left: nothing, where the decoder could not truncate there. Rejects
   * if it cannot even be emptied.
   */
  async truncate(sequence: number, plan: PromptPlan, length: number): Promise<number> {
    const { tokens } = this.at(sequence);
    const held = tokens.length;
    try {
      if (this.#states.truncatable || length === 0 || length === held) await this.#states.truncate(sequence, length);
      else await this.#goBack(sequence, length);
      this.forget(sequence, length);
      tokens.keepFor(plan, length);
      return length;
    } catch (error) {
      this.forget(sequence, 0);
      if (length === 0) throw error;
    }
    await this.#states.truncate(sequence, 0);
    return 0;
  }

  async #goBack(sequence: number, length: number): Promise<void> {
    const { tokens, checkpoints } = this.at(sequence);
    const state = checkpoints.at(length);
    if (!state || !this.#states.restore) throw new EngineFault('no checkpoint');
    state.check(tokens.tokens);
    await this.#states.restore(sequence, state.checkpoint);
    this.#store.used(state);
  }
}
