import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { keys } from '../../../sidecar/commands/keys.js';
import { propertiesOf } from '../../../sidecar/commands/key-options.js';
import { loadConfig, type Config } from '../../../sidecar/config/config.js';
import { KeyFileError } from '../../../sidecar/access/key-file.js';
import { makeKey } from '../../support/keys.js';

const loaded = loadConfig({});
const MODEL = loaded.kind === 'invalid' ? undefined : loaded.config.models[0];
if (MODEL === undefined) throw new Error('the defaults name a model');

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
  for (const environment of ['Production', '', 'prod.eu', '__proto__', 'x'.repeat(65)]) {
    t.throws(() => properties({ environment }), /--environment must be/, environment);
  }
});

t.test('errors do not repeat the given values, and nothing is changed', async (t) => {
  const file = join(t.testdir(), 'keys.json');
  const revoked = makeKey({ id: 'gone', revoked: '2026-01-02T00:00:00Z' });
  const expired = makeKey({ id: 'old', expires: '2026-01-02T00:00:00Z' });
  const rotated = makeKey({ id: 'moved', rotated: '2026-01-02T00:00:00Z', expires: '2099-01-02T00:00:00Z' });
  await writeFile(file, JSON.stringify({ version: 1, keys: [revoked.stored, expired.stored, rotated.stored] }));
  const before = await readFile(file, 'utf8');
  const config = { keys: { file, pollMs: 1000, failuresPerMinute: 0 }, environment: 'development', models: [] };
  const run = async (args: string): Promise<{ code: number; out: string; said: string }> => {
    const ran = { out: '', said: '' };
    const code = await keys(
      config,
      args.split(' ').filter((arg) => arg !== ''),
      { out: (text) => (ran.out += text), err: (text) => (ran.said += text) },
    );
    return { code, ...ran };
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
    ['create --account a --routes chat,sing', 2, /^ra-sidecar: --routes takes chat, decisions, systemone\n/],
    ['create --account a --expires 0d', 2, /^ra-sidecar: --expires must be after now\n/],
    [
      'create --account a --expires 30',
      2,
      /^ra-sidecar: --expires must be a time such as 30d.* 2027-01-31T00:00:00Z\n/,
    ],
    ['create --account a --limits chat', 2, /^ra-sidecar: --limits must be as in chat=4\/60/],
    ['create --account a --limits sing=3/60', 2, /^ra-sidecar: --limits takes decisions, chat, models\n/],
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
    const thrown: unknown = await run(args).catch((error: unknown) => error);
    t.type(thrown, KeyFileError, args);
    t.match(thrown, { problem }, args);
  }
  t.equal(await readFile(file, 'utf8'), before);
});

t.test('a key for a model that the configuration does not have is created, with a warning', async (t) => {
  const file = join(t.testdir(), 'keys.json');
  const own = { ...MODEL, id: 'mine', file: '/models/mine.gguf' };
  const said = async (named: string, models: Config['models']): Promise<string> => {
    let text = '';
    const config = { keys: { file, pollMs: 1000, failuresPerMinute: 0 }, environment: 'development', models };
    const output = { out: () => undefined, err: (line: string) => (text += line) };
    t.equal(await keys(config, ['create', '--account', 'a', '--models', named], output), 0);
    return text;
  };
  const warning = /\nwarning: --models names one model that this configuration does not have: mine\n$/;
  t.match(await said('nope', [own]), warning);
  t.match(await said('nope,mine', [own]), warning);
  t.notMatch(await said('mine', [own]), 'warning');
  t.notMatch(await said('all', [own]), 'warning');
  t.match(await said('nope', [MODEL]), 'warning: --models names one model', 'with the embedded models too');
});
