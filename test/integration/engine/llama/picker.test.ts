/**
 * The tokens that the picker of engine/native draws, beside those of llama.cpp's own samplers, by a chi-square test of two samples. Of a
 * mask there are two uses: tokens drawn among those that may come, and, as llama-server does (`common_sampler_sample` of
 * common/sampling.cpp), drawn freely, and once more among those that may come where the first one may not. With top_k or top_p the two
 * differ: they count over other tokens.
 */
import t from 'tap';
import { internals, type AddonContext } from '../../../../engine/llama/addon.js';
import { cpuLlama } from '../../../support/llama.js';
import { sameDistribution } from '../../../support/chi-square.js';
import { rounds } from '../../../support/long-form.js';
import { testModel } from '../../../support/models.js';

/** The addon's own sampler, as far as it is used here. */
interface OwnSampler {
  applyConfig(config: Readonly<Record<string, unknown>>): void;
}
type OwnContext = AddonContext & { sampleToken(row: number, sampler: OwnSampler): Promise<number> };

interface Setting {
  readonly temperature: number;
  readonly topP?: number;
  readonly topK?: number;
  readonly minP?: number;
  /** Every so manieth token may come; all by default. */
  readonly every?: number;
}

const SETTINGS: Readonly<Record<string, Setting>> = {
  'temperature 0': { temperature: 0 },
  'temperature 1': { temperature: 1 },
  top_p: { temperature: 1.3, topP: 0.8 },
  'top_p that keeps hundreds': { temperature: 3, topP: 0.999 },
  top_k: { temperature: 1, topK: 40 },
  min_p: { temperature: 1.5, minP: 0.2 },
  'top_k, top_p and min_p': { temperature: 0.9, topK: 100, topP: 0.9, minP: 0.05 },
  'a mask': { temperature: 1, every: 3 },
  'a mask with top_k and top_p': { temperature: 1, topK: 30, topP: 0.95, every: 5 },
  'a mask of few': { temperature: 1.5, topP: 0.9, every: 100 },
};
t.setTimeout(rounds({ short: 60_000, long: 600_000 }));

const DRAWS = rounds({ short: 2_500, long: 100_000 });
/** Draws follow seeds, so a result repeats. Of twelve samples with few draws one may well be below 0.01. */
const LEAST_P = rounds({ short: 0.001, long: 0.01 });

const llama = await cpuLlama(1);
const model = await llama.loadModel({ modelPath: await testModel() });
t.teardown(() => llama.dispose());
const context = await model.createContext({ sequences: 1, contextSize: 64, batchSize: 64 });
const { context: inner, addon } = internals(context);
const { AddonSampler } = (llama as unknown as { _bindings: { AddonSampler: new (model: unknown) => OwnSampler } })
  ._bindings;
const vocabulary = addon.raVocabularySize(inner);
const prompt = Int32Array.from({ length: 20 }, (_, i) => 60 + ((i * 7) % 90));
const ROW = prompt.length - 1;

t.test('each setting draws tokens as often as llama.cpp does', async (t) => {
  await addon.raDecodeRun(inner, Int32Array.of(0, 0, prompt.length, 1), prompt, [undefined], new Uint32Array(0), [], [])
    .ended;
  for (const [name, setting] of Object.entries(SETTINGS)) {
    const { temperature, topP = 1, topK = 0, minP = 0, every = 1 } = setting;
    const allowed = new Uint32Array(Math.ceil(vocabulary / 32));
    const denied: number[] = [];
    for (let token = 0; token < vocabulary; token += 1) {
      if (token % every === 0) allowed[token >> 5] = (allowed[token >> 5] ?? 0) | (1 << (token & 31));
      else denied.push(token);
    }
    const picker = new addon.RaPicker(temperature, 7, topP, 0, 0, topK, minP);
    const own = (seed: number, mask: readonly number[]): (() => Promise<number>) => {
      const sampler = new AddonSampler((model as unknown as { _model: unknown })._model);
      sampler.applyConfig({
        temperature,
        topP,
        seed,
        ...(topK > 0 && { topK }),
        ...(minP > 0 && { minP }),
        ...(mask.length > 0 && {
          tokenBiasKeys: Uint32Array.from(mask),
          tokenBiasValues: new Float32Array(mask.length).fill(-Infinity),
        }),
      });
      return () => (inner as OwnContext).sampleToken(ROW, sampler);
    };
    const [among, freely] = [own(8, denied), own(9, [])];
    const ways: Readonly<Record<string, readonly [ours: () => number, theirs: () => Promise<number>]>> = {
      [name]: [() => addon.raPickAgain(inner, ROW, picker, allowed), among],
      ...(denied.length > 0 && {
        [`${name}, where the first may not come`]: [
          () => addon.raPick(inner, ROW, picker, undefined, allowed),
          async () => {
            const token = await freely();
            return token % every === 0 ? token : among();
          },
        ],
      }),
    };
    for (const [way, [ours, theirs]] of Object.entries(ways)) {
      const counts = new Map<number, [ours: number, theirs: number]>();
      const count = (token: number, of: 0 | 1): void => {
        const both = counts.get(token) ?? [0, 0];
        both[of] += 1;
        counts.set(token, both);
      };
      for (let draw = 0; draw < DRAWS; draw += 1) {
        count(ours(), 0);
        count(await theirs(), 1);
      }
      t.same(
        [...counts.keys()].filter((token) => token % every !== 0),
        [],
        `${way}: only what may come`,
      );
      const p = sameDistribution([...counts.values()]);
      t.ok(p > LEAST_P, `${way}: p ${p.toFixed(3)}, ${counts.size} tokens`);
    }
  }
});
