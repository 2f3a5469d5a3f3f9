import { mkdtemp, open, rm, truncate, writeFile, copyFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { writeKeyFile } from '../../sidecar/access/key-file.js';
import { holdEngine } from '../support/faults.js';
import { makeKey } from '../support/keys.js';
import { embeddedTestModel } from '../support/models.js';
import { SHORT } from '../support/open-stream.js';
import { eventually, groupMembers } from '../support/processes.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';

async function folder(t: Test): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ra-cold-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

t.test('while its model loads a sidecar says so, and then serves', async (t) => {
  // The development key is shown only once all is ready: bring one.
  const { key, stored } = makeKey();
  const keys = { file: join(await folder(t), 'keys.json') };
  await writeKeyFile(keys.file, { version: 1, keys: [stored] });
  const sidecar = await Sidecar.start(t, { early: true, config: { ...(await chatOnly(1)), keys } });
  const release = await holdEngine(sidecar, 1);

  t.equal((await fetch(`http://127.0.0.1:${sidecar.port}/healthz`)).status, 200);
  t.strictSame(await sidecar.readyz(), { status: 503, body: { status: 'not ready', reasons: [`cold: ${CHAT}`] } });
  for (const stream of [false, true]) {
    const refused = await sidecar.post('/chat/completions', { ...SHORT, stream }, { key });
    t.equal(refused.status, 503);
    t.match(await refused.json(), { error: { code: 'cold', type: 'server_error' } });
    t.match(refused.headers.get('retry-after'), /^[1-9][0-9]*$/);
    t.match(refused.headers.get('retry-after-ms'), /^[1-9][0-9]*$/);
    t.ok(refused.headers.get('x-request-id'));
  }
  const wrong = await sidecar.post('/chat/completions', SHORT, { key: 'ra-test-unknown' });
  t.equal(wrong.status, 401, 'who is not known does not learn what is loaded');

  release();
  await sidecar.until(() => sidecar.printed.includes('is ready at'), 'ready');
  t.equal((await sidecar.readyz()).status, 200);
  t.equal((await sidecar.post('/chat/completions', SHORT, { key })).status, 200);
});

t.test('a model that cannot be served ends the start with one clear line', async (t) => {
  const dir = await folder(t);
  const half = join(dir, 'half.gguf');
  await copyFile(await embeddedTestModel(), half);
  const file = await open(half);
  const { size } = await file.stat();
  await file.close();
  await truncate(half, Math.floor(size / 2));
  const none = join(dir, 'none.gguf');
  await writeFile(none, 'not a model');

  for (const file of [half, none, join(dir, 'missing.gguf')]) {
    await t.test(file.slice(dir.length + 1), async (t) => {
      const models = [{ id: CHAT, kind: 'chat', file, seats: 1, contextPerSeat: 2048 }];
      const sidecar = await Sidecar.launch(t, { ownGroup: true, config: { models } });
      t.strictSame(await sidecar.exited(), { code: 1, signal: null });
      const lines = sidecar.printed.trim().split('\n');
      t.equal(lines.length, 1, sidecar.printed);
      t.ok(lines[0]?.startsWith(`ra-sidecar: model ${CHAT} cannot be served from ${file}: `), sidecar.printed);
      await eventually('nothing left running', () => groupMembers(sidecar.pid).length === 0);
    });
  }
});
