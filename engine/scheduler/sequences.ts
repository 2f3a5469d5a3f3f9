import { choose, type Choice, type Slot } from './sequence-choice.js';
import type { Decoder } from './decoder.js';
import { EngineFault } from './faults.js';
import { SequenceTokens, type Reuse } from './sequence-tokens.js';
import type { PromptPlan } from './prompt-plan.js';
import { prefixHashes } from '../protocol/prefix-hash.js';
import type { HeldPrefix, HeldTokens } from '../protocol/messages.js';

/** A sequence ready for a prompt: it holds the first `keep` tokens of it and nothing else. */
export type FreeSequence = Pick<Choice, 'sequence' | 'keep'>;

interface Sequence extends Slot {
  live: boolean;
  intermittent: boolean;
  usedAt: number;
}

/**
 * The context's sequences: which are free, what each holds, and the cuts and copies that ready one for a prompt. What is
 * recorded here and what the decoder holds is always the same, or nothing is recorded.
 */
export class Sequences {
  readonly #decoder: Pick<Decoder, 'cuttable' | 'copyable' | 'truncate' | 'copy'>;
  readonly #slots: readonly Sequence[];
  /** Sequences taken or given back since the last look. */
  readonly #changed = new Set<number>();
  #live = 0;
  #uses = 0;

  constructor(decoder: Pick<Decoder, 'cuttable' | 'copyable' | 'truncate' | 'copy'>, seats: number) {
    this.#decoder = decoder;
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

  /** What all of them hold now. */
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
   * Takes a free sequence and readies it; the caller gives it back with `free`. `reuse` says how far each sequence's state
   * may be built on. `intermittent`: its reply sits steps out. Undefined: none is free. Rejects when the decoder cannot even forget; the sequence is then free.
   */
  async open(
    plan: PromptPlan,
    reuse: (sequence: number) => Reuse,
    intermittent = false,
  ): Promise<FreeSequence | undefined> {
    const { copyable, cuttable } = this.#decoder;
    const rules = { copyable: copyable && cuttable, reuse: cuttable ? reuse : (): Reuse => 'none', intermittent };
    const choice = choose(this.#slots, plan, rules);
    if (!choice) return undefined;
    const { sequence } = choice;
    this.#mark(sequence, true);
    this.#at(sequence).intermittent = intermittent;
    try {
      const copied = choice.source === undefined || (await this.#copy(sequence, choice.source));
      return { sequence, keep: await this.#cut(sequence, copied ? choice.keep : 0) };
    } catch (error) {
      this.free(sequence);
      throw error;
    }
  }

  /** Readies a sequence that is taken for another prompt. Returns how much of it is kept. Rejects as `open` does. */
  async reopen(sequence: number, plan: PromptPlan, reuse: Reuse): Promise<number> {
    const { tokens } = this.#at(sequence);
    return this.#cut(sequence, this.#decoder.cuttable ? tokens.reusable(plan, reuse) : 0);
  }

  /** What a step added. `alone`: a chunk of a prompt, and nothing else was in its decode. */
  evaluated(sequence: number, tokens: Uint32Array, alone: boolean): void {
    this.#at(sequence).tokens.append(tokens, alone);
  }

  /** A part failed: what the sequence holds is unknown, so nothing of it is used again. */
  spoiled(sequence: number): void {
    this.#at(sequence).tokens.cut(0);
  }

  /** Gives one back; it keeps what it holds. Giving back what is not taken throws (a bug). */
  free(sequence: number): void {
    if (!this.#at(sequence).live) throw new EngineFault(`sequence ${sequence} is not taken`);
    this.#mark(sequence, false);
  }

  /** The sequences taken or given back since the last call, and what the free ones of them hold. */
  changes(): HeldPrefix[] {
    const changes = [...this.#changed].map((sequence) => {
      const { live, tokens } = this.#at(sequence);
      const useful = !live && this.#decoder.cuttable;
      return { sequence, hashes: useful ? prefixHashes(tokens.tokens) : new Uint32Array(0) };
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

  /** False: it failed, and what the target holds is unknown. */
  async #copy(target: number, source: number): Promise<boolean> {
    const { tokens } = this.#at(target);
    tokens.cut(0);
    try {
      await this.#decoder.copy(target, source);
    } catch {
      return false;
    }
    tokens.become(this.#at(source).tokens);
    return true;
  }

  /** Returns what is left: nothing, where the decoder could not cut at `length`. */
  async #cut(sequence: number, length: number): Promise<number> {
    const { tokens } = this.#at(sequence);
    tokens.cut(length);
    try {
      await this.#decoder.truncate(sequence, length);
      return length;
    } catch (error) {
      tokens.cut(0);
      if (length === 0) throw error;
    }
    await this.#decoder.truncate(sequence, 0);
    return 0;
  }

  #at(sequence: number): Sequence {
    const slot = this.#slots[sequence];
    if (!slot) throw new RangeError(`no sequence ${sequence}`);
    return slot;
  }
}
