/** Batches that llama.cpp refuses, and which sequences continue. */
import t, { type Test } from 'tap';
import { BatchDecoder } from '../../../engine/llama/batch-decoder.js';
import { decodeOnce, type StepPart, type PartResult } from '../../../engine/scheduler/decoder.js';
import { testModel } from '../../support/models.js';
import { cpuLlama } from '../../support/llama.js';

/** llama.cpp rounds a sequence’s cells up to this. */
const CELLS = 256;
const LETTER = 97;
const GREEDY = { temperature: 0, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed: 1, maxTokens: 8 };

interface Bench {
  readonly decoder: BatchDecoder;
  /** One step of these parts, in the given order. */
  readonly step: (...parts: StepPart[]) => Promise<readonly PartResult[]>;
  readonly fill: (sequence: number, tokens: number) => StepPart;
  readonly sample: (sequence: number, token?: number) => StepPart;
}

async function bench(t: Test): Promise<Bench> {
  const llama = await cpuLlama();
  const model = await llama.loadModel({ modelPath: await testModel() });
  const context = await model.createContext({ sequences: 3, contextSize: CELLS, batchSize: 2 * CELLS });
  t.teardown(async () => {
    await context.dispose();
    await model.dispose();
    await llama.dispose();
  });
  const decoder = await BatchDecoder.create(context, 1);
  return {
    decoder,
    step: (...parts) => decodeOnce(decoder, parts),
    fill: (sequence, tokens) => ({ kind: 'prefill', sequence, tokens: new Uint32Array(tokens).fill(LETTER) }),
    sample: (sequence, token = LETTER) => ({
      kind: 'sample',
      sequence,
      tokens: Uint32Array.of(token),
      sampler: decoder.sampler(GREEDY),
    }),
  };
}

const FILLED = { kind: 'filled' } as const;
const FULL = { kind: 'fault', reason: 'no room left in the KV cache' } as const;
const REFUSED = { kind: 'fault', reason: 'llama.cpp could not decode' } as const;

t.test('a sequence without room fails alone, and the others get the same results as without it', async (t) => {
  const { decoder, step, fill, sample } = await bench(t);
  t.same(await step(fill(0, 20), fill(1, CELLS), fill(2, 30)), [FILLED, FILLED, FILLED]);
  const results = await step(sample(0), sample(1), sample(2));
  t.same(results[1], FULL);

  await decoder.states.truncate(0, 0);
  await decoder.states.truncate(1, 0);
  await decoder.states.truncate(2, 0);
  await step(fill(0, 20), fill(2, 30));
  // Alone, as they were retried: batches change the last digits.
  t.same([...(await step(sample(0))), ...(await step(sample(2)))], [results[0], results[2]]);

  t.same(await step(fill(1, 40)), [FILLED], 'the full one serves the next job');
});

t.test('the same for a batch that llama.cpp refuses as a whole', async (t) => {
  const { step, fill, sample } = await bench(t);
  await step(fill(0, 20), fill(1, 20), fill(2, 20));
  const results = await step(sample(0), sample(1, 0x7fffffff), sample(2));
  t.same(results[1], REFUSED);
  t.equal(results[0]?.kind, 'token');
  t.same(results[0], results[2], 'equal sequences continue alike');
  t.same(await step(sample(1, 0x7fffffff)), [REFUSED]);
  t.match(await step(sample(1)), [{ kind: 'token' }], 'it still has its earlier tokens');
});

t.test('a full sequence can be truncated and continues', async (t) => {
  const { decoder, step, fill, sample } = await bench(t);
  await step(fill(0, CELLS));
  t.same(await step(sample(0)), [FULL]);
  await decoder.states.truncate(0, 100);
  t.match(await step(sample(0)), [{ kind: 'token' }]);
});
