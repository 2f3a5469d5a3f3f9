/**
 * Two replicas of one compute thread each, on two cores, against two llama-batched-bench processes at once:
 * `node dist/bench/engine/replicas.bench.js [native]`; about four minutes.
 */
import { availableParallelism } from 'node:os';
import { random150m } from '../support/models.js';
import { replicaRows } from '../support/replica-rows.js';
import { keep } from '../support/results.js';

const CORES = ['0', '1'];
const PROMPT_TOKENS = 16;
const TOKENS = 64;
const RUNS = 3;
const WARM_STEPS = 500;
const GOAL = 0.93;

const build = process.argv[2] === 'native' ? 'native' : 'prebuilt';
if (availableParallelism() < CORES.length) throw new Error('two cores are needed, one for each replica');

const rows = await replicaRows({
  file: await random150m(),
  places: CORES.map((cores) => ({ setup: { cores } })),
  threads: 1,
  gpu: false,
  sequences: [1, 8, 32],
  promptTokens: PROMPT_TOKENS,
  tokens: TOKENS,
  runs: RUNS,
  warmSteps: WARM_STEPS,
});
await keep(build === 'native' ? 'replicas-limit-native' : 'replicas-limit', {
  title: `Two replicas against two llama-batched-bench processes, ${build} addon`,
  about: [
    `The 150 M model of random weights (bench/models/recipes.ts), Q8_0, ${PROMPT_TOKENS} prompt tokens and ${TOKENS} generated, greedy. Two engine processes of one compute thread, each kept on a core of its own (\`cores\`), work at once; so do two processes of the peer, each kept on one of these cores by taskset. Medians of ${RUNS} pairs of runs, each with new engines that were warmed up for ${WARM_STEPS} steps. The goal is ${GOAL}.`,
    'Each process counts for the time that it ran itself, prefill included. The peer samples nothing and makes no text.',
  ],
  rows,
});
