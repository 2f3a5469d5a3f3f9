/** The contract of the decoder port, for every decoder: the fake one of the scheduler’s tests and the real ones. */
import type { Test } from 'tap';
import { decodeRun } from './decode-run.js';
import {
  decodeOnce,
  type Decoder,
  type PartResult,
  type Sampler,
  type Sampling,
} from '../../engine/scheduler/decoder.js';

const GREEDY: Sampling = { temperature: 0, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed: 1, maxTokens: 64 };
const REPLY = 12;
const PROMPT = Uint32Array.from({ length: 20 }, (_, i) => 60 + ((i * 7) % 90));

/** Every token that a result chose, in order. */
function chosen(results: readonly PartResult[]): number[] {
  const [result] = results;
  if (result?.kind !== 'token') throw new Error(`no token but ${result?.kind ?? 'nothing'}`);
  return [result.token, ...(result.then ?? [])];
}

/** Continues from `fed` until `count` tokens are chosen. `most`: steps that may follow without a call. */
async function speak(
  decoder: Decoder,
  sequence: number,
  sampler: Sampler,
  fed: Uint32Array,
  count: number,
  most = 1,
): Promise<number[]> {
  const tokens: number[] = [];
  let next = fed;
  while (tokens.length < count) {
    const parts = [{ kind: 'sample', sequence, tokens: next, sampler }] as const;
    const run = most > 1 ? { most: Math.min(most, count - tokens.length), everyMs: 0 } : undefined;
    await decodeRun(decoder, parts, run, (results) => {
      if (results.length > 0) tokens.push(...chosen(results));
    });
    next = Uint32Array.of(tokens.at(-1) ?? -1);
  }
  return tokens;
}

/** A greedy reply to {@link PROMPT} on a sequence that has its first `held` tokens. */
async function reply(decoder: Decoder, sequence: number, held = 0, most = 1): Promise<number[]> {
  const sampler = decoder.sampler(GREEDY);
  const tokens = await speak(decoder, sequence, sampler, PROMPT.subarray(held), REPLY, most);
  sampler.dispose();
  return tokens;
}

/** `decoder` has three empty sequences of 64 tokens, can cut and is not used otherwise. */
export async function keepsDecoderContract(t: Test, decoder: Decoder): Promise<void> {
  const expected = await reply(decoder, 0);

  await t.test('a part’s tokens are evaluated after those of its sequence, however they are split', async (t) => {
    const results = await decodeOnce(decoder, [{ kind: 'prefill', sequence: 1, tokens: PROMPT.subarray(0, 7) }]);
    t.same(results, [{ kind: 'filled' }]);
    t.same(await reply(decoder, 1, 7), expected);
    await decoder.states.truncate(1, 0);
  });

  await t.test('afterwards the sequence has the part’s tokens and the chosen ones, except the last', async (t) => {
    const held = PROMPT.length + REPLY - 1;
    const sampler = decoder.sampler(GREEDY);
    const more = await speak(decoder, 0, sampler, Uint32Array.of(expected.at(-1) ?? -1), 4);
    sampler.dispose();
    await decoder.states.truncate(0, held);
    const again = decoder.sampler(GREEDY);
    t.same(
      await speak(decoder, 0, again, Uint32Array.of(expected.at(-1) ?? -1), 4),
      more,
      'cut back to there, it continues alike',
    );
    again.dispose();
  });

  await t.test('a run of steps chooses and holds the same', async (t) => {
    t.same(await reply(decoder, 1, 0, 5), expected);
    await decoder.states.truncate(1, PROMPT.length - 1);
    t.same(await reply(decoder, 1, PROMPT.length - 1, 5), expected);
  });

  await t.test(
    'several tokens of a reply in one part: the state and the choice equal those of single steps',
    async (t) => {
      const known = Uint32Array.of(...PROMPT, ...expected.slice(0, 5));
      await decoder.states.truncate(1, 0);
      const sampler = decoder.sampler(GREEDY);
      t.same(await speak(decoder, 1, sampler, known, REPLY - 5), expected.slice(5));
      sampler.dispose();
    },
  );

  await t.test('cut to nothing, a sequence is like a new one', async (t) => {
    for (const sequence of [0, 1]) {
      await decoder.states.truncate(sequence, 0);
      t.same(await reply(decoder, sequence), expected);
      await decoder.states.truncate(sequence, 0);
    }
  });

  await t.test('a copy continues as its source would, and neither changes the other', async (t) => {
    if (!decoder.states.copyable) {
      await t.rejects(decoder.states.copy(2, 0));
      return;
    }
    await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: PROMPT.subarray(0, 15) }]);
    await decoder.states.copy(2, 0);
    t.same(await reply(decoder, 2, 15), expected);
    t.same(await reply(decoder, 0, 15), expected);
  });
  await t.test(
    'a whole state is restored into any sequence, whatever it has, and saving it changes nothing',
    async (t) => {
      if (!decoder.states.saveWhole || !decoder.states.restoreWhole) return;
      for (const sequence of [0, 1, 2]) await decoder.states.truncate(sequence, 0);
      await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: PROMPT.subarray(0, 15) }]);
      const state = await decoder.states.saveWhole(0);
      t.equal(state.length, 15);
      t.ok(state.bytes > 0);
      await reply(decoder, 1);
      await decoder.states.truncate(2, 0);
      for (const sequence of [1, 2]) {
        await decoder.states.restoreWhole(sequence, state);
        t.same(await reply(decoder, sequence, 15), expected, `into sequence ${sequence}`);
      }
      t.same(await reply(decoder, 0, 15), expected, 'the saved one');
      state.dispose();
      for (const sequence of [0, 1, 2]) await decoder.states.truncate(sequence, 0);
    },
  );
  await t.test(
    'a copy can be saved and restored into before the next decode, although its source was emptied',
    async (t) => {
      if (!decoder.states.copyable || !decoder.states.saveWhole || !decoder.states.restoreWhole) return;
      await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: PROMPT.subarray(0, 15) }]);
      await decoder.states.copy(2, 0);
      await decoder.states.truncate(0, 0);
      const state = await decoder.states.saveWhole(2);
      await decoder.states.restoreWhole(1, state);
      for (const sequence of [1, 2]) t.same(await reply(decoder, sequence, 15), expected, `sequence ${sequence}`);
      await decoder.states.truncate(0, 0);
      await decoder.states.copy(0, 2);
      await decoder.states.restoreWhole(0, state);
      t.same(await reply(decoder, 0, 15), expected, 'in place of a copy');
      state.dispose();
      for (const sequence of [0, 1, 2]) await decoder.states.truncate(sequence, 0);
    },
  );
}
