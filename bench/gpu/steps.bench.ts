/**
 * What each kind of step takes on a GPU, one after another on one engine's decoder: replies with and without their tokens being
 * chosen, prompt chunks of several sizes, and both in turn. The arguments are those of case.ts.
 *
 *     node dist/bench/gpu/steps.bench.js 8b cuda
 */
import { decodeRun } from '../../test/support/decode-run.js';
import { BatchDecoder } from '../../engine/llama/batch-decoder.js';
import { loadRuntime } from '../../engine/llama/runtime.js';
import { decodeOnce, type StepPart, type PartResult, type Sampler } from '../../engine/scheduler/decoder.js';
import type { Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { gpuCase } from './case.js';

const { file, gpu, trial, threads, keep } = await gpuCase();
const SEATS = 64;
const HELD = 128;
const RUNS = trial ? 3 : 20;
/** Fewer where a reply ends before. */
const IN_RUN = 32;

const runtime = await loadRuntime({
  file,
  kind: 'chat',
  seats: SEATS,
  contextPerSeat: 2048,
  threads,
  gpu,
  flashAttention: 'auto',
  prefillTokensPerStep: 1024,
  prefillShare: 100,
  prefixReuse: 'off',
  heartbeatMs: 1000,
});
const { decoder } = runtime;
if (!(decoder instanceof BatchDecoder)) throw new Error('not the layer below the iterators');

const params = { maxTokens: 4096, temperature: 0, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed: 1 };
const samplersOf = (temperature: number): Sampler[] =>
  Array.from({ length: SEATS }, () => decoder.sampler({ ...params, temperature }));
const greedy = samplersOf(0);
const drawn = samplersOf(1);

function tokens(count: number): Uint32Array {
  return Uint32Array.from({ length: count }, (_, i) => 300 + ((i * 7) % 700));
}

const filled = (sequence: number, count: number): StepPart => ({ kind: 'prefill', sequence, tokens: tokens(count) });
const replies = (count: number, samplers = greedy): StepPart[] =>
  samplers
    .slice(0, count)
    .map((sampler, sequence) => ({ kind: 'sample', sequence, tokens: Uint32Array.of(400), sampler }));
const fills = (count: number): StepPart[] => Array.from({ length: count }, (_, sequence) => filled(sequence, 1));

/** Each time from the same state: all sequences hold `HELD` tokens. */
async function timed(steps: readonly (readonly StepPart[])[], most?: number): Promise<Row> {
  const all: number[] = [];
  for (let run = 0; run <= RUNS; run += 1) {
    const from = performance.now();
    let made = 0;
    const count = (results: readonly PartResult[]): void => {
      const [first] = results;
      if (first?.kind === 'token') made += 1 + (first.then?.length ?? 0);
    };
    for (const parts of steps)
      await decodeRun(decoder, parts, most === undefined ? undefined : { most, everyMs: 5 }, count);
    // The first one warms up.
    if (run > 0) all.push((performance.now() - from) / (most === undefined ? 1 : made));
    for (let sequence = 0; sequence < SEATS; sequence += 1) await decoder.states.truncate(sequence, HELD);
  }
  return { 'median ms': median(all), 'p90 ms': quantile(all, 0.9) };
}

for (let sequence = 0; sequence < SEATS; sequence += 1) await decodeOnce(decoder, [filled(sequence, HELD)]);
const rows: Row[] = [];
async function row(what: string, steps: readonly (readonly StepPart[])[], most?: number): Promise<void> {
  rows.push({ step: what, ...(await timed(steps, most)) });
  process.stdout.write(`${JSON.stringify(rows.at(-1))}\n`);
}
for (const count of [1, 8, 31, 32, 63, 64]) {
  await row(`${count} sequences, a token each, nothing chosen`, [fills(count)]);
  await row(`${count} replies, a token each, chosen greedily`, [replies(count)]);
}
for (const count of [1, 64]) {
  await row(`${count} replies, drawn at temperature 1`, [replies(count, drawn)]);
  await row(
    `each of up to ${IN_RUN} steps of ${count} replies without JavaScript in between`,
    [replies(count)],
    IN_RUN,
  );
}
// Up to 16 sequences between two replies take a token that is removed; more are left, and the step falls apart.
for (const apart of [1, 5, 9, 17, 18])
  await row(`2 replies on sequences that are ${apart} apart`, [[...replies(1), ...replies(apart + 1).slice(apart)]]);
for (const count of [64, 256, 511, 512, 1022]) await row(`a chunk of ${count}`, [[filled(SEATS - 1, count)]]);
await row('two chunks of 511 in one step', [[filled(SEATS - 2, 511), filled(SEATS - 1, 511)]]);
for (const count of [64, 256, 512])
  await row(`63 replies, then a chunk of ${count}`, [replies(SEATS - 1), [filled(SEATS - 1, count)]]);
await row('63 replies and a chunk of 511 in one step', [[...replies(SEATS - 1), filled(SEATS - 1, 511)]]);
for (const sampler of [...greedy, ...drawn]) sampler.dispose();
await runtime.dispose();

await keep(
  'steps',
  'What each kind of step takes',
  `${SEATS} sequences that hold ${HELD} tokens each, evaluated steps taken back after each run; medians of ${RUNS}. Without a choice no logits are read.`,
  rows,
);
