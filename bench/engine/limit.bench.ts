/** The engine process against llama-batched-bench on a CPU. */
import { limitRows } from '../support/limit.js';
import { random13m, random150m } from '../support/models.js';
import { keep, rowsByModel, type Row } from '../support/results.js';

const SEQUENCES = [1, 8, 32];
const PROMPT_TOKENS = 16;
const TOKENS = 64;

/** `native`: the addon of `make engine-native` is in place; the results are kept beside those of the prebuilt one. */
const build = process.argv[2] === 'native' ? 'native' : 'prebuilt';
const name = build === 'native' ? 'engine-limit-native' : 'engine-limit';
/** By compute threads, of each model. */
const RUNS = { '150m': { 1: 5, 2: 3 }, '13m': { 1: 5, 2: 3 } };
/** One model alone: the rows of the others stay as they were. */
const only = process.argv[3];

const MODELS = {
  '150m': { make: random150m, replies: 8 },
  // A reply ends in 25 ms.
  '13m': { make: random13m, replies: 32 },
} as const;
const rows = await rowsByModel(name, ['150m', '13m'], only, async (model) => {
  const { make, replies } = MODELS[model];
  const file = await make();
  const libraries = build === 'native' ? 'peers' : 'npm';
  const all: Row[] = [];
  for (const threads of [1, 2] as const) {
    const runs = RUNS[model][threads];
    const shape = { sequences: SEQUENCES, promptTokens: PROMPT_TOKENS, tokens: TOKENS, runs, replies };
    all.push(...(await limitRows({ model, file, threads, gpu: false, libraries, ...shape })));
  }
  return all;
});

await keep(name, {
  title: `The engine process against llama-batched-bench, ${build} addon`,
  about: [
    `Tokens generated a second, prefill included: ${PROMPT_TOKENS} prompt tokens and ${TOKENS} generated per sequence. Medians of ${RUNS['150m'][1]} runs of the 150m model and ${RUNS['13m'][1]} of the 13m model, of ${RUNS['150m'][2]} and ${RUNS['13m'][2]} at 2 threads, each of ours right after one of the peer's and in an engine of its own; the ratio is the median of these pairs. Before the first 1,500 steps have warmed the engine up nothing is measured. A model may have been measured by itself, at another hour.`,
    build === 'native'
      ? 'llama-batched-bench (built from the bundled source by `make peers`, with native instructions and OpenMP) is compiled for this processor, as is the addon.'
      : 'llama-batched-bench runs on the libraries of node-llama-cpp’s npm package, which our engine runs on too.',
    'llama-batched-bench decodes and never samples or turns a token into text; our engine process samples every token, finds stops, makes text and sends messages. Greedy: temperature 0. Temperature 1 with no top-k, the default of the API, is exp() over the whole vocabulary of 50,257 for every token. With top_p 0.9 and a frequency penalty of 0.5 at temperature 1 likewise (random weights make all tokens about equally likely, so that top_p keeps tens of thousands, where a trained model’s keeps dozens).',
    'Random weights, Q8_0, GPT-2’s vocabulary: `150m` and `13m` of bench/models/recipes.ts. In the 13m model the output layer and the sampling of 50,257 logits are nearly all of the work.',
  ],
  rows,
});
