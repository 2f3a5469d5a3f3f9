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
import { replicaAt, sharedPostgres } from '../../support/postgres.js';
import { usageRecord } from '../../support/usage-records.js';

interface Member {
  readonly database: Database;
  readonly replica: Replica;
  readonly claims: StoreClaims;
}

async function member(t: Test, url: string, id: string): Promise<Member> {
  const { log, database, replica } = await replicaAt(t, url, id, { connections: 2 });
  const claims = new StoreClaims({ clock: systemClock, log, database, replica, keepMs: 60_000 });
  t.equal(await replica.begin(), undefined);
  t.teardown(() => claims.close());
  return { database, replica, claims };
}

function claimOf(claimed: FleetClaimed): Claim {
  if (claimed.kind !== 'claimed') throw new Error(claimed.kind);
  return claimed.claim;
}

/** A spool with these records. */
function spoolOf(records: readonly UsageRecord[]) {
  return {
    position: { segment: 1, offset: 1 },
    oldest: () => Promise.resolve(START),
    read: async function* (): AsyncGenerator<Read> {
      yield { kind: 'damage', segment: 1, offset: 0, bytes: 1 };
      for (const record of records) yield await Promise.resolve({ kind: 'record', record, after: START } as const);
    },
  };
}

t.test('a key runs once over all replicas; one that was not completed can be used again', async (t) => {
  const { url } = await (await sharedPostgres()).database();
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
  const server = await sharedPostgres();
  const { url, name } = await server.database();
  const { claims, database } = await member(t, url, 'a');
  claimOf(await claims.claim('acme', 'k', 'print'));
  claimOf(await claims.claim('acme', 'l', 'print')).complete();
  await server.sql(`update ra_sidecar.claim set until = now()`, name);
  claimOf(await claims.claim('acme', 'k', 'another'));
  await server.sql(`update ra_sidecar.swept set until = '-infinity'`, name);
  await database.call('sweep_claims', []);
  t.equal((await server.sql(`select 1 from ra_sidecar.claim`, name)).rows.length, 1, 'the new claim stays');
});

t.test('the start after a kill completes what its spool closed, and gives up the rest', async (t) => {
  const { url } = await (await sharedPostgres()).database();
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
  t.equal(again.claims.needsSpool, true);
  t.strictSame(await b.claims.claim('acme', 'closed', 'print'), { kind: 'in-flight' }, 'until the spool was read');
  again.claims.recovered(
    spoolOf([
      usageRecord('f', 'open', { claim: failed }),
      usageRecord('f', 'close', { outcome: 'failed', claim: failed }),
      usageRecord('c', 'close', { claim: closed }),
    ]),
  );
  await eventually('settled', () => !again.claims.needsSpool);
  t.strictSame(await b.claims.claim('acme', 'closed', 'print'), { kind: 'completed' });
  claimOf(await b.claims.claim('acme', 'failed', 'print'));
  claimOf(await b.claims.claim('acme', 'unknown', 'print'));
  t.strictSame(await again.claims.claim('acme', 'others', 'print'), { kind: 'in-flight' }, 'of a replica that runs');
  others.complete();
});

t.test('a claim whose answer is lost gives up its key', async (t) => {
  const { url } = await (await sharedPostgres()).database();
  const { claims, database, replica } = await member(t, url, 'a');
  const call = database.call.bind(database);
  database.call = async (fn, args) => {
    const answer = await call(fn, args);
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
  t.match(await call('claim', [no, epoch, beat - 2, 9, key, Buffer.alloc(32), 1000]), { rows: [{ outcome: 'late' }] });
});
