/**
 * Replicas on a host with several GPUs: one on each device beside as many llama-batched-bench processes, and one engine whose layers
 * are split over all of them, which is what a model has without `replicas`.
 *
 *     node dist/bench/gpu/replicas.bench.js DEVICES [8b | 8b-f16 | 13m] [cuda | vulkan | false]
 *
 * `2 13m false` walks the whole way on two cores: a trial of the bench, not a result; nothing is kept of it.
 */
import { random13m, random8b } from '../support/models.js';
import { overAll, replicaRows, type Place, type ReplicaCase } from '../support/replica-rows.js';
import { keep, markdown, type Row } from '../support/results.js';
import { deviceEnvironment } from '../../sidecar/config/devices.js';

const [count = '', model = '8b', backend = 'cuda'] = process.argv.slice(2);
const devices = Number(count);
if (!Number.isInteger(devices) || devices < 1)
  throw new RangeError('how many devices? node dist/bench/gpu/replicas.bench.js 4');
if (model !== '8b' && model !== '8b-f16' && model !== '13m') throw new RangeError(`no such model: ${model}`);
if (backend !== 'cuda' && backend !== 'vulkan' && backend !== 'false') throw new RangeError(`no such GPU: ${backend}`);
const gpu = backend === 'false' ? false : backend;
const trial = model === '13m';
const RUNS = trial ? 1 : 5;
const PROMPT_TOKENS = trial ? 64 : 512;
const TOKENS = trial ? 16 : 128;

const places = Array.from({ length: devices }, (_, index): Place => {
  if (gpu === false) return { setup: { cores: String(index) } };
  return { environment: deviceEnvironment([String(index)], process.env) };
});
const given: ReplicaCase = {
  file: model === '13m' ? await random13m() : await random8b(model),
  places,
  threads: trial ? 1 : 4,
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
if (trial) process.stdout.write(`${markdown(rows)}\n`);
else {
  await keep(`gpu-replicas-${model}`, {
    title: `Replicas on ${devices} devices, ${model} on ${backend}`,
    about: [
      `${PROMPT_TOKENS} prompt tokens and ${TOKENS} generated a sequence, greedy, all layers on GPUs, a process on each device, all at once; medians of ${RUNS} paired runs. One engine over all: once, with as many sequences as all replicas have together.`,
    ],
    rows,
  });
}
