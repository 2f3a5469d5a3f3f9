/** Keys and prices of several sidecars from a store: a change at one is in force at all, on a real PostgreSQL. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import t, { type Test } from 'tap';
import { changePrices, importKeys, readDocument } from '../../sidecar/store/keys.js';
import { sha256 } from '../../sidecar/usage/durable-sums.js';
import { operatorsOpenApi } from '../generate/operators-openapi.js';
import { errorOf } from '../support/error-answer.js';
import { runHere } from '../support/command-here.js';
import { chatBody, InProcess } from '../support/in-process.js';
import { makeKey } from '../support/keys.js';
import { PATIENCE, Relay, replicaAt, sharedPostgres } from '../support/postgres.js';
import { eventually } from '../support/processes.js';
import { RawConnection, type RawResponse } from '../support/raw-http.js';

const CHAT = '/v1/chat/completions';
const SECRET = 'o'.repeat(40);
/** Longer than a test: what is in force before was not polled. */
const NEVER_MS = 600_000;

const server = await sharedPostgres();
const { name: database, url } = await server.database();
const dir = t.testdir({ 'operators.txt': `${SECRET}\n` });
const { database: direct } = await replicaAt(t, url, 'direct');

/** A price file: the price of a token of a reply, in millionths of a dollar. */
function prices(version: string, output: string): string {
  const chat = { m: { input: '0', cachedInput: '0', output } };
  const effective = '2026-01-01T00:00:00Z';
  return JSON.stringify({ version: 1, prices: [{ version, effective, decisions: '0.042', chat }] });
}

await changePrices(direct, prices('v1', '1'), '', 'test');
const kept = makeKey({ id: 'kept' });
await importKeys(direct, { version: 1, keys: [kept.stored] }, 'test');

function start(
  name: string,
  pollMs: number,
  more: object = {},
  cold = false,
  { operators = { port: 0, secretFile: join(dir, 'operators.txt') }, ...rest }: Record<string, object> = {},
): Promise<InProcess> {
  return InProcess.start(t, {
    models: [{ id: 'm', kind: 'chat', cold }],
    followsKeys: true,
    config: {
      dataDir: join(dir, name),
      keys: { source: 'store', failuresPerMinute: 0 },
      pricing: { source: 'store' },
      operators,
      store: { url, timeoutMs: 5000, leaseMs: 60_000, pollMs, ...more },
      ...rest,
    },
  });
}

const [one, two, three] = await Promise.all([start('a', NEVER_MS), start('b', NEVER_MS), start('c', 100)]);
const fleet = [one, two, three];

async function operate(
  at: InProcess,
  method: string,
  path: string,
  body: object = {},
  more: Record<string, string> = {},
  secret = SECRET,
): Promise<RawResponse> {
  const connection = await RawConnection.open(at.app.operatorsPort);
  const authorization = secret !== '' && { Authorization: `Bearer ${secret}` };
  const headers = { 'Content-Type': 'application/json', ...authorization, ...more };
  const response = await connection.request(method, path, headers, JSON.stringify(body)).response();
  connection.close();
  return response;
}

/** What a chat with a key comes to. */
async function chat(at: InProcess, key: string): Promise<string> {
  const answer = await at.post(CHAT, chatBody('m', 'echo'), { Authorization: `Bearer ${key}` });
  return answer.status === 200 ? 'served' : errorOf(answer).code;
}

/** The version of the prices of the last request. */
function version({ spool }: InProcess): string | undefined {
  const close = spool.records.findLast((record) => record.kind === 'close');
  return close?.kind === 'close' ? close.price?.version : undefined;
}

async function everywhere(t: Test, what: string, seen: (at: InProcess) => Promise<boolean>, at = fleet): Promise<void> {
  const from = performance.now();
  await Promise.all(at.map((each) => eventually(what, () => seen(each))));
  const ms = Math.round(performance.now() - from);
  t.ok(ms < 1000 * PATIENCE, `${what} everywhere after ${ms} ms`);
}

const is = (key: string, wanted: string) => async (at: InProcess) => (await chat(at, key)) === wanted;

async function revisionAt(at: InProcess): Promise<string> {
  return (JSON.parse((await operate(at, 'GET', '/prices')).body) as { revision: string }).revision;
}

function replace(at: InProcess, revision: string, text: string): Promise<RawResponse> {
  return operate(at, 'PUT', '/prices', JSON.parse(text) as object, { 'If-Match': `"${revision}"` });
}

/** A key is created, frozen, revoked at one of `at`, and prices change: all of `at` follow. */
async function follow(t: Test, at: InProcess[], by: InProcess): Promise<void> {
  const created = await operate(by, 'POST', '/keys', { account: `acme-${at.length}` });
  t.equal(created.status, 201);
  const { key, id } = JSON.parse(created.body) as { key: string; id: string };
  t.equal(await chat(by, key), 'served', 'in force when the answer is sent');
  await everywhere(t, 'a new key', is(key, 'served'), at);
  t.equal((await operate(by, 'POST', `/accounts/acme-${at.length}/freeze`)).status, 200);
  await everywhere(t, 'a freeze', is(key, 'account_frozen'), at);
  t.equal((await operate(by, 'POST', `/accounts/acme-${at.length}/unfreeze`)).status, 200);
  await everywhere(t, 'its end', is(key, 'served'), at);
  t.equal((await operate(by, 'POST', `/keys/${id}/revoke`)).status, 200);
  t.equal(await chat(by, key), 'revoked_api_key');
  await everywhere(t, 'a revocation', is(key, 'revoked_api_key'), at);
  const next = `v-${at.length}`;
  const before = await revisionAt(by);
  const put = await replace(by, before, prices(next, '2'));
  t.match(JSON.parse(put.body), { file: { prices: [{ version: next }] }, problem: undefined });
  const late = await replace(by, before, prices('lost', '2'));
  t.equal(late.status, 412, 'a change to prices that another operator has replaced');
  t.match(errorOf(late).message, /^Nothing was changed: the prices are no longer those of this revision/);
  await everywhere(t, 'a price', async (at) => (await chat(at, kept.key)) === 'served' && version(at) === next, at);
}

t.test('a change is everywhere by notification', async (t) => {
  t.equal(await chat(one, kept.key), 'served');
  t.equal(version(one), 'v1');
  await follow(t, [one, two, three], two);
  const listed = await operate(three, 'GET', '/keys');
  t.match(JSON.parse(listed.body), { keys: 2, data: [{ id: 'kept' }, { state: 'revoked' }] });
  const { rows } = await server.sql(`select operator, action from ra_sidecar.audit order by id`, database);
  t.strictSame(
    rows.map(({ action }) => action),
    ['prices', 'import', 'create', 'freeze', 'unfreeze', 'revoke', 'prices'],
  );
  for (const { operator } of rows.slice(2)) t.match(operator, /^[0-9a-f]{8}$/);
});

t.test('without an operator’s secret nothing is managed in the store, also from loopback', async (t) => {
  const open = await start('h', NEVER_MS, {}, false, { operators: { port: 0 }, credit: { source: 'store' } });
  const count = async (): Promise<unknown> =>
    (await server.sql('select count(*) as n from ra_sidecar.audit', database)).rows[0]?.['n'];
  const before = await count();
  const routes = [
    ['GET', '/prices', {}],
    ['PUT', '/prices', JSON.parse(prices('taken', '9'))],
    ['POST', '/keys', { account: 'acme' }],
    ['POST', '/accounts/acme/freeze', {}],
    ['POST', '/accounts/acme/grants', { id: 'taken', usd: '9' }],
    ['GET', '/replicas', {}],
    ['POST', '/replicas/gone/write-off', {}],
  ] as const;
  for (const [method, path, body] of routes.flatMap(([method, path, body]) =>
    ['', '/admin'].map((at) => [method, at + path, body] as const),
  )) {
    const refused = await operate(open, method, path, body as object);
    t.equal(refused.status, 404, path);
    t.match(errorOf(refused).message, /operators\.secretFile/);
    for (const secret of ['', 'w'.repeat(40)])
      t.equal((await operate(one, method, path, body as object, {}, secret)).status, 401, path);
  }
  t.equal(await count(), before);
  await open.app.drain();
});

t.test('credit and sidecars of the store over HTTP, each change with its row in the audit', async (t) => {
  const paid = await start('g', NEVER_MS, {}, false, { credit: { source: 'store' } });
  t.equal(await chat(paid, kept.key), 'insufficient_credit');
  t.match(JSON.parse((await operate(paid, 'GET', '/keys')).body), { credit: true });
  const grant = { id: 'inv-1', usd: '2.5' };
  const granted = await operate(paid, 'POST', '/admin/accounts/acme/grants', grant);
  t.match(
    [granted.status, JSON.parse(granted.body)],
    [201, { ...grant, balance: { granted: '2.5', available: '2.5' } }],
  );
  t.equal((await operate(paid, 'POST', '/accounts/acme/grants', grant)).status, 409);
  await eventually('the refusal is remembered no longer', () => is(kept.key, 'served')(paid));
  const { rows: made } = await server.sql(
    `insert into ra_sidecar.replica (id, host, release, epoch, joined_at, lease_until)
       values ('gone', 'h', '1', 1, now(), now() - interval '1 hour') returning no`,
    database,
  );
  await server.sql(
    `with a as (update ra_sidecar.account set held = held + 5e11 where name = 'acme' returning name)
       insert into ra_sidecar.escrow select $1, name, 5e11, 0, 1 from a`,
    database,
    [made[0]?.['no']],
  );
  const { body } = await operate(paid, 'GET', '/admin/replicas');
  const { data } = JSON.parse(body) as { data: { id: string; leaseMs: number; held: string }[] };
  const listed = new Ajv2020({ strict: false, logger: false }).addSchema(operatorsOpenApi(), 'openapi');
  t.ok(listed.validate('openapi#/components/schemas/Replicas', JSON.parse(body)), listed.errorsText());
  t.equal(data.find(({ id }) => id === 'gone')?.held, '0.5');
  const live = data.find(({ leaseMs }) => leaseMs > 0)?.id ?? '';
  for (const [id, status, why] of [
    [live, 422, /may last for \d+ s more/],
    ['nobody', 404, /knows no such sidecar/],
  ] as const) {
    const refused = await operate(paid, 'POST', `/replicas/${id}/write-off`);
    t.match([refused.status, errorOf(refused).message], [status, why]);
  }
  t.match(await operate(paid, 'POST', '/admin/replicas/gone/write-off'), { status: 200, body: '{"released":"0.5"}' });
  const { rows } = await server.sql(
    `select operator, action, amount::text from ra_sidecar.audit where action in ('grant', 'write-off') order by id`,
    database,
  );
  t.match(rows, [
    { operator: /^[0-9a-f]{8}$/, action: 'grant', amount: '2500000000000' },
    { operator: /^[0-9a-f]{8}$/, action: 'write-off', amount: '500000000000' },
  ]);
  await paid.app.drain();
});

t.test('whatever any role of the database notifies of, sidecars go on', async (t) => {
  for (const told of ['toString', '__proto__', '', 'x'.repeat(7000)])
    await server.sql(`select pg_notify('ra_sidecar_change', '${told}')`, database);
  await follow(t, [one, two], one);
});

t.test('prices that do not fit a sidecar stay out of force there', async (t) => {
  const before = sha256((await readDocument(direct, 'prices')) ?? '');
  await changePrices(direct, prices('v3', '3').replace('"m"', '"other"'), before, 'test');
  await one.seen('prices refused, the last valid ones stay in force');
  const bad = await replace(one, await revisionAt(one), prices('v3', 'free'));
  t.equal(bad.status, 400);
  const revision = await revisionAt(one);
  for (const tag of [undefined, '*', `W/"${revision}"`, revision, `"${revision}", "${revision}"`]) {
    const given = tag === undefined ? {} : { 'If-Match': tag };
    const blind = await operate(one, 'PUT', '/prices', JSON.parse(prices('v3', '3')) as object, given);
    t.match([blind.status, errorOf(blind)], [400, { param: 'If-Match' }], `If-Match: ${tag}`);
  }
  t.equal(await revisionAt(one), revision, 'nothing was changed');
  t.match(errorOf(bad).message, /USD per million tokens/);
  t.match(JSON.parse((await operate(one, 'GET', '/prices')).body), { problem: /no price for the model m/ });
  t.equal(await chat(one, kept.key), 'served');
  t.equal(version(one), 'v-2');
});

t.test('commands change the keys of the store, and read them', async (t) => {
  const files = t.testdir({
    'keys.json': JSON.stringify({ version: 1, keys: [makeKey({ id: 'filed' }).stored] }),
    'prices.json': prices('v4', '4'),
    'models.json': JSON.stringify({ models: [{ id: 'm', kind: 'chat', file: '/m.gguf' }] }),
  });
  const environment = {
    RA_CONFIG: join(files, 'models.json'),
    RA_STORE_URL: url,
    RA_KEYS_SOURCE: 'store',
    RA_KEYS_FILE: join(files, 'keys.json'),
  };
  const run = async (line: string, wanted = 0): Promise<{ readonly out: string; readonly said: string }> => {
    const { code, stdout, stderr } = await runHere(line.split(' '), environment);
    t.equal(code, wanted, `${line}: ${stderr}`);
    return { out: stdout, said: stderr };
  };
  t.match(await run('keys import'), { said: /^imported 1 of 1 keys/ });
  t.match(await run('keys import nowhere', 1), { said: /there is no keys file nowhere/ });
  const created = await run('keys create --account shop');
  const id = /key_[\w-]+/.exec(created.said)?.[0] ?? '';
  const key = created.out.trim();
  await everywhere(t, 'a key by command', is(key, 'served'));
  await run('accounts freeze shop');
  await everywhere(t, 'a freeze by command', is(key, 'account_frozen'));
  await run('accounts set shop --tokens-per-day 5');
  t.match(await run('accounts list'), { out: /shop +frozen +1 +day=5/ });
  await run('accounts set shop --tokens-per-day none');
  await run('accounts unfreeze shop');
  t.match(await run('accounts freeze nobody', 1), { said: /there is no such account/ });
  t.match(await run('keys revoke nobody', 1), { said: /there is no key with this id/ });
  t.match(await run(`keys revoke ${id}`), { said: /rejects the key within a second, or 1 s/ });
  await everywhere(t, 'a revocation by command', is(key, 'revoked_api_key'));
  const listed = JSON.parse((await run('keys list --json')).out) as readonly { readonly id: string }[];
  t.ok(['kept', 'filed', id].every((one) => listed.some((each) => each.id === one)));
  const other = await run(`prices import ${join(files, 'prices.json')}`, 1);
  const [, revision = ''] = /the store has other prices.* --revision (\S+)/.exec(other.said) ?? [];
  await run(`prices import ${join(files, 'prices.json')} --revision ${revision}`);
  await everywhere(
    t,
    'prices by command',
    async (at) => (await chat(at, kept.key)) === 'served' && version(at) === 'v4',
  );
  const late = await run(`prices import ${join(files, 'prices.json')} --revision ${revision}`, 1);
  t.match(late.said, /the prices are no longer those of this revision/);
  const shown = await run('prices show');
  t.equal(shown.out.trim(), prices('v4', '4'));
  t.match(shown.said, `revision ${sha256(prices('v4', '4'))}\n`);
  await run(`prices import ${join(files, 'prices.json')}`);
  await run(`prices import ${join(files, 'keys.json')}`, 1);
  const { rows } = await server.sql(`select operator from ra_sidecar.audit where action = 'create'`, database);
  t.match(rows.at(-1)?.['operator'], /^uid:\d+@/);
});

t.test('without notifications a change is everywhere by the next poll', async (t) => {
  const { rows } = await server.sql(`select pg_get_functiondef('ra_sidecar.note_change'::regproc) as text`, database);
  const text = String(rows[0]?.['text']);
  await server.sql(text.replace('perform pg_notify', 'perform concat'), database);
  await follow(t, [three], one);
  t.equal(await chat(two, kept.key), 'served');
  t.equal(version(two), 'v4', 'this one is not told and polls later');
  await server.sql(text, database);
});

t.test('without the store keys serve from the disk, also after a restart, until they are stale', async (t) => {
  const relay = await new Relay(t, server).listen();
  const through = { url: relay.through(url) };
  const four = await start('d', 100, through);
  t.equal(await chat(four, kept.key), 'served');
  relay.fault = 'refuse';
  relay.cut();
  t.equal(await chat(four, kept.key), 'served');
  const refused = await operate(four, 'POST', '/keys', { account: 'acme' });
  t.equal(refused.status, 503);
  t.equal(errorOf(refused).code, 'control_plane_overloaded');
  const unlisted = await operate(four, 'GET', '/replicas');
  t.match([unlisted.status, errorOf(unlisted).message], [503, /^The sidecars cannot be listed: the store does not/]);
  await four.app.drain();

  const again = await start('d', 100, through);
  t.equal(await chat(again, kept.key), 'served');
  await again.app.drain();

  const stale = await start('d', 100, { ...through, staleMs: 200 }, true);
  const asked = await stale.ask('GET', '/v1/models', { Authorization: `Bearer ${kept.key}` });
  t.equal(asked.status, 503);
  t.equal(errorOf(asked).code, 'gateway_unavailable');
  t.match(JSON.parse((await stale.ask('GET', '/readyz', {})).body), { parts: { keys: 'unhealthy' } });
});

t.test(
  'a copy that cannot be used ends no start; keys of the store that cannot be used are not confirmed',
  async (t) => {
    await mkdir(join(dir, 'f'));
    await writeFile(join(dir, 'f', 'fleet-keys.json'), '{"version":2}');
    const five = await start('f', 100, { staleMs: 2000 });
    t.equal(await chat(five, kept.key), 'served');
    const change = (text: string) =>
      server.sql(`${text}; update ra_sidecar.document set revision = gen_random_uuid() where name = 'keys'`, database);
    await change(`insert into ra_sidecar.api_key (id, hash, entry) values ('newer', 'newer', '{"newer":1}')`);
    await five.seen('keys file refused, the last valid keys stay in force');
    await eventually('they are stale', async () => (await chat(five, kept.key)) === 'gateway_unavailable');
    await five.app.drain();
    const again = await start('f', 100, { staleMs: 2000 }, true);
    const status = async (): Promise<number> =>
      (await again.ask('GET', '/v1/models', { Authorization: `Bearer ${kept.key}` })).status;
    t.equal(await status(), 503);
    await change(`delete from ra_sidecar.api_key where id = 'newer'`);
    await eventually('they can be used again', async () => (await status()) === 200);
  },
);

t.test('a sidecar without prices does not start', async (t) => {
  const empty = await server.database();
  const config = { dataDir: join(dir, 'e'), pricing: { source: 'store' }, store: { url: empty.url } };
  const starting = InProcess.start(t, { models: [{ id: 'm', kind: 'chat' }], config });
  await t.rejects(starting, {
    message: /^no prices: the store has none for this sidecar: run ra-sidecar prices import/,
  });
  await server.sql('drop function ra_sidecar.document', empty.name);
  const older = InProcess.start(t, { models: [{ id: 'm', kind: 'chat' }], config });
  await t.rejects(older, { message: /^no prices: the store has an older schema than this release needs/ });
});
