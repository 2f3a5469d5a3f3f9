/**
 * Our engine process against llama-batched-bench with a sliding-window and a hybrid model, on a CPU.
 *
 *     node dist/bench/architectures/limit.bench.js [native] [window | hybrid]
 *
 * Runs go on where an earlier start was ended.
 */
import { limitRows } from '../support/limit.js';
import { endless } from '../support/models.js';
import { forget, inPieces, medianRows } from '../support/pieces.js';
import { keep, rowsByModel, type Row } from '../support/results.js';

const SEQUENCES = [1, 8, 32];
const PROMPT_TOKENS = 16;
const TOKENS = 64;
const RUNS = 3;
const REPLIES = 4;
const WARM_STEPS = 512;

const build = process.argv[2] === 'native' ? 'native' : 'prebuilt';
const name = build === 'native' ? 'architectures-limit-native' : 'architectures-limit';
const only = process.argv[3];

const rows = await rowsByModel(name, ['window', 'hybrid'], only, async (model) => {
  const file = await endless(model);
  const shape = { sequences: SEQUENCES, promptTokens: PROMPT_TOKENS, tokens: TOKENS, replies: REPLIES };
  const run = (): Promise<Row[]> =>
    limitRows({ model, file, threads: 1, gpu: false, runs: 1, warmSteps: WARM_STEPS, ...shape });
  return medianRows(await inPieces(`${name}-${model}`, RUNS, run));
});

await keep(name, {
  title: `The engine process against llama-batched-bench, sliding window and hybrid, ${build} addon`,
  about: [
    `Tokens generated a second, prefill included: ${PROMPT_TOKENS} prompt tokens and ${TOKENS} generated per sequence, 1 compute thread. Medians of ${RUNS} pairs, each of ours right after one of the peer's and in an engine of its own that made ${WARM_STEPS} steps before. See engine-limit.md for what each side does.`,
    'Random weights, Q8_0, our own small vocabulary: `window` (gemma3, 77 million weights, five of six layers see 512 tokens) and `hybrid` (lfm2, 79 million, two of three layers are short convolutions) of bench/models/recipes.ts. Peak: the most memory of the process so far, mapped weights included.',
  ],
  rows,
});
for (const model of ['window', 'hybrid']) await forget(`${name}-${model}`);
