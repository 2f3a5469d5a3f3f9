import type { AddonContext, AddonSampler } from './addon-context.js';
import type { AddonPicker, EngineAddon } from './native.js';
import type { Part, Sampler, Sampling } from '../scheduler/decoder.js';
import { EngineFault } from '../scheduler/faults.js';
import { fixedSeed, usableTemperature } from '../scheduler/sampler-numbers.js';
import type { TokenMask } from '../grammar/mask.js';
import { GrammarTooExpensive } from '../grammar/reach.js';
import type { GrammarConstraint } from './grammar-constraint.js';

/**
 * Native samplers, which are reused. Each has a candidate for every token of the vocabulary (2 MB at 150 k), which is
 * freed only when the garbage collector finalizes its wrapper, and the collector does not count that memory. At most
 * one per running reply is made.
 */
export class SamplerPool {
  readonly #make: () => AddonSampler;
  readonly #idle: AddonSampler[] = [];

  constructor(make: () => AddonSampler) {
    this.#make = make;
  }

  take(): AddonSampler {
    return this.#idle.pop() ?? this.#make();
  }

  give(sampler: AddonSampler): void {
    this.#idle.push(sampler);
  }
}

/**
 * Added to the logits of the only tokens that may come: all others then have a probability of 0 in float32 at any
 * temperature of the contract, and the raised ones keep their distances to within 0.0001.
 */
const RAISED = 1024;

/** A constant with bits far above those in which the seeds of `n` replies differ. */
const BESIDE_PICKER = 0x9e3779b9;

/** One reply's sampler: a picker, which chooses within the decode; under a grammar, top-k or min-p a native sampler, borrowed at first use. */
export class BatchSampler implements Sampler {
  readonly #pool: SamplerPool;
  readonly #sampling: Sampling;
  readonly #constraint: GrammarConstraint;
  readonly #picker: AddonPicker | undefined;
  #sampler: AddonSampler | undefined;
  /** The picker has drawn from the seed. */
  #drawn = false;
  readonly #penalized: boolean;
  /** The completion so far, kept where penalties count over it, from the first token that the sampler draws. */
  #completion: Uint32Array | undefined;
  #tokens = 0;
  #disposed = false;
  /** What the sampler was last configured for. */
  #limit: TokenMask | undefined;

  constructor(pool: SamplerPool, sampling: Sampling, constraint: GrammarConstraint, addon: EngineAddon) {
    this.#pool = pool;
    this.#sampling = sampling;
    this.#constraint = constraint;
    this.#penalized = sampling.frequencyPenalty !== 0 || sampling.presencePenalty !== 0;
    // The picker knows neither top-k nor min-p.
    const narrowed = sampling.topK !== undefined || sampling.minP !== undefined;
    const { temperature, seed, topP, frequencyPenalty, presencePenalty } = sampling;
    this.#picker = narrowed
      ? undefined
      : new addon.RaPicker(temperature, seed, topP, frequencyPenalty, presencePenalty);
  }

  /** The parameters for picking the next token within the decode; undefined: call {@link next}. */
  picker(): AddonPicker | undefined {
    if (!this.#constraint.free) return undefined;
    // A reply that began under a grammar stays with its sampler, whose random numbers the picker would repeat; so does
    // one with penalties for tokens that the picker has not seen.
    if (this.#sampler && (!this.#drawn || this.#penalized)) return undefined;
    this.#drawn ||= this.#picker !== undefined;
    return this.#picker;
  }

  async next(context: AddonContext, logitIndex: number): Promise<number> {
    const sampler = this.#borrowed();
    this.#constraint.check();
    const from = performance.now();
    const token = await this.#choose(context, logitIndex, sampler);
    if (!this.#disposed) this.#constraint.accept(token, performance.now() - from);
    if (this.#completion) this.#completion[this.#tokens++] = token;
    return token;
  }

  /** A token is sampled freely first and, where the grammar refuses it, once more from those that may come. */
  async #choose(context: AddonContext, logitIndex: number, sampler: AddonSampler): Promise<number> {
    const limit = await this.#ask(() => this.#constraint.limit());
    const [forced] = limit.tokens;
    if (limit.kind === 'only' && limit.tokens.length === 1 && forced !== undefined) return forced;
    const first = await this.#sampled(context, logitIndex, sampler, limit);
    if (this.#disposed) return first;
    // Penalties of tokens that were said some hundred times take more than the raised ones were given.
    if (limit.kind === 'only')
      return limit.tokens.includes(first) ? first : this.#sampled(context, logitIndex, sampler, limit, false);
    const again = await this.#ask(() => this.#constraint.refused(first));
    return again ? this.#sampled(context, logitIndex, sampler, again) : first;
  }

  /** What takes too much work here is left to the masks, which the step then waits for. */
  async #ask<T>(ask: () => T): Promise<T> {
    try {
      return ask();
    } catch (error) {
      if (!(error instanceof GrammarTooExpensive)) throw error;
      this.#constraint.goToMasks();
      await this.#constraint.pending;
      this.#constraint.check();
      return ask();
    }
  }

  async #sampled(
    context: AddonContext,
    logitIndex: number,
    sampler: AddonSampler,
    limit: TokenMask,
    penalized = true,
  ): Promise<number> {
    // Otherwise the sampler stays as it was made: setting it again would only cost.
    if (this.#completion || limit !== this.#limit) this.#configure(sampler, limit, penalized);
    const token = await context.sampleToken(logitIndex, sampler);
    if (token < 0) throw new EngineFault('no token could be sampled');
    return token;
  }

  get pending(): Promise<void> | undefined {
    return this.#constraint.pending;
  }

  constrain(gbnf: string, tokens: readonly number[], stacks?: number): boolean {
    this.#limit = undefined;
    return this.#constraint.constrain(gbnf, tokens, stacks);
  }

  release(): void {
    this.#constraint.release();
    this.#limit = undefined;
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#constraint.release();
    if (!this.#sampler) return;
    // An idle sampler keeps no grammar state, which only the garbage collector could free.
    this.#sampler.applyConfig({ temperature: 1, seed: otherSeed(this.#seed) });
    this.#pool.give(this.#sampler);
  }

  /** Beside a picker that uses the seed, the sampler uses another one, so that no random numbers repeat. */
  get #seed(): number {
    const { seed } = this.#sampling;
    return fixedSeed(this.#drawn ? (seed ^ BESIDE_PICKER) >>> 0 : seed);
  }

  #borrowed(): AddonSampler {
    if (this.#sampler) return this.#sampler;
    this.#sampler = this.#pool.take();
    if (this.#penalized) this.#remember();
    // The addon restarts its random numbers only if the seed changes, and the previous reply may have had the same one.
    this.#sampler.applyConfig({ temperature: 1, seed: otherSeed(this.#seed) });
    return this.#sampler;
  }

  #remember(): void {
    this.#completion = new Uint32Array(this.#sampling.maxTokens);
    const picked = this.#picker?.picked() ?? [];
    this.#completion.set(picked);
    this.#tokens = picked.length;
  }

  #configure(sampler: AddonSampler, limit: TokenMask, penalized: boolean): void {
    this.#limit = limit;
    const { temperature, topP, topK, minP, frequencyPenalty, presencePenalty, maxTokens } = this.#sampling;
    const { state } = this.#constraint;
    sampler.applyConfig({
      temperature: usableTemperature(temperature),
      topP,
      seed: this.#seed,
      ...(topK !== undefined && { topK }),
      ...(minP !== undefined && { minP }),
      ...(this.#completion &&
        penalized && {
          repeatPenalty: 1,
          repeatPenaltyMaxTokens: maxTokens,
          repeatPenaltyTokens: this.#completion.subarray(0, this.#tokens),
          repeatPenaltyFrequencyPenalty: frequencyPenalty,
          repeatPenaltyPresencePenalty: presencePenalty,
        }),
      ...(state && { grammarEvaluationState: state }),
      ...(limit.tokens.length > 0 && {
        tokenBiasKeys: limit.tokens,
        tokenBiasValues: new Float32Array(limit.tokens.length).fill(limit.kind === 'only' ? RAISED : -Infinity),
      }),
    });
  }
}

function otherSeed(seed: number): number {
  return (seed ^ 1) >>> 0;
}

/** A running reply's next token that is picked within the decode. */
export function isPicked(part: Part): boolean {
  return part.tokens.length === 1 && pickerOf(part) !== undefined;
}

/** What picks a part's next token within the decode. */
export function pickerOf(part: Part): AddonPicker | undefined {
  return part.kind === 'sample' && part.sampler instanceof BatchSampler ? part.sampler.picker() : undefined;
}
