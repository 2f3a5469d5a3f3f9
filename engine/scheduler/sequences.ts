import { choose, type Choice, type Slot } from './sequence-choice.js';
import type { SequenceStates } from './decoder.js';
import { EngineFault } from './faults.js';
import { SequenceTokens, type Reuse } from './sequence-tokens.js';
import type { PromptPlan } from './prompt-plan.js';
import { prefixHashes } from '../protocol/prefix-hash.js';
import type { HeldPrefix, HeldTokens } from '../protocol/messages.js';

/** A sequence ready for a prompt: it contains exactly the first `keep` tokens of it. */
export type FreeSequence = Pick<Choice, 'sequence' | 'keep'>;

interface Sequence extends Slot {
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
  readonly #slots: readonly Sequence[];
  /** Sequences taken or freed since the last call of `changes`. */
  readonly #changed = new Set<number>();
  #live = 0;
  #uses = 0;

  constructor(states: SequenceStates, seats: number) {
    this.#states = states;
    this.#slots = Array.from({ length: seats }, () => ({
      tokens: new SequenceTokens(),
      live: false,
      intermittent: false,
      usedAt: 0,
    }));
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
    const { copyable, cuttable } = this.#states;
    const rules = { copyable: copyable && cuttable, reuse: cuttable ? reuse : (): Reuse => 'none', intermittent };
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
    const { tokens } = this.#at(sequence);
    return this.#cut(sequence, plan, this.#states.cuttable ? tokens.reusable(plan, reuse) : 0);
  }

  /** Records a step's tokens. `alone`: a chunk of a prompt, with nothing else in its decode. */
  evaluated(sequence: number, tokens: Uint32Array, alone: boolean): void {
    this.#at(sequence).tokens.append(tokens, alone);
  }

  /** A part failed: the sequence's state is unknown, so it is not reused. */
  spoiled(sequence: number): void {
    this.#at(sequence).tokens.cut(0);
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
      const scope = !live && this.#states.cuttable ? tokens.key?.scope : undefined;
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
    const { tokens } = this.#at(target);
    tokens.cut(0);
    try {
      await this.#states.copy(target, source);
    } catch {
      return false;
    }
    tokens.become(this.#at(source).tokens);
    return true;
  }

  /** Returns what is left: nothing, where the decoder could not cut at `length`. */
  async #cut(sequence: number, plan: PromptPlan, length: number): Promise<number> {
    const { tokens } = this.#at(sequence);
    tokens.keepFor(plan, length);
    try {
      await this.#states.truncate(sequence, length);
      return length;
    } catch (error) {
      tokens.cut(0);
      if (length === 0) throw error;
    }
    await this.#states.truncate(sequence, 0);
    return 0;
  }

  #at(sequence: number): Sequence {
    const slot = this.#slots[sequence];
    if (!slot) throw new RangeError(`no sequence ${sequence}`);
    return slot;
  }
}
