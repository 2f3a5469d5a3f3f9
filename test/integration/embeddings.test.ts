/** Embeddings and rankings of the whole sidecar with real engines, by OpenAI's client and by hand. */
import OpenAI from 'openai';
import t from 'tap';
import { canary, MARK } from '../support/canaries.js';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { counted } from '../support/counted.js';
import { LeakSearch } from '../support/leak-search.js';
import { POOLING_CONTEXT, poolingModel } from '../support/pooling-models.js';
import { RetentionWatch } from '../support/retention-watch.js';
import { Sidecar } from '../support/sidecar.js';

const common = { seats: 16, contextPerSeat: POOLING_CONTEXT, threads: 1 };
const dataDir = t.testdir();
const watch = new RetentionWatch();
const sidecar = await Sidecar.start(t, {
  config: {
    dataDir,
    log: { level: 'trace' },
    models: [
      { id: 'mean', kind: 'embedding', file: await poolingModel('mean'), minDimensions: 8, ...common },
      { id: 'cls', kind: 'embedding', file: await poolingModel('cls'), ...common },
      { id: 'last', kind: 'embedding', file: await poolingModel('last'), ...common },
      { id: 'rank', kind: 'rerank', file: await poolingModel('rank'), ...common },
      { id: 'judge', kind: 'rerank', file: await poolingModel('judge'), load: 'lazy', ...common },
    ],
    queue: PATIENT_QUEUE,
  },
});
const client = new OpenAI({ apiKey: sidecar.key, baseURL: sidecar.base, maxRetries: 0 });
const TEXTS = ['the rain in the north', 'a', 'The rain, in the NORTH.', `${'what would they say '.repeat(60)}?`];

async function vectorsOf(model: string, input: string | string[], more: object = {}): Promise<number[][]> {
  const { data } = await client.embeddings.create({ model, input, ...more });
  return data.map(({ embedding }) => embedding);
}

const dot = (a: readonly number[] = [], b: readonly number[] = []): number =>
  a.reduce((sum, value, i) => sum + value * (b[i] ?? NaN), 0);

for (const model of ['mean', 'cls', 'last']) {
  t.test(`${model}: the same bits alone, and nearly so in a list`, async (t) => {
    const alone = [];
    for (const text of TEXTS) alone.push((await vectorsOf(model, text))[0] ?? []);
    for (const [i, text] of TEXTS.entries()) t.same((await vectorsOf(model, text))[0], alone[i], 'bit for bit');
    const list = await vectorsOf(model, TEXTS);
    for (const [i, vector] of list.entries()) {
      t.ok(Math.abs(dot(vector, vector) - 1) < 1e-5, 'a unit');
      t.ok(dot(vector, alone[i]) > 0.9999, `${dot(vector, alone[i])}`);
    }
    t.ok(dot(list[0], list[1]) < 0.999, 'different texts have different vectors');
    const floats = await vectorsOf(model, TEXTS, { encoding_format: 'float' });
    for (const [i, vector] of floats.entries()) t.ok(dot(vector, list[i]) > 0.9999);
  });
}

t.test('probabilities, of a decoder with a template for pairs', async (t) => {
  const rank = async (documents: string[]): Promise<Ranking> => {
    const response = await sidecar.post('/rerank', { model: 'judge', query: 'the rain', documents });
    t.equal(response.status, 200);
    return (await response.json()) as Ranking;
  };
  t.throws(() => sidecar.enginePid('judge'), 'it is lazy: its first request loads it');
  const ranked = await rank(TEXTS);
  t.equal(ranked.score_type, 'probability');
  const scores = ranked.results.map(({ relevance_score: score }) => score);
  t.ok(scores.every((score) => score > 0 && score < 1));
  t.ok(new Set(scores).size > 1, scores.join(' '));
  const alone = await rank(['a']);
  t.same(await rank(['a']), alone, 'bit for bit');
  const beside = ranked.results.find(({ index }) => index === 1)?.relevance_score ?? NaN;
  t.ok(Math.abs((alone.results[0]?.relevance_score ?? NaN) - beside) < 1e-3);
  const [marked, plain] = [await rank(['a<|im_end|>']), await rank(['a'])];
  t.ok(marked.usage.prompt_tokens > plain.usage.prompt_tokens + 1, 'a caller’s text is no control token');
});

t.test('rankings: the better the pair the earlier, and the same scores each time', async (t) => {
  const ranked = async (documents: string[], query = 'the rain'): Promise<Ranking> => {
    const response = await sidecar.post('/rerank', { model: 'rank', query, documents });
    t.equal(response.status, 200);
    return (await response.json()) as Ranking;
  };
  const rank = async (documents: string[]): Promise<Ranking['results']> => (await ranked(documents)).results;
  const [first] = await rank(['the rain in the north']);
  t.same((await rank(['the rain in the north']))[0], first);
  const all = await rank(TEXTS);
  t.equal(all.length, TEXTS.length);
  for (const [i, { relevance_score: score }] of all.entries()) t.ok(score <= (all[i - 1]?.relevance_score ?? Infinity));
  const same = all.find(({ index }) => index === 0);
  t.ok(Math.abs((same?.relevance_score ?? NaN) - (first?.relevance_score ?? NaN)) < 1e-3);
  // More than one part has.
  const query = 'what would they say '.repeat(10);
  const each = [await ranked(TEXTS.slice(0, 1), query), await ranked(TEXTS.slice(1, 2), query)];
  const many = await ranked(
    Array.from({ length: 300 }, (_, i) => TEXTS[i % 2] ?? ''),
    query,
  );
  t.equal(many.usage.prompt_tokens, 150 * each.reduce((sum, { usage }) => sum + usage.prompt_tokens, 0));
  t.ok(many.usage.prompt_tokens > 3 * 4096);
  for (const { index, relevance_score: score } of many.results)
    t.ok(Math.abs(score - (each[index % 2]?.results[0]?.relevance_score ?? NaN)) < 1e-3, `document ${index}`);
});

interface Ranking {
  readonly score_type: string;
  readonly results: readonly { readonly index: number; readonly relevance_score: number }[];
  readonly usage: { readonly prompt_tokens: number };
}

t.test('content leaves only in the answer, at the log’s most verbose level', async (t) => {
  const long = `${canary()} `.repeat(POOLING_CONTEXT);
  const served = [
    ['/embeddings', { model: 'mean', input: canary(), user: canary() }],
    ['/embeddings', { model: 'last', input: [canary(), long], truncate: true, encoding_format: 'base64' }],
    ['/rerank', { model: 'rank', query: canary(), documents: [canary(), { text: canary() }], return_documents: true }],
    ['/rerank', { model: 'judge', query: canary(), documents: [canary()], user: canary() }],
  ] as const;
  for (const [path, body] of served) {
    const response = await sidecar.post(path, body);
    t.equal(response.status, 200);
    await watch.replied(response);
  }
  const refused = [
    ['/embeddings', { model: 'mean', input: [canary(), long] }],
    ['/embeddings', { model: 'mean', input: canary(), [canary()]: canary() }],
    ['/embeddings', { model: 'mean', input: canary(), encoding_format: canary() }],
    ['/embeddings', { model: 'rank', input: canary() }],
    ['/rerank', { model: 'rank', query: long, documents: [canary()] }],
    ['/rerank', { model: 'rank', query: canary(), documents: [{ text: canary(), [canary()]: canary() }] }],
  ] as const;
  for (const [path, body] of refused) t.equal((await watch.refused(await sidecar.post(path, body))).status, 400);
  const texts = Array.from({ length: 256 }, () => `${canary()} ${'what '.repeat(100)}`);
  const lost = sidecar.post('/embeddings', { model: 'last', input: texts });
  await counted(sidecar, 'seats_busy', 1, { model: 'last' });
  process.kill(sidecar.enginePid('last'), 'SIGABRT');
  // Where the engine was lost between two parts, the next one has the rest.
  await watch.replied(await lost);
  await watch.pages(sidecar);
  watch.processes(sidecar.pid);
  sidecar.child.kill('SIGTERM');
  await sidecar.exited();
  watch.output(sidecar);
  await watch.files(dataDir);
  t.same(watch.leaks(new LeakSearch([MARK])), []);
});
