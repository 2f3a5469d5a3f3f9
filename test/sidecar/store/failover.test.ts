/** The store and its standby: what a standby that is away, and a failover to it, leave. On real PostgreSQL. */
import t, { type Test } from 'tap';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { StoreClaims } from '../../../sidecar/store/claims.js';
import { StoreLimits } from '../../../sidecar/store/limits.js';
import { eventually } from '../../support/processes.js';
import { Postgres, Relay, replicaAt } from '../../support/postgres.js';

const NONE = { inFlight: 0, perMinute: 0 };
const KEY = { account: 'acme', keyId: 'k' };
const LIMIT = 30;

async function member(t: Test, url: string, id: string, timeoutMs = 5000) {
  const { log, database, replica } = await replicaAt(t, url, id, { timeoutMs, leaseMs: 60_000 });
  const defaults = { decisions: { inFlight: 0, perMinute: LIMIT }, chat: NONE, embeddings: NONE, models: NONE };
  const limits = new StoreLimits({ clock: systemClock, database, replica, whenDown: 'refuse', timeoutMs, defaults });
  const claims = new StoreClaims({ clock: systemClock, log, database, replica, keepMs: 60_000 });
  t.equal(await replica.begin(), undefined);
  const take = async (): Promise<string> => (await limits.take(KEY, 'decisions')).kind;
  const claim = async (key: string): Promise<string> => (await claims.claim('acme', key, 'print')).kind;
  return { replica, limits, claims, take, claim };
}

const primary = await Postgres.start();
t.teardown(() => primary.stop());
const { name, url } = await primary.database();
const standby = await primary.standby('second');
t.teardown(() => standby.stop());

async function count(server: Postgres, from: string): Promise<number> {
  return Number((await server.sql(`select count(*) as n from ${from}`, name)).rows[0]?.['n']);
}

/** Whether the standby has all of the primary. */
async function isLevel(): Promise<boolean> {
  return (await count(primary, 'pg_stat_replication where replay_lsn = pg_current_wal_lsn()')) === 1;
}

t.test('while no synchronous standby answers: claims are refused and end, the lease and limits go on', async (t) => {
  await primary.set('synchronous_standby_names', 'away');
  const late = await replicaAt(t, url, 'late', { timeoutMs: 300, leaseMs: 3000 });
  t.equal(await late.replica.begin(), undefined, 'joining waits for the standby');
  t.equal(late.replica.session, undefined);
  await primary.set('synchronous_standby_names', '');
  const a = await member(t, url, 'a', 600);
  const { beat = 0 } = a.replica.session ?? {};
  await primary.set('synchronous_standby_names', 'away');
  for (let i = 0; i < 4; i++) t.equal(await a.claim(`away-${i}`), 'unavailable');
  t.equal(await a.take(), 'taken');
  a.replica.hurry();
  await eventually('it beats', () => (a.replica.session?.beat ?? 0) > beat);
  await eventually(
    'no claim waits on',
    async () => (await count(primary, `pg_stat_activity where wait_event = 'SyncRep'`)) === 0,
  );
  await primary.set('synchronous_standby_names', '');
  await eventually('their keys are free', () => {
    a.replica.hurry();
    return a.claims.ends.size === 0;
  });
  t.equal(await count(primary, 'ra_sidecar.claim'), 0);
  await primary.sql('delete from ra_sidecar.hit', name);
});

t.test('a standby decides nothing; a failover to one that is synchronous loses no claim', async (t) => {
  await primary.set('synchronous_standby_names', 'second');
  await eventually('it follows', isLevel);
  const relay = await new Relay(t, primary).listen();
  const [a, b] = [await member(t, relay.through(url), 'a'), await member(t, relay.through(url), 'b')];
  const taken = await Promise.all(Array.from({ length: 20 }, (_, i) => (i % 2 ? a : b).take()));
  t.strictSame(new Set(taken), new Set(['taken']));
  t.equal(await a.claim('before'), 'claimed');
  await eventually('the standby has the stamps too', isLevel);

  relay.to = standby;
  relay.cut();
  t.equal(await a.take(), 'unavailable', 'its rows may be old');
  t.equal(await b.claim('before'), 'unavailable');
  t.equal(await b.claim('new'), 'unavailable');

  relay.to = primary;
  relay.cut();
  // The last that the primary has answered, and then it is gone.
  await eventually('back', async () => (await a.claim('last')) === 'claimed');
  await primary.kill();
  await standby.promote();
  relay.to = standby;
  relay.cut();
  await eventually('the store is back', async () => (await b.claim('last')) === 'in-flight');
  t.equal(await b.claim('before'), 'in-flight');
  const after = await Promise.all(Array.from({ length: 40 }, (_, i) => (i % 2 ? a : b).take()));
  t.equal(after.filter((kind) => kind === 'taken').length, LIMIT - 20);
  t.equal(after.filter((kind) => kind === 'limited').length, 40 - LIMIT + 20);
});
