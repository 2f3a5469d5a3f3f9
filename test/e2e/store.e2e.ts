/** The store on Debian's PostgreSQL, behind PgBouncer that pools transactions. */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { chownSync, copyFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { systemClock } from '../../sidecar/lib/clock.js';
import { store } from '../../sidecar/commands/store.js';
import { loadConfig } from '../../sidecar/config/config.js';
import { StoreClaims } from '../../sidecar/store/claims.js';
import { StoreCredit } from '../../sidecar/store/credit.js';
import { StoreLimits } from '../../sidecar/store/limits.js';
import { Posting } from '../../sidecar/store/posting.js';
import { StoreQuotas } from '../../sidecar/store/quotas.js';
import type { FleetMember } from '../support/fleet-member.js';
import { makeKey } from '../support/keys.js';
import { testPair } from '../support/certificates.js';
import { freePort } from '../support/free-port.js';
import { MemorySpool } from '../support/memory-spool.js';
import { OUTPUT, paidFleet } from '../support/paid-fleet.js';
import { eventually } from '../support/processes.js';
import { AS, debianPrograms, Postgres, replicaAt, type Listening } from '../support/postgres.js';
import { shortDir } from '../support/short-dir.js';
import { CHAT } from '../support/sidecar.js';
import { usageRecord } from '../support/usage-records.js';

const NONE = { inFlight: 0, perMinute: 0 };

t.setTimeout(600_000);

const server = await Postgres.start({ programs: debianPrograms() });
t.teardown(() => server.stop());

/** What all trust, on a Unix socket. */
const TRUSTING = ['listen_port = 5432', 'auth_type = trust'];

/** Starts PgBouncer, which pools transactions on two connections to each database. `listens`: to whom. `password`: of each user. */
async function pooler(t: Test, listens = TRUSTING, password = ''): Promise<Listening> {
  const dir = shortDir(t);
  if (AS.uid !== undefined) chownSync(dir, AS.uid, AS.uid);
  writeFileSync(join(dir, 'users'), `"ra_owner" "${password}"\n"ra_replica" "${password}"\n`);
  writeFileSync(
    join(dir, 'pgbouncer.ini'),
    [
      '[databases]',
      `* = host=${server.socket}`,
      '[pgbouncer]',
      `unix_socket_dir = ${dir}`,
      ...listens,
      `auth_file = ${join(dir, 'users')}`,
      'pool_mode = transaction',
      'default_pool_size = 2',
      'server_login_retry = 1',
      '',
    ].join('\n'),
  );
  const bouncer = spawn('pgbouncer', ['-q', join(dir, 'pgbouncer.ini')], { ...AS, stdio: 'ignore' });
  t.teardown(async () => {
    const ended = once(bouncer, 'close');
    bouncer.kill('SIGKILL');
    await ended;
  });
  const isSocket = (name: string): boolean => name.startsWith('.s.PGSQL.');
  await eventually('PgBouncer listens', () => Promise.resolve(readdirSync(dir).some(isSocket)));
  return { socket: dir };
}

t.test('limits, quotas, keys and credit of three replicas through two pooled connections', async (t) => {
  await server.sql('create database pooled');
  const host = encodeURIComponent((await pooler(t)).socket);
  const url = `postgresql://ra_replica@${host}/pooled`;
  const loaded = loadConfig({ RA_STORE_URL: url });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  const output = { out: () => undefined, err: () => undefined };
  t.equal(await store(loaded.config, ['migrate', '--url', `postgresql://ra_owner@${host}/pooled`], output), 0);
  t.equal(await store(loaded.config, ['status'], output), 0);

  const members = await Promise.all(
    ['a', 'b', 'c'].map(async (id) => {
      const { log, database, replica } = await replicaAt(t, url, id);
      const defaults = { decisions: { inFlight: 32, perMinute: 600 }, chat: NONE, embeddings: NONE, models: NONE };
      const limits = new StoreLimits({
        clock: systemClock,
        database,
        replica,
        whenDown: 'refuse',
        timeoutMs: 5000,
        defaults,
      });
      const claims = new StoreClaims({ clock: systemClock, log, database, replica, keepMs: 60_000 });
      const parts = { clock: systemClock, log, database, replica, timeoutMs: 5000 };
      const quotas = new StoreQuotas({ ...parts, whenDown: 'refuse' });
      const spool = new MemorySpool();
      const none = (): void => undefined;
      const events = { opened: none, uncovered: none, lost: (line: string): void => void t.fail(line) };
      const posting = new Posting({ ...parts, ...events, onLost: 'refuse', saved: spool.cursor, keepBytes: 1000 });
      const credit = new StoreCredit({ ...parts, posting, recalling: none });
      t.teardown(() => credit.close());
      t.equal(await replica.begin(), undefined);
      t.equal(await credit.begin(spool), undefined);
      return { limits, claims, quotas, credit, spool };
    }),
  );
  const key = { account: 'acme', keyId: 'k' };
  let admitted = 0;
  for (let round = 0; round < 30; round++) {
    const taken = await Promise.all(
      Array.from({ length: 30 }, async (_, i) => await members[i % 3]?.limits.take(key, 'decisions')),
    );
    for (const one of taken) {
      if (one?.kind !== 'taken') continue;
      admitted += 1;
      one.permit.end(true);
    }
    await eventually('they have ended', () => members.every(({ limits }) => limits.size === 0));
  }
  t.equal(admitted, 600, 'of 900');
  const claimed = await Promise.all(members.map(({ claims }) => claims.claim('acme', 'k', 'print')));
  t.strictSame(claimed.map(({ kind }) => kind).sort(), ['claimed', 'in-flight', 'in-flight']);

  const caller = { ...key, tokensPerDay: 1000 };
  const reserved = await Promise.all(
    Array.from({ length: 60 }, async (_, i) => await members[i % 3]?.quotas.reserve(caller, 30)),
  );
  const held = reserved.flatMap((one) => (one?.kind === 'reserved' ? [one.reservation] : []));
  t.equal(held.length, 33, 'of 60');
  for (const reservation of held) reservation.settle(30);
  await eventually('they have ended', () => members.every(({ quotas }) => quotas.size === 0));

  await server.sql(`insert into ra_sidecar.account (name, granted) values ('acme', 1000)`, 'pooled');
  let paid = 0;
  for (let round = 0; round < 30; round++) {
    for (const { credit, spool } of members) {
      // What is idle at another comes without a notification, when that asks.
      const one = await credit.reserve('acme', 30n);
      if (one.kind !== 'reserved') continue;
      paid += 1;
      one.reservation.settle(20n);
      const price = { version: 'v', picodollars: '20' };
      spool.append(usageRecord(randomUUID(), 'close', { account: 'acme', price, prepaid: true, escrow: true }));
      spool.flush();
    }
  }
  t.ok(paid > 30 && paid <= 50, `${paid} were paid`);
  await eventually('all is posted, and nothing is held', async () => {
    const { rows } = await server.sql(`select settled, held from ra_sidecar.account`, 'pooled');
    return Number(rows[0]?.['settled']) === 20 * paid && Number(rows[0]?.['held']) === 0;
  });
});

/** Tokens in a day of the account with that quota. */
const QUOTA = 5000;

t.test(
  'three sidecars through it: a quota, and prepaid credit while sidecars and the database are killed',
  async (t) => {
    const { name: database, url } = await server.database();
    const entitlements = { development: { models: 'all', tokensPerDay: QUOTA } } as const;
    const { key, stored } = makeKey({ account: 'limited', entitlements });
    const options = { keys: [stored], through: await pooler(t) };
    const paid = await paidFleet(t, t.testdir(), { server, database, url }, options);
    const { fleet, leave, command, begin, sums } = paid;

    t.equal((await command('grant', 'limited', '--usd=1', '--id', 'limited')).code, 0);
    const body = { model: CHAT, messages: [{ role: 'user', content: 'x' }], max_tokens: 60 };
    const answers = await Promise.all(
      Array.from({ length: 120 }, async (_, i) => {
        for (;;) {
          const answer = await (fleet[i % 3] as FleetMember).sidecar.post('/chat/completions', body, { key });
          const { usage } = (await answer.json()) as { usage?: { total_tokens: number } };
          // A call that is too late for its time, on a loaded machine, reserves nothing that stays so.
          if (answer.status !== 503) return { status: answer.status, tokens: usage?.total_tokens ?? 0 };
          await wait(20);
        }
      }),
    );
    const each = Math.max(...answers.map(({ tokens }) => tokens));
    const refused = answers.filter(({ status }) => status === 429).length;
    t.equal(refused, answers.length - Math.floor(QUOTA / each), `with ${each} tokens each`);
    t.equal(answers.filter(({ status }) => status === 200).length, Math.floor(QUOTA / each));

    await leave(1_000_000n * OUTPUT);
    const load = begin(t);
    const { statuses } = load;
    for (const one of fleet) {
      await one.restart();
      await server.kill();
      await server.restart();
      const before = statuses.get(200) ?? 0;
      await eventually('requests are served again', () => Promise.resolve((statuses.get(200) ?? 0) > before + 5));
    }
    await leave(1000n * OUTPUT);
    await eventually('the account is used up', () => Promise.resolve((statuses.get(402) ?? 0) > 10));
    await load.end();
    const { granted, settled } = await sums();
    t.ok(granted - settled < 1000n * OUTPUT, 'it was used up, though no notification arrives');
  },
);

t.test('TLS and a password: only the right authority and the right password', async (t) => {
  const { name } = await server.database();
  const files = shortDir(t);
  if (AS.uid !== undefined) chownSync(files, AS.uid, AS.uid);
  const [pair, other] = [testPair('a'), testPair('b')];
  for (const [from, to] of [
    [pair.keyFile, 'key'],
    [pair.certFile, 'cert'],
  ] as const) {
    copyFileSync(from, join(files, to));
    if (AS.uid !== undefined) chownSync(join(files, to), AS.uid, AS.uid);
  }
  const port = await freePort();
  const listens = [
    'listen_addr = 127.0.0.1',
    `listen_port = ${port}`,
    'auth_type = scram-sha-256',
    'client_tls_sslmode = require',
    `client_tls_key_file = ${join(files, 'key')}`,
    `client_tls_cert_file = ${join(files, 'cert')}`,
  ];
  await pooler(t, listens, 'right');
  writeFileSync(join(files, 'right'), 'right\n');
  writeFileSync(join(files, 'wrong'), 'wrong\n');
  const status = async (caFile: string, password: string): Promise<string> => {
    const loaded = loadConfig({
      RA_STORE_URL: `postgresql://ra_replica@localhost:${port}/${name}?sslmode=verify-full`,
      RA_STORE_CA_FILE: caFile,
      RA_STORE_PASSWORD_FILE: join(files, password),
    });
    if (loaded.kind === 'invalid') throw new Error(loaded.line);
    const output = { out: () => undefined, err: () => undefined };
    return await store(loaded.config, ['status'], output).then(String, (error: unknown) => String(error));
  };
  t.equal(await status(pair.certFile, 'right'), '0');
  t.match(await status(other.certFile, 'right'), /cannot be reached: .*certificate/);
  t.match(await status(pair.certFile, 'wrong'), /cannot be reached: .*(password|SASL)/);
});
