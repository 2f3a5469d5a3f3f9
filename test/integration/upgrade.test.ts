/**
 * What 0.1 left behind is read: its settings, and the data folder that a sidecar of the commit 2907f7d8 wrote, with usage, balances and keys.
 * The folder is as a SIGKILL during a stream left it. `test/fixtures/0.1/README.md` says how it was made.
 */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { loadConfig } from '../../sidecar/config/config.js';
import { configSchema } from '../../sidecar/config/schema.js';
import { settings } from '../../sidecar/config/setting.js';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import { formatUsd } from '../../sidecar/domain/money.js';
import { runHere } from '../support/command-here.js';
import { CHAT, Sidecar } from '../support/sidecar.js';
import { sourceRoot } from '../support/source-root.js';

const FIXTURE = join(sourceRoot, 'test/fixtures/0.1');
const fixture = (name: string): unknown => JSON.parse(readFileSync(join(FIXTURE, name), 'utf8'));

const root = mkdtempSync(join(tmpdir(), 'ra-upgrade-'));
t.teardown(() => rmSync(root, { recursive: true, force: true }));
cpSync(FIXTURE, root, { recursive: true });
const dataDir = join(root, 'data');

t.test('each setting of 0.1 is still one, or is refused with what to do', async (t) => {
  const before = fixture('settings.json') as { settings: Readonly<Record<string, string>>; models: readonly string[] };
  const now = new Map(settings(configSchema).map(({ path, variable }) => [path, variable]));
  const linesOf = (environment: Readonly<Record<string, string>>): readonly string[] => {
    const loaded = loadConfig(environment);
    return loaded.kind === 'invalid' ? loaded.lines : [];
  };
  const asFile = (path: string): string => {
    const file = join(root, 'one.json');
    writeFileSync(file, JSON.stringify(path.split('.').reduceRight<unknown>((value, name) => ({ [name]: value }), 1)));
    return file;
  };
  const says =
    /^config: (\S+) was dropped(, (?:its value is fixed|.+ no longer joined): remove it|: set \S+ or \S+ to .+) \((environment|file .+)\)$/;
  const dropped = Object.entries(before.settings).filter(([path, variable]) => now.get(path) !== variable);
  for (const [path, variable] of dropped) {
    t.match(linesOf({ [variable]: '1' })[0], says, variable);
    const [, named = ''] = says.exec(linesOf({ RA_CONFIG: asFile(path) })[0] ?? '') ?? [];
    t.ok(named !== '' && `${path}.`.startsWith(`${named}.`), `${path}, in a file`);
  }
  t.equal(dropped.length, 19);
  for (const path of before.models) {
    const [name = '', ...deeper] = path.split('.');
    const value = deeper.reduceRight<unknown>((inner, each) => ({ [each]: inner }), []);
    const models = JSON.stringify([{ id: 'a', kind: 'chat', file: '/a', [name]: value }]);
    t.notMatch(linesOf({ RA_MODELS: models }).join('\n'), /not a known field|was dropped/, `models[].${path}`);
  }
});

t.test('usage, balances and keys that 0.1 wrote are read', async (t) => {
  const keys = fixture('keys-in-plain-text.json') as Readonly<Record<'acme' | 'beta' | 'revoked' | 'rotated', string>>;
  const exported = (text: string): UsageRecord[] =>
    text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as UsageRecord);
  const before = exported(readFileSync(join(FIXTURE, 'export.jsonl'), 'utf8'));
  const usage = async (...args: readonly string[]): Promise<string> => {
    const { code, stdout, stderr } = await runHere(['usage', ...args], { RA_DATA_DIR: dataDir });
    t.equal(code, args[0] === 'verify' ? 1 : 0, stderr);
    return stdout;
  };
  t.same(exported(await usage('export')), before, 'the same export, before a start');
  t.match(await usage('verify'), /the spool was not closed/, 'by SIGKILL');

  const sidecar = await Sidecar.start(t, {
    stub: true,
    config: {
      dataDir,
      environment: 'production',
      contract: 'compatible',
      pricing: { file: join(root, 'prices.json') },
      credit: { file: join(root, 'credit.json') },
    },
  });
  const closed = exported(await usage('export'));
  t.same(closed.slice(0, before.length), before);
  t.match(closed.slice(before.length), [{ account: 'acme', outcome: 'failed', estimated: true }], 'what SIGKILL cut');
  const spent = (account: string): bigint =>
    closed
      .filter((record) => record.account === account)
      .reduce((sum, { price }) => sum + BigInt(price?.picodollars ?? 0), 0n);
  t.ok(spent('acme') > 0n && spent('beta') > 0n);
  // The present command adds to the keys file of 0.1: a key that may see its account's balance.
  const settled = { acme: 10n ** 12n, beta: 10n ** 12n / 2n } as const;
  for (const [account, granted] of Object.entries(settled)) {
    const args = ['keys', 'create', '--account', account, '--models', 'all', '--usage', 'account'];
    const made = await runHere(args, {
      RA_DATA_DIR: dataDir,
      RA_ENVIRONMENT: 'production',
      RA_OPERATORS_PORT: String(sidecar.operatorsPort),
    });
    const headers = { authorization: `Bearer ${made.stdout.trim()}` };
    const answer: unknown = await (await fetch(`${sidecar.base}/account`, { headers })).json();
    const available = formatUsd(granted - spent(account));
    t.match(answer, { id: account, balance: { granted: formatUsd(granted), available } });
  }

  const ask = async (key: string, max: number): Promise<object> => {
    const response = await sidecar.post('/chat/completions', body(max), { key });
    return { status: response.status, ...((await response.json()) as object) };
  };
  const body = (max: number): object => ({
    model: CHAT,
    max_tokens: max,
    messages: [{ role: 'user', content: 'Hello' }],
  });
  t.match(await ask(keys.acme, 2), { status: 200 });
  t.match(await ask(keys.revoked, 2), { status: 401, error: { code: 'revoked_api_key' } });
  t.match(await ask(keys.beta, 2), { status: 401 }, 'it was rotated');
  t.match(await ask(keys.rotated, 2), { status: 403 }, 'its key may decide only');
  t.equal(exported(await usage('export')).length, closed.length + 1);
});
