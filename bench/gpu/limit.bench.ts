/**
 * Our engine against llama-batched-bench on a GPU: the arguments are those of case.ts.
 *
 *     node dist/bench/gpu/limit.bench.js 8b cuda
 */
import { installedAddon } from '../support/addon.js';
import { limitRows } from '../support/limit.js';
import { gpuCase } from './case.js';

const { model, file, gpu, trial, brief, threads, keep } = await gpuCase();
const PROMPT_TOKENS = trial ? 64 : 512;
const TOKENS = trial ? 16 : 128;
const RUNS = brief ? 1 : 3;

const rows = await limitRows({
  model,
  file,
  threads,
  gpu,
  sequences: trial ? [1, 8] : brief ? [1, 64] : [1, 8, 32, 64],
  promptTokens: PROMPT_TOKENS,
  tokens: TOKENS,
  runs: RUNS,
  replies: 4,
  ...(brief && { warmSteps: 500 }),
});
await keep(
  `limit-${installedAddon()}`,
  `The engine process with the ${installedAddon()} addon against llama-batched-bench`,
  `${PROMPT_TOKENS} prompt tokens and ${TOKENS} generated a sequence, ${threads} threads; medians of ${RUNS} paired runs. [engine-limit](engine-limit.md) says what the columns mean.`,
  rows,
);
