/**
 * What 0.1 left behind is read: its settings, and the data folder that a sidecar of the commit 2907f7d8 wrote, with usage, balances and keys.
 * The folder is as a SIGKILL during a stream left it. And batches are finished that the first commit with batches left in the midst.
 * `README.md` of each folder in `test/fixtures` says how it was made.
 */
import { chmodSync, cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import t from 'tap';
import { loadConfig } from '../../sidecar/config/config.js';
import { configSchema } from '../../sidecar/config/schema.js';
import { settings } from '../../sidecar/config/setting.js';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import { formatUsd } from '../../sidecar/domain/money.js';
import { answersIn, ended } from '../support/batch-client.js';
import { runHere } from '../support/command-here.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';
import { sourceRoot } from '../support/source-root.js';
import { readAll } from '../support/usage-records.js';

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

/** A batch of the fixture. */
interface MadeBatch {
  readonly id: string;
  readonly file: string;
  readonly lines: number;
}

/** Moves the times of records in a folder by so many seconds: batches and files have a window. */
function moveTimes(folder: string, seconds: number): void {
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    const record = JSON.parse(readFileSync(path, 'utf8')) as { createdAt: number; expiresAt: number };
    const [createdAt, expiresAt] = [record.createdAt + seconds, record.expiresAt + seconds];
    writeFileSync(path, JSON.stringify({ ...record, createdAt, expiresAt }));
  }
}

t.test('batches that the first commit with them left in the midst are finished, each line once', async (t) => {
  const dir = join(root, 'first-batches');
  cpSync(join(sourceRoot, 'test/fixtures/first-batches'), dir, { recursive: true });
  chmodSync(join(dir, 'batch.key'), 0o600);
  const made = JSON.parse(readFileSync(join(dir, 'made.json'), 'utf8')) as Readonly<
    Record<'ended' | 'failed' | 'running' | 'waiting', MadeBatch>
  > & { readonly key: string; readonly at: number };
  const seconds = Math.floor(Date.now() / 1000) - made.at;
  for (const kind of ['batches', 'files']) moveTimes(join(dir, 'data/batches', kind), seconds);
  const before = await readAll(join(dir, 'data/usage'));
  const isDone = ({ kind, outcome }: Pick<UsageRecord, 'kind' | 'outcome'>): boolean =>
    kind === 'close' && outcome === 'done';
  const early = before.records.filter(isDone).length;
  t.ok(early > made.ended.lines && early < made.running.lines, `${early} lines were answered`);
  const sidecar = await Sidecar.start(t, {
    stub: true,
    config: {
      ...(await chatOnly(8)),
      dataDir: join(dir, 'data'),
      keys: { file: join(dir, 'keys.json') },
      pricing: { file: join(dir, 'prices.json') },
      batch: { store: 'disk', keyFile: join(dir, 'batch.key') },
    },
  });
  const client = new OpenAI({ apiKey: made.key, baseURL: sidecar.base, maxRetries: 0 });
  let cost = 0;
  const usage = { input_tokens: 0, output_tokens: 0 };
  for (const [name, { id, lines, file }] of Object.entries({
    ended: made.ended,
    running: made.running,
    waiting: made.waiting,
  })) {
    const batch = await ended(client, id);
    t.match(batch, {
      status: 'completed',
      metadata: { name },
      request_counts: { total: lines, completed: lines, failed: 0 },
    });
    const names = (await answersIn(client, batch.output_file_id)).map((answer) => answer.custom_id);
    t.same(names.sort(), Array.from({ length: lines }, (_, i) => `${name}-${i}`).sort());
    t.match(await client.files.retrieve(file), { filename: `${name}.jsonl`, purpose: 'batch' });
    cost += Number((batch as unknown as { cost: { value: string } }).cost.value);
    usage.input_tokens += batch.usage?.input_tokens ?? 0;
    usage.output_tokens += batch.usage?.output_tokens ?? 0;
    for (const each of [file, batch.output_file_id]) await client.files.delete(each ?? '');
  }
  t.match(await ended(client, made.failed.id), { status: 'failed', errors: { data: [{ line: 2 }] } });
  sidecar.child.kill('SIGTERM');
  await sidecar.exited();
  const { records, damage } = await readAll(join(dir, 'data/usage'));
  t.same(damage, []);
  const done = records.filter(isDone);
  t.equal(
    done.length,
    made.ended.lines + made.running.lines + made.waiting.lines,
    'one finished request for each line',
  );
  t.same(usage, {
    input_tokens: done.reduce((sum, { promptTokens }) => sum + promptTokens, 0),
    output_tokens: done.reduce((sum, { completionTokens }) => sum + completionTokens, 0),
  });
  const paid = records.reduce(
    (sum, { kind, price }) => sum + (kind === 'close' ? BigInt(price?.picodollars ?? 0) : 0n),
    0n,
  );
  t.equal(Math.round(cost * 1e12), Number(paid));
});
