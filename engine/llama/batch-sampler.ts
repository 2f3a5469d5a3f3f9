import type { TokenMask } from '../grammar/mask.js';
import { GrammarTooExpensive } from '../grammar/reach.js';
import {
  type StepPart,
  type PartResult,
  type Sampler,
  type Sampling,
  fixedSeed,
  usableTemperature,
} from '../scheduler/decoder.js';
import { asFault } from '../scheduler/faults.js';
import type { AddonContext, AddonDrafts, AddonPicker, EngineAddon } from './addon.js';
import type { GrammarConstraint } from './grammar-constraint.js';

/** What the native addon picks where no logit is a number, such as after an overflow on a GPU (engine/native/next-token.cpp). */
export const NOT_A_NUMBER = -2;

/** The result of such a part. What its sequence holds would spoil the next reply there too. */
export const NOT_NUMBERS: PartResult = { kind: 'fault', reason: 'its logits are not numbers' };

/** How a part's next token is chosen, known before its decode. */
export type Choice =
  /** Picked within the decode; any token may come. */
  | { readonly kind: 'free'; readonly picker: AddonPicker }
  /** Picked within the decode among the tokens whose bit is set. `mask`: which these are. */
  | { readonly kind: 'held'; readonly picker: AddonPicker; readonly allowed: Uint32Array; readonly mask: TokenMask }
  /** The only token that may come: none is picked. */
  | { readonly kind: 'forced'; readonly token: number }
  | { readonly kind: 'fault'; readonly fault: PartResult };

/** What it needs of the addon, and of its context. */
export interface Picks {
  readonly addon: Pick<EngineAddon, 'RaPicker' | 'RaDrafts' | 'raPick' | 'raPickAgain'>;
  readonly context: AddonContext;
  /** Tokens. */
  readonly vocabulary: number;
}

/**
 * One reply's sampler. A token is picked freely first, except for those that the grammar denies everywhere, and where the grammar
 * refuses it, once more from those that may come. Where few may come it is picked among these at once.
 */
export class BatchSampler implements Sampler {
  readonly #picks: Picks;
  readonly constraint: GrammarConstraint;
  readonly #picker: AddonPicker;
  /** How each of its tokens is chosen while nothing constrains it. */
  readonly freely: Choice;
  /** The text that its next tokens are drafted from; undefined if nothing is drafted. */
  readonly drafts: AddonDrafts | undefined;
  /** As {@link Sampling} has it. */
  readonly mayVary: boolean;
  /** What finding out under what the next token is picked took, ms. */
  #askedMs = 0;
  #disposed = false;

  constructor(picks: Picks, sampling: Sampling, constraint: GrammarConstraint) {
    const { temperature, seed, topP, frequencyPenalty, presencePenalty, topK = 0, minP = 0 } = sampling;
    const { draftFrom, maxTokens, mayVary = false } = sampling;
    this.#picks = picks;
    this.constraint = constraint;
    this.#picker = new picks.addon.RaPicker(
      usableTemperature(temperature),
      fixedSeed(seed),
      topP,
      frequencyPenalty,
      presencePenalty,
      topK,
      minP,
    );
    this.freely = { kind: 'free', picker: this.#picker };
    this.drafts = draftFrom && new picks.addon.RaDrafts(draftFrom, draftFrom.length + maxTokens, mayVary);
    this.mayVary = mayVary;
  }

  /** How its next token is to be chosen. Changes nothing: a step may be repeated. Never rejects. */
  async choice(): Promise<Choice> {
    if (this.constraint.free) return this.freely;
    const from = performance.now();
    try {
      this.constraint.check();
      const mask = await this.#ask(() => this.constraint.limit());
      const [only] = mask.tokens;
      if (mask.kind === 'only' && mask.tokens.length === 1 && only !== undefined)
        return { kind: 'forced', token: only };
      return { kind: 'held', picker: this.#picker, allowed: bitsOf(mask, this.#picks.vocabulary), mask };
    } catch (error) {
      return { kind: 'fault', fault: asFault(error) };
    } finally {
      this.#askedMs = performance.now() - from;
    }
  }

  /**
   * The token that the reply continues with, after the decode in which `picked` was. `row`: of its logits. Rejects with a fault;
   * resolves with NOT_A_NUMBER where no allowed logit is a number.
   */
  async chosen(choice: Extract<Choice, { kind: 'held' | 'forced' }>, picked: number, row: number): Promise<number> {
    const from = performance.now();
    const token = choice.kind === 'forced' ? this.#forced(choice.token) : await this.#checked(choice.mask, picked, row);
    if (!this.#disposed && token !== NOT_A_NUMBER)
      this.constraint.accept(token, this.#askedMs + performance.now() - from);
    return token;
  }

  /** The next token, from the logits at `row` of the last decode. Not while it decodes. Rejects with a fault. */
  async pickAt(row: number): Promise<PartResult> {
    const choice = await this.choice();
    if (choice.kind === 'fault') return choice.fault;
    if (this.#disposed) return NOT_NUMBERS;
    const allowed = choice.kind === 'held' ? choice.allowed : undefined;
    const { addon, context } = this.#picks;
    const picked = choice.kind === 'forced' ? choice.token : addon.raPick(context, row, this.#picker, allowed);
    return resultOf(choice.kind === 'free' ? picked : await this.chosen(choice, picked, row));
  }

  #forced(token: number): number {
    this.#picker.add(token);
    return token;
  }

  async #checked(mask: TokenMask, picked: number, row: number): Promise<number> {
    if (mask.kind === 'only' || picked === NOT_A_NUMBER || this.#disposed) return picked;
    const again = await this.#ask(() => this.constraint.refused(picked));
    const { addon, context, vocabulary } = this.#picks;
    return again ? addon.raPickAgain(context, row, this.#picker, bitsOf(again, vocabulary)) : picked;
  }

  /** What takes too much work here is left to the masks, which the step then waits for. */
  async #ask<T>(ask: () => T): Promise<T> {
    try {
      return ask();
    } catch (error) {
      if (!(error instanceof GrammarTooExpensive)) throw error;
      this.constraint.goToMasks();
      await this.constraint.pending;
      this.constraint.check();
      return ask();
    }
  }

  get pending(): Promise<void> | undefined {
    return this.constraint.pending;
  }

  constrain(gbnf: string, tokens: readonly number[], stacks?: number): boolean {
    return this.constraint.constrain(gbnf, tokens, stacks);
  }

  release(): void {
    this.constraint.release();
  }

  dispose(): void {
    this.#disposed = true;
    this.constraint.release();
    this.drafts?.wipe();
  }
}

export function resultOf(token: number): PartResult {
  return token === NOT_A_NUMBER ? NOT_NUMBERS : { kind: 'token', token };
}

/** By the tokens of a mask and by the mask: those of a grammar's places come again and again, in masks of one reply each. */
const bits = new WeakMap<TokenMask | Uint32Array, Uint32Array>();

/** A bit for each token of the vocabulary that may come. Kept as long as the mask. */
function bitsOf(mask: TokenMask, vocabulary: number): Uint32Array {
  const known = bits.get(mask);
  if (known) return known;
  const { kind, tokens, besides } = mask;
  let made = bits.get(tokens);
  if (!made) {
    made = new Uint32Array(Math.ceil(vocabulary / 32)).fill(kind === 'only' ? 0 : ~0);
    for (const token of tokens) {
      const bit = 1 << (token & 31);
      made[token >> 5] = kind === 'only' ? (made[token >> 5] ?? 0) | bit : (made[token >> 5] ?? 0) & ~bit;
    }
    bits.set(tokens, made);
  }
  if (besides) {
    made = made.slice();
    for (const token of besides) made[token >> 5] = (made[token >> 5] ?? 0) & ~(1 << (token & 31));
  }
  bits.set(mask, made);
  return made;
}

/** A running reply's next token that any may be: steps of such parts may follow one another. */
export function isFree(part: StepPart): boolean {
  return part.tokens.length === 1 && part.kind === 'sample' && samplerOf(part).constraint.free;
}

/** Throws a TypeError for a sampler of another decoder. */
export function samplerOf({ sampler }: Extract<StepPart, { kind: 'sample' }>): BatchSampler {
  if (!(sampler instanceof BatchSampler)) throw new TypeError('a sampler of another decoder');
  return sampler;
}
