import { execFileSync } from 'node:child_process';
import { closeSync, constants, mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { startApp } from '../../../sidecar/app/app.js';
import { loadConfig } from '../../../sidecar/config/config.js';
import { segmentPath } from '../../../sidecar/usage/segments.js';
import { FakeIdentity, RecordingLog } from '../../support/in-process.js';

t.test('while the spool is read the operators’ listener answers, and a failed start leaves nothing open', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'ra-app-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  const file = join(dir, 'config.json');
  writeFileSync(
    file,
    JSON.stringify({
      listen: { port: 0 },
      operators: { port: 0 },
      dataDir: dir,
      models: [{ id: 'chat', kind: 'chat', file: join(dir, 'none.gguf') }],
    }),
  );
  const loaded = loadConfig({ RA_CONFIG: file });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  // Opening a pipe without a writer blocks: a segment that takes as long to read as the test needs.
  const segment = segmentPath(join(dir, 'usage'), 1);
  mkdirSync(join(dir, 'usage'));
  execFileSync('mkfifo', [segment]);

  const log = new RecordingLog();
  const starting = startApp(loaded.config, new FakeIdentity(), log);
  const failed = t.rejects(starting, { message: /^the usage spool .* cannot be opened: / });
  const { port } = await log.seen('operators listening');
  const at = `http://127.0.0.1:${String(port)}`;
  t.equal((await fetch(`${at}/healthz`)).status, 200);
  const ready = await fetch(`${at}/readyz`);
  t.equal(ready.status, 503);
  t.match(await ready.json(), { status: 'starting', reasons: ['cold'] });
  t.equal((await fetch(`${at}/metrics`)).status, 200);
  t.equal((await fetch(`${at}/admission`)).status, 200);

  const pipe = openSync(segment, constants.O_RDWR);
  await failed;
  closeSync(pipe);
  await t.rejects(fetch(`${at}/healthz`), 'the listener is closed');
});
