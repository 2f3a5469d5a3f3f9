/** Prompts with images: embeddings are requested where they lack, evaluated alone, and reused by their digests. */
import t from 'tap';
import type { GenerateJob } from '../../../engine/protocol/jobs.js';
import { IMAGE_IDS, type ImageSegment, type Prompt } from '../../../engine/protocol/prompt.js';
import { EMBEDDING } from '../../support/fake-decoder.js';
import { Bench, job } from '../../support/step-bench.js';

/** Ids are hints, so different images may have the same. */
function image(of: number, length: number, more: Partial<ImageSegment> = {}): ImageSegment {
  const tokens = new Uint32Array(length).fill(IMAGE_IDS + 5);
  const digest = new Uint8Array(32).fill(of);
  return { kind: 'image', tokens, digest, positions: length, columns: 0, whole: false, ...more };
}

function text(...tokens: number[]): Prompt[number] {
  return { kind: 'tokens', tokens: Uint32Array.from(tokens) };
}

const asked = (...prompt: Prompt): GenerateJob => job(0, { prompt });

/** Values that identify the image and the embedding. */
function values(of: number, length: number): Float32Array {
  return Float32Array.from({ length: length * EMBEDDING }, (_, i) => of * 1000 + Math.floor(i / EMBEDDING));
}

/** Supplies the embeddings that jobs request, of the image with their digest. */
function supplying(bench: Bench, prompts: Readonly<Record<number, Prompt>>): [job: number, image: number][] {
  const wants: [number, number][] = [];
  bench.onOutputs = (outputs) => {
    for (const output of outputs) {
      if (output.kind !== 'needsImage') continue;
      wants.push([output.id, output.image]);
      const images = (prompts[output.id] ?? []).filter(({ kind }) => kind === 'image') as ImageSegment[];
      const { digest, tokens } = images[output.image] ?? image(0, 0);
      setImmediate(() => bench.loop.supply(output.id, output.image, values(digest[0] ?? 0, tokens.length)));
    }
  };
  return wants;
}

/** What each step evaluated: kind, tokens, and the first number of its embeddings. */
function evaluated(bench: Bench): (readonly [kind: string, tokens: number])[] {
  return bench.decoder.steps.flat().map(({ kind, tokens }) => [kind, tokens.length] as const);
}

t.test('an image is evaluated between the texts, in its own chunks', async (t) => {
  const bench = new Bench(1);
  const prompt = [text(1, 2, 3), image(1, 20), text(4, 5)];
  const wants = supplying(bench, { 1: prompt });
  bench.loop.generate(1, asked(...prompt));
  await bench.ends(1);
  t.same(wants, [[1, 0]]);
  t.same(evaluated(bench).slice(0, 5), [
    ['prefill', 3],
    ['embeddings', 8],
    ['embeddings', 8],
    ['embeddings', 4],
    ['sample', 2],
  ]);
  t.same(bench.decoder.embedded, [
    { index: 0, of: 20, first: 1000 },
    { index: 8, of: 20, first: 1008 },
    { index: 16, of: 20, first: 1016 },
  ]);
  t.equal(bench.text(1).length, 4);
});

t.test('an image that must be whole is one decode, however long', async (t) => {
  const bench = new Bench(1);
  const prompt = [text(1), image(1, 20, { whole: true }), text(4)];
  supplying(bench, { 1: prompt });
  bench.loop.generate(1, asked(...prompt));
  await bench.ends(1);
  t.same(bench.decoder.embedded, [{ index: 0, of: 20, first: 1000 }]);
});

t.test('other jobs continue while an image is encoded, and its job joins them when it is there', async (t) => {
  const bench = new Bench(2);
  bench.loop.generate(1, job(3, { maxTokens: 40 }));
  await bench.ends(1, 'started');
  bench.loop.generate(2, asked(text(1), image(1, 6), text(2)));
  await bench.ends(2, 'started');
  for (let turn = 0; turn < 200 && !bench.of(1).some(({ kind }) => kind === 'done'); turn++) {
    await new Promise(setImmediate);
  }
  t.equal(bench.text(1).length, 40, 'the reply beside it ended meanwhile');
  t.notOk(bench.decoder.steps.flat().some(({ kind }) => kind === 'embeddings'));
  bench.loop.supply(2, 0, values(1, 6));
  await bench.ends(2);
  t.equal(bench.text(2).length, 4);
});

t.test('while only embeddings are awaited nothing is computed and the loop does not spin', async (t) => {
  const bench = new Bench(1);
  bench.loop.generate(1, asked(text(1, 2), image(1, 6), text(2)));
  await bench.ends(1, 'started');
  for (let turn = 0; turn < 50; turn++) await new Promise(setImmediate);
  t.same(evaluated(bench), [['prefill', 2]]);
  bench.loop.supply(1, 7, values(1, 6));
  bench.loop.supply(9, 0, values(1, 6));
  for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
  t.equal(evaluated(bench).length, 1, 'embeddings that were not requested change nothing');
  bench.loop.supply(1, 0, values(1, 6));
  await bench.ends(1);
  bench.loop.supply(1, 0, values(1, 6));
  t.equal(bench.loop.live, 0);
});

t.test('a cancel ends the wait', async (t) => {
  const bench = new Bench(1);
  bench.loop.generate(1, asked(text(1, 2), image(1, 6), text(2)));
  await bench.ends(1, 'started');
  bench.loop.cancel(1);
  bench.loop.generate(2, job(3));
  await bench.ends(2);
  t.equal(bench.text(2).length, 4);
  t.notOk(bench.of(1).some(({ kind }) => kind === 'done' || kind === 'failed'));
});

t.test('embeddings of another number fail their job only', async (t) => {
  const bench = new Bench(2);
  bench.loop.generate(1, asked(text(1, 2), image(1, 6), text(2)));
  bench.loop.generate(2, job(3));
  await bench.ends(1, 'started');
  bench.loop.supply(1, 0, new Float32Array(7));
  await bench.ends(1, 'failed');
  await bench.ends(2);
  t.equal(bench.text(2).length, 4);
});

t.test('several replies to one prompt request each image once', async (t) => {
  for (const copyable of [true, false]) {
    const bench = new Bench(3, undefined, { copyable });
    const prompt = [text(1), image(1, 6), text(3), image(2, 5), text(2, 2)];
    const wants = supplying(bench, { 1: prompt });
    bench.loop.generate(1, { ...asked(...prompt), n: 3, seats: 3 });
    await bench.ends(1);
    t.same(wants, [
      [1, 0],
      [1, 1],
    ]);
    for (const choice of [0, 1, 2]) t.equal(bench.text(1, choice).length, 4);
  }
});

t.test('the same image is reused; another one with the same ids ends the reuse before it', async (t) => {
  const bench = new Bench(1, undefined, { prefixReuse: 'any' });
  const first = [text(1, 2, 3), image(1, 6), text(4)];
  const again = [text(1, 2, 3), image(1, 6), text(4, 9, 9)];
  const other = [text(1, 2, 3), image(2, 6), text(4, 9, 9)];
  const longer = [text(1, 2, 3), image(2, 7), text(4)];
  const wants = supplying(bench, { 1: first, 2: again, 3: other, 4: longer });
  for (const [id, prompt] of [first, again, other, longer].entries()) {
    bench.loop.generate(id + 1, asked(...prompt));
    await bench.ends(id + 1);
  }
  t.equal(bench.cached(2), 10);
  t.equal(bench.cached(3), 3, 'up to the other image');
  t.equal(bench.cached(4), 3, 'not within one');
  t.same(
    wants.map(([id]) => id),
    [1, 3, 4],
    'reused images are not requested',
  );
});

t.test('an image that is shared only in part is not reused at all', async (t) => {
  const bench = new Bench(1, undefined, { prefixReuse: 'any' });
  const first = [text(1), image(1, 6), text(4)];
  const cut = [text(1), image(1, 6), text(5)];
  const two = [text(1), image(1, 6), image(3, 6), text(5)];
  supplying(bench, { 1: first, 2: cut, 3: two });
  bench.loop.generate(1, asked(...first));
  await bench.ends(1);
  bench.loop.generate(2, asked(...cut));
  await bench.ends(2);
  bench.loop.generate(3, asked(...two));
  await bench.ends(3);
  t.equal(bench.cached(2), 7);
  t.equal(bench.cached(3), 7);
});

t.test('a whole image waits beside a running reply, then has its own decode', async (t) => {
  const bench = new Bench(2, undefined, { prefillShare: 1 });
  bench.loop.generate(1, job(3, { maxTokens: 50 }));
  await bench.ends(1, 'started');
  const prompt = [text(1), image(1, 30, { whole: true }), text(2)];
  supplying(bench, { 2: prompt });
  bench.loop.generate(2, asked(...prompt));
  await bench.ends(2);
  await bench.ends(1);
  t.same(bench.decoder.embedded, [{ index: 0, of: 30, first: 1000 }]);
});

t.test('on a GPU images are decoded alone, beside prompts that share decodes', async (t) => {
  const bench = new Bench(3, undefined, { prefillTokensPerStep: 32, stepMs: 100 });
  bench.loop.generate(1, job(3, { maxTokens: 50 }));
  await bench.ends(1, 'started');
  const prompt = [text(1), image(1, 30, { whole: true }), text(2, 3)];
  supplying(bench, { 2: prompt });
  bench.loop.generate(2, asked(...prompt));
  bench.loop.generate(3, job(20, { maxTokens: 4 }));
  for (const id of [1, 2, 3]) await bench.ends(id);
  t.same(bench.decoder.embedded, [{ index: 0, of: 30, first: 1000 }]);
  const embedding = bench.decoder.steps.filter((parts) => parts.some(({ kind }) => kind === 'embeddings'));
  t.same(
    embedding.map(({ length }) => length),
    [1],
    'with nothing else in the decode',
  );
  t.same([bench.text(1).length, bench.text(2).length, bench.text(3).length], [50, 4, 4]);
});

/** One sequence with room for what is overwritten. */
function caching(): Bench {
  const room = { contextPerSeat: 512, checkpointBytes: 1e9, prefixCache: { bytes: 1e9, maxAgeMs: 3_600_000 } };
  return new Bench(1, undefined, { prefixReuse: 'any', saves: true, ...room });
}

t.test('a prefix with an image comes back from host memory, and only for that image', async (t) => {
  const bench = caching();
  const words = (of: number, length = 40): Prompt[number] => ({
    kind: 'tokens',
    tokens: new Uint32Array(length).fill(of),
  });
  const first = [words(1, 100), image(1, 60), words(2)];
  const other = [words(1, 100), image(2, 60), words(2)];
  const text = [words(3), words(4), words(5)];
  const prompts = { 1: first, 2: text, 3: other, 4: text, 5: [...first, words(6)], 6: [...other, words(6)] };
  const wants = supplying(bench, prompts);
  for (const [id, prompt] of Object.entries(prompts)) {
    bench.loop.generate(Number(id), asked(...prompt));
    await bench.ends(Number(id));
  }
  t.equal(bench.cached(3), 100, 'up to the other image');
  t.equal(bench.cached(5), 200);
  t.equal(bench.cached(6), 200, 'both are kept, although their ids are the same');
  t.same(wants, [
    [1, 0],
    [3, 0],
  ]);
  t.ok(bench.loop.report.cache.hits >= 2, 'by restoring them');
  t.same(bench.decoder.violations, []);
});

t.test('and not for another account', async (t) => {
  const bench = caching();
  const prompt = [text(...new Array<number>(40).fill(1)), image(1, 60), text(2)];
  const wants = supplying(bench, { 1: prompt, 2: prompt, 3: prompt });
  for (const [id, scope] of [
    [1, 'acme'],
    [2, 'globex'],
    [3, 'acme'],
  ] as const) {
    bench.loop.generate(id, { ...asked(...prompt), scope });
    await bench.ends(id);
  }
  t.equal(bench.cached(2), 0);
  t.equal(bench.cached(3), 100);
  t.same(wants, [
    [1, 0],
    [2, 0],
  ]);
});
