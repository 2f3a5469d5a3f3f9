import { execFileSync } from 'node:child_process';
import { closeSync, constants, mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { startApp, type App } from '../../../sidecar/app/app.js';
import { loadConfig, type Config } from '../../../sidecar/config/config.js';
import type { Prompts } from '../../../sidecar/prompts/lanes.js';
import type { OpenBody, Tokenized } from '../../../sidecar/prompts/prompt-maker.js';
import { segmentPath } from '../../../sidecar/usage/segments.js';
import { FakeIdentity, FakeSpool, RecordingLog } from '../../support/in-process.js';
import { embeddedTestModel } from '../../support/models.js';
import { eventually } from '../../support/processes.js';

/** A folder, and the configuration of one chat model with its data there. */
function configOf(t: Test, model: object): { readonly dir: string; readonly config: Config } {
  const dir = mkdtempSync(join(tmpdir(), 'ra-app-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  const file = join(dir, 'config.json');
  writeFileSync(
    file,
    JSON.stringify({
      listen: { port: 0 },
      operators: { port: 0 },
      dataDir: dir,
      models: [{ id: 'chat', kind: 'chat', ...model }],
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
  t.equal((await fetch(`${at}/admission`)).status, 200);

  const pipe = openSync(segment, constants.O_RDWR);
  await failed;
  closeSync(pipe);
  await t.rejects(fetch(`${at}/healthz`), 'the listener is closed');
});

/** Prompt hosts that are ready when the test says so, and that work on bodies until it answers them. */
class HeldPrompts {
  readonly lengths: number[] = [];
  readonly answers: ((result: Tokenized) => void)[] = [];
  /** Settles when two bodies are worked on. */
  readonly both: Promise<void>;
  start!: () => void;
  #markBoth!: () => void;
  readonly #started = new Promise<void>((settle) => (this.start = settle));
  readonly states: Prompts['states'] = [];
  readonly close = (): void => undefined;

  constructor() {
    this.both = new Promise((settle) => (this.#markBoth = settle));
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
          if (this.answers.push(settle) === 2) this.#markBoth();
        }),
      close: () => undefined,
    };
  }
}

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

t.test('a start is complete when a short and a long chat have been through the prompt hosts', async (t) => {
  const { app, config, prompts } = await startHeld(t);
  let ready = false;
  const all = app.ready().then(() => (ready = true));
  const readyz = (): Promise<Response> => fetch(`http://127.0.0.1:${app.operatorsPort}/readyz`);
  const others = async (): Promise<boolean> => /"starting: prompt hosts"/.test(await (await readyz()).text());
  await eventually('all other parts ready', others);
  prompts.start();
  await Promise.race([prompts.both, all]);
  await new Promise(setImmediate);
  t.notOk(ready, 'the hosts have not answered');
  t.equal((await readyz()).status, 503);
  const [short = NaN, long = NaN] = prompts.lengths;
  t.ok(short <= config.bodies.inlineBytes && long > config.bodies.inlineBytes, `${short} and ${long} bytes`);
  for (const answer of prompts.answers) answer({ kind: 'failed', reason: 'died' });
  await all;
  t.equal((await readyz()).status, 200);
});

t.test('a start that is drained while its first chats are in the prompt hosts is never complete', async (t) => {
  const { app, prompts } = await startHeld(t);
  let ready = false;
  void app.ready().then(() => (ready = true));
  prompts.start();
  await prompts.both;
  const drained = app.drain();
  for (const answer of prompts.answers) answer({ kind: 'failed', reason: 'died' });
  await drained;
  t.notOk(ready);
});
