import { CheckpointStore, SavedState } from './checkpoint-store.js';
import { choose, type Choice, type Slot } from './sequence-choice.js';
import type { SequenceStates } from './decoder.js';
import { EngineFault } from './faults.js';
import { SequenceCheckpoints } from './sequence-checkpoints.js';
import { SequenceTokens, type Reuse } from './sequence-tokens.js';
import type { PromptPlan } from './prompt-plan.js';
import { prefixHashes } from '../protocol/prefix-hash.js';
import type { HeldPrefix, HeldTokens } from '../protocol/messages.js';

/** A sequence ready for a prompt: it contains exactly the first `keep` tokens of it. */
export type FreeSequence = Pick<Choice, 'sequence' | 'keep'>;

interface Sequence extends Slot {
  readonly checkpoints: SequenceCheckpoints;
  live: boolean;
  intermittent: boolean;
  usedAt: number;
}

/**
 * The context's sequences: which are free, what each contains, and the cuts and copies that prepare one for a prompt.
 * The records here always equal the decoder's state, or are empty.
 */
export class Sequences {
  readonly #states: SequenceStates;
  readonly #store: CheckpointStore;
  /** Whether a sequence can be built on at all. */
  readonly #reusable: boolean;
  readonly #slots: readonly Sequence[];
  /** Sequences taken or freed since the last call of `changes`. */
  readonly #changed = new Set<number>();
  #live = 0;
  #uses = 0;

  /** `checkpointBytes`: of all checkpoints, where the state cannot be cut. */
  constructor(states: SequenceStates, seats: number, checkpointBytes = 0) {
    this.#states = states;
    this.#store = new CheckpointStore(checkpointBytes);
    this.#reusable = states.cuttable || states.save !== undefined;
    this.#slots = Array.from({ length: seats }, () => {
      const tokens = new SequenceTokens();
      const checkpoints = new SequenceCheckpoints(this.#store);
      const lengths = (): number[] => [...checkpoints.lengths, tokens.length];
      return {
        tokens,
        checkpoints,
        get lengths() {
          return states.cuttable ? undefined : lengths();
        },
        live: false,
        intermittent: false,
        usedAt: 0,
      };
    });
  }

  /** Sequences taken. */
  get live(): number {
    return this.#live;
  }

  /** The tokens in all of them. */
  get tokens(): HeldTokens {
    let running = 0;
    let kept = 0;
    for (const { live, tokens } of this.#slots) {
      if (live) running += tokens.length;
      else kept += tokens.length;
    }
    return { running, kept };
  }

  /**
   * Takes a free sequence and prepares it; the caller returns it with `free`. `reuse` returns how much of each
   * sequence's state may be reused. `intermittent`: its reply skips steps. Undefined: none is free. Rejects if the
   * decoder cannot even clear it; the sequence is then free.
   */
  async open(
    plan: PromptPlan,
    reuse: (sequence: number) => Reuse,
    intermittent = false,
  ): Promise<FreeSequence | undefined> {
    const reusable = this.#reusable;
    const copyable = this.#states.copyable && reusable;
    const rules = { copyable, reuse: reusable ? reuse : (): Reuse => 'none', intermittent };
    const choice = choose(this.#slots, plan, rules);
    if (!choice) return undefined;
    const { sequence } = choice;
    this.#mark(sequence, true);
    this.#at(sequence).intermittent = intermittent;
    try {
      const copied = choice.source === undefined || (await this.#copy(sequence, choice.source));
      return { sequence, keep: await this.#cut(sequence, plan, copied ? choice.keep : 0) };
    } catch (error) {
      this.free(sequence);
      throw error;
    }
  }

  /** Prepares a taken sequence for another prompt. Returns how much of it is reused. Rejects as `open` does. */
  async reopen(sequence: number, plan: PromptPlan, reuse: Reuse): Promise<number> {
    const { tokens, lengths } = this.#at(sequence);
    return this.#cut(sequence, plan, this.#reusable ? tokens.reusable(plan, reuse, lengths) : 0);
  }

  /** Records a step's tokens. `alone`: a chunk of a prompt, with nothing else in its decode. */
  evaluated(sequence: number, tokens: Uint32Array, alone: boolean): void {
    this.#at(sequence).tokens.append(tokens, alone);
  }

  /** A part failed: the sequence's state is unknown, so it is not reused. */
  spoiled(sequence: number): void {
    this.#forget(sequence, 0);
  }

  /** Saves what a sequence holds now, to go back to. Rejects when the decoder cannot; the sequence is then spoiled. */
  async save(sequence: number): Promise<void> {
    const { tokens, checkpoints } = this.#at(sequence);
    const { cuttable } = this.#states;
    if (cuttable || !this.#store.open || checkpoints.at(tokens.length)) return;
    try {
      const before = checkpoints.lengths.at(-1) ?? 0;
      const checkpoint = await this.#states.save?.(sequence);
      if (!checkpoint) return;
      checkpoints.add(new SavedState(checkpoint, tokens.tokens, tokens.length - before));
    } catch (error) {
      this.spoiled(sequence);
      throw error;
    }
  }

  /** Frees a sequence, which keeps its state. Throws if it is not taken (a bug). */
  free(sequence: number): void {
    if (!this.#at(sequence).live) throw new EngineFault(`sequence ${sequence} is not taken`);
    this.#mark(sequence, false);
  }

  /** The sequences taken or freed since the last call, and the prefixes of the free ones. */
  changes(): HeldPrefix[] {
    const changes = [...this.#changed].map((sequence) => {
      const { live, tokens } = this.#at(sequence);
      const scope = !live && this.#reusable ? tokens.key?.scope : undefined;
      return { sequence, hashes: scope === undefined ? new Uint32Array(0) : prefixHashes(tokens.tokens, scope) };
    });
    this.#changed.clear();
    return changes;
  }

  #mark(sequence: number, live: boolean): void {
    const slot = this.#at(sequence);
    slot.live = live;
    slot.usedAt = this.#uses++;
    this.#live += live ? 1 : -1;
    this.#changed.add(sequence);
  }

  /** False: it failed, and the target's state is unknown. */
  async #copy(target: number, source: number): Promise<boolean> {
    const { tokens, checkpoints } = this.#at(target);
    this.#forget(target, 0);
    try {
      await this.#states.copy(target, source);
    } catch {
      return false;
    }
    tokens.become(this.#at(source).tokens);
    checkpoints.become(this.#at(source).checkpoints);
    return true;
  }

  /** Returns what is left: nothing, where the decoder could not cut at `length`. */
  async #cut(sequence: number, plan: PromptPlan, length: number): Promise<number> {
    const { tokens } = this.#at(sequence);
    const held = tokens.length;
    try {
      if (this.#states.cuttable || length === 0 || length === held) await this.#states.truncate(sequence, length);
      else await this.#restore(sequence, length);
      this.#forget(sequence, length);
      tokens.keepFor(plan, length);
      return length;
    } catch (error) {
      this.#forget(sequence, 0);
      if (length === 0) throw error;
    }
    await this.#states.truncate(sequence, 0);
    return 0;
  }

  async #restore(sequence: number, length: number): Promise<void> {
    const { tokens, checkpoints } = this.#at(sequence);
    const state = checkpoints.at(length);
    if (!state || !this.#states.restore) throw new EngineFault('no checkpoint');
    state.check(tokens.tokens);
    await this.#states.restore(sequence, state.checkpoint);
    this.#store.used(state);
  }

  /** It holds no more than so many tokens. */
  #forget(sequence: number, length: number): void {
    const { tokens, checkpoints } = this.#at(sequence);
    tokens.cut(length);
    checkpoints.cut(length);
  }

  #at(sequence: number): Sequence {
    const slot = this.#slots[sequence];
    if (!slot) throw new RangeError(`no sequence ${sequence}`);
    return slot;
  }
}
