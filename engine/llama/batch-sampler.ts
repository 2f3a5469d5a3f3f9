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
import type { AddonContext, AddonDrafts, AddonPicker, AddonStepCosts, EngineAddon } from './addon.js';
import type { GrammarConstraint, TokenLimit } from './grammar-constraint.js';

/** What the native addon picks where no logit is a number, such as after an overflow on a GPU (engine/native/next-token.cpp). */
export const NOT_A_NUMBER = -2;

/** The result of such a part. What its sequence holds would spoil the next reply there too. */
export const NOT_NUMBERS: Extract<PartResult, { kind: 'fault' }> = {
  kind: 'fault',
  reason: 'its logits are not numbers',
};

/** How a part's next token is chosen, known before its decode. */
export type Choice =
  /** Picked within the decode; any token may come. */
  | { readonly kind: 'free'; readonly picker: AddonPicker }
  /** Picked within the decode by this limit. */
  | { readonly kind: 'held'; readonly picker: AddonPicker; readonly limit: TokenLimit }
  | { readonly kind: 'fault'; readonly fault: Extract<PartResult, { kind: 'fault' }> };

/** What it needs of the addon, and of its context. */
export interface Picks {
  readonly addon: Pick<EngineAddon, 'RaPicker' | 'RaDrafts' | 'raPick' | 'raPickAgain'>;
  readonly context: AddonContext;
  /** Of steps with drafts that are made in drafted-step.ts: they take longer than those of runs. With what all replies' drafts showed. */
  readonly costs: AddonStepCosts;
}

/**
 * One reply's sampler. A token is picked freely first, except for those that the grammar denies everywhere, and where the grammar refuses
 * it, once more from those that may come: within the decode where these are known. Where few may come it is picked among these at once.
 */
export class BatchSampler implements Sampler {
  readonly #picks: Picks;
  readonly constraint: GrammarConstraint;
  readonly #picker: AddonPicker;
  /** How each of its tokens is chosen while nothing constrains it. */
  readonly freely: Extract<Choice, { kind: 'free' }>;
  /** The text that its next tokens are drafted from; undefined if nothing is drafted. */
  readonly drafts: AddonDrafts | undefined;
  /** As {@link Sampling} has it, if it is drafted. */
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
    const { addon, costs } = picks;
    this.drafts = draftFrom && new addon.RaDrafts(draftFrom, draftFrom.length + maxTokens, mayVary, undefined, costs);
    this.mayVary = this.drafts !== undefined && mayVary;
  }

  /** How its next token is to be chosen. Changes nothing: a step may be repeated. Never rejects; a promise where masks of the thread come. */
  choice(): Choice | Promise<Choice> {
    if (this.constraint.free) return this.freely;
    const from = performance.now();
    const held = (limit: TokenLimit): Choice => {
      this.#askedMs = performance.now() - from;
      return { kind: 'held', picker: this.#picker, limit };
    };
    const failed = (error: unknown): Choice => ({ kind: 'fault', fault: asFault(error) });
    try {
      const limit = this.#ask(() => this.constraint.limit());
      return limit instanceof Promise ? limit.then(held).catch(failed) : held(limit);
    } catch (error) {
      return failed(error);
    }
  }

  /**
   * The token that the reply continues with, after the decode in which `picked` was. `row`: of its logits. Rejects with a fault;
   * resolves with NOT_A_NUMBER where no allowed logit is a number.
   */
  async chosen(choice: Extract<Choice, { kind: 'held' }>, picked: number, row: number): Promise<number> {
    const from = performance.now();
    let token = picked;
    if (choice.limit.checked && picked !== NOT_A_NUMBER && !this.#disposed) {
      const again = await this.#ask(() => this.constraint.refused(picked));
      if (again) token = this.#picks.addon.raPickAgain(this.#picks.context, row, this.#picker, again);
    }
    this.read([token], performance.now() - from);
    this.constraint.relieve();
    return token;
  }

  /** Tokens of a held reply were picked, which took `ms` besides what was asked. */
  read(tokens: readonly number[], ms = 0): void {
    const some = tokens.filter((token) => token !== NOT_A_NUMBER);
    if (!this.#disposed && some.length > 0) this.constraint.read(some, this.#askedMs + ms);
    this.#askedMs = 0;
  }

  /** The next token, from the logits at `row` of the last decode. Not while it decodes. Rejects with a fault. */
  async pickAt(row: number): Promise<PartResult> {
    const choice = await this.choice();
    if (choice.kind === 'fault') return choice.fault;
    if (this.#disposed) return NOT_NUMBERS;
    const { addon, context } = this.#picks;
    const { first, then } = choice.kind === 'held' ? choice.limit : {};
    const picked = addon.raPick(context, row, this.#picker, first, then);
    const token = choice.kind === 'free' ? picked : await this.chosen(choice, picked, row);
    return token === NOT_A_NUMBER ? NOT_NUMBERS : { kind: 'token', token };
  }

  /** What takes too much work here is left to the masks, which the step then waits for. */
  #ask<T>(ask: () => T): T | Promise<T> {
    try {
      return ask();
    } catch (error) {
      if (!(error instanceof GrammarTooExpensive)) throw error;
      this.constraint.goToMasks();
      return Promise.resolve(this.constraint.pending).then(ask);
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

/** Throws a TypeError for a sampler of another decoder. */
export function samplerOf({ sampler }: Extract<StepPart, { kind: 'sample' }>): BatchSampler {
  if (!(sampler instanceof BatchSampler)) throw new TypeError('a sampler of another decoder');
  return sampler;
}
