import type { AddonContext, AddonSampler } from '../load/addon.js';
import type { Sampler, Sampling } from './decoder.js';
import { EngineFault } from './faults.js';
import type { GrammarHold } from './grammars.js';

/**
 * Native samplers, used again and again. Each holds a candidate for every token of the vocabulary (2 MB at 150 k), which
 * is freed only when the garbage collector comes to its wrapper, and the collector does not see that memory. No more are
 * ever made than replies run at once.
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

/** One reply's sampler, on a native one that is borrowed for as long. */
export class BatchSampler implements Sampler {
  readonly #pool: SamplerPool;
  readonly #sampler: AddonSampler;
  readonly #sampling: Sampling;
  readonly #held: GrammarHold;
  /** The completion so far, kept only when penalties count over it. */
  readonly #completion: Uint32Array | undefined;
  #tokens = 0;
  #disposed = false;

  constructor(pool: SamplerPool, sampling: Sampling, held: GrammarHold) {
    this.#pool = pool;
    this.#sampler = pool.take();
    this.#sampling = sampling;
    this.#held = held;
    // The addon begins its random numbers anew only when the seed changes, and the reply before may have had this one.
    this.#sampler.applyConfig({ temperature: 1, seed: otherSeed(sampling) });
    const penalized = sampling.frequencyPenalty !== 0 || sampling.presencePenalty !== 0;
    if (penalized) this.#completion = new Uint32Array(sampling.maxTokens);
    else this.#configure();
  }

  async next(context: AddonContext, logitIndex: number): Promise<number> {
    // Unpenalized, the sampler stays as it was made: setting it again would only cost.
    if (this.#completion) this.#configure();
    this.#held.check();
    const token = await context.sampleToken(logitIndex, this.#sampler);
    if (token < 0) throw new EngineFault('no token could be sampled');
    if (this.#completion) this.#completion[this.#tokens++] = token;
    return token;
  }

  hold(gbnf: string, tokens: readonly number[]): boolean {
    const holds = this.#held.hold(gbnf, tokens);
    this.#configure();
    return holds;
  }

  release(): void {
    this.#held.release();
    this.#configure();
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    // An idle sampler keeps no grammar state alive, which only the garbage collector could free.
    this.#sampler.applyConfig({ temperature: 1, seed: otherSeed(this.#sampling) });
    this.#pool.give(this.#sampler);
  }

  #configure(): void {
    const { temperature, topP, seed, frequencyPenalty, presencePenalty, maxTokens } = this.#sampling;
    const { state, controlTokens } = this.#held;
    this.#sampler.applyConfig({
      temperature,
      topP,
      seed,
      // No topK and no minP at all: the contract has none.
      ...(this.#completion && {
        repeatPenalty: 1,
        repeatPenaltyMaxTokens: maxTokens,
        repeatPenaltyTokens: this.#completion.subarray(0, this.#tokens),
        repeatPenaltyFrequencyPenalty: frequencyPenalty,
        repeatPenaltyPresencePenalty: presencePenalty,
      }),
      ...(state && {
        grammarEvaluationState: state,
        tokenBiasKeys: controlTokens,
        tokenBiasValues: new Float32Array(controlTokens.length).fill(-Infinity),
      }),
    });
  }
}

function otherSeed({ seed }: Sampling): number {
  return (seed ^ 1) >>> 0;
}
