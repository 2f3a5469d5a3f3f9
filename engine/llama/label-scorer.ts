import type { AddonContext, AddonSampler } from './addon-context.js';
import { SamplerPool } from './batch-sampler.js';
import { labelLogprobs } from './label-scores.js';

/** Reads labels' log-probabilities from a decode's logits, with greedy samplers: several are read at once, so each has its own. */
export class LabelScorer {
  readonly #context: AddonContext;
  readonly #samplers: SamplerPool;

  constructor(context: AddonContext, newSampler: () => AddonSampler) {
    this.#context = context;
    this.#samplers = new SamplerPool(() => {
      const scorer = newSampler();
      scorer.applyConfig({ temperature: 0 });
      return scorer;
    });
  }

  /** The fourth of the filter's fields adds the argmax, whose logit {@link labelLogprobs} needs. */
  async score(logitIndex: number, labels: Uint32Array): Promise<Float64Array> {
    const filter = [Array.from(labels), false, false, true, 0] as const;
    const scorer = this.#samplers.take();
    const scored = this.#context.sampleToken(logitIndex, scorer, false, false, filter, true);
    const [, , , pairs, total] = await scored.finally(() => this.#samplers.give(scorer));
    const logits = new Map<number, number>();
    for (let i = 0; i + 1 < pairs.length; i += 2) logits.set(pairs[i] ?? -1, pairs[i + 1] ?? NaN);
    return labelLogprobs(labels, logits, total);
  }
}
