/**
 * Replicas on a host with several GPUs: one on each device beside as many llama-batched-bench processes, and one engine whose layers
 * are split over all of them, which is what a model has without `replicas`.
 *
 *     node dist/bench/gpu/replicas.bench.js DEVICES [8b | 8b-f16 | 13m] [cuda | vulkan | false]
 *
 * `2 13m false` walks the whole way on two cores: a trial of the bench, not a result; nothing is kept of it.
 */
import { overAll, replicaRows, type Place, type ReplicaCase } from '../support/replica-rows.js';
import type { Row } from '../support/results.js';
import { deviceEnvironment } from '../../sidecar/config/devices.js';
import { gpuCase } from './case.js';

const devices = Number(process.argv[2]);
if (!Number.isInteger(devices) || devices < 1)
  throw new RangeError('how many devices? node dist/bench/gpu/replicas.bench.js 4');
const { file, gpu, trial, threads, keep } = await gpuCase(1);
const RUNS = trial ? 1 : 5;
const PROMPT_TOKENS = trial ? 64 : 512;
const TOKENS = trial ? 16 : 128;

const places = Array.from({ length: devices }, (_, index): Place => {
  if (gpu === false) return { setup: { cores: String(index) } };
  return { environment: deviceEnvironment([String(index)], process.env) };
});
const given: ReplicaCase = {
  file,
  places,
  threads,
  gpu,
  sequences: trial ? [1, 8] : [1, 8, 32],
  promptTokens: PROMPT_TOKENS,
  tokens: TOKENS,
  runs: RUNS,
  warmSteps: trial ? 0 : 500,
};
const split = await overAll({}, given);
const rows = (await replicaRows(given)).map((row, i): Row => ({
  ...row,
  'one engine over all, tokens/s': split[i] ?? NaN,
}));
await keep(
  'replicas',
  `Replicas on ${devices} devices`,
  `${PROMPT_TOKENS} prompt tokens and ${TOKENS} generated a sequence, greedy, a process on each device, all at once; medians of ${RUNS} paired runs. One engine over all: once, with as many sequences as all replicas have together.`,
  rows,
);
