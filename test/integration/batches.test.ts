/** Files and batches of the whole sidecar with stub engines, by OpenAI's client and by hand. */
import { once } from 'node:events';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { request, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import t from 'tap';
import { answersIn, chatLine, ended, storeOnDisk } from '../support/batch-client.js';
import { makeKey } from '../support/keys.js';
import { CHAT, DECIDE, Sidecar } from '../support/sidecar.js';
import { readAll } from '../support/usage-records.js';

/** In each prompt and file name; must never be in the data folder. */
const CANARY = 'xylophone-seventeen';

const dir = t.testdir();
const [own, other, doomed, barred] = [
  makeKey(),
  makeKey({ id: 'other', account: 'umbrella' }),
  makeKey({ id: 'doomed', account: 'acme' }),
  makeKey({ id: 'barred', account: 'acme', entitlements: { development: { models: 'all', routes: ['chat'] } } }),
];
const keysFile = join(dir, 'keys.json');
const others = [own.stored, other.stored, barred.stored];
writeFileSync(keysFile, JSON.stringify({ version: 1, keys: [...others, doomed.stored] }));
const prices = join(dir, 'prices.json');
const rates = { input: '2', cachedInput: '2', output: '4' };
const half = { input: '1', cachedInput: '1', output: '2' };
writeFileSync(
  prices,
  JSON.stringify({
    version: 1,
    prices: [
      {
        version: 'p1',
        effective: '2026-01-01T00:00:00Z',
        decisions: '0.042',
        chat: { [CHAT]: { ...rates, batch: half } },
      },
    ],
  }),
);
const dataDir = join(dir, 'data');
const sidecar = await Sidecar.start(t, {
  stub: true,
  config: { dataDir, keys: { file: keysFile }, pricing: { file: prices }, batch: storeOnDisk(dir) },
});
const clientOf = (apiKey: string): OpenAI => new OpenAI({ apiKey, baseURL: sidecar.base, maxRetries: 0 });
const client = clientOf(own.key);

async function store(lines: readonly string[], more: object = {}): Promise<OpenAI.FileObject> {
  const file = await toFile(Buffer.from(`${lines.join('\n')}\n`), `${CANARY}.jsonl`);
  return await client.files.create({ file, purpose: 'batch', ...more });
}

async function batchOf(lines: readonly string[], more: object = {}, by = client): Promise<OpenAI.Batch> {
  const { id } = await store(lines);
  return await by.batches.create({
    input_file_id: id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
    ...more,
  });
}

t.test('a file is stored, listed, read and deleted', async (t) => {
  const text = `${CANARY}\n`.repeat(200_000);
  const before = Math.floor(Date.now() / 1000);
  const file = await client.files.create({
    file: await toFile(Buffer.from(text), 'in.jsonl'),
    purpose: 'batch',
    expires_after: { anchor: 'created_at', seconds: 3600 },
  });
  t.match(file, { object: 'file', bytes: text.length, filename: 'in.jsonl', purpose: 'batch', status: 'processed' });
  t.ok(file.created_at >= before && file.expires_at === file.created_at + 3600);
  t.same(await client.files.retrieve(file.id), file);
  t.same((await client.files.list()).data, [file]);
  t.ok((await (await client.files.content(file.id)).text()) === text, 'byte by byte');
  t.same(await client.files.delete(file.id), { id: file.id, object: 'file', deleted: true });
  await t.rejects(client.files.retrieve(file.id), /404/);
  await t.rejects(client.files.content(file.id), /404/);
});

t.test('a download of a file that is deleted ends', async (t) => {
  // More than a socket and the sidecar hold of it.
  const bytes = 32 * 2 ** 20;
  const file = await client.files.create({ file: await toFile(Buffer.alloc(bytes, 'x'), 'in'), purpose: 'batch' });
  const { body } = await client.files.content(file.id);
  const reader = body?.getReader();
  await reader?.read();
  await client.files.delete(file.id);
  const rest = async (): Promise<void> => {
    while ((await reader?.read())?.done === false);
  };
  await t.rejects(rest());
});

t.test('a batch runs each line once, priced as a batch; its answers are those of its route', async (t) => {
  const tokens = Array.from({ length: 40 }, (_, i) => 1 + (i % 7));
  const lines = tokens.map((count, i) => chatLine(`${CANARY}-${i}`, count));
  lines.push(chatLine('too long', 1, { messages: [{ role: 'user', content: 'x '.repeat(5000) }] }));
  const begun = await batchOf(lines, { metadata: { name: CANARY } });
  t.match(begun, { status: 'validating', metadata: { name: CANARY }, output_file_id: null, errors: null });
  const batch = await ended(client, begun.id);
  t.match(batch, { status: 'completed', request_counts: { total: 41, completed: 40, failed: 1 } });
  t.ok(batch.in_progress_at && batch.finalizing_at && batch.completed_at);
  const answers = await answersIn(client, batch.output_file_id);
  t.same(answers.map(({ custom_id: id }) => id).sort(), tokens.map((_, i) => `${CANARY}-${i}`).sort());
  for (const { custom_id: id, response } of answers) {
    t.equal(response?.status_code, 200);
    t.equal(response?.body.usage?.completion_tokens, tokens[Number(id.split('-')[2])], id);
  }
  const [error] = await answersIn(client, batch.error_file_id);
  t.match(error, { custom_id: 'too long', response: { status_code: 400 }, error: null });
  const closes = (await readAll(join(dataDir, 'usage'))).records.filter(({ kind }) => kind === 'close');
  const ids = new Set(answers.map(({ id }) => id));
  const own = closes.filter(({ id }) => ids.has(`batch_req_${id.replaceAll('-', '')}`));
  t.equal(own.length, 40, 'each answer has the record that it names');
  t.ok(own.every(({ price, outcome }) => price?.version === 'p1/batch' && outcome === 'done'));
  const sum = (of: (record: (typeof own)[number]) => number): number => own.reduce((all, each) => all + of(each), 0);
  t.match(batch.usage, { input_tokens: sum((r) => r.promptTokens), output_tokens: sum((r) => r.completionTokens) });
  const { cost } = batch as unknown as { cost: { value: string } };
  t.equal(Number(cost.value), sum(({ price }) => Number(price?.picodollars)) / 1e12);
});

t.test('decisions run in a batch too', async (t) => {
  const body = { model: DECIDE, input: 'It rains.', questions: [{ id: 'a', type: 'yes_no', question: 'Is it wet?' }] };
  const line = { custom_id: 'd', method: 'POST', url: '/v1/decisions', body };
  const { id } = await store([JSON.stringify(line)]);
  const begun = await client.batches.create({
    input_file_id: id,
    endpoint: '/v1/decisions' as '/v1/completions',
    completion_window: '24h',
  });
  const batch = await ended(client, begun.id);
  t.match(batch, { status: 'completed', request_counts: { completed: 1 } });
  t.match(await answersIn(client, batch.output_file_id), [
    { response: { body: { answers: { a: { type: 'yes_no' } } } } },
  ]);
});

t.test('if one line is not valid, none runs, and each problem is named', async (t) => {
  const lines = [
    chatLine('a', 1),
    'no JSON',
    chatLine('a', 1),
    chatLine('b', 1, { stream: true }),
    chatLine('c', 1, { model: 'unknown' }),
    chatLine('d', 1).replace('/v1/chat/completions', '/v1/decisions'),
    chatLine('e', 1, { temperature: 9 }),
  ];
  const batch = await ended(client, (await batchOf(lines)).id);
  t.match(batch, { status: 'failed', output_file_id: null, request_counts: { completed: 0 } });
  t.match(batch.errors?.data, [
    { code: 'invalid_json_line', line: 2 },
    { code: 'duplicate_custom_id', line: 3, param: 'custom_id' },
    { code: 'bad_request', line: 4, param: 'body.stream' },
    { code: 'model_not_entitled', line: 5, param: 'body.model' },
    { code: 'invalid_url', line: 6 },
    { code: 'bad_request', line: 7, param: 'body.temperature' },
  ]);
  t.match(await ended(client, (await batchOf([''])).id), { errors: { data: [{ code: 'empty_file' }] } });
});

t.test('a cancelled batch keeps the answers that it has', async (t) => {
  const begun = await batchOf(Array.from({ length: 200 }, (_, i) => chatLine(String(i), 100)));
  const input = await client.files.retrieve(begun.input_file_id);
  await t.rejects(client.files.delete(input.id), /400 A batch that has not ended reads this file/);
  t.ok(['cancelling', 'cancelled'].includes((await client.batches.cancel(begun.id)).status));
  const batch = await ended(client, begun.id);
  t.equal(batch.status, 'cancelled');
  const { completed = 0 } = batch.request_counts ?? {};
  t.ok(completed < 200);
  t.equal((await answersIn(client, batch.output_file_id)).length, completed);
  t.equal((await client.batches.cancel(begun.id)).status, 'cancelled', 'a second time without effect');
  await client.files.delete(input.id);
});

t.test('a batch whose key is revoked ends, and keeps the answers that it has', async (t) => {
  // A minute of work.
  const lines = Array.from({ length: 400 }, (_, i) => chatLine(String(i), 100));
  const { id } = await batchOf(lines, {}, clientOf(doomed.key));
  const revoked = { ...doomed.stored, revoked: '2026-01-01T00:00:00Z' };
  writeFileSync(keysFile, JSON.stringify({ version: 1, keys: [...others, revoked] }));
  const batch = await ended(client, id);
  t.match(batch, { status: 'cancelled', errors: { data: [{ code: 'revoked_api_key', line: null }] } });
  const { completed = 0, total = 0 } = batch.request_counts ?? {};
  t.ok(completed < lines.length, `${completed} of ${total}`);
  t.equal((await answersIn(client, batch.output_file_id)).length, completed);
});

t.test('for another account there is no such file and no such batch', async (t) => {
  const { id, input_file_id: file } = await ended(client, (await batchOf([chatLine('a', 1)])).id);
  const stranger = clientOf(other.key);
  t.same((await stranger.files.list()).data, []);
  t.same((await stranger.batches.list()).data, []);
  await t.rejects(stranger.files.retrieve(file), /404/);
  await t.rejects(stranger.files.content(file), /404/);
  await t.rejects(stranger.files.delete(file), /404/);
  await t.rejects(stranger.batches.retrieve(id), /404/);
  await t.rejects(stranger.batches.cancel(id), /404/);
  const options = { endpoint: '/v1/chat/completions', completion_window: '24h' } as const;
  await t.rejects(stranger.batches.create({ input_file_id: file, ...options }), /404/);
  await t.rejects(clientOf(barred.key).files.list(), /403/, 'nor for a key that is not entitled');
  t.equal((await client.files.retrieve(file)).id, file);
});

t.test('pages of batches and files', async (t) => {
  const all = [];
  for await (const batch of client.batches.list({ limit: 2 })) all.push(batch.id);
  t.equal(new Set(all).size, all.length);
  t.ok(all.length >= 5);
  const files = await client.files.list({ order: 'asc', limit: 1 });
  t.ok(files.hasNextPage());
  t.equal((await files.getNextPage()).data.length, 1);
  t.equal((await client.files.list({ limit: 1000 })).has_more, false, 'all of them are one page');
});

t.test('what is no form, too large, or of an unknown purpose is refused', async (t) => {
  const post = (body: FormData | string, type?: string): Promise<Response> =>
    fetch(`${sidecar.base}/files`, {
      method: 'POST',
      headers: { authorization: `Bearer ${own.key}`, ...(type !== undefined && { 'content-type': type }) },
      body,
    });
  const form = (fields: Readonly<Record<string, string>>, name = 'file'): FormData => {
    const made = new FormData();
    for (const [field, value] of Object.entries(fields)) made.set(field, value);
    made.set(name, new Blob(['x']), 'x.jsonl');
    return made;
  };
  for (const [body, type] of [
    ['{}', 'application/json'],
    ['x', 'multipart/form-data; boundary=b'],
    [form({ purpose: 'fine-tune' })],
    [form({ purpose: 'batch', 'expires_after[seconds]': '5' })],
    [form({ purpose: 'batch', extra: 'x' })],
    [form({ purpose: 'batch' }, 'data')],
  ] as const)
    t.equal((await post(body, type)).status, 400);
  const large = request(`${sidecar.base}/files`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${own.key}`,
      'content-type': 'multipart/form-data; boundary=b',
      'content-length': 513 * 2 ** 20,
    },
  });
  large.on('error', () => undefined).flushHeaders();
  const [refused] = (await once(large, 'response')) as [IncomingMessage];
  t.equal(refused.statusCode, 413, 'by its length, before a byte of it came');
  large.destroy();
});

t.test('the data folder has nothing that a caller wrote', (t) => {
  const found = [];
  for (const name of readdirSync(dataDir, { recursive: true, encoding: 'utf8' })) {
    const path = join(dataDir, name);
    if (statSync(path).isFile() && readFileSync(path).includes(CANARY)) found.push(name);
  }
  t.same(found, []);
  t.end();
});
