/**
 * A process without an OTLP endpoint does not load OpenTelemetry’s SDK: its loaded modules are read from the process
 * itself.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { OtlpReceiver } from '../support/otlp-receiver.js';
import { Sidecar, unloadedChat } from '../support/sidecar.js';

/** Writes the modules that a process had loaded when it ends: all of the SDK’s are CommonJS. */
const RECORDER = `
const { writeFileSync } = require('node:fs');
const { join } = require('node:path');
process.on('exit', () => writeFileSync(join(__dirname, String(process.pid)), Object.keys(require.cache).join('\\n')));
`;

/** The API is types and little else. */
const SDK = /@opentelemetry\/(?!api\/)/;

/** Modules that the sidecar’s process had loaded between its start and its end, with one request in between. */
async function loaded(t: Test, telemetry: object): Promise<string[]> {
  const dir = t.testdir();
  const recorder = join(dir, 'recorder.cjs');
  writeFileSync(recorder, RECORDER);
  const sidecar = await Sidecar.start(t, {
    early: true,
    config: { ...(await unloadedChat()), telemetry },
    environment: { NODE_OPTIONS: `--require ${recorder}` },
  });
  await (await sidecar.post('/chat/completions', {})).text();
  sidecar.child.kill('SIGTERM');
  t.equal((await sidecar.exited()).code, 0);
  return readFileSync(join(dir, String(sidecar.pid)), 'utf8').split('\n');
}

t.test('without an endpoint none of it is loaded, with one it is', async (t) => {
  const receiver = await OtlpReceiver.start(t);
  const without = await loaded(t, {});
  t.ok(
    without.some((path) => path.includes('uWebSockets')),
    'other packages are found',
  );
  t.strictSame(
    without.filter((path) => SDK.test(path)),
    [],
  );
  const off = await loaded(t, { otlp: { endpoint: receiver.endpoint, traces: false, metrics: false } });
  t.strictSame(
    off.filter((path) => SDK.test(path)),
    [],
    'nor with both signals switched off',
  );
  const sending = await loaded(t, { otlp: { endpoint: receiver.endpoint } });
  t.ok(sending.filter((path) => SDK.test(path)).length > 100, 'found where it is loaded');
});
