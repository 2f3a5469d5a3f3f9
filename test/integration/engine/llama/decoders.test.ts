import t from 'tap';
import { BatchDecoder } from '../../../../engine/llama/batch-decoder.js';
import {
  decodeOnce,
  type Decoder,
  type StepPart,
  type PartResult,
  type Sampling,
} from '../../../../engine/scheduler/decoder.js';
import { keepsDecoderContract } from '../../../support/decoder-contract.js';
import { rounds } from '../../../support/long-form.js';
import { testModel } from '../../../support/models.js';
import { cpuLlama } from '../../../support/llama.js';

const GREEDY: Sampling = { temperature: 0, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed: 1, maxTokens: 64 };
const THREADS = 1;

const llama = await cpuLlama(THREADS);
const model = await llama.loadModel({ modelPath: await testModel() });
const vocabulary = model.fileInfo.metadata.tokenizer.ggml.tokens.length;
t.teardown(() => llama.dispose());

/** Runs a script on a new context, and returns its result. */
async function run<T>(script: (decoder: Decoder) => Promise<T>): Promise<T> {
  const context = await model.createContext({ sequences: 4, contextSize: 256, batchSize: 128, threads: THREADS });
  const result = await script(await BatchDecoder.create(context, THREADS));
  await context.dispose();
  return result;
}

const prompt = (length: number, salt = 0): Uint32Array =>
  Uint32Array.from({ length }, (_, i) => 60 + ((i * 7 + salt) % 90));

function tokenOf(result: PartResult | undefined): number {
  if (result?.kind !== 'token') throw new Error(`no token but ${result?.kind ?? 'nothing'}`);
  return result.token;
}

/** One reply on one sequence: the prompt in two chunks, then `count` tokens. */
async function reply(
  decoder: Decoder,
  sequence: number,
  sampling: Sampling,
  count: number,
  salt = 0,
): Promise<number[]> {
  const tokens = prompt(20, salt);
  const sampler = decoder.sampler(sampling);
  await decoder.states.truncate(sequence, 0);
  await decodeOnce(decoder, [{ kind: 'prefill', sequence, tokens: tokens.subarray(0, 12) }]);
  const made: number[] = [];
  let next = tokens.subarray(12);
  while (made.length < count) {
    const [result] = await decodeOnce(decoder, [{ kind: 'sample', sequence, tokens: next, sampler }]);
    made.push(tokenOf(result));
    next = Uint32Array.of(tokenOf(result));
  }
  sampler.dispose();
  return made;
}

t.test('it fulfils the contract of the port', async (t) => {
  await run((decoder) => keepsDecoderContract(t, decoder));
});

t.test(
  'top_p draws from the smallest set of tokens with that probability, each as often as it is likely among them',
  async (t) => {
    const draws = rounds({ short: 150, long: 400 });
    const { logprobs, by } = await run(async (decoder) => {
      const all = Uint32Array.from({ length: vocabulary }, (_, token) => token);
      const [whole] = await decodeOnce(decoder, [{ kind: 'score', sequence: 0, tokens: prompt(20), labels: all }]);
      if (whole?.kind !== 'scores') throw new Error('no scores');
      const of = async (topP: number): Promise<number[]> => {
        const tokens: number[] = [];
        for (let seed = 0; seed < draws; seed++) {
          tokens.push(...(await reply(decoder, 1, { ...GREEDY, temperature: 1, topP, seed }, 1)));
        }
        return tokens;
      };
      return {
        logprobs: [...whole.logprobs],
        by: new Map([
          [0.3, await of(0.3)],
          [0.95, await of(0.95)],
          [0.9999, await of(0.9999)],
        ]),
      };
    });
    const likely = logprobs.map((logprob, token) => ({ token, p: Math.exp(logprob) })).sort((a, b) => b.p - a.p);
    for (const [topP, tokens] of by) {
      let sum = 0;
      // One token more, in case two of almost equal probability are ordered by rounding.
      const count = 2 + likely.findIndex(({ p }) => (sum += p) >= topP);
      const kept = new Set(likely.slice(0, count).map(({ token }) => token));
      t.same(
        tokens.filter((token) => !kept.has(token)),
        [],
        `${topP}: ${count} tokens`,
      );
      for (const { token, p } of likely.slice(0, Math.min(5, count - 1))) {
        const expected = p / sum;
        const share = tokens.filter((each) => each === token).length / draws;
        const off = Math.abs(share - expected) / Math.sqrt((expected * (1 - expected)) / draws + 1e-9);
        t.ok(off < 4, `${topP}: ${share} for ${expected}`);
      }
    }
  },
);

t.test('a reply leaves no random state or penalties to the next', async (t) => {
  const seeded: Sampling = { ...GREEDY, temperature: 1, seed: 7 };
  for (const before of [seeded, { ...seeded, frequencyPenalty: 2 }, GREEDY]) {
    await run(async (decoder) => {
      const first = await reply(decoder, 0, seeded, 20);
      await reply(decoder, 0, before, 20);
      t.same(await reply(decoder, 0, seeded, 20), first, JSON.stringify(before));
    });
  }
});

t.test('penalties count over the completion only', async (t) => {
  const plain = await run((decoder) => reply(decoder, 0, GREEDY, 30));
  const penalized = await run((decoder) => reply(decoder, 0, { ...GREEDY, frequencyPenalty: 2 }, 30));
  t.equal(penalized[0], plain[0], 'nothing is penalized before there is a completion');
  t.ok(new Set(penalized).size > new Set(plain).size, 'fewer repeats');
});

t.test('a sequence that was truncated and one that was used before have no effect on the next', async (t) => {
  await run(async (decoder) => {
    const first = await reply(decoder, 2, GREEDY, 10);
    await reply(decoder, 2, GREEDY, 5, 3);
    await decoder.states.truncate(2, 12);
    t.same(await reply(decoder, 2, GREEDY, 10), first);
  });
});

t.test('scores are whole distributions, and repeatable after a truncation', async (t) => {
  await run(async (decoder) => {
    const input = prompt(40);
    await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: input }]);
    const score = async (labels: Uint32Array): Promise<readonly number[]> => {
      const [result] = await decodeOnce(decoder, [{ kind: 'score', sequence: 0, tokens: prompt(9, 5), labels }]);
      if (result?.kind !== 'scores') throw new Error('no scores');
      await decoder.states.truncate(0, input.length);
      return [...result.logprobs];
    };
    const all = await score(Uint32Array.from({ length: vocabulary }, (_, token) => token));
    t.same(await score(Uint32Array.of(70, 71, 72)), all.slice(70, 73));
    const mass = all.reduce((sum, logprob) => sum + Math.exp(logprob), 0);
    t.ok(Math.abs(mass - 1) < 1e-4, 'the log-probabilities are of the whole vocabulary');
  });
});

t.test('sequences step together and do not affect each other', async (t) => {
  const alone: number[] = [];
  for (const salt of [4, 5, 6, 7]) alone.push(...(await run((decoder) => reply(decoder, 0, GREEDY, 1, salt))));
  await run(async (decoder) => {
    const samplers = [0, 1, 2, 3].map(() => decoder.sampler(GREEDY));
    const results = await decodeOnce(
      decoder,
      samplers.map((sampler, sequence) => ({ kind: 'sample', sequence, tokens: prompt(20, sequence + 4), sampler })),
    );
    t.same(results.map(tokenOf), alone);
  });
});

t.test('questions scored in one step are read separately', async (t) => {
  // All labels, so that reading takes long enough for the four to overlap.
  const labels = Uint32Array.from({ length: vocabulary }, (_, token) => token);
  const score = (sequence: number): StepPart => ({ kind: 'score', sequence, tokens: prompt(9, sequence), labels });
  const read = (result: PartResult | undefined): Float64Array => {
    if (result?.kind !== 'scores') throw new Error('no scores');
    return result.logprobs;
  };
  await run(async (decoder) => {
    const alone: Float64Array[] = [];
    for (const sequence of [0, 1, 2, 3]) {
      alone.push(read((await decodeOnce(decoder, [score(sequence)]))[0]));
      await decoder.states.truncate(sequence, 0);
    }
    let furthest = 0;
    for (let round = 0; round < 10; round++) {
      const together = (await decodeOnce(decoder, [0, 1, 2, 3].map(score))).map(read);
      for (const [i, logprobs] of together.entries()) {
        furthest = Math.max(furthest, ...logprobs.map((logprob, j) => Math.abs(logprob - (alone[i]?.[j] ?? NaN))));
      }
      for (const sequence of [0, 1, 2, 3]) await decoder.states.truncate(sequence, 0);
    }
    t.ok(furthest < 0.1, `off by ${furthest}`);
  });
});

t.test('a copy has its source’s tokens, and each continues independently', async (t) => {
  await run(async (decoder) => {
    const fresh = await reply(decoder, 0, GREEDY, 10);
    await decoder.states.truncate(0, 0);
    const tokens = prompt(20);
    await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: tokens.subarray(0, 12) }]);
    await decoder.states.copy(3, 0);
    // Before the copy is made, at the next decode, its source continues.
    await decoder.states.truncate(0, 6);
    await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: prompt(30, 5) }]);
    await decoder.states.truncate(1, 0);
    await decoder.states.copy(1, 3);
    const replies: number[][] = [];
    for (const sequence of [3, 1]) {
      const sampler = decoder.sampler(GREEDY);
      const made: number[] = [];
      let next = tokens.subarray(12);
      while (made.length < 10) {
        const [result] = await decodeOnce(decoder, [{ kind: 'sample', sequence, tokens: next, sampler }]);
        made.push(tokenOf(result));
        next = Uint32Array.of(tokenOf(result));
      }
      sampler.dispose();
      replies.push(made);
    }
    await decoder.states.copy(2, 1);
    await decoder.states.truncate(1, 0);
    await decoder.states.copy(2, 1);
    const [empty] = await decodeOnce(decoder, [
      { kind: 'score', sequence: 2, tokens: prompt(5), labels: Uint32Array.of(70, 71) },
    ]);
    const [clean] = await decodeOnce(decoder, [
      { kind: 'score', sequence: 1, tokens: prompt(5), labels: Uint32Array.of(70, 71) },
    ]);
    t.same(replies, [fresh, fresh]);
    t.same(empty, clean, 'a copy of an empty sequence is empty');
  });
});
