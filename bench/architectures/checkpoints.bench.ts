/** The time to save and restore a state, compared with a step of running replies, on a CPU. */
import { BatchDecoder } from '../../engine/llama/batch-decoder.js';
import { truncatableAnywhere } from '../../engine/llama/load-plan.js';
import { decodeOnce, type StepPart, type Sampling } from '../../engine/scheduler/decoder.js';
import { endless } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';
import { cpuLlama } from '../../test/support/llama.js';

const SEQUENCES = 8;
const CHUNK = 256;
const CHUNKS = 6;
const CONTEXT = 2048;
const RUNS = 15;
const GREEDY: Sampling = {
  temperature: 0,
  topP: 1,
  frequencyPenalty: 0,
  presencePenalty: 0,
  seed: 1,
  maxTokens: CONTEXT,
};

const words = (length: number, salt: number): Uint32Array =>
  Uint32Array.from({ length }, (_, i) => 300 + ((i * 7 + salt * 13 + ((i * i) % 11)) % 700));

/** Milliseconds. */
async function timed(act: () => Promise<unknown>): Promise<number> {
  const from = performance.now();
  await act();
  return performance.now() - from;
}

const llama = await cpuLlama(1);
const rows: Row[] = [];
for (const name of ['window', 'hybrid'] as const) {
  const model = await llama.loadModel({ modelPath: await endless(name) });
  const context = await model.createContext({
    sequences: SEQUENCES + 1,
    contextSize: CONTEXT,
    batchSize: CHUNK + SEQUENCES,
    threads: 1,
  });
  const decoder = await BatchDecoder.create(context, 1, truncatableAnywhere(model.fileInsights));
  const replies = Array.from({ length: SEQUENCES }, (_, i) => ({
    sequence: i + 1,
    sampler: decoder.sampler(GREEDY),
  }));
  const step = (count: number) => (): Promise<unknown> =>
    decodeOnce(
      decoder,
      replies.slice(0, count).map(({ sequence, sampler }): StepPart => {
        return { kind: 'sample', sequence, tokens: Uint32Array.of(400), sampler };
      }),
    );
  for (const { sequence } of replies) {
    await decodeOnce(decoder, [{ kind: 'prefill', sequence, tokens: words(CHUNK, sequence) }]);
  }
  const chunks: number[] = [];
  for (let i = 0; i < CHUNKS; i++) {
    const tokens = words(CHUNK, i);
    chunks.push(await timed(() => decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens }])));
  }
  const [saves, restores, ones, eights]: number[][] = [[], [], [], []];
  let bytes = 0;
  for (let i = 0; i < RUNS; i++) {
    ones?.push(await timed(step(1)));
    eights?.push(await timed(step(SEQUENCES)));
    const from = performance.now();
    const saved = await decoder.states.save(0);
    saves?.push(performance.now() - from);
    restores?.push(await timed(() => decoder.states.restore(0, saved)));
    bytes = saved.bytes;
    saved.dispose();
  }
  rows.push({
    model: name,
    'MiB a checkpoint': bytes / 2 ** 20,
    'ms to save': median(saves ?? []),
    'ms to restore': median(restores ?? []),
    'ms of a step, 1 reply': median(ones ?? []),
    [`ms of a step, ${SEQUENCES} replies`]: median(eights ?? []),
    [`ms of ${CHUNK} prompt tokens`]: median(chunks),
  });
  await context.dispose();
  await model.dispose();
}
await keep('architectures-checkpoints', {
  title: 'Saving and restoring the state of a sequence',
  about: [
    `A sequence of ${CHUNK * CHUNKS} tokens, saved and restored ${RUNS} times between steps of ${SEQUENCES} replies; medians. Nothing decodes meanwhile, so running replies wait as long. The state of a sliding window is restored when it is saved, which is in the time to save. See architectures-limit-native.md for the models.`,
  ],
  rows,
});
process.exit(0);
