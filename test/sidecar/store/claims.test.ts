/** Idempotency-Keys of replicas, on a real PostgreSQL. */
import t, { type Test } from 'tap';
import type { Claim, FleetClaimed } from '../../../sidecar/access/idempotency.js';
import type { UsageRecord } from '../../../sidecar/domain/usage-record.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { StoreClaims } from '../../../sidecar/store/claims.js';
import type { Database } from '../../../sidecar/store/database.js';
import type { Replica } from '../../../sidecar/store/replica.js';
import type { Read } from '../../../sidecar/usage/reader.js';
import { START } from '../../../sidecar/usage/spool-format.js';
import { eventually } from '../../support/processes.js';
import { replicaAt, storeDatabase } from '../../support/postgres.js';
import { usageRecord } from '../../support/usage-records.js';

interface Member {
  readonly database: Database;
  readonly replica: Replica;
  readonly claims: StoreClaims;
}

async function member(t: Test, url: string, id: string, keepMs = 60_000): Promise<Member> {
  const { log, database, replica } = await replicaAt(t, url, id, { connections: 2 });
  const claims = new StoreClaims({ clock: systemClock, log, database, replica, keepMs });
  t.equal(await replica.begin(), undefined);
  t.teardown(() => claims.ends.close());
  return { database, replica, claims };
}

function claimOf(claimed: FleetClaimed): Claim {
  if (claimed.kind !== 'claimed') throw new Error(claimed.kind);
  return claimed.claim;
}

/** A spool with these records. */
function spoolOf(records: readonly UsageRecord[]) {
  return {
    estimated: [],
    sync: () => Promise.resolve(true),
    position: { segment: 1, offset: 1 },
    oldest: () => Promise.resolve(START),
    read: async function* (): AsyncGenerator<Read> {
      yield { kind: 'damage', segment: 1, offset: 0, bytes: 1 };
      for (const record of records) yield await Promise.resolve({ kind: 'record', record, after: START } as const);
    },
  };
}

t.test('a key runs once over all replicas; one that was not completed can be used again', async (t) => {
  const { url } = await storeDatabase();
  const [{ claims: a }, { claims: b }] = [await member(t, url, 'a'), await member(t, url, 'b')];
  const claim = claimOf(await a.claim('acme', 'k', 'print'));
  t.strictSame(await b.claim('acme', 'k', 'print'), { kind: 'in-flight' });
  t.strictSame(await a.claim('acme', 'k', 'print'), { kind: 'in-flight' });
  t.strictSame(await b.claim('acme', 'k', 'another'), { kind: 'other-body' });
  const other = claimOf(await b.claim('globex', 'k', 'another'));
  claim.complete();
  claim.release();
  await eventually('completed', async () => (await b.claim('acme', 'k', 'print')).kind === 'completed');
  t.strictSame(await b.claim('acme', 'k', 'another'), { kind: 'other-body' });
  other.release();
  other.complete();
  await eventually('released', async () => (await a.claim('globex', 'k', 'print')).kind === 'claimed');
});

t.test('a key is forgotten after its time', async (t) => {
  const { url, sql } = await storeDatabase();
  const { claims, database } = await member(t, url, 'a');
  claimOf(await claims.claim('acme', 'k', 'print'));
  claimOf(await claims.claim('acme', 'l', 'print')).complete();
  await eventually('the store has its end', () => claims.ends.size === 1);
  await sql(`update ra_sidecar.claim set until = now()`);
  claimOf(await claims.claim('acme', 'k', 'another'));
  await sql(`update ra_sidecar.swept set until = '-infinity'`);
  await database.call('sweep_claims', []);
  t.equal((await sql(`select 1 from ra_sidecar.claim`)).length, 1, 'the new claim stays');
});

t.test('the start after a kill completes what its spool closed, and gives up the rest', async (t) => {
  const { url } = await storeDatabase();
  const killed = await member(t, url, 'a');
  const b = await member(t, url, 'b');
  const [closed = '', failed = ''] = [
    claimOf(await killed.claims.claim('acme', 'closed', 'print')).id,
    claimOf(await killed.claims.claim('acme', 'failed', 'print')).id,
  ];
  claimOf(await killed.claims.claim('acme', 'unknown', 'print'));
  const others = claimOf(await b.claims.claim('acme', 'others', 'print'));
  await killed.database.close();

  const again = await member(t, url, 'a');
  t.strictSame(again.claims.ends.keepFrom, START, 'the spool is kept until it was read');
  t.strictSame(await b.claims.claim('acme', 'closed', 'print'), { kind: 'in-flight' }, 'until the spool was read');
  again.claims.ends.recovered(
    spoolOf([
      usageRecord('f', 'open', { claim: failed }),
      usageRecord('f', 'close', { outcome: 'failed', claim: failed }),
      usageRecord('c', 'close', { claim: closed }),
    ]),
  );
  await eventually('settled', () => again.claims.ends.keepFrom === undefined);
  t.strictSame(await b.claims.claim('acme', 'closed', 'print'), { kind: 'completed' });
  claimOf(await b.claims.claim('acme', 'failed', 'print'));
  claimOf(await b.claims.claim('acme', 'unknown', 'print'));
  t.strictSame(await again.claims.claim('acme', 'others', 'print'), { kind: 'in-flight' }, 'of a replica that runs');
  others.complete();
});

t.test('a restored store takes no key from a request that runs, however often it is restored', async (t) => {
  const { url, sql } = await storeDatabase();
  const { claims: a, database, replica } = await member(t, url, 'a');
  const { claims: b } = await member(t, url, 'b');
  let settled = 0;
  const call = database.call.bind(database);
  database.call = async (fn, args, options) => {
    const answer = await call(fn, args, options);
    if (fn === 'left_claims' && answer.kind === 'rows' && answer.rows.length === 0) settled += 1;
    return answer as never;
  };
  a.ends.recovered(spoolOf([]));
  await eventually('nothing is left', () => a.ends.keepFrom === undefined);
  claimOf(await a.claim('acme', 'k', 'print'));
  for (const epoch of [2, 3]) {
    // The state of before the last start.
    await sql(`update ra_sidecar.replica set epoch = 0 where id = 'a'`);
    await eventually('joined again', () => {
      replica.hurry();
      return replica.session?.epoch === epoch && settled === epoch;
    });
    t.strictSame(await b.claim('acme', 'k', 'print'), { kind: 'in-flight' });
    if (epoch > 2) t.strictSame(await b.claim('acme', 'after 2', 'print'), { kind: 'in-flight' });
    claimOf(await a.claim('acme', `after ${epoch}`, 'print'));
  }
  await replica.close();
  const again = await member(t, url, 'a');
  again.claims.ends.recovered(spoolOf([]));
  await eventually('settled', () => again.claims.ends.keepFrom === undefined);
  claimOf(await b.claim('acme', 'k', 'print'));
});

t.test('a stop does not wait for the ends of earlier starts, and reads the spool no further', async (t) => {
  const { url } = await storeDatabase();
  const killed = await member(t, url, 'a');
  const b = await member(t, url, 'b');
  const { id: claim = '' } = claimOf(await killed.claims.claim('acme', 'closed', 'print'));
  await killed.database.close();

  const again = await member(t, url, 'a');
  let read = 0;
  let closing: Promise<void> | undefined;
  again.claims.ends.recovered({
    ...spoolOf([]),
    read: async function* (): AsyncGenerator<Read> {
      for (;;) {
        yield await Promise.resolve({ kind: 'record', record: usageRecord('f', 'open'), after: START } as const);
        read += 1;
        closing ??= again.claims.ends.close();
      }
    },
  });
  await eventually('it reads', () => closing !== undefined);
  await closing;
  const before = read;
  t.ok(before <= 2, `${before} records were read`);
  t.strictSame(
    await b.claims.claim('acme', 'closed', 'print'),
    { kind: 'in-flight' },
    'nothing is said of half a spool',
  );

  const last = await member(t, url, 'a');
  last.claims.ends.recovered(spoolOf([usageRecord('c', 'close', { claim })]));
  await eventually('settled', () => last.claims.ends.keepFrom === undefined);
  t.strictSame(await b.claims.claim('acme', 'closed', 'print'), { kind: 'completed' });
});

t.test('a claim whose answer is lost gives up its key', async (t) => {
  const { url } = await storeDatabase();
  const { claims, database, replica } = await member(t, url, 'a');
  const call = database.call.bind(database);
  database.call = async (fn, args, options) => {
    const answer = await call(fn, args, options);
    return fn === 'claim' ? { kind: 'down', why: 'timeout', retryAfterMs: 7, sent: true } : (answer as never);
  };
  t.strictSame(await claims.claim('acme', 'k', 'print'), { kind: 'unavailable', retryAfterMs: 7 });
  database.call = call;
  t.strictSame(await claims.claim('acme', 'k', 'print'), { kind: 'in-flight' });
  await eventually('free', async () => {
    replica.hurry();
    return (await claims.claim('acme', 'k', 'print')).kind === 'claimed';
  });
  const { no, epoch, beat } = replica.session ?? { no: 0, epoch: 0, beat: 0 };
  const key = '00000000000000000000000000000001';
  t.match(await call('claim', [no, epoch, beat - 2, 9, key, Buffer.alloc(32), 1000, 0, 0]), {
    rows: [{ outcome: 'late' }],
  });
});

t.test('a key in flight stays for a day at least; keepMs begins when its request was completed', async (t) => {
  const { url, sql } = await storeDatabase();
  const { claims: a } = await member(t, url, 'a', 0);
  const { claims: b } = await member(t, url, 'b', 0);
  const claim = claimOf(await a.claim('acme', 'k', 'print'));
  t.strictSame(await b.claim('acme', 'k', 'print'), { kind: 'in-flight' });
  claim.complete();
  await eventually('forgotten', async () => (await b.claim('acme', 'k', 'print')).kind === 'claimed');
  const { claims: c } = await member(t, url, 'c', 2 * 86_400_000);
  claimOf(await c.claim('acme', 'l', 'print')).complete();
  await eventually('completed', async () => {
    const [row] = await sql(`select until > now() + interval '47 hours' as kept from ra_sidecar.claim where completed`);
    return row?.['kept'] === true;
  });
  t.pass('completed');
});

t.test('the spool is kept from the oldest claim whose end the store has not heard of', async (t) => {
  const { url, server, name } = await storeDatabase();
  const { claims } = await member(t, url, 'a');
  const spool = { ...spoolOf([]), position: { segment: 3, offset: 7 } };
  claims.ends.recovered(spool);
  await eventually('nothing is left', () => claims.ends.keepFrom === undefined);
  const first = claimOf(await claims.claim('acme', 'k', 'print'));
  spool.position = { segment: 5, offset: 0 };
  const second = claimOf(await claims.claim('acme', 'l', 'print'));
  t.strictSame(claims.ends.keepFrom, { segment: 3, offset: 7 });
  const client = await server.connect(name);
  t.teardown(() => client.end());
  await client.query('begin; lock table ra_sidecar.claim in access exclusive mode');
  first.complete();
  t.strictSame(claims.ends.keepFrom, { segment: 3, offset: 7 }, 'its end is on its way');
  await client.query('rollback');
  await eventually('heard', () => claims.ends.keepFrom?.segment === 5);
  second.complete();
  await eventually('nothing is owed', () => claims.ends.keepFrom === undefined);
});

t.test(
  'a key whose records the spool no longer has counts as completed; the spool is read from the oldest claim',
  async (t) => {
    const { url } = await storeDatabase();
    const killed = await member(t, url, 'a');
    const b = await member(t, url, 'b');
    const at = { ...spoolOf([]), position: { segment: 2, offset: 0 } };
    killed.claims.ends.recovered(at);
    claimOf(await killed.claims.claim('acme', 'gone', 'print'));
    at.position = { segment: 4, offset: 0 };
    const { id: claim = '' } = claimOf(await killed.claims.claim('acme', 'closed', 'print'));
    claimOf(await killed.claims.claim('acme', 'open', 'print'));
    await killed.database.close();

    const again = await member(t, url, 'a');
    const pruned = spoolOf([usageRecord('c', 'close', { claim })]);
    let from: unknown;
    again.claims.ends.recovered({
      ...pruned,
      position: { segment: 5, offset: 0 },
      oldest: () => Promise.resolve({ segment: 3, offset: 0 }),
      read: (begin) => {
        from = begin;
        return pruned.read();
      },
    });
    await eventually('settled', () => again.claims.ends.keepFrom === undefined);
    t.strictSame(from, { segment: 3, offset: 0 });
    t.strictSame(await b.claims.claim('acme', 'gone', 'print'), { kind: 'completed' });
    t.strictSame(await b.claims.claim('acme', 'closed', 'print'), { kind: 'completed' });
    t.equal((await b.claims.claim('acme', 'open', 'print')).kind, 'claimed');
  },
);
