/**
 * Results after a restored state compared with a new prefill with the same splits, for each kind of state, to the last
 * bit.
 */
import t from 'tap';
import { BatchDecoder } from '../../../../engine/llama/batch-decoder.js';
import { decodeOnce, type PartResult } from '../../../../engine/scheduler/decoder.js';
import { ARCHITECTURES, architectureModel, WINDOW, type ArchitectureName } from '../../../support/architectures.js';
import { cpuLlama } from '../../../support/llama.js';
import { cases } from '../../../support/long-form.js';

const LETTER = 97;
/** No chunk of these tests is longer. */
const CHUNK = 64;

const llama = await cpuLlama(1);
t.teardown(() => llama.dispose());

const prompt = (length: number, salt = 0): Uint32Array =>
  Uint32Array.from({ length }, (_, i) => 60 + ((i * 7 + salt * 13 + ((i * i) % 11)) % 90));

interface Bench {
  readonly decoder: BatchDecoder;
  readonly dispose: () => Promise<void>;
  /** Each piece in its own decode. */
  readonly fill: (sequence: number, ...pieces: readonly Uint32Array[]) => Promise<void>;
  /** All log-probabilities after some more tokens. */
  readonly score: (sequence: number) => Promise<number[]>;
}

/** A decoder with four sequences, and operations of these tests. */
async function bench(name: ArchitectureName): Promise<Bench> {
  const model = await llama.loadModel({ modelPath: await architectureModel(name) });
  const context = await model.createContext({ sequences: 4, contextSize: 512, batchSize: 2 * CHUNK });
  const decoder = await BatchDecoder.create(context, 1, false);
  const labels = Uint32Array.from({ length: model.fileInfo.metadata.tokenizer.ggml.tokens.length }, (_, i) => i);
  return {
    decoder,
    dispose: async () => {
      await context.dispose();
      await model.dispose();
    },
    fill: async (sequence, ...pieces) => {
      for (const tokens of pieces) {
        const [result] = await decodeOnce(decoder, [{ kind: 'prefill', sequence, tokens }]);
        if (result?.kind !== 'filled') throw new Error('not filled');
      }
    },
    score: async (sequence) =>
      read((await decodeOnce(decoder, [{ kind: 'score', sequence, tokens: prompt(9, 5), labels }]))[0]),
  };
}

/** The largest difference of two scores. */
function off(a: readonly number[], b: readonly number[]): number {
  return Math.max(...a.map((each, i) => Math.abs(each - (b[i] ?? NaN))));
}

function read(result: PartResult | undefined): number[] {
  if (result?.kind !== 'scores') throw new Error(`no scores but ${result?.kind ?? 'nothing'}`);
  return [...result.logprobs];
}

for (const name of ARCHITECTURES) {
  t.test(`${name}: a restored state equals the saved one, to the last bit`, async (t) => {
    const { decoder, dispose, fill, score } = await bench(name);
    let furthest = 0;
    // Before the window’s end, beyond it, and where its ring of 256 cells wraps around.
    const lengths = [WINDOW / 2, WINDOW + 1, 8 * WINDOW - 3, 8 * WINDOW, 9 * WINDOW];
    for (const length of cases(lengths, (_, index) => index === 0 || index === 2 || index === 4)) {
      const chunks: Uint32Array[] = [];
      for (let at = 0; at < length; at += CHUNK) chunks.push(prompt(length).subarray(at, at + CHUNK));
      await decoder.states.truncate(1, 0);
      await fill(1, ...chunks);
      // The saved and the restored sequence continue with the same arrangement of cells.
      (await decoder.states.save(1)).dispose();
      const fresh = await score(1);
      await decoder.states.truncate(1, 0);
      await fill(1, ...chunks);
      furthest = Math.max(furthest, off(await score(1), fresh));
      await decoder.states.truncate(2, 0);
      await fill(2, ...chunks);
      const saved = await decoder.states.save(2);
      t.equal(saved.length, length);
      t.ok(saved.bytes > 0);
      t.equal(off(await score(2), fresh), 0, `saving at ${length} changes nothing`);
      // Past the window and all its spare cells, twice; the neighbour has the same.
      for (const more of [5, 4 * CHUNK - 56]) {
        for (let left = more; left > 0; left -= CHUNK) await fill(2, prompt(Math.min(left, CHUNK), 9));
        await decoder.states.restore(2, saved);
        t.equal(off(await score(2), fresh), 0, `restored at ${length} after ${more} more tokens`);
      }
      saved.dispose();
      await t.rejects(decoder.states.restore(2, saved), 'a disposed one cannot be restored');
      await decoder.states.truncate(2, 0);
      await fill(2, ...chunks);
      (await decoder.states.save(2)).dispose();
      t.equal(off(await score(2), fresh), 0, 'after a failed restore a sequence can be filled again');
    }
    t.ok(furthest < 0.05, `without a save scores are off by ${furthest}`);
    t.comment(`${name}: without the save off by ${furthest}`);
    await dispose();
  });

  t.test(`${name}: a copy equals its source, and both continue independently`, async (t) => {
    const { decoder, dispose, fill, score } = await bench(name);
    await fill(0, prompt(CHUNK), prompt(CHUNK, 1));
    const saved = await decoder.states.save(0);
    const fresh = await score(0);
    await decoder.states.restore(0, saved);
    await decoder.states.copy(3, 0);
    // Either makes the pending copy first.
    await decoder.states.restore(0, saved);
    (await decoder.states.save(3)).dispose();
    await fill(0, prompt(30, 7));
    t.same(await score(3), fresh);
    await decoder.states.restore(0, saved);
    t.same(await score(0), fresh);
    await decoder.states.restore(3, saved);
    t.same(await score(3), fresh, 'a checkpoint of the source is one of the copy');
    saved.dispose();
    await dispose();
  });

  t.test(`${name}: a failure does not affect other sequences`, async (t) => {
    const { decoder, dispose, fill } = await bench(name);
    const sample = { temperature: 0, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed: 1, maxTokens: 8 };
    const reply = async (sequence: number, token = LETTER): Promise<PartResult> => {
      const tokens = Uint32Array.of(token);
      const sampler = decoder.sampler(sample);
      const [result] = await decodeOnce(decoder, [{ kind: 'sample', sequence, tokens, sampler }]);
      sampler.dispose();
      if (!result) throw new Error('no result');
      return result;
    };
    for (const sequence of [0, 2]) await fill(sequence, prompt(CHUNK, sequence), prompt(CHUNK, 5));
    const alone = [await reply(0), await reply(2)];
    for (const sequence of [0, 2]) await decoder.states.truncate(sequence, 0);
    for (const sequence of [0, 1, 2]) await fill(sequence, prompt(CHUNK, sequence), prompt(CHUNK, 5));
    const results = await decodeOnce(
      decoder,
      [LETTER, 1 << 30, LETTER].map((token, sequence) => ({
        kind: 'sample',
        sequence,
        tokens: Uint32Array.of(token),
        sampler: decoder.sampler(sample),
      })),
    );
    t.equal(results[1]?.kind, 'fault');
    t.same([results[0], results[2]], alone);
    await decoder.states.truncate(1, 0);
    await fill(1, prompt(CHUNK));
    await dispose();
  });
}
