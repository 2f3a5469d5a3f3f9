/**
 * A sidecar that runs batches is killed at random times, repeatedly with one data folder, while other files are stored and deleted and
 * other batches fail; each third time it is replaced, as by a new version. The next one is killed while it starts. In the end each line has
 * one answer, and the batches have cost what their usage records say. `node dist/test/fault/batches-killed.test.js 200` does so 200 times.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import t from 'tap';
import { answersIn, chatLine, ended, isOver, storeOnDisk } from '../support/batch-client.js';
import { makeKey } from '../support/keys.js';
import { rounds } from '../support/long-form.js';
import { chatOnly, Sidecar, type LogLine } from '../support/sidecar.js';
import { readAll } from '../support/usage-records.js';

const ROUNDS = Number(process.argv[2] ?? rounds({ short: 6, long: 200 }));
/** Lines of a round's batch that are answered before a kill is sent, at most. */
const MOST_ANSWERS = rounds({ short: 10, long: 30 });
/** Further lines of it, some of which are left for the next sidecar unless the kill comes late. */
const SPARE_LINES = 40;
/** Files that come and go in a round, at most: a slow round stores no more of them than a fast one. */
const MOST_OTHERS = 10;
/** Batches that have not ended when a round begins one, at most: kills may come faster than batches end, and an account has ten. */
const MOST_OPEN = 5;
/** Numbers of a batch's lines. */
const NAMES = Array.from({ length: MOST_ANSWERS + SPARE_LINES }, (_, i) => i);
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

/** Ends with an error if the sidecar is gone by then, at any of the steps. */
async function comeAndGoUntilKilled(client: OpenAI): Promise<void> {
  for (let i = 0; i < MOST_OTHERS; i += 1) await comeAndGo(client);
}

const isLine = ({ route }: LogLine): boolean => route === 'chat';

/** Waits until few batches have not ended, the oldest first. */
async function endsOfMost(client: OpenAI): Promise<void> {
  const open: string[] = [];
  for await (const { id, status } of client.batches.list({ limit: 100 })) if (!isOver(status)) open.push(id);
  for (const id of open.slice(MOST_OPEN).reverse()) await ended(client, id);
}

/** The batch of a round, whose lines have names that no other round's have. */
async function begin(client: OpenAI, round: number): Promise<string> {
  const lines = NAMES.map((i) => chatLine(`${round}-${i}`, 1 + (i % 5)));
  const file = await client.files.create({ file: await toFile(Buffer.from(lines.join('\n')), 'in'), purpose: 'batch' });
  const { id } = await client.batches.create({
    input_file_id: file.id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
  });
  return id;
}

t.test(`killed ${2 * ROUNDS} times: each line is answered once and billed once`, async (t) => {
  let { sidecar, client } = await start();
  const ids: string[] = [];
  // On a slow machine no round may reach a deletion.
  await comeAndGo(client);
  for (let round = 0; round < ROUNDS; round += 1) {
    const answers = Math.floor(Math.random() * MOST_ANSWERS);
    await endsOfMost(client);
    const before = sidecar.lines.filter((line) => line.event === 'request' && isLine(line)).length;
    // Its lines alone are as many as this round waits for: those of earlier rounds may all have been answered.
    ids.push(await begin(client, round));
    const others = comeAndGoUntilKilled(client).catch((error: unknown) => error);
    await sidecar.logged('request', before + 1 + answers, isLine);
    sidecar.child.kill(round % 3 === 2 ? 'SIGTERM' : 'SIGKILL');
    await sidecar.exited();
    const error = await others;
    if (error !== undefined) t.match(error, /Connection error|terminated|50\d|429|404/);
    await killStarting();
    ({ sidecar, client } = await start());
  }
  let cost = 0;
  const usage = { input_tokens: 0, output_tokens: 0 };
  for (const [round, id] of ids.entries()) {
    const batch = await ended(client, id);
    const { total, completed, failed } = batch.request_counts ?? {};
    t.same([batch.status, total, completed, failed], ['completed', NAMES.length, NAMES.length, 0]);
    const names = (await answersIn(client, batch.output_file_id)).map(({ custom_id: name }) => name).sort();
    t.same(names, NAMES.map((i) => `${round}-${i}`).sort());
    cost += Number((batch as unknown as { cost: { value: string } }).cost.value);
    usage.input_tokens += batch.usage?.input_tokens ?? 0;
    usage.output_tokens += batch.usage?.output_tokens ?? 0;
  }
  for await (const other of client.batches.list({ limit: 100 }))
    if (!ids.includes(other.id)) t.equal((await ended(client, other.id)).status, 'failed');
  const there = new Set<string>();
  for await (const stored of client.files.list()) there.add(stored.id);
  t.ok(deleted.length > 0 && deleted.every((gone) => !there.has(gone)), `${deleted.length} files were deleted`);
  t.ok(there.size <= 3 * ROUNDS, `${there.size} are left: two of each batch, and what was cut off`);
  sidecar.child.kill('SIGTERM');
  await sidecar.exited();
  const { records, damage } = await readAll(join(dataDir, 'usage'));
  t.same(damage, []);
  const closes = records.filter(({ kind }) => kind === 'close');
  const done = closes.filter(({ outcome }) => outcome === 'done');
  const paid = closes.reduce((sum, { price }) => sum + BigInt(price?.picodollars ?? 0), 0n);
  t.equal(done.length, ROUNDS * NAMES.length, 'one finished request for each line');
  t.same(usage, {
    input_tokens: done.reduce((sum, { promptTokens }) => sum + promptTokens, 0),
    output_tokens: done.reduce((sum, { completionTokens }) => sum + completionTokens, 0),
  });
  t.equal(Math.round(cost * 1e12), Number(paid));
});

t.test('without the operator’s key the sidecar does not start, and says why', async (t) => {
  writeFileSync(join(dir, 'batch.key'), 'z'.repeat(40));
  const sidecar = await Sidecar.launch(t, { stub: true, config });
  t.match(await sidecar.exited(), { code: 1 });
  t.match(sidecar.printed, /batch\.keyFile: \d+ stored files cannot be opened with the keys in it/);
});
