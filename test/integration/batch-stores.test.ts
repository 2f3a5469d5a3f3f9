/**
 * Batches in memory and on the disk, with the development key: all routes of lines, what operators see and may do of them, and that a store
 * does not change while files are in it.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import t from 'tap';
import { contentDirOf } from '../../sidecar/app/batch.js';
import { answersIn, chatLine, ended, storeOnDisk } from '../support/batch-client.js';
import { runHere } from '../support/command-here.js';
import { FeedReader } from '../support/console-feed.js';
import { embeddedTestModel } from '../support/models.js';
import { chatOnly, CHAT, Sidecar } from '../support/sidecar.js';

const dir = t.testdir();
const file = await embeddedTestModel();
const { models } = await chatOnly(4);
const of = (store: 'memory' | 'off', name = 'data'): Readonly<Record<string, unknown>> => ({
  contract: 'compatible',
  models: [...models, { id: 'embed', kind: 'embedding', file, contextPerSeat: 256 }],
  dataDir: join(dir, name),
  batch: { store },
});
const clientOf = ({ key, base }: Sidecar): OpenAI => new OpenAI({ apiKey: key, baseURL: base, maxRetries: 0 });

async function begin(
  client: OpenAI,
  lines: readonly string[],
  endpoint = '/v1/chat/completions',
): Promise<OpenAI.Batch> {
  const input = await client.files.create({
    file: await toFile(Buffer.from(lines.join('\n')), 'in'),
    purpose: 'batch',
  });
  return await client.batches.create({
    input_file_id: input.id,
    endpoint: endpoint as '/v1/completions',
    completion_window: '24h',
  });
}

/** Lines of a batch that does not end within a test: after the first ones, four replies at a time of 5 s each. */
const LINES = 100;
const QUICK = 4;
const long = Array.from({ length: LINES }, (_, i) => chatLine(String(i), i < QUICK ? 10 : 400));

t.test('in memory', async (t) => {
  const config = of('memory');
  const sidecar = await Sidecar.start(t, { stub: true, config });
  const client = clientOf(sidecar);

  await t.test('lines for responses and embeddings have the answers of their routes', async (t) => {
    for (const [url, body, answer] of [
      ['/v1/responses', { model: CHAT, input: 'Hello.', max_output_tokens: 3 }, { object: 'response', usage: {} }],
      ['/v1/embeddings', { model: 'embed', input: ['a', 'b'] }, { object: 'list', data: [{ index: 0 }, { index: 1 }] }],
    ] as const) {
      const lines = [JSON.stringify({ custom_id: 'a', method: 'POST', url, body })];
      const batch = await ended(client, (await begin(client, lines, url)).id);
      t.match(batch, { status: 'completed', request_counts: { completed: 1 } }, url);
      t.match(await answersIn(client, batch.output_file_id), [{ response: { status_code: 200, body: answer } }]);
    }
  });

  const batches = (...args: readonly string[]): ReturnType<typeof runHere> =>
    runHere(['batches', ...args], { RA_OPERATORS_PORT: String(sidecar.operatorsPort), RA_DATA_DIR: join(dir, 'data') });

  await t.test('operators see batches with their progress, cancel them and drop them', async (t) => {
    const { id } = await begin(client, long);
    const feed = await FeedReader.open(sidecar.operatorsPort);
    t.teardown(() => feed.close());
    const { batches: seen } = await feed.until(({ batches: all }) => (all?.[0]?.answered ?? 0) > 0);
    t.match(seen, [{ batches: 1, lines: LINES }]);
    const { stdout } = await batches('list', '--json');
    // Those of one second have no order.
    const listed = JSON.parse(stdout) as readonly { readonly id: string; readonly status: string }[];
    t.match(
      listed.filter((batch) => batch.id === id),
      [{ status: 'in_progress', lines: LINES, failed: 0 }],
    );
    t.same(
      listed.filter((batch) => batch.id !== id).map(({ status }) => status),
      ['completed', 'completed'],
    );
    t.match(await batches('drop', id), { code: 1, stderr: /has not ended: cancel it first/ });
    t.match(await batches('cancel', id), { code: 0, stdout: /^batch_\w+ cancell(ing|ed)\n$/ });
    await ended(client, id);
    t.match((await batches('list')).stdout, new RegExp(`${id} +\\S+ +cancelled +\\d+ of ${LINES}`));
    t.match(await batches('drop', id), { code: 0, stdout: `${id} dropped\n` });
    t.match(await batches('cancel', id), { code: 1, stderr: /There is no batch with this id/ });
    await t.rejects(client.batches.retrieve(id), /404/);
    t.match(await batches('drop'), { code: 2, stderr: /an ID or --all is required/ });
    t.match(await batches('drop', '--all'), { code: 1, stderr: /a sidecar runs/ });
  });

  await t.test('a batch whose content was lost with the process has failed, and nothing of it is left', async (t) => {
    const seen = sidecar.lines.filter(({ event, route }) => event === 'request' && route === 'chat').length;
    const { id } = await begin(client, long);
    await sidecar.logged('request', seen + QUICK, ({ route }) => route === 'chat');
    sidecar.child.kill('SIGKILL');
    await sidecar.exited();
    const again = await Sidecar.start(t, { stub: true, config });
    const batch = await clientOf(again).batches.retrieve(id);
    t.match(batch, { status: 'failed', errors: { data: [{ code: 'content_lost' }] }, output_file_id: null });
    t.same((await clientOf(again).files.list()).data, []);
    const content = contentDirOf({ dataDir: join(dir, 'data') }, 'memory');
    t.same(readdirSync(content), []);
    again.child.kill('SIGTERM');
    await again.exited();
    t.notOk(existsSync(content), 'after a drain not even the folder');
  });
});

t.test('while files are on the disk, a start with another store says so', async (t) => {
  const dataDir = join(dir, 'disk');
  const config = { models, dataDir, batch: storeOnDisk(dir) };
  const sidecar = await Sidecar.start(t, { stub: true, config });
  await clientOf(sidecar).files.create({ file: await toFile(Buffer.from('x'), 'in'), purpose: 'batch' });
  sidecar.child.kill('SIGTERM');
  await sidecar.exited();
  for (const store of ['memory', 'off'] as const) {
    const refused = await Sidecar.launch(t, { stub: true, config: of(store, 'disk') });
    t.match(await refused.exited(), { code: 1 });
    t.match(
      refused.printed,
      /batch\.store: files are stored on the disk \(folder .*\): set disk until they are deleted/,
    );
  }
  t.match(await runHere(['batches', 'drop', '--all'], { RA_DATA_DIR: dataDir }), { code: 0 });
  const off = await Sidecar.start(t, { stub: true, config: of('off', 'disk') });
  t.equal((await fetch(`${off.base}/files`, { headers: { authorization: `Bearer ${off.key}` } })).status, 404);
});
