/**
 * A sidecar that runs a batch is killed at random times, repeatedly with one data folder, while other files are stored and deleted and other
 * batches fail; each third time it is replaced, as by a new version. The next one is killed while it starts. In the end each line has one
 * answer, and the batch has cost what its usage records say. `node dist/test/fault/batches-killed.test.js 200` does so 200 times.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import t from 'tap';
import { answersIn, chatLine, ended, storeOnDisk } from '../support/batch-client.js';
import { makeKey } from '../support/keys.js';
import { rounds } from '../support/long-form.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';
import { readAll } from '../support/usage-records.js';

const ROUNDS = Number(process.argv[2] ?? rounds({ short: 6, long: 200 }));
/** Lines of the batch that are answered before a kill is sent, at most. */
const MOST_ANSWERS = rounds({ short: 10, long: 30 });
/** Further lines: those that are answered while a kill is on its way do not end the batch. */
const SPARE_LINES = 100;
/** Lines of the log of a start before a kill is sent, at most. */
const MOST_START_LINES = 10;

const dir = t.testdir();
const { key, stored } = makeKey();
writeFileSync(join(dir, 'keys.json'), JSON.stringify({ version: 1, keys: [stored] }));
const prices = { version: 'p1', effective: '2026-01-01T00:00:00Z', decisions: '1' };
const chat = { 'ra-tiny-chat': { input: '1', cachedInput: '1', output: '1' } };
writeFileSync(join(dir, 'prices.json'), JSON.stringify({ version: 1, prices: [{ ...prices, chat }] }));
const dataDir = join(dir, 'data');
const config = {
  ...(await chatOnly(8)),
  dataDir,
  keys: { file: join(dir, 'keys.json') },
  pricing: { file: join(dir, 'prices.json') },
  batch: storeOnDisk(dir),
};
const start = async (): Promise<{ sidecar: Sidecar; client: OpenAI }> => {
  const sidecar = await Sidecar.start(t, { stub: true, config });
  return { sidecar, client: new OpenAI({ apiKey: key, baseURL: sidecar.base, maxRetries: 0 }) };
};

/** Kills a sidecar while it starts: it reads what the one before it left, and goes on with the batch. */
async function killStarting(): Promise<void> {
  const sidecar = await Sidecar.launch(t, { stub: true, config });
  const lines = Math.floor(Math.random() * MOST_START_LINES);
  await sidecar.until(() => sidecar.lines.length >= lines || sidecar.printed.includes('is ready at'), 'a start');
  sidecar.child.kill('SIGKILL');
  await sidecar.exited();
}

/** Ids of files whose deletion was answered. */
const deleted: string[] = [];

/** A file that comes and goes, and a batch of it that fails. */
async function comeAndGo(client: OpenAI): Promise<void> {
  const file = await client.files.create({ file: await toFile(Buffer.from('no line'), 'in'), purpose: 'batch' });
  const { id } = await client.batches.create({
    input_file_id: file.id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
  });
  await ended(client, id);
  await client.files.delete(file.id);
  deleted.push(file.id);
}

/** Ends with an error once the sidecar is gone, which ends at any of the steps. */
async function comeAndGoUntilKilled(client: OpenAI): Promise<void> {
  for (;;) await comeAndGo(client);
}

t.test(`killed ${2 * ROUNDS} times: each line is answered once and billed once`, async (t) => {
  const lines = Array.from({ length: ROUNDS * MOST_ANSWERS + SPARE_LINES }, (_, i) => chatLine(String(i), 1 + (i % 5)));
  let { sidecar, client } = await start();
  const file = await client.files.create({ file: await toFile(Buffer.from(lines.join('\n')), 'in'), purpose: 'batch' });
  const { id } = await client.batches.create({
    input_file_id: file.id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
  });
  // On a slow machine no round may reach a deletion.
  await comeAndGo(client);
  for (let round = 0; round < ROUNDS; round += 1) {
    const answers = Math.floor(Math.random() * MOST_ANSWERS);
    const others = comeAndGoUntilKilled(client).catch((error: unknown) => error);
    await sidecar.logged('request', 1 + answers, ({ route }) => route === 'chat');
    sidecar.child.kill(round % 3 === 2 ? 'SIGTERM' : 'SIGKILL');
    await sidecar.exited();
    t.match(await others, /Connection error|terminated|50\d|429|404/);
    await killStarting();
    ({ sidecar, client } = await start());
  }
  const batch = await ended(client, id);
  const { total, completed, failed } = batch.request_counts ?? {};
  t.same([batch.status, total, completed, failed], ['completed', lines.length, lines.length, 0]);
  for await (const other of client.batches.list({ limit: 100 }))
    if (other.id !== id) t.equal((await ended(client, other.id)).status, 'failed');
  const there = new Set<string>();
  for await (const stored of client.files.list()) there.add(stored.id);
  t.ok(deleted.length > 0 && deleted.every((gone) => !there.has(gone)), `${deleted.length} files were deleted`);
  t.ok(there.size <= 2 + ROUNDS, `${there.size} are left: two of the batch, and what was cut off`);
  const answers = await answersIn(client, batch.output_file_id);
  t.equal(answers.length, lines.length);
  t.same(
    [...answers.map(({ custom_id: name }) => Number(name))].sort((a, b) => a - b),
    lines.map((_, i) => i),
  );
  sidecar.child.kill('SIGTERM');
  await sidecar.exited();
  const { records, damage } = await readAll(join(dataDir, 'usage'));
  t.same(damage, []);
  const closes = records.filter(({ kind }) => kind === 'close');
  const done = closes.filter(({ outcome }) => outcome === 'done');
  const paid = closes.reduce((sum, { price }) => sum + BigInt(price?.picodollars ?? 0), 0n);
  t.equal(done.length, lines.length, 'one finished request for each line');
  t.match(batch.usage, {
    input_tokens: done.reduce((sum, { promptTokens }) => sum + promptTokens, 0),
    output_tokens: done.reduce((sum, { completionTokens }) => sum + completionTokens, 0),
  });
  t.equal(Number((batch as unknown as { cost: { value: string } }).cost.value), Number(paid) / 1e12);
});

t.test('without the operator’s key the sidecar does not start, and says why', async (t) => {
  writeFileSync(join(dir, 'batch.key'), 'z'.repeat(40));
  const sidecar = await Sidecar.launch(t, { stub: true, config });
  t.match(await sidecar.exited(), { code: 1 });
  t.match(sidecar.printed, /batch\.keyFile: \d+ stored files cannot be opened with the keys in it/);
});
