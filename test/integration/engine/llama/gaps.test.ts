/** On a GPU gaps between the sequences of a step are closed. What is tested is the same on a CPU: that nothing else changes. */
import t, { type Test } from 'tap';
import { internals, keepThreads, type AddonContext } from '../../../../engine/llama/addon.js';
import { decodeRun } from '../../../support/decode-run.js';
import { BatchDecoder } from '../../../../engine/llama/batch-decoder.js';
import { decodeOnce, type StepPart, type PartResult, type Sampling } from '../../../../engine/scheduler/decoder.js';
import { cpuLlama } from '../../../support/llama.js';
import { testModel } from '../../../support/models.js';

const CELLS = 256;
const SEATS = 6;
/** Replies, with a gap of a sequence that holds a prefix and an empty one, and one of a running prompt. */
const REPLIES = [0, 3, 5];
const KEPT = 1;
const EMPTY = 2;
const WAITING = 4;
const GREEDY: Sampling = {
  temperature: 0,
  topP: 1,
  frequencyPenalty: 0,
  presencePenalty: 0,
  seed: 1,
  maxTokens: CELLS,
};

const prompt = (sequence: number, length: number): Uint32Array =>
  Uint32Array.from({ length }, (_, at) => 97 + ((at * 7 + sequence) % 20));

interface Bench {
  readonly decoder: BatchDecoder;
  readonly context: AddonContext;
}

async function bench(t: Test, closes: boolean): Promise<Bench> {
  const llama = await cpuLlama(1);
  const model = await llama.loadModel({ modelPath: await testModel() });
  const context = await model.createContext({ sequences: SEATS, contextSize: CELLS, batchSize: CELLS });
  t.teardown(async () => {
    await context.dispose();
    await model.dispose();
    await llama.dispose();
  });
  keepThreads(context, 1);
  const decoder = await BatchDecoder.create(context, 1, true, false, closes);
  for (const sequence of [...REPLIES, KEPT, WAITING])
    await decodeOnce(decoder, [{ kind: 'prefill', sequence, tokens: prompt(sequence, 20 + sequence) }]);
  return { decoder, context: internals(context).context };
}

/** Greedy tokens of each reply, in `calls` runs of up to `most` steps, until it fails or there are `count`. */
async function said(
  { decoder }: Bench,
  count: number,
  most: number,
): Promise<{ tokens: number[][]; calls: number; fault?: string }> {
  const samplers = REPLIES.map(() => decoder.sampler(GREEDY));
  const tokens: number[][] = REPLIES.map(() => []);
  let fault: string | undefined;
  let calls = 0;
  const hear = (results: readonly PartResult[]): void => {
    for (const [i, result] of results.entries()) {
      if (result.kind === 'fault') fault = result.reason;
      if (result.kind === 'token') tokens[i]?.push(result.token, ...(result.then ?? []));
    }
  };
  while (fault === undefined && (tokens[0]?.length ?? 0) < count) {
    const parts = REPLIES.map((sequence, i): StepPart => {
      const sampler = samplers[i];
      if (!sampler) throw new Error('no sampler');
      return { kind: 'sample', sequence, tokens: Uint32Array.of(tokens[i]?.at(-1) ?? 100), sampler };
    });
    calls += 1;
    await decodeRun(decoder, parts, most > 1 ? { most, everyMs: 0 } : undefined, hear);
  }
  for (const sampler of samplers) sampler.dispose();
  return { tokens, calls, ...(fault !== undefined && { fault }) };
}

const ends = ({ context }: Bench): number[] =>
  [KEPT, EMPTY, WAITING].map((sequence) => context.getSequenceKvCacheMaxPosition(sequence));

t.test('replies are the same, in single steps and in runs, and sequences in between hold what they held', async (t) => {
  const open = await said(await bench(t, false), 40, 1);
  for (const most of [1, 8]) {
    const closed = await bench(t, true);
    const before = ends(closed);
    t.same(before, [20 + KEPT - 1, -1, 20 + WAITING - 1]);
    t.same(
      (await said(closed, 40, most)).tokens.map((tokens) => tokens.slice(0, 40)),
      open.tokens,
    );
    t.same(ends(closed), before);
    const sampler = closed.decoder.sampler(GREEDY);
    const [next] = await decodeOnce(closed.decoder, [
      { kind: 'sample', sequence: KEPT, tokens: Uint32Array.of(99), sampler },
    ]);
    const fresh = await bench(t, false);
    const other = fresh.decoder.sampler(GREEDY);
    t.same(
      [next],
      await decodeOnce(fresh.decoder, [{ kind: 'sample', sequence: KEPT, tokens: Uint32Array.of(99), sampler: other }]),
    );
    sampler.dispose();
    other.dispose();
  }
});

t.test('after a decode that failed they hold what they held too', async (t) => {
  for (const most of [1, 50]) {
    const closed = await bench(t, true);
    const before = ends(closed);
    const { fault } = await said(closed, 2 * CELLS, most);
    t.equal(fault, 'no room left in the KV cache');
    t.same(ends(closed), before);
  }
});
