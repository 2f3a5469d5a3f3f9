/** The store on Debian's PostgreSQL, behind PgBouncer that pools transactions. */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { chownSync, existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { systemClock } from '../../sidecar/lib/clock.js';
import { store } from '../../sidecar/commands/store.js';
import { loadConfig } from '../../sidecar/config/config.js';
import { StoreClaims } from '../../sidecar/store/claims.js';
import { StoreCredit } from '../../sidecar/store/credit.js';
import { StoreLimits } from '../../sidecar/store/limits.js';
import { Posting } from '../../sidecar/store/posting.js';
import { StoreQuotas } from '../../sidecar/store/quotas.js';
import { MemorySpool } from '../support/memory-spool.js';
import { eventually } from '../support/processes.js';
import { AS, Postgres, replicaAt } from '../support/postgres.js';
import { shortDir } from '../support/short-dir.js';
import { usageRecord } from '../support/usage-records.js';

const ALL = '/usr/lib/postgresql';
const NONE = { inFlight: 0, perMinute: 0 };

t.test('limits, quotas, keys and credit of three replicas through two pooled connections', async (t) => {
  const [version = ''] = readdirSync(ALL).sort();
  const server = await Postgres.start({ programs: join(ALL, version, 'bin') });
  t.teardown(() => server.stop());
  await server.sql('create database pooled');
  const dir = shortDir(t);
  if (AS.uid !== undefined) chownSync(dir, AS.uid, AS.uid);
  writeFileSync(join(dir, 'users'), '"ra_owner" ""\n"ra_replica" ""\n');
  writeFileSync(
    join(dir, 'pgbouncer.ini'),
    [
      '[databases]',
      `pooled = host=${server.socket}`,
      '[pgbouncer]',
      `unix_socket_dir = ${dir}`,
      'listen_port = 5432',
      'auth_type = trust',
      `auth_file = ${join(dir, 'users')}`,
      'pool_mode = transaction',
      'default_pool_size = 2',
      '',
    ].join('\n'),
  );
  const bouncer = spawn('pgbouncer', ['-q', join(dir, 'pgbouncer.ini')], { ...AS, stdio: 'ignore' });
  t.teardown(async () => {
    const ended = once(bouncer, 'close');
    bouncer.kill('SIGKILL');
    await ended;
  });
  await eventually('PgBouncer listens', () => existsSync(join(dir, '.s.PGSQL.5432')));

  const host = encodeURIComponent(dir);
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
