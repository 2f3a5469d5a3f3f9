/**
 * The whole sidecar beside llama-server on a GPU: the arguments are those of case.ts.
 *
 *     node dist/bench/gpu/llama-server.bench.js 8b cuda
 */
import { besideRows } from '../support/beside.js';
import { gpuCase } from './case.js';

const { model, file, gpu, trial, brief, threads, keep } = await gpuCase();
const CALLERS = trial ? [1, 8] : brief ? [8, 64] : [1, 8, 32, 64];
const PROMPT_TOKENS = trial ? 64 : 512;
const TOKENS = trial ? 16 : 128;
const RUNS = brief ? 1 : 2;
/** About as many words as make PROMPT_TOKENS in any vocabulary of English. */
const WORDS = 'the sea and the sky and the wind over the waves at night '.repeat(Math.ceil(PROMPT_TOKENS / 14));

const rows = await besideRows({
  model,
  file,
  threads,
  gpu,
  seats: Math.max(...CALLERS),
  context: 1024,
  tokens: TOKENS,
  closed: new Map(CALLERS.map((callers) => [callers, callers * 2])),
  open: [0.8],
  openSeconds: trial ? 2 : 15,
  runs: RUNS,
  warmUp: trial ? 8 : 64,
  temperatures: brief ? [1] : [1, 0],
  prompt: (i) => `${i} ${WORDS}`,
  defaults: true,
});
await keep(
  'llama-server',
  'The whole sidecar beside llama-server',
  `Prompts of about ${PROMPT_TOKENS} tokens, replies of ${TOKENS} on average, streamed, no two alike, ${threads} threads, both servers with their own defaults; medians of ${RUNS} paired runs. [llama-server-native](llama-server-native.md) says what the columns mean.`,
  rows,
);
