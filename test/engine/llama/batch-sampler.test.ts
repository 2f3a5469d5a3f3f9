import t from 'tap';
import type { AddonContext, AddonSampler } from '../../../engine/llama/addon-context.js';
import { BatchSampler, SamplerPool } from '../../../engine/llama/batch-sampler.js';
import type { GrammarConstraint } from '../../../engine/llama/grammar-constraint.js';
import type { EngineAddon } from '../../../engine/llama/native.js';

const ALLOWED = Uint32Array.of(7, 8);

/** One that has picked nothing. */
class Picker {
  picked = (): Int32Array => new Int32Array(0);
}

t.test(
  'a token that a grammar does not allow is not taken, however much penalties take from the allowed ones',
  async (t) => {
    const configured: Readonly<Record<string, unknown>>[] = [];
    const sampler: AddonSampler = { applyConfig: (config) => void configured.push(config), dispose: () => undefined };
    // The penalties outweigh what the allowed tokens are raised by.
    const context = {
      sampleToken: () => Promise.resolve('repeatPenaltyTokens' in (configured.at(-1) ?? {}) ? 99 : 8),
    };
    const constraint = {
      free: false,
      check: () => undefined,
      limit: () => ({ kind: 'only', tokens: ALLOWED }),
      accept: () => undefined,
    };
    const penalized = new BatchSampler(
      new SamplerPool(() => sampler),
      { temperature: 1, topP: 1, frequencyPenalty: 2, presencePenalty: 0, seed: 1, maxTokens: 10 },
      constraint as unknown as GrammarConstraint,
      { RaPicker: Picker } as unknown as EngineAddon,
    );
    t.equal(await penalized.next(context as unknown as AddonContext, 0), 8);
    t.match(configured.at(-1), { tokenBiasKeys: ALLOWED });
    t.equal(await penalized.next(context as unknown as AddonContext, 0), 8);
    t.match(configured.at(-2), { repeatPenaltyTokens: Uint32Array.of(8) }, 'the taken one counts for the next');
  },
);
