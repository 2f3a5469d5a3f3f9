/**
 * The store of sidecars fails over to a standby as operators make it, with `pg_basebackup -R` and `pg_ctl promote`: a synchronous one
 * loses nothing, an asynchronous one what docs/store.md says. On Debian's PostgreSQL.
 */
import t, { type Test } from 'tap';
import type { FleetMember } from '../support/fleet-member.js';
import { makeKey } from '../support/keys.js';
import { OUTPUT, paidFleet } from '../support/paid-fleet.js';
import { debianPrograms, Postgres, Relay } from '../support/postgres.js';
import { eventually } from '../support/processes.js';
import { CHAT } from '../support/sidecar.js';

t.setTimeout(600_000);

const LIMIT = 30;
const { key: counted, stored } = makeKey({ limits: { models: { perMinute: LIMIT } } });

async function started(t: Test) {
  const primary = await Postgres.start({ programs: debianPrograms() });
  t.teardown(() => primary.stop());
  const { name: database, url } = await primary.database();
  const lag = await new Relay(t, primary).listen();
  const standby = await primary.backup('second', lag);
  t.teardown(() => standby.stop());
  const store = { server: primary, database, url };
  const paid = await paidFleet(t, t.testdir(), store, { names: ['a', 'b'], keys: [stored] });

  /** Until the standby has all that the primary has. */
  const follows = (): Promise<void> =>
    eventually('the standby has all', async () => {
      const level = `select 1 from pg_stat_replication where flush_lsn >= pg_current_wal_insert_lsn()`;
      return (await primary.sql(level)).rows.length === 1;
    });
  /** The primary is gone, the standby takes its place. Returns how much of the account's credit it does not know to be drawn. */
  const failOver = async (): Promise<bigint> => {
    const before = await paid.sums();
    await primary.kill();
    await standby.promote();
    store.server = standby;
    store.url = standby.urlOf('ra_replica', database);
    const after = await paid.sums();
    for (const { relay } of paid.fleet) {
      relay.to = standby;
      relay.cut();
    }
    return before.settled + before.held - after.settled - after.held;
  };
  const [a, b] = paid.fleet as [FleetMember, FleetMember];
  return { ...paid, primary, lag, follows, failOver, a, b };
}

t.test(
  'to a synchronous standby, under load: the sums are exact, and nothing is spent beyond the grants',
  async (t) => {
    const { primary, follows, leave, begin, failOver, sums } = await started(t);
    await primary.set('synchronous_standby_names', 'second');
    await follows();
    await leave(100_000n * OUTPUT);
    const load = begin(t);
    const served = (): number => load.statuses.get(200) ?? 0;
    await eventually('requests are served', () => Promise.resolve(served() > 20));
    await failOver();
    const before = served();
    await eventually('requests are served again', () => Promise.resolve(served() > before + 20));
    await leave(1000n * OUTPUT);
    await eventually('the account is used up', () => Promise.resolve((load.statuses.get(402) ?? 0) > 10));
    await load.end();
    const { granted, settled } = await sums();
    t.ok(granted - settled < 1000n * OUTPUT, 'it was used up');
  },
);

t.test(
  'to an asynchronous one that lags: what is lost is what docs/store.md says, and the sidecar says so',
  async (t) => {
    const { lag, follows, leave, ask, status, command, failOver, sums, settled, key, a, b } = await started(t);
    const models = async ({ sidecar }: FleetMember): Promise<number> => {
      const answer = await fetch(`${sidecar.base}/models`, { headers: { authorization: `Bearer ${counted}` } });
      await answer.arrayBuffer();
      return answer.status;
    };
    const once = async ({ sidecar }: FleetMember, name: string): Promise<number> => {
      const body = { model: CHAT, messages: [{ role: 'user', content: 'x' }], max_tokens: 2 };
      const answer = await sidecar.post('/chat/completions', body, { key, headers: { 'Idempotency-Key': name } });
      await answer.arrayBuffer();
      return answer.status;
    };
    /** So many requests that the store has decided about. Returns how many were let in. */
    const letIn = async (of: number): Promise<number> => {
      let count = 0;
      for (let decided = 0; decided < of;) {
        const seen = await models(decided % 2 === 0 ? a : b);
        if (seen !== 503) decided += 1;
        if (seen === 200) count += 1;
      }
      return count;
    };

    await leave(1000n * OUTPUT);
    t.equal(await letIn(10), 10);
    t.equal(await once(a, 'before'), 200);
    await settled(t);
    await leave(400n * OUTPUT);
    await follows();

    lag.fault = 'hold';
    t.equal(await letIn(8), 8);
    t.equal(await once(a, 'lag'), 200);
    const first = await ask(a, 300, new AbortController().signal);
    t.equal(first.status, 200);
    t.equal(await status(b, 300), 402, 'the primary knows what was drawn');
    const lost = await failOver();
    t.ok(lost > 300n * OUTPUT, 'the standby does not know it');

    let second: Response | undefined;
    await eventually('the other one pays with the same credit', async () => {
      second = await ask(b, 300, new AbortController().signal);
      return second.status === 200;
    });
    const later = await letIn(40);
    t.ok(later > LIMIT - 18 && later <= LIMIT - 10, `${later}: at most those of the lag more than the limit`);
    t.equal(await once(b, 'before'), 409);
    t.equal(await once(b, 'lag'), 200, 'a claim of the lag is lost, and its request runs twice');
    await first.arrayBuffer();
    await second?.arrayBuffer();
    await settled(t);
    const { granted, settled: sum, charges, uncovered } = await sums();
    t.equal(sum, charges, 'each charge counts once');
    t.ok(sum > granted, 'more was spent than granted');
    t.ok(sum - granted <= lost, `${sum - granted} below zero, ${lost} were drawn in the lag`);
    t.ok(uncovered > 0n && uncovered <= lost, `${uncovered}`);
    await a.sidecar.logged('credit was charged that the store does not hold');
    t.ok((await a.sidecar.metric('ra_sidecar_credit_uncovered_total')) > 0);
    const { out } = await command('balance', '--json');
    t.match(JSON.parse(out), { accounts: [{ account: 'acme', available: /^-0\.0/, uncovered: /^0\.0*[1-9]/ }] });
    t.equal(await status(b, 1), 402, 'and nothing further is');
    t.equal(await status(a, 1), 402);
  },
);
