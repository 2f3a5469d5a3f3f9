/** `ra-sidecar credit` on a real PostgreSQL, and what of it needs none. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { credit } from '../../../sidecar/commands/credit.js';
import { loadConfig, type Config } from '../../../sidecar/config/config.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { Posting } from '../../../sidecar/store/posting.js';
import { placeIn } from '../../../sidecar/store/replica.js';
import { lockDir } from '../../../sidecar/usage/lock.js';
import { Spool } from '../../../sidecar/usage/spool.js';
import { MemorySpool } from '../../support/memory-spool.js';
import { replicaAt, sharedPostgres } from '../../support/postgres.js';
import { usageRecord } from '../../support/usage-records.js';

async function desk(t: Test) {
  const server = await sharedPostgres();
  const { name, url } = await server.database();
  const loaded = loadConfig({ RA_STORE_URL: url, RA_STORE_LEASE_MS: '3000', RA_DATA_DIR: join(t.testdir(), 'data') });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  const { config } = loaded;
  const ran = async (...args: string[]) => {
    const texts = { out: '', err: '' };
    const code = await credit(config, args, { out: (text) => (texts.out += text), err: (text) => (texts.err += text) });
    return { code, ...texts };
  };
  const grant = (account: string, usd: string, id: string) => ran('grant', account, `--usd=${usd}`, '--id', id);
  return { server, name, url, config, ran, grant };
}

/** A replica that has joined, has posted what its spool has, and draws so much. */
async function drawing(t: Test, url: string, id: string, picodollars: bigint): Promise<void> {
  const { log, database, replica } = await replicaAt(t, url, id);
  t.equal(await replica.begin(), undefined);
  const none = (): void => undefined;
  const spool = new MemorySpool();
  const posting = new Posting({
    ...{ clock: systemClock, log, database, replica, saved: spool.cursor, keepBytes: Infinity },
    onLost: 'refuse',
    uncovered: none,
    lost: none,
    opened: none,
  });
  t.equal(await posting.begin(spool), undefined);
  const { session, run } = replica;
  const args = [session?.no, session?.epoch, run, 1, 'acme', '0', [`${picodollars}`], '0', false];
  t.match(await database.call('draw', args), { rows: [{ outcome: 'drawn' }] });
  await posting.close();
  // As if its process were killed: the replica does not tell the store that it ends.
  await database.close();
}

t.test('grants, of which each id counts once, and balances', async (t) => {
  const { grant, ran, server, name, url } = await desk(t);
  t.match(await grant('acme', '25.000000000001', 'g1'), { code: 0, err: 'granted 25.000000000001 USD\n' });
  t.match(await grant('acme', '99', 'g1'), { code: 1, err: /a grant with this id/ });
  t.match(await grant('acme', '-5', 'correction'), { code: 0 });
  t.match(await grant('globex', '1', 'g2'), { code: 0 });
  await drawing(t, url, 'r', 10n ** 12n);
  t.strictSame(JSON.parse((await ran('balance', 'acme', '--json')).out), {
    accounts: [
      {
        ...{ account: 'acme', granted: '20.000000000001', settled: '0', held: '1' },
        ...{ available: '19.000000000001', uncovered: '0' },
      },
    ],
  });
  const { rows: holders } = await server.sql('select id, held::text from ra_sidecar.replicas(null)', name);
  t.strictSame(holders, [{ id: 'r', held: '1000000000000' }]);
  t.match((await ran('balance')).out, /^ACCOUNT .*\nacme .* 19\.000000000001 .*\nglobex .*\n$/);
  t.match(await ran('balance', 'nobody'), { code: 1, err: /no such account/ });
  const { rows } = await server.sql(
    'select action, account, amount::text, detail from ra_sidecar.audit order by id',
    name,
  );
  t.strictSame(rows.map(Object.values), [
    ['grant', 'acme', '25000000000001', 'g1, role ra_replica'],
    ['grant', 'acme', '-5000000000000', 'correction, role ra_replica'],
    ['grant', 'globex', '1000000000000', 'g2, role ra_replica'],
  ]);
});

t.test('what is wrong with the command line', async (t) => {
  const { ran } = await desk(t);
  await t.rejects(ran('grant', 'acme', '--usd', '1'), /--usd and --id are needed/);
  await t.rejects(ran('grant', 'acme', '--usd', '1e3', '--id', 'g'), /must be dollars/);
  await t.rejects(ran('write-off', 'r', '--longest', '1h'), /whole seconds/);
  await t.rejects(ran(), /a command is required/);
  await t.rejects(ran('pay'), /unknown command/);
});

t.test('a write-off gives back what a lost replica held, and is noted', async (t) => {
  const { grant, ran, server, name, url } = await desk(t);
  await grant('acme', '3', 'g');
  await drawing(t, url, 'lost', 2n * 10n ** 12n);
  const busy = await server.connect(name);
  await busy.query(`begin; select pg_advisory_xact_lock_shared(7265, no) from ra_sidecar.replica;
    select from ra_sidecar.account for update`);
  await t.rejects(ran('write-off', 'unknown'), /knows no such sidecar/);
  await t.rejects(ran('write-off', 'lost'), /longest request may last for 6[0-6]\d s more/, 'waits for no other call');
  const { rows: below } = await server.sql(`select outcome from ra_sidecar.write_off('lost', -3600000, 'o')`, name);
  t.strictSame(below, [{ outcome: 'early' }]);
  await server.sql(`update ra_sidecar.replica set lease_until = now() - interval '599 s'`, name);
  await t.rejects(ran('write-off', 'lost'), /may last for 1 s more/, 'a request of ten minutes');
  await server.sql(`update ra_sidecar.replica set lease_until = now() - interval '600 s'`, name);
  await t.rejects(ran('write-off', 'lost'), /\(55P03\)$/, 'no call waits long behind it');
  await t.rejects(grant('acme', '1', 'late'), /\(55P03\)$/);
  await busy.query('commit');
  await busy.end();
  for (const usd of [2, 0])
    t.match(await ran('write-off', 'lost'), {
      code: 0,
      err: `${usd} USD that lost held are given back to their accounts\n`,
    });
  t.match(JSON.parse((await ran('balance', '--json')).out), { accounts: [{ held: '0', available: '3' }] });
  const { rows } = await server.sql(
    `select replica, amount::text from ra_sidecar.audit where action = 'write-off'`,
    name,
  );
  t.strictSame(rows.map(Object.values), [
    ['lost', '2000000000000'],
    ['lost', '0'],
  ]);
});

t.test('reconcile posts what the folder of a dead replica has', async (t) => {
  const { grant, ran, server, name, url, config } = await desk(t);
  await grant('acme', '3', 'g');
  await t.rejects(ran('reconcile'), /has no replica-id/);
  mkdirSync(join(config.dataDir, 'usage'), { recursive: true });
  const { id } = await placeIn(config.dataDir);
  await drawing(t, url, id, 2n * 10n ** 12n);
  // What its spool has: a request that ended, and one that ran when it was killed.
  const opened = await Spool.open(join(config.dataDir, 'usage'), config.usage, { clock: systemClock });
  if (opened.kind !== 'open') throw new Error(opened.kind);
  const price = (picodollars: string) =>
    ({ price: { version: 'v', picodollars }, prepaid: true, escrow: true }) as const;
  opened.spool.append(usageRecord(randomUUID(), 'close', price('500000000000')));
  opened.spool.append(usageRecord(randomUUID(), 'progress', price('7')));
  t.equal(await opened.spool.close(), 0);
  const lock = await lockDir(join(config.dataDir, 'usage'));
  await t.rejects(ran('reconcile'), /is written by process/);
  if (lock.kind === 'locked') await lock.release();
  await server.sql(`update ra_sidecar.replica set lease_until = now() - interval '1 hour'`, name);
  const { code, err } = await ran('reconcile');
  t.equal(code, 0, err);
  t.match(err, / is reconciled: 1\.499999999993 USD that it held and had not spent are given back\n$/);
  t.match(JSON.parse((await ran('balance', '--json')).out), { accounts: [{ settled: '0.500000000007', held: '0' }] });
  // Its lease has ended now, but not its longest request.
  const again = await ran('reconcile', '--longest', '1');
  t.match(again.err, /^waiting 1 s, for the end of its lease and of its longest request\n.* is reconciled: 0 USD/);
});

t.test('a folder that cannot be used', async (t) => {
  const { ran, config } = await desk(t);
  mkdirSync(config.dataDir, { recursive: true });
  writeFileSync(join(config.dataDir, 'replica-id'), `${randomUUID()}\n`);
  await t.rejects(ran('reconcile'), /ENOENT|cannot/);
  const without: Pick<Config, 'store'> & Config = { ...config, store: {} as Config['store'] };
  const output = { out: () => undefined, err: () => undefined };
  await t.rejects(credit(without, ['balance'], output), /store.url is not set/);
});

t.test('with credit.file: balances as the sidecar that runs knows them, from all its pages of keys', async (t) => {
  const balance = (available: string): object => ({ granted: '20', available });
  const pages: Readonly<Record<string, object>> = {
    first: {
      data: [{ id: 'key-1' }],
      accounts: [{ account: 'acme', balance: balance('12.5') }],
      hasMore: true,
    },
    'key-1': {
      data: [{ id: 'key-2' }, { id: 'key-3' }],
      accounts: [
        { account: 'acme', balance: balance('12.5') },
        { account: 'free', balance: null },
      ],
      hasMore: false,
    },
  };
  let answer = (query: URLSearchParams): object => pages[query.get('after') ?? 'first'] ?? {};
  const server = createServer((request, response) => {
    response.end(JSON.stringify(answer(new URL(request.url ?? '', 'http://localhost').searchParams)));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  const file = { RA_CREDIT_FILE: join(t.testdir(), 'credit.json'), RA_OPERATORS_PORT: `${port}` };
  const loaded = loadConfig(file);
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  const ran = async (...args: string[]) => {
    const texts = { out: '', err: '' };
    const output = { out: (text: string) => (texts.out += text), err: (text: string) => (texts.err += text) };
    return { code: await credit(loaded.config, ['balance', ...args], output), ...texts };
  };
  const accounts = [
    { account: 'acme', granted: '20', available: '12.5' },
    { account: 'free', granted: null, available: null },
  ];
  t.strictSame(await ran('--json'), { code: 0, out: `${JSON.stringify({ accounts })}\n`, err: '' });
  t.match((await ran()).out, /^ACCOUNT +GRANTED +AVAILABLE\nacme +20 +12\.5\nfree +- +-\n$/);
  answer = (query) => ({ data: [], accounts: [], hasMore: query.get('account') !== 'nobody' && !query.has('after') });
  t.match(await ran('nobody'), { code: 1, err: /no key is of this account/ });
  answer = () => ({ keys: 2 });
  t.match(await ran(), { code: 1, err: /operators\.secretFile has to be set/ });
  server.close();
  t.match(await ran(), { code: 1, err: /no sidecar answers/ });
});
