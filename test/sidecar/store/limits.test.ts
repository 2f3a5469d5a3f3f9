/** Limits of keys over three replicas, on a real PostgreSQL. */
import t, { type Test } from 'tap';
import type { FleetLimitResult, LimitedCaller, Permit } from '../../../sidecar/access/limits.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import type { Database } from '../../../sidecar/store/database.js';
import { StoreLimits } from '../../../sidecar/store/limits.js';
import type { Replica } from '../../../sidecar/store/replica.js';
import { LONG } from '../../support/long-form.js';
import type { RecordingLog } from '../../support/in-process.js';
import { eventually } from '../../support/processes.js';
import { Relay, replicaAt, sharedPostgres, type Postgres } from '../../support/postgres.js';

const NONE = { inFlight: 0, perMinute: 0 };
const KEY: LimitedCaller = { account: 'acme', keyId: 'k' };

interface Member {
  readonly database: Database;
  readonly replica: Replica;
  readonly limits: StoreLimits;
  readonly log: RecordingLog;
  take(caller?: LimitedCaller): Promise<FleetLimitResult>;
}

async function member(
  t: Test,
  url: string,
  id: string,
  own: {
    timeoutMs?: number;
    whenDown?: 'refuse' | 'share';
    decisions?: { inFlight: number; perMinute: number };
  } = {},
): Promise<Member> {
  const { log, database, replica } = await replicaAt(t, url, id, own);
  const limits = new StoreLimits({
    clock: systemClock,
    database,
    replica,
    whenDown: own.whenDown ?? 'refuse',
    defaults: {
      decisions: own.decisions ?? { inFlight: 32, perMinute: 600 },
      chat: NONE,
      embeddings: NONE,
      models: NONE,
    },
  });
  t.equal(await replica.begin(), undefined);
  t.teardown(() => limits.close());
  return { database, replica, limits, log, take: async (caller = KEY) => await limits.take(caller, 'decisions') };
}

async function fleet(t: Test, own: Parameters<typeof member>[3] = {}) {
  const server = await sharedPostgres();
  const { name, url } = await server.database();
  const members = await Promise.all(['a', 'b', 'c'].map((id) => member(t, url, id, own)));
  const count = async (table: string): Promise<number> =>
    Number((await server.sql(`select count(*) as n from ra_sidecar.${table}`, name)).rows[0]?.['n']);
  return { server, name, url, members, count };
}

const permitsOf = (taken: readonly FleetLimitResult[]): Permit[] =>
  taken.flatMap((one) => (one.kind === 'taken' ? [one.permit] : []));

async function until(t: Test, what: string, holds: () => Promise<boolean> | boolean): Promise<void> {
  await eventually(what, holds);
  t.pass(what);
}

/** The largest number of stamps in any 60 seconds. */
async function fullestMinute(server: Postgres, name: string): Promise<number> {
  const { rows } = await server.sql(
    `select max(n) as n from (select count(*) over (order by at range between interval '60 seconds' preceding and current row) as n
     from ra_sidecar.hit) counted`,
    name,
  );
  return Number(rows[0]?.['n']);
}

const MINUTE = LONG ? 600 : 60;

t.test('a third of three times the limit of a minute, and a refused one frees its stamp', async (t) => {
  const { server, name, members } = await fleet(t, { decisions: { inFlight: 0, perMinute: MINUTE } });
  const taken = await Promise.all(Array.from({ length: 3 * MINUTE }, (_, i) => (members[i % 3] as Member).take()));
  const permits = permitsOf(taken);
  t.equal(permits.length, MINUTE);
  t.equal(await fullestMinute(server, name), MINUTE);
  const refused = taken.find((one) => one.kind === 'limited');
  t.match(refused, { kind: 'limited', by: 'perMinute' });
  t.ok(refused?.kind === 'limited' && refused.retryAfterMs > 0 && refused.retryAfterMs <= 60_000);
  permits[0]?.end(true);
  permits[1]?.end(false);
  permits[1]?.end(false);
  await until(t, 'its stamp is free', async () => (await fullestMinute(server, name)) === MINUTE - 1);
  t.equal((await members[2]?.take())?.kind, 'taken');
  t.equal((await members[0]?.take())?.kind, 'limited', 'no more than one');
  t.match(members[0]?.limits.remaining(KEY, 'decisions'), { limit: MINUTE, remaining: 0 });
  t.equal((await members[0]?.take({ ...KEY, keyId: 'other' }))?.kind, 'taken', 'another key');
});

t.test('32 of 96 at once; the places of one that ends, or is gone, return', async (t) => {
  const { server, name, members, count, url } = await fleet(t);
  const taken = await Promise.all(Array.from({ length: 96 }, (_, i) => (members[i % 3] as Member).take()));
  const permits = permitsOf(taken);
  t.equal(permits.length, 32);
  t.match(
    taken.find((one) => one.kind === 'limited'),
    { by: 'inFlight', retryAfterMs: 1000 },
  );
  t.equal(members[0]?.limits.inFlightLeft(KEY, 'decisions')?.remaining, 0);
  permits[0]?.end(true);
  await until(t, 'the place is free', async () => (await count('flight')) === 31);
  t.equal((await members[1]?.take())?.kind, 'taken');
  t.equal((await members[1]?.take())?.kind, 'limited');

  // Killed: it says nothing more and its connections are gone, until its lease ends.
  await members[0]?.database.close();
  t.equal((await members[1]?.take())?.kind, 'limited');
  await server.sql(`update ra_sidecar.replica set lease_until = now() where id = 'a'`, name);
  t.equal((await members[1]?.take())?.kind, 'taken', 'its places are free');
  const again = await member(t, url, 'a');
  t.ok(again.replica.session, 'the next start of it has none of them');
  t.equal((await again.take()).kind, 'taken');
});

t.test('a take whose answer is lost frees its place and its stamp', async (t) => {
  const { server, name, members, count } = await fleet(t);
  const [a] = members as [Member];
  const { database } = a;
  const call = database.call.bind(database);
  // The store works on it, and the answer does not arrive.
  database.call = async (fn, args) => {
    const answer = await call(fn, args);
    return fn === 'take' ? { kind: 'down', why: 'timeout', retryAfterMs: 1, sent: true } : (answer as never);
  };
  t.equal((await a.take()).kind, 'unavailable');
  database.call = call;
  t.equal(await count('flight'), 1);
  await until(t, 'the place is free', () => {
    a.replica.hurry();
    return a.limits.size === 0;
  });
  t.equal(await count('flight'), 0);
  t.equal(await count('hit'), 0);
  // One that arrives later than that finds the replica two beats on.
  const { no, epoch, beat } = a.replica.session ?? { no: 0, epoch: 0, beat: 0 };
  const key = '00000000000000000000000000000001';
  t.match(await call('take', [no, epoch, beat - 2, 99, key, 1, 1]), { rows: [{ outcome: 'late' }] });
  t.match(await call('take', [no, epoch - 1, beat, 99, key, 1, 1]), { rows: [{ outcome: 'fenced' }] });
  await server.sql(`update ra_sidecar.replica set lease_until = now()`, name);
  t.match(await call('take', [no, epoch, beat + 9, 99, key, 1, 1]), { rows: [{ outcome: 'lease' }] });
});

t.test('a second process with the data folder of the first fences it', async (t) => {
  const { members, url } = await fleet(t);
  const [a] = members as [Member];
  const twin = await member(t, url, 'a');
  a.replica.hurry();
  await until(t, 'it is fenced', () => a.replica.fenced);
  t.equal((await a.take()).kind, 'unavailable');
  t.match(a.log.lines.at(-1), { event: 'store has another replica in this place' });
  t.equal((await twin.take()).kind, 'taken');
});

t.test('stamps older than a minute are removed', async (t) => {
  const { server, name, members, count } = await fleet(t);
  await server.sql(`update ra_sidecar.swept set until = '-infinity'`, name);
  await server.sql(
    `insert into ra_sidecar.hit select gen_random_uuid(), now() - i * interval '1 second', 1, i from generate_series(1, 100) i`,
    name,
  );
  await members[0]?.database.call('sweep', []);
  t.equal(await count('hit'), 60);
});

t.test('while the store is down: refused, or a share of the limits', async (t) => {
  const { members, url, name, server } = await fleet(t, {
    decisions: { inFlight: 0, perMinute: 30 },
    whenDown: 'share',
  });
  const strict = await member(t, url, 'd');
  const [a, b] = members as [Member, Member];
  for (const { replica } of [a, b]) replica.hurry();
  await until(t, 'each knows how many there are', () => [a, b].every(({ replica }) => replica.replicas === 4));
  for (let i = 0; i < 4; i++) t.equal((await a.take()).kind, 'taken');
  await server.sql(`revoke usage on schema ra_sidecar from ra_replica`, name);
  t.match(await strict.take(), { kind: 'unavailable' });
  const own = await Promise.all(Array.from({ length: 20 }, () => a.take()));
  t.equal(permitsOf(own).length, 7 - 4, 'with those that the store let in');
  t.equal(permitsOf(await Promise.all(Array.from({ length: 20 }, () => b.take()))).length, 7, 'a fourth of 30');
});

t.test('a network that drops, stops or comes late: no call outlasts its time, no place is lost', async (t) => {
  const server = await sharedPostgres();
  const { name, url } = await server.database();
  const relay = await new Relay(t, server).listen();
  const a = await member(t, relay.through(url), 'a', { timeoutMs: 1000 });
  const b = await member(t, url, 'b');
  const places = async (): Promise<number> =>
    Number((await server.sql('select count(*) as n from ra_sidecar.flight', name)).rows[0]?.['n']);
  const first = await a.take();
  t.equal(first.kind, 'taken');

  relay.fault = 'hold';
  t.equal((await a.take()).kind, 'unavailable', 'half open');
  permitsOf([first])[0]?.end(true);
  await server.sql(`update ra_sidecar.replica set lease_until = now() where id = 'a'`, name);
  t.equal((await a.take()).kind, 'unavailable');
  const all = await Promise.all(Array.from({ length: 33 }, () => b.take()));
  t.equal(permitsOf(all).length, 32, 'the others have all places');

  relay.deliver();
  await until(t, 'it is back', async () => (await a.take()).kind === 'limited');
  for (const permit of permitsOf(all)) permit.end(false);
  await until(t, 'each place is free', () => {
    a.replica.hurry();
    return a.limits.size + b.limits.size === 0;
  });
  t.equal(await places(), 0);
  relay.cut();
  relay.fault = 'refuse';
  t.equal((await a.take()).kind, 'unavailable', 'dropped');
  relay.fault = 'none';
  await until(t, 'it is back again', async () => (await a.take()).kind === 'taken');
});
