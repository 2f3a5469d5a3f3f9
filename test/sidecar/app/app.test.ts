import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { startApp, type App } from '../../../sidecar/app/app.js';
import { loadConfig, type Config } from '../../../sidecar/config/config.js';
import { Closers } from '../../../sidecar/app/closers.js';
import { openTls } from '../../../sidecar/app/servers.js';
import type { Prompts } from '../../../sidecar/prompts/lanes.js';
import type { OpenBody, Tokenized } from '../../../sidecar/prompts/prompt-maker.js';
import { segmentPath } from '../../../sidecar/usage/spool-format.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { testPair } from '../../support/certificates.js';
import { FakeIdentity, FakeSpool, RecordingLog } from '../../support/in-process.js';
import { embeddedTestModel } from '../../support/models.js';
import { OtlpReceiver } from '../../support/otlp-receiver.js';
import { eventually } from '../../support/processes.js';

/** A folder that is removed with the test. */
function folderOf(t: Test): string {
  const dir = mkdtempSync(join(tmpdir(), 'ra-app-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** A folder, and the configuration of one chat model with its data there; `sections` replace those of the configuration. */
function configOf(
  t: Test,
  model: object,
  sections: object = {},
  dir = folderOf(t),
): { readonly dir: string; readonly config: Config } {
  const file = join(dir, 'config.json');
  writeFileSync(
    file,
    JSON.stringify({
      listen: { port: 0 },
      operators: { port: 0 },
      dataDir: dir,
      models: [{ id: 'chat', kind: 'chat', ...model }],
      ...sections,
    }),
  );
  const loaded = loadConfig({ RA_CONFIG: file });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  return { dir, config: loaded.config };
}

t.test('while the spool is read the operators’ listener answers, and a failed start leaves nothing open', async (t) => {
  const { dir, config } = configOf(t, { file: '/none.gguf' });
  // Opening a pipe without a writer blocks: a segment that takes as long to read as the test needs.
  const segment = segmentPath(join(dir, 'usage'), 1);
  mkdirSync(join(dir, 'usage'));
  execFileSync('mkfifo', [segment]);

  const log = new RecordingLog();
  const starting = startApp(config, new FakeIdentity(), log);
  const failed = t.rejects(starting, { message: /^the usage spool .* cannot be opened: / });
  const { port } = await log.seen('operators listening');
  const at = `http://127.0.0.1:${String(port)}`;
  t.equal((await fetch(`${at}/healthz`)).status, 200);
  const ready = await fetch(`${at}/readyz`);
  t.equal(ready.status, 503);
  t.match(await ready.json(), { status: 'starting', reasons: ['cold'] });
  t.equal((await fetch(`${at}/metrics`)).status, 200);
  const selected = await fetch(`${at}/metrics?name[]=ra_sidecar_seats&name%5B%5D=ra_sidecar_build_info&name[]=none`);
  const types = (await selected.text()).matchAll(/^# TYPE (\S+)/gm);
  t.strictSame(
    [...types].map(([, name]) => name),
    ['ra_sidecar_seats', 'ra_sidecar_build_info'],
  );
  t.equal((await fetch(`${at}/admission`)).status, 200);

  const pipe = openSync(segment, constants.O_RDWR);
  await failed;
  closeSync(pipe);
  await t.rejects(fetch(`${at}/healthz`), 'the listener is closed');
});

t.test('a certificate that no longer fits its key is logged, and the previous one stays in force', async (t) => {
  const dir = folderOf(t);
  const [keyFile, certFile] = [join(dir, 'key.pem'), join(dir, 'cert.pem')];
  const { key, cert } = testPair('a');
  writeFileSync(keyFile, key);
  writeFileSync(certFile, cert);
  const log = new RecordingLog();
  const closers = new Closers(systemClock, log);
  const tls = await openTls({ tls: { keyFile, certFile } }, { clock: systemClock, log, closers });
  t.match(await log.seen('certificate in force'), { file: certFile, reason: /^SHA-256 \S+, until 2126-10-31/ });
  writeFileSync(certFile, testPair('b').cert);
  await tls?.reload();
  t.match(await log.seen('certificate cannot be used, the previous one stays in force'), { file: certFile });
  await closers.close();
});

/** Prompt hosts that are ready when the test says so, and that work on bodies until it answers them. */
class HeldPrompts {
  readonly lengths: number[] = [];
  readonly answers: ((result: Tokenized) => void)[] = [];
  /** Settles when a body is worked on. */
  readonly asked: Promise<void>;
  start!: () => void;
  #markAsked!: () => void;
  readonly #started = new Promise<void>((settle) => (this.start = settle));
  readonly states: Prompts['states'] = [];
  readonly close = (): void => undefined;

  constructor() {
    this.asked = new Promise((settle) => (this.#markAsked = settle));
  }

  async ready(): ReturnType<Prompts['ready']> {
    await this.#started;
    const calls = { native: true, chosen: false, says: 'native' } as never;
    return { kind: 'ready', models: [{ id: 'chat', tools: true, system: true, calls }] };
  }

  open(_form: unknown, bytes: Uint8Array): OpenBody {
    this.lengths.push(bytes.length);
    return {
      check: () => Promise.resolve({ kind: 'checked', params: {} as never }),
      tokenize: () =>
        new Promise((settle) => {
          this.answers.push(settle);
          this.#markAsked();
        }),
      close: () => undefined,
    };
  }
}

t.test('a start that fails ends the export that it opened', async (t) => {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  t.teardown(() => taken.close());
  const { port } = taken.address() as AddressInfo;
  const receiver = await OtlpReceiver.start(t);
  const model = { file: await embeddedTestModel(), load: 'lazy' };
  const sections = { listen: { port }, telemetry: { otlp: { endpoint: receiver.endpoint, traces: false } } };
  const makePrompts = (): Prompts => new HeldPrompts() as unknown as Prompts;
  const { config } = configOf(t, model, sections);
  await t.rejects(startApp(config, new FakeIdentity(), new RecordingLog(), { makePrompts }), {
    message: /EADDRINUSE.*listen\.port/,
  });
  t.equal(receiver.requests.length, 1, 'what was measured is sent');
});

/** An app whose prompt hosts wait. No engine starts: its model is loaded with the first request. */
async function startHeld(t: Test): Promise<{ app: App; config: Config; prompts: HeldPrompts }> {
  const { config } = configOf(t, { file: await embeddedTestModel(), load: 'lazy' });
  const prompts = new HeldPrompts();
  const app = await startApp(config, new FakeIdentity(), new RecordingLog(), {
    spool: new FakeSpool(),
    makePrompts: () => prompts as unknown as Prompts,
  });
  t.teardown(() => app.drain());
  return { app, config, prompts };
}

t.test('a start is complete when a chat has been through the prompt host', async (t) => {
  const { app, config, prompts } = await startHeld(t);
  let ready = false;
  const all = app.ready().then(() => (ready = true));
  const readyz = (): Promise<Response> => fetch(`http://127.0.0.1:${app.operatorsPort}/readyz`);
  const others = async (): Promise<boolean> => /"starting: prompt hosts"/.test(await (await readyz()).text());
  await eventually('all other parts ready', others);
  prompts.start();
  await Promise.race([prompts.asked, all]);
  await new Promise(setImmediate);
  t.notOk(ready, 'the host has not answered');
  t.equal((await readyz()).status, 503);
  const [short = NaN, ...more] = prompts.lengths;
  t.ok(short <= config.bodies.inlineBytes && more.length === 0, `${short} bytes`);
  for (const answer of prompts.answers) answer({ kind: 'failed', reason: 'died' });
  await all;
  t.equal((await readyz()).status, 200);
});

t.test('a start that is drained while its first chat is in the prompt host is never complete', async (t) => {
  const { app, prompts } = await startHeld(t);
  let ready = false;
  void app.ready().then(() => (ready = true));
  prompts.start();
  await prompts.asked;
  const drained = app.drain();
  for (const answer of prompts.answers) answer({ kind: 'failed', reason: 'died' });
  await drained;
  t.notOk(ready);
});
