import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  constants,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { clientLines, serve } from '../../../sidecar/commands/serve.js';
import { loadConfig, type Config } from '../../../sidecar/config/config.js';
import { segmentPath } from '../../../sidecar/usage/spool-format.js';
import { RecordingLog } from '../../support/in-process.js';
import { testPair } from '../../support/certificates.js';
import { embeddedTestModel } from '../../support/models.js';
import { childrenOf, eventually } from '../../support/processes.js';

const SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGXFSZ'] as const;

/** What this process has open, by name: how often. */
function held(): Map<string, number> {
  const found = new Map<string, number>();
  const count = (what: string, times = 1): void => void found.set(what, (found.get(what) ?? 0) + times);
  for (const { pid } of childrenOf(process.pid)) count(`child ${pid}`);
  for (const resource of process.getActiveResourcesInfo()) count(resource);
  for (const signal of SIGNALS) count(`listener of ${signal}`, process.listenerCount(signal));
  for (const fd of readdirSync('/proc/self/fd')) {
    try {
      const target = readlinkSync(`/proc/self/fd/${fd}`);
      // Node makes one at the first watch and keeps it.
      if (target.includes('inotify'))
        count('watch', readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8').split('inotify wd:').length - 1);
      else if (!target.startsWith('anon_inode')) count(target.replace(/:\[\d+\]$/, ''));
    } catch {
      // The descriptor with which the folder was listed.
    }
  }
  return found;
}

t.test('whatever ends a start, nothing of it remains, and another one in the same process succeeds', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'ra-serve-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  t.teardown(() => taken.close());
  const { port } = taken.address() as AddressInfo;
  const [secretFile, credit, broken, garbage] = ['secret', 'credit.json', 'broken.json', 'garbage.gguf'].map((name) =>
    join(dir, name),
  );
  writeFileSync(secretFile!, `${'s'.repeat(40)}\n`, { mode: 0o600 });
  writeFileSync(credit!, JSON.stringify({ version: 1, accounts: {} }));
  writeFileSync(broken!, '{');
  writeFileSync(garbage!, 'not a model');
  const { keyFile, certFile } = testPair('a');
  const tls = { keyFile, certFile };
  const model = { id: 'chat', kind: 'chat', load: 'lazy', file: await embeddedTestModel() };
  const configOf = (sections: object): Config => {
    const file = join(dir, 'config.json');
    const common = {
      listen: { port: 0 },
      operators: { port: 0, secretFile },
      fleet: { scrapeSecretFile: secretFile },
      tls,
      keys: { file: join(dir, 'keys.json') },
      credit: { file: credit },
      dataDir: dir,
      models: [model],
    };
    writeFileSync(file, JSON.stringify({ ...common, ...sections }));
    const loaded = loadConfig({ RA_CONFIG: file });
    if (loaded.kind === 'invalid') throw new Error(loaded.line);
    return loaded.config;
  };
  let before = held();
  const nothingRemains = async (what: string): Promise<void> => {
    let more: string[] = [];
    await eventually(what, () => {
      more = [...held()]
        .filter(([name, times]) => times > (before.get(name) ?? 0))
        .map(([name, times]) => `${times} ${name}`);
      return more.length === 0;
    }).catch(() => undefined);
    t.strictSame(more, [], `${what}: nothing remains`);
    if (more.length > 0) before = held();
  };

  for (const [what, sections, message] of [
    ['the port is in use', { listen: { port } }, /EADDRINUSE.*listen\.port/],
    ['the operators’ port is in use', { operators: { port, secretFile } }, /EADDRINUSE.*operators\.port/],
    ['the keys file is broken', { keys: { file: broken } }, /is not JSON/],
    ['the credit file is broken', { credit: { file: broken } }, /is not JSON/],
    [
      'the model is none',
      { models: [{ ...model, load: 'eager', file: garbage }] },
      /model chat cannot be served from .*garbage/,
    ],
  ] as const) {
    await t.rejects(
      serve(configOf(sections), 'test', new RecordingLog(), () => undefined),
      { message },
      what,
    );
    await nothingRemains(what);
  }

  /** Sends a signal to the sidecar alone, since the test runner listens too. */
  const others = process.listeners('SIGTERM');
  const terminate = (): void => {
    for (const listener of process.listeners('SIGTERM')) if (!others.includes(listener)) listener('SIGTERM');
  };
  // Opening a pipe without a writer blocks: a segment that takes as long to read as the test needs.
  const segment = segmentPath(join(dir, 'usage'), 99);
  mkdirSync(join(dir, 'usage'), { recursive: true });
  execFileSync('mkfifo', [segment]);
  const log = new RecordingLog();
  const ended = serve(configOf({}), 'test', log, () => undefined);
  await log.seen('operators listening');
  terminate();
  t.equal(await ended, 0, 'a signal ends a start that waits for a file');
  closeSync(openSync(segment, constants.O_RDWR));
  rmSync(segment);
  await nothingRemains('a signal');

  let printed = '';
  const served = serve(configOf({}), 'test', new RecordingLog(), (text) => {
    printed = text;
    terminate();
  });
  t.equal(await served, 0);
  t.match(printed, 'ra-sidecar is ready');
  await nothingRemains('a drain');
});

t.test('lines that connect clients: those of agents for a model with room for them', async (t) => {
  const linesOf = (contract: Config['contract'], ...contexts: number[]): string[] => {
    const models = contexts.map((contextPerSeat, i) => ({ id: `m${i}`, kind: 'chat', contextPerSeat }));
    return clientLines({ contract, models } as unknown as Config, 'http://127.0.0.1:8080/v1', 'k');
  };
  const openai = 'export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=k   # OpenAI clients';
  const provider =
    'model_providers.ra={name="ra",base_url="http://127.0.0.1:8080/v1",env_key="OPENAI_API_KEY",wire_api="responses"}';
  t.strictSame(linesOf('strict', 65_536), [openai]);
  t.strictSame(linesOf('compatible', 2048, 65_536), [
    ...[openai, ''],
    `OPENAI_API_KEY=k codex -m m1 -c '${provider}' -c model_provider=ra -c model_context_window=65536`,
    '',
    'ANTHROPIC_BASE_URL=http://127.0.0.1:8080 ANTHROPIC_AUTH_TOKEN=k ANTHROPIC_MODEL=m1 CLAUDE_CODE_MAX_CONTEXT_TOKENS=65536 claude',
  ]);
  const short = '# coding agents need a chat model with a contextPerSeat of 32768 or more: docs/clients.md';
  t.strictSame(linesOf('compatible', 2048, 32_767), [openai, '', short]);
});
