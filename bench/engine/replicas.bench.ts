/**
 * Two replicas of one compute thread each, on two cores, against two llama-batched-bench processes at once:
 * `node dist/bench/engine/replicas.bench.js [native]`; about four minutes.
 */
import { availableParallelism } from 'node:os';
import { EngineDriver } from '../support/engine-driver.js';
import { random150m } from '../support/models.js';
import { batchedBench } from '../support/peers.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';

const SEQUENCES = [1, 8, 32];
const PROMPT_TOKENS = 16;
const TOKENS = 64;
const RUNS = 3;
/** Of each process in a run, at least. */
const REPLIES = 8;
/** Steps before anything is measured. */
const WARM_STEPS = 500;
const GOAL = 0.93;

const build = process.argv[2] === 'native' ? 'native' : 'prebuilt';
if (availableParallelism() < 2) throw new Error('two cores are needed, one for each replica');
const file = await random150m();
const shape = { promptTokens: PROMPT_TOKENS, tokens: TOKENS };

function start(core: number): Promise<EngineDriver> {
  const contextPerSeat = PROMPT_TOKENS + TOKENS + 16;
  return EngineDriver.start(file, Math.max(...SEQUENCES), {
    threads: 1,
    cores: String(core),
    contextPerSeat,
    prefixReuse: 'off',
  });
}

/** Tokens a second of both at once: each counts for as long as it ran. */
async function ours(engines: readonly EngineDriver[], sequences: number): Promise<number> {
  const load = { ...shape, temperature: 0 };
  const both = await Promise.all(engines.map((engine) => engine.rounds(Math.max(sequences, REPLIES), sequences, load)));
  return both.reduce((sum, { tokens, seconds }) => sum + tokens / seconds, 0);
}

async function theirs(sequences: number): Promise<number> {
  const batches = Array.from({ length: Math.max(1, REPLIES / sequences) }, () => sequences);
  const one = async (): Promise<number> => {
    const runs = await batchedBench(file, { threads: 1, ...shape, sequences: batches, more: ['-ngl', '0'] });
    return runs.length / runs.reduce((sum, { tokensPerSecond }) => sum + 1 / tokensPerSecond, 0);
  };
  const [first, second] = await Promise.all([one(), one()]);
  return first + second;
}

const pairs = new Map(SEQUENCES.map((sequences): [number, { peer: number; engine: number }[]] => [sequences, []]));
for (let run = 0; run < RUNS; run += 1) {
  const engines = await Promise.all([start(0), start(1)]);
  for (let steps = 0; steps < WARM_STEPS; steps += REPLIES * TOKENS) await ours(engines, 1);
  for (const [sequences, all] of pairs) {
    const peer = await theirs(sequences);
    all.push({ peer, engine: await ours(engines, sequences) });
  }
  await Promise.all(engines.map((engine) => engine.close()));
}
const rows: Row[] = [...pairs].map(([sequences, all]) => ({
  'sequences of each': sequences,
  'two llama-batched-bench, tokens/s': median(all.map(({ peer }) => peer)),
  'two replicas, tokens/s': median(all.map(({ engine }) => engine)),
  ratio: median(all.map(({ peer, engine }) => engine / peer)),
}));

await keep(build === 'native' ? 'replicas-limit-native' : 'replicas-limit', {
  title: `Two replicas against two llama-batched-bench processes, ${build} addon`,
  about: [
    `The 150 M model of random weights (bench/models/recipes.ts), Q8_0, ${PROMPT_TOKENS} prompt tokens and ${TOKENS} generated, greedy. Two engine processes of one compute thread, each kept on a core of its own (\`cores\`), work at once; so do two processes of the peer. Medians of ${RUNS} pairs of runs, each with new engines that were warmed up for ${WARM_STEPS} steps. The goal is ${GOAL}.`,
    'Each process counts for the time that it ran itself, prefill included. The peer samples nothing and makes no text.',
  ],
  rows,
});
