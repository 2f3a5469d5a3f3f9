/** What the decoder chooses and scores on a real model. How often it draws each token: picker.test.ts. */
import t from 'tap';
import { BatchDecoder } from '../../../../engine/llama/batch-decoder.js';
import { decodeOnce, type StepPart, type PartResult, type Sampling } from '../../../../engine/scheduler/decoder.js';
import { keepsDecoderContract } from '../../../support/decoder-contract.js';
import { testModel } from '../../../support/models.js';
import { cpuLlama } from '../../../support/llama.js';

const GREEDY: Sampling = { temperature: 0, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed: 1, maxTokens: 64 };

const llama = await cpuLlama(1);
const model = await llama.loadModel({ modelPath: await testModel() });
const vocabulary = model.fileInfo.metadata.tokenizer.ggml.tokens.length;
/** All labels, so that reading takes long enough for several to overlap. */
const ALL = Uint32Array.from({ length: vocabulary }, (_, token) => token);
const context = await model.createContext({ sequences: 4, contextSize: 256, batchSize: 128, threads: 1 });
const decoder = await BatchDecoder.create(context, 1);
t.teardown(async () => {
  await context.dispose();
  await llama.dispose();
});

const prompt = (length: number, salt = 0): Uint32Array =>
  Uint32Array.from({ length }, (_, i) => 60 + ((i * 7 + salt) % 90));

function tokenOf(result: PartResult | undefined): number {
  if (result?.kind !== 'token') throw new Error(`no token but ${result?.kind ?? 'nothing'}`);
  return result.token;
}

function scoresOf(result: PartResult | undefined): Float64Array {
  if (result?.kind !== 'scores') throw new Error('no scores');
  return result.logprobs;
}

async function score(sequence: number, tokens: Uint32Array, labels = ALL): Promise<Float64Array> {
  return scoresOf((await decodeOnce(decoder, [{ kind: 'score', sequence, tokens, labels }]))[0]);
}

/** The next `count` tokens of a sequence that continues with `next`. */
async function goOn(sequence: number, next: Uint32Array, sampling: Sampling, count: number): Promise<number[]> {
  const sampler = decoder.sampler(sampling);
  const made: number[] = [];
  for (let tokens = next; made.length < count; tokens = Uint32Array.of(made.at(-1) ?? 0))
    made.push(tokenOf((await decodeOnce(decoder, [{ kind: 'sample', sequence, tokens, sampler }]))[0]));
  sampler.dispose();
  return made;
}

/** One reply on one sequence: the prompt in two chunks, then `count` tokens. */
async function reply(sequence: number, sampling: Sampling, count: number, salt = 0): Promise<number[]> {
  const tokens = prompt(20, salt);
  await decoder.states.truncate(sequence, 0);
  await decodeOnce(decoder, [{ kind: 'prefill', sequence, tokens: tokens.subarray(0, 12) }]);
  return goOn(sequence, tokens.subarray(12), sampling, count);
}

/** All sequences. */
async function empty(): Promise<void> {
  for (const sequence of [0, 1, 2, 3]) await decoder.states.truncate(sequence, 0);
}

t.test('it fulfils the contract of the port', (t) => keepsDecoderContract(t, decoder));

t.test('each token is the most probable one, less the penalties for those of the reply so far', async (t) => {
  const replies = new Map<object, number[]>();
  for (const sampling of [
    {},
    { frequencyPenalty: 1.5, presencePenalty: 0.5 },
    { frequencyPenalty: -2 },
    { presencePenalty: 1 },
    // Of the most probable token alone.
    { temperature: 1, topP: 1e-9, frequencyPenalty: 0.8 },
    { temperature: 1e-9, frequencyPenalty: 0.8 },
  ]) {
    const given = { ...GREEDY, ...sampling };
    const said = await reply(0, given, 30);
    replies.set(sampling, said);
    await decoder.states.truncate(1, 0);
    const counts = new Map<number, number>();
    for (const [i, token] of said.entries()) {
      const logprobs = await score(1, i === 0 ? prompt(20) : Uint32Array.of(said[i - 1] ?? 0));
      const penalty = (of: number): number => {
        const count = counts.get(of) ?? 0;
        return count * given.frequencyPenalty + (count > 0 ? given.presencePenalty : 0);
      };
      const penalized = Array.from(logprobs, (logprob, of) => logprob - penalty(of));
      // Of two that are nearly as probable either may be the largest after rounding.
      t.ok((penalized[token] ?? -Infinity) > Math.max(...penalized) - 1e-3, `${JSON.stringify(sampling)}, token ${i}`);
      counts.set(token, 1 + (counts.get(token) ?? 0));
    }
  }
  t.equal(new Set([...replies.values()].map(String)).size, 5, 'each penalty matters');
});

t.test('a reply leaves no random state or penalties to the next', async (t) => {
  const seeded: Sampling = { ...GREEDY, temperature: 1, seed: 7 };
  const first = await reply(0, seeded, 20);
  for (const before of [seeded, { ...seeded, frequencyPenalty: 2 }, GREEDY]) {
    await reply(0, before, 20);
    t.same(await reply(0, seeded, 20), first, JSON.stringify(before));
  }
  t.notSame(await reply(0, { ...seeded, seed: 8 }, 20), first);
});

t.test('scores are log-probabilities of the whole vocabulary, and repeatable after a truncation', async (t) => {
  await empty();
  await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: prompt(40) }]);
  const whole = await score(0, prompt(9, 5));
  t.ok(Math.abs(whole.reduce((sum, logprob) => sum + Math.exp(logprob), 0) - 1) < 1e-4);
  await decoder.states.truncate(0, 40);
  const labels = Uint32Array.of(70, 71, 72);
  t.same(
    [...(await score(0, prompt(9, 5), labels))],
    Array.from(labels, (label) => whole[label]),
  );
});

t.test('sequences step together and do not affect each other', async (t) => {
  const alone = await reply(0, GREEDY, 1, 4);
  await empty();
  const samplers = [0, 1, 2, 3].map(() => decoder.sampler(GREEDY));
  const results = await decodeOnce(
    decoder,
    samplers.map((sampler, sequence) => ({ kind: 'sample', sequence, tokens: prompt(20, sequence + 4), sampler })),
  );
  t.equal(tokenOf(results[0]), alone[0]);
  for (const sampler of samplers) sampler.dispose();
});

t.test('questions scored in one step are read separately', async (t) => {
  const part = (sequence: number): StepPart => {
    return { kind: 'score', sequence, tokens: prompt(9, sequence), labels: ALL };
  };
  await empty();
  const alone: Float64Array[] = [];
  for (const sequence of [0, 1, 2, 3]) alone.push(await score(sequence, prompt(9, sequence)));
  await empty();
  const together = (await decodeOnce(decoder, [0, 1, 2, 3].map(part))).map(scoresOf);
  const off = together.flatMap((scores, i) => Array.from(scores, (each, j) => Math.abs(each - (alone[i]?.[j] ?? NaN))));
  t.ok(off.length === 4 * vocabulary && off.every((each) => each < 0.1));
});

t.test(
  'a copy has what its source had when it was asked for, also one of a copy or of an empty sequence',
  async (t) => {
    await empty();
    const fresh = await reply(0, GREEDY, 10);
    await decoder.states.truncate(0, 0);
    const tokens = prompt(20);
    await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: tokens.subarray(0, 12) }]);
    await decoder.states.copy(3, 0);
    // Before the copy is made, at the next decode, its source continues.
    await decoder.states.truncate(0, 6);
    await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: prompt(30, 5) }]);
    await decoder.states.truncate(1, 0);
    await decoder.states.copy(1, 3);
    for (const sequence of [3, 1]) t.same(await goOn(sequence, tokens.subarray(12), GREEDY, 10), fresh);
    await decoder.states.copy(2, 1);
    await decoder.states.truncate(1, 0);
    await decoder.states.copy(2, 1);
    const labels = Uint32Array.of(70, 71);
    t.same(await score(2, prompt(5), labels), await score(1, prompt(5), labels));
  },
);
