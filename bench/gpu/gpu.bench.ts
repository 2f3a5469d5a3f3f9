/**
 * What only a GPU can show: a model of 8 billion weights, our engine against llama-batched-bench, the sidecar beside
 * llama-server. bench/gpu/README.md says how it gets onto a machine with a GPU.
 *
 *     node dist/bench/gpu/gpu.bench.js [8b | 8b-f16 | 13m] [cuda | vulkan | false]
 *
 * `13m false` walks the whole way on a CPU: a trial of the bench, not a result; nothing is kept of it.
 */
import type { EngineSetup } from '../../engine/protocol/setup.js';
import { besideRows } from '../support/beside.js';
import { limitRows } from '../support/limit.js';
import { random13m, random8b } from '../support/models.js';
import { keep, type Row } from '../support/results.js';

const [model = '8b', backend = 'cuda'] = process.argv.slice(2);
if (model !== '8b' && model !== '8b-f16' && model !== '13m') throw new RangeError(`no such model: ${model}`);
if (backend !== 'cuda' && backend !== 'vulkan' && backend !== 'false') throw new RangeError(`no such GPU: ${backend}`);
const gpu: EngineSetup['gpu'] = backend === 'false' ? false : backend;
const trial = model === '13m';
const file = model === '13m' ? await random13m() : await random8b(model);

/** Compute threads matter little when the layers are on the GPU. */
const THREADS = trial ? 1 : 4;
const SEQUENCES = trial ? [1, 8] : [1, 8, 32, 64];
const PROMPT_TOKENS = trial ? 64 : 512;
const TOKENS = trial ? 16 : 128;
const RUNS = trial ? 1 : 5;
const CONTEXT = 1024;
const SEATS = Math.max(...SEQUENCES);
/** About as many words as make PROMPT_TOKENS in any vocabulary of English. */
const WORDS = 'the sea and the sky and the wind over the waves at night '.repeat(Math.ceil(PROMPT_TOKENS / 14));

const limit = await limitRows({
  model,
  file,
  threads: THREADS,
  gpu,
  sequences: SEQUENCES,
  promptTokens: PROMPT_TOKENS,
  tokens: TOKENS,
  runs: RUNS,
  replies: 4,
});
const beside = await besideRows({
  model,
  file,
  threads: THREADS,
  gpu,
  seats: SEATS,
  context: CONTEXT,
  tokens: TOKENS,
  closed: new Map(SEQUENCES.map((callers) => [callers, callers * 2])),
  open: trial ? [0.5] : [0.5, 0.8],
  openSeconds: trial ? 2 : 20,
  runs: RUNS,
  warmUp: trial ? 8 : 256,
  temperatures: [0, 1],
  prompt: (i) => `${i} ${WORDS}`,
});

async function result(name: string, title: string, rows: readonly Row[]): Promise<void> {
  if (trial) return;
  await keep(`gpu-${name}-${model}`, {
    title: `${title}, ${model} on ${backend}`,
    about: [
      `${PROMPT_TOKENS} prompt tokens and ${TOKENS} generated a sequence, all layers on the GPU, ${THREADS} threads; medians of ${RUNS} paired runs. See the same bench for a CPU for what the columns mean.`,
    ],
    rows,
  });
}
await result('limit', 'The engine process against llama-batched-bench', limit);
await result('llama-server', 'The whole sidecar beside llama-server', beside);
