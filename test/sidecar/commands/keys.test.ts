import { once } from 'node:events';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import t from 'tap';
import { keys, propertiesOf } from '../../../sidecar/commands/keys.js';
import { loadConfig, type Config } from '../../../sidecar/config/config.js';
import { KeyFileError, readKeyFile, signOfKeyFile } from '../../../sidecar/access/key-file.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { runHere } from '../../support/command-here.js';
import { makeKey } from '../../support/keys.js';

const loaded = loadConfig({});
if (loaded.kind === 'invalid') throw new Error(loaded.line);
const [MODEL] = loaded.config.models;
if (MODEL === undefined) throw new Error('the defaults name a model');

const { operators, store } = loaded.config;
/** Settings for a keys file. Port 0: no sidecar is asked. */
function settingsFor(file: string, port = 0): Parameters<typeof keys>[0] {
  return {
    dataDir: dirname(file),
    keys: { source: 'file', file, pollMs: 1000, failuresPerMinute: 0 },
    environment: 'development',
    models: [],
    operators: { ...operators, port },
    store,
    source: '/etc/ra.jsonc',
  };
}

const NOW = Date.parse('2026-06-01T00:00:00Z');

t.test('the options of create', async (t) => {
  const properties = (options: object): object => propertiesOf({ account: 'acme', ...options }, 'staging', NOW);
  t.strictSame(properties({}), { account: 'acme', entitlements: { staging: { models: 'all' } } });
  t.strictSame(properties({ environment: 'production', models: 'a, b,a' }), {
    account: 'acme',
    entitlements: { production: { models: ['a', 'b'] } },
  });
  t.match(properties({ expires: '90m' }), { expires: '2026-06-01T01:30:00.000Z' });
  t.match(properties({ expires: '2027-01-31T00:00:00+02:00' }), { expires: '2027-01-30T22:00:00.000Z' });
  t.match(properties({ expires: '2028-02-29T00:30:00+02:00' }), { expires: '2028-02-28T22:30:00.000Z' });
  t.match(properties({ limits: 'models=0/10' }), { limits: { models: { inFlight: 0, perMinute: 10 } } });
  for (const environment of ['Production', '', 'prod.eu', '__proto__', 'x'.repeat(65)])
    t.throws(() => properties({ environment }), /--environment must be/, environment);
});

t.test('errors do not repeat the given values, and nothing is changed', async (t) => {
  const file = join(t.testdir(), 'keys.json');
  const revoked = makeKey({ id: 'gone', revoked: '2026-01-02T00:00:00Z' });
  const expired = makeKey({ id: 'old', expires: '2026-01-02T00:00:00Z' });
  const rotated = makeKey({ id: 'moved', rotated: '2026-01-02T00:00:00Z', expires: '2099-01-02T00:00:00Z' });
  await writeFile(file, JSON.stringify({ version: 1, keys: [revoked.stored, expired.stored, rotated.stored] }));
  const before = await readFile(file, 'utf8');
  const run = async (args: string): Promise<{ code: number | null; out: string; said: string }> => {
    const all = ['keys', ...args.split(' ').filter((arg) => arg !== '')];
    const { code, stdout, stderr } = await runHere(all, { RA_KEYS_FILE: file, RA_OPERATORS_PORT: '0' });
    return { code, out: stdout, said: stderr };
  };
  const cases: readonly (readonly [args: string, code: number, says: RegExp])[] = [
    ['revoke nobody', 1, /^ra-sidecar: there is no key with this id/],
    [`revoke ${revoked.key}`, 1, /^ra-sidecar: there is no key with this id/],
    ['rotate nobody', 1, /^ra-sidecar: there is no key with this id/],
    ['rotate gone', 1, /^ra-sidecar: gone is revoked: create a new key\n$/],
    ['rotate old', 1, /^ra-sidecar: old is expired: create a new key\n$/],
    ['rotate moved', 1, /^ra-sidecar: moved is rotated: rotate the key that took its place, or create a new one\n$/],
    ['', 2, /^ra-sidecar: keys: a command is required\n\nusage: ra-sidecar keys create/],
    ['destroy', 2, /^ra-sidecar: keys: unknown command\n/],
    ['create', 2, /^ra-sidecar: --account is required\n/],
    ['create --account a --expires 2020-01-01T00:00:00Z', 2, /^ra-sidecar: --expires is in the past\n/],
    ['create --account a --expires 2099-01-01T00:00:00', 2, /^ra-sidecar: --expires must be a time/],
    ['create --account a --expires 2099-13-01T00:00:00Z', 2, /^ra-sidecar: --expires must be a time/],
    ['create --account a --expires 2099-06-31T00:00:00Z', 2, /^ra-sidecar: --expires must be a time/],
    ['create --account a --expires 2099-02-29T23:30:00-01:00', 2, /^ra-sidecar: --expires must be a time/],
    ['create --account a --expires tomorrow', 2, /^ra-sidecar: --expires must be a time/],
    ['create --account a --expires 99999d', 2, /^ra-sidecar: --expires must be a time/],
    ['create --account a --class gold', 2, /^ra-sidecar: --class takes interactive, standard, batch\n/],
    [
      'create --account a --routes chat,sing',
      2,
      /^ra-sidecar: --routes takes chat, decisions, systemone, embeddings, rerank, batch\n/,
    ],
    ['create --account a --expires 0d', 2, /^ra-sidecar: --expires must be after now\n/],
    [
      'create --account a --expires 30',
      2,
      /^ra-sidecar: --expires must be a time such as 30d.* 2027-01-31T00:00:00Z\n/,
    ],
    ['create --account a --limits chat', 2, /^ra-sidecar: --limits must be as in chat=4\/60/],
    ['create --account a --limits sing=3/60', 2, /^ra-sidecar: --limits takes decisions, chat, embeddings, models\n/],
    ['create --account a --models a,,b', 2, /^ra-sidecar: --models must be comma-separated names/],
    ['create --account a --tokens-per-day 0', 2, /^ra-sidecar: --tokens-per-day must be/],
    ['create --account a --colour red', 2, /^ra-sidecar: .*--colour/],
    ['create --account a b', 2, /^ra-sidecar: too many arguments\n/],
    ['list --json=yes', 2, /^ra-sidecar: .*--json/],
    ['revoke', 2, /^ra-sidecar: one ID is needed\n/],
    ['revoke gone old', 2, /^ra-sidecar: one ID is needed\n/],
    ['rotate gone --grace soon', 2, /^ra-sidecar: --grace must be a time/],
  ];
  for (const [args, code, says] of cases) {
    const ran = await run(args);
    t.match(ran, { code, out: '', said: says }, `keys ${args}`);
    t.notOk(ran.said.includes(revoked.key));
  }
  for (const [args, problem] of [
    ['create --account a\u200bcme', /^keys\[3\]\.account must match/],
    ['create --account a --cohort \u001b[2J', /^keys\[3\]\.entitlements\.development\.cohort must match/],
    ['create --account a --limits chat=200000/1', /^keys\[3\]\.limits\.chat\.inFlight must be at most 100000/],
  ] as const) {
    const io = { out: () => undefined, err: () => undefined, clock: systemClock };
    const thrown: unknown = await keys(settingsFor(file), args.split(' '), io).catch((error: unknown) => error);
    t.type(thrown, KeyFileError, args);
    t.match(thrown, { problem }, args);
  }
  t.equal(await readFile(file, 'utf8'), before);
});

t.test('each change has its line in the audit, without which only a revocation is made', async (t) => {
  const file = join(t.testdir(), 'keys.json');
  const audit = join(dirname(file), 'audit.jsonl');
  let said = '';
  const run = (...args: string[]): Promise<number> => {
    const output = { out: () => undefined, err: (line: string) => (said += line), clock: systemClock };
    return keys(settingsFor(file), args, output);
  };
  await run('create', '--account', 'acme');
  const [first] = (await readKeyFile(file)).keys;
  await run('rotate', first?.id ?? '', '--grace', '1h');
  const next = (await readKeyFile(file)).keys[1]?.id ?? '';
  await run('revoke', first?.id ?? '');
  const lines = (await readFile(audit, 'utf8')).trim().split('\n');
  const by = { operator: `uid:${process.getuid?.()}`, id: first?.id };
  t.match(
    lines.map((line) => JSON.parse(line) as object),
    [
      { ...by, action: 'create', changes: { account: 'acme' } },
      { ...by, action: 'rotate', changes: { by: next, expires: /Z$/ } },
      { ...by, action: 'revoke', changes: { revoked: /Z$/ } },
    ],
  );
  await rm(audit);
  await mkdir(audit);
  const before = await readFile(file, 'utf8');
  await t.rejects(run('create', '--account', 'acme'), { message: /audit\.jsonl cannot be written: EISDIR/ });
  t.equal(await readFile(file, 'utf8'), before);
  t.equal(await run('revoke', next), 0);
  t.match(said, /warning: the revocation is not in the audit: .*EISDIR/);
  t.ok((await readKeyFile(file)).keys[1]?.revoked);
});

t.test('a key for a model that the configuration does not have is created, with a warning', async (t) => {
  const file = join(t.testdir(), 'keys.json');
  const own = { ...MODEL, id: 'mine', file: '/models/mine.gguf' };
  const said = async (named: string, models: Config['models']): Promise<string> => {
    let text = '';
    const config = { ...settingsFor(file), models };
    const output = { out: () => undefined, err: (line: string) => (text += line), clock: systemClock };
    t.equal(await keys(config, ['create', '--account', 'a', '--models', named], output), 0);
    return text;
  };
  const warning =
    /\nwarning: --models names one model that is not configured\. Configured are: mine\. The configuration is: \/etc\/ra\.jsonc\n$/;
  t.match(await said('nope', [own]), warning);
  t.match(await said('nope,mine', [own]), warning);
  t.notMatch(await said('mine', [own]), 'warning');
  t.notMatch(await said('all', [own]), 'warning');
  t.match(await said('nope', [MODEL]), 'warning: --models names one model', 'with the embedded models too');
});

t.test(
  'a command that changes keys waits until the sidecar has the change in force, or says that it has not',
  async (t) => {
    const file = join(t.testdir(), 'keys.json');
    const answers: (() => Promise<object> | object)[] = [];
    const asked: string[] = [];
    let now = 0;
    const server = createServer((request, response) => {
      asked.push(`${request.method} ${request.url}`);
      // Each answer serves once, the last one again and again.
      const answer = answers.length > 1 ? answers.shift() : answers[0];
      void Promise.resolve(answer?.() ?? {}).then((body) => response.end(JSON.stringify(body)));
    }).listen(0, '127.0.0.1');
    t.teardown(() => server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const at = `127.0.0.1:${port}`;
    const run = async (args: string, to = port): Promise<string> => {
      let said = '';
      const clock = { ...systemClock, now: () => now };
      const output = { out: () => undefined, err: (line: string) => (said += line), clock };
      t.equal(await keys(settingsFor(file, to), args.split(' '), output), 0, args);
      return said.split('\n').slice(1).join('\n');
    };
    const inForce = async (): Promise<object> => ({ file, sha256: await signOfKeyFile(file) });
    /** It takes longer than a command waits. */
    const late = (body: object) => (): object => {
      now += 5001;
      return { file, sha256: 'before', ...body };
    };

    answers.push(() => ({ file, sha256: 'before' }), inForce);
    t.equal(await run('create --account a'), '', 'nothing more to say of a key that works');
    t.same(asked, ['GET /keys?limit=0', 'GET /keys?limit=0']);
    const idOf = async (at: number): Promise<string> => (await readKeyFile(file)).keys[at]?.id ?? '';
    const id = await idOf(0);
    const others = `sidecar that uses ${file} reads it within 1 s (keys.pollMs)\n`;

    answers.splice(0, 1, late({}));
    t.equal(
      await run('create --account a'),
      `warning: the new key does not work yet: the sidecar at ${at} has other keys in force (it has not read the file yet)\n`,
    );
    answers.splice(0, 1, late({ file: '/other.json' }));
    t.match(await run(`rotate ${id} --grace 1h`), / does not work yet: .* \(it uses \/other\.json\)\n$/);
    answers.splice(0, 1, late({ problem: 'cannot be read: EACCES' }));
    const unseen = 'warning: whether the key is rejected already was not seen, since';
    t.equal(
      await run(`revoke ${id}`),
      `${unseen} the sidecar at ${at} has other keys in force (cannot be read: EACCES); a ${others}`,
    );
    answers.splice(0, 1, inForce);
    const done = `the sidecar at ${at} rejects the key from now on; any other ${others}`;
    t.equal(await run(`revoke ${id}`), done, 'a key that was revoked before');
    t.equal(await run(`rotate ${await idOf(1)}`), done);

    answers.splice(0, 1, () => ({ error: { message: 'This sidecar uses no keys file.' } }));
    t.equal(
      await run(`revoke ${id}`),
      `${unseen} what answers at ${at} does not say (This sidecar uses no keys file.); a ${others}`,
    );
    t.equal(await run('create --account a'), '', 'it is no sidecar of this file');
    t.equal(await run(`revoke ${id}`, 0), `${unseen} operators.port is 0, which names no sidecar; a ${others}`);
    server.close();
    server.closeAllConnections();
    await once(server, 'close');
    t.equal(await run(`revoke ${id}`), `${unseen} no sidecar answers at ${at} (ECONNREFUSED); a ${others}`);
    t.equal(await run('create --account a'), '');
  },
);
