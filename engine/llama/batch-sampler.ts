import type { AddonContext, AddonPicker, AddonSampler, Picking } from './addon.js';
import type { Sampler, Sampling } from '../scheduler/decoder.js';
import { EngineFault } from '../scheduler/faults.js';
import type { GrammarHold } from './grammar-hold.js';

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

/** A constant with bits far above those in which the seeds of `n` replies differ. */
const BESIDE_PICKER = 0x9e3779b9;

/**
 * One reply's sampler. If the addon can pick (engine/llama/addon.ts), its picker is used; otherwise, and under a
 * grammar, a native sampler, borrowed at first use.
 */
export class BatchSampler implements Sampler {
  readonly #pool: SamplerPool;
  readonly #sampling: Sampling;
  readonly #held: GrammarHold;
  readonly #picker: AddonPicker | undefined;
  #sampler: AddonSampler | undefined;
  /** The picker has drawn from the seed. */
  #drawn = false;
  readonly #penalized: boolean;
  /** The completion so far, kept where penalties count over it, from the first token that the sampler draws. */
  #completion: Uint32Array | undefined;
  #tokens = 0;
  #disposed = false;

  constructor(pool: SamplerPool, sampling: Sampling, held: GrammarHold, picking?: Picking) {
    this.#pool = pool;
    this.#sampling = sampling;
    this.#held = held;
    this.#penalized = sampling.frequencyPenalty !== 0 || sampling.presencePenalty !== 0;
    // The picker knows neither top-k nor min-p.
    const narrowed = sampling.topK !== undefined || sampling.minP !== undefined;
    this.#picker = narrowed ? undefined : picking?.newPicker(sampling);
  }

  /** The parameters for picking the next token within the decode; undefined: call {@link next}. */
  picker(): AddonPicker | undefined {
    if (!this.#held.free) return undefined;
    // A reply that began under a grammar stays with its sampler, whose random numbers the picker would repeat; so does
    // one with penalties for tokens that the picker has not seen.
    if (this.#sampler && (!this.#drawn || this.#penalized)) return undefined;
    this.#drawn ||= this.#picker !== undefined;
    return this.#picker;
  }

  async next(context: AddonContext, logitIndex: number): Promise<number> {
    const sampler = this.#borrowed();
    this.#held.check();
    // Otherwise the sampler stays as it was made: setting it again would only cost.
    if (this.#completion || this.#held.changes) this.#configure(sampler);
    const from = performance.now();
    const token = await context.sampleToken(logitIndex, sampler);
    if (token < 0) throw new EngineFault('no token could be sampled');
    if (!this.#disposed) this.#held.accept(token, performance.now() - from);
    if (this.#completion) this.#completion[this.#tokens++] = token;
    return token;
  }

  get pending(): Promise<void> | undefined {
    return this.#held.pending;
  }

  hold(gbnf: string, tokens: readonly number[], stacks?: number): boolean {
    const holds = this.#held.hold(gbnf, tokens, stacks);
    this.#changed();
    return holds;
  }

  release(): void {
    this.#held.release();
    this.#changed();
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#held.release();
    if (!this.#sampler) return;
    // An idle sampler keeps no grammar state, which only the garbage collector could free.
    this.#sampler.applyConfig({ temperature: 1, seed: otherSeed(this.#seed) });
    this.#pool.give(this.#sampler);
  }

  /** Beside a picker that uses the seed, the sampler uses another one, so that no random numbers repeat. */
  get #seed(): number {
    const { seed } = this.#sampling;
    return this.#drawn ? (seed ^ BESIDE_PICKER) >>> 0 : seed;
  }

  #borrowed(): AddonSampler {
    if (this.#sampler) return this.#sampler;
    this.#sampler = this.#pool.take();
    if (this.#penalized) this.#remember();
    // The addon restarts its random numbers only if the seed changes, and the previous reply may have had the same one.
    this.#sampler.applyConfig({ temperature: 1, seed: otherSeed(this.#seed) });
    this.#configure(this.#sampler);
    return this.#sampler;
  }

  #remember(): void {
    this.#completion = new Uint32Array(this.#sampling.maxTokens);
    const picked = this.#picker?.picked() ?? [];
    this.#completion.set(picked);
    this.#tokens = picked.length;
  }

  #changed(): void {
    if (this.#sampler && !this.#held.changes) this.#configure(this.#sampler);
  }

  #configure(sampler: AddonSampler): void {
    const { temperature, topP, topK, minP, frequencyPenalty, presencePenalty, maxTokens } = this.#sampling;
    const { state, denied } = this.#held;
    sampler.applyConfig({
      temperature,
      topP,
      seed: this.#seed,
      ...(topK !== undefined && { topK }),
      ...(minP !== undefined && { minP }),
      ...(this.#completion && {
        repeatPenalty: 1,
        repeatPenaltyMaxTokens: maxTokens,
        repeatPenaltyTokens: this.#completion.subarray(0, this.#tokens),
        repeatPenaltyFrequencyPenalty: frequencyPenalty,
        repeatPenaltyPresencePenalty: presencePenalty,
      }),
      ...(state && { grammarEvaluationState: state }),
      ...(denied.length > 0 && {
        tokenBiasKeys: denied,
        tokenBiasValues: new Float32Array(denied.length).fill(-Infinity),
      }),
    });
  }
}

function otherSeed(seed: number): number {
  return (seed ^ 1) >>> 0;
}
