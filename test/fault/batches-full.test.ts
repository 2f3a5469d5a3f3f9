/** The disk of batches is full while one runs: the kernel refuses any write past some bytes. */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import t from 'tap';
import { answersIn, chatLine, ended, storeOnDisk } from '../support/batch-client.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';
import { readAll } from '../support/usage-records.js';

const LINES = 40;
/** Answered before the disk is full; the others take seconds, since the batch must not end before that. */
const QUICK = 8;

t.test('a batch waits while the disk is full, and then goes on', async (t) => {
  const dir = t.testdir();
  const dataDir = join(dir, 'data');
  const sidecar = await Sidecar.start(t, {
    stub: true,
    config: { ...(await chatOnly(4)), dataDir, batch: storeOnDisk(dir), usage: { minFreeBytes: 0, closeWaitMs: 1000 } },
  });
  const limit = (bytes: string): void =>
    void execFileSync('prlimit', ['--pid', String(sidecar.pid), `--fsize=${bytes}:`]);
  const client = new OpenAI({ apiKey: sidecar.key, baseURL: sidecar.base, maxRetries: 0 });
  const input = Array.from({ length: LINES }, (_, i) => chatLine(String(i), i < QUICK ? 5 : 40)).join('\n');
  const file = await client.files.create({ file: await toFile(Buffer.from(input), 'in'), purpose: 'batch' });
  const { id } = await client.batches.create({
    input_file_id: file.id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
  });
  await sidecar.logged('request', QUICK, ({ route }) => route === 'chat');
  limit('64');
  await sidecar.logged('answer of a batch cannot be stored');
  const refused = client.files.create({ file: await toFile(Buffer.from(input), 'in'), purpose: 'batch' });
  await t.rejects(refused, /429/);
  limit('unlimited');
  const batch = await ended(client, id);
  t.match(batch, { status: 'completed', request_counts: { total: LINES, completed: LINES, failed: 0 } });
  const answers = await answersIn(client, batch.output_file_id);
  t.equal(new Set(answers.map(({ custom_id: name }) => name)).size, LINES);
  t.equal(answers.length, LINES);
  sidecar.child.kill('SIGTERM');
  t.equal((await sidecar.exited()).code, 0);
  const { records } = await readAll(join(dataDir, 'usage'));
  t.equal(records.filter(({ kind, outcome }) => kind === 'close' && outcome === 'done').length, LINES);
});
