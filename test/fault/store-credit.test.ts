/**
 * Prepaid credit of three sidecars in processes of their own that share a PostgreSQL: sidecars and the database are killed under load, an
 * account's last dollar is spent, a data folder is reconciled while its sidecar is stopped.
 */
import { cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { calm, disturb, type FleetMember } from '../support/fleet-member.js';
import { cases, rounds } from '../support/long-form.js';
import { eventually } from '../support/processes.js';
import { OUTPUT, paidFleet, TIMEOUT_MS } from '../support/paid-fleet.js';
import { Postgres } from '../support/postgres.js';

const server = await Postgres.start();
t.teardown(() => server.stop());
const { name: database, url } = await server.database();
const dir = t.testdir();
const paid = await paidFleet(t, dir, { server, database, url });
const { fleet, leave, sums, closed, used, settled, ask, status, command, begin, stopped } = paid;
const [a, b, c] = fleet as [FleetMember, FleetMember, FleetMember];

t.test('sidecars and the database are killed under load: the sums are exact to the picodollar', async (t) => {
  await leave(1_000_000n * OUTPUT);
  const load = begin(t);
  const { statuses } = load;
  for (let round = 0; round < rounds({ short: 1, long: 50 }); round += 1) {
    for (const one of cases(fleet, (_, i) => i === 0)) await one.restart();
    await server.kill();
    await server.restart();
    const before = statuses.get(200) ?? 0;
    await eventually('requests are served again', () => Promise.resolve((statuses.get(200) ?? 0) > before + 5));
  }
  await leave(1000n * OUTPUT);
  await eventually('the account is used up', () => Promise.resolve((statuses.get(402) ?? 0) > 10));
  await load.end();
  const { granted, settled: sum } = await sums();
  t.ok(granted - sum < 1000n * OUTPUT, 'it was used up');
  for (const each of fleet)
    await eventually(
      'each sidecar tells callers what all have used',
      async () => (await used(each)) === (await closed(t)),
    );
});

t.test('a network that drops, delays and half-opens, and a stop past the lease: nothing is spent twice', async (t) => {
  await leave(50_000n * OUTPUT);
  const load = begin(t);
  const { statuses } = load;
  for (let round = 0; round < rounds({ short: 10, long: 60 }); round += 1) {
    disturb(fleet, round);
    await wait(TIMEOUT_MS / 4);
  }
  calm(fleet);
  const leaving = new AbortController();
  await eventually('one has something in hand', async () => (await ask(b, 400, leaving.signal)).status === 200);
  stopped.add(b);
  b.sidecar.child.kill('SIGSTOP');
  const isOver = `select 1 from ra_sidecar.replica where lease_until < clock_timestamp() - interval '1 second'`;
  await eventually('its lease is over', async () => (await server.sql(isOver, database)).rows.length > 0);
  b.sidecar.child.kill('SIGCONT');
  const before = statuses.get(200) ?? 0;
  await eventually('it goes on', async () => [200, 402].includes(await status(b, 1)));
  leaving.abort();
  await eventually('requests are served', () => Promise.resolve((statuses.get(200) ?? 0) > before + 5));
  await load.end();
});

t.test('the last dollar: what is idle at another pays, and the next request gets 402', async (t) => {
  await leave(1000n * OUTPUT);
  const leaving = new AbortController();
  t.equal((await ask(a, 900, leaving.signal)).status, 200);
  leaving.abort();
  await eventually('it has ended', async () => (await a.sidecar.metric('ra_sidecar_credit_reservations')) === 0);
  t.equal(await status(b, 1), 200);
  const next = new AbortController();
  await eventually('more than any has in hand is paid', async () => (await ask(c, 800, next.signal)).status === 200);
  t.equal(await status(b, 400), 402);
  t.equal(await status(a, 400), 402);
  next.abort();
  await settled(t);
});

t.test('a dead data folder is reconciled, and its sidecar is fenced when it goes on', async (t) => {
  await leave(1000n * OUTPUT);
  const leaving = new AbortController();
  t.equal((await ask(c, 500, leaving.signal)).status, 200);
  const refused = await command('reconcile', '--data-dir', c.dataDir).catch((error: unknown) => String(error));
  t.match(refused, /is written by process \d+: a sidecar that runs needs no reconciling/);
  c.sidecar.child.kill('SIGSTOP');
  const copy = join(dir, 'copy');
  cpSync(c.dataDir, copy, { recursive: true });
  rmSync(join(copy, 'usage', 'lock'), { force: true });
  const { rows: holders } = await server.sql('select id from ra_sidecar.replicas(null) where held > 0', database);
  t.equal(holders.length, 1, 'it holds what its request has reserved');
  const { code, err } = await command('reconcile', '--data-dir', copy, '--longest', '0');
  t.equal(code, 0, err);
  t.match(err, /waiting \d+ s, .*\n.* is reconciled: 0\.\d+ USD/s);
  t.match(await sums(), { held: 0n });
  c.sidecar.child.kill('SIGCONT');
  await c.sidecar.logged('store has another replica in this place');
  t.equal(await status(c, 1), 503);
  leaving.abort();
  const { rows } = await server.sql(
    `select action, operator, replica, detail from ra_sidecar.audit where action = 'reconcile'`,
    database,
  );
  t.match(rows, [{ operator: /^uid:\d+@/, replica: holders[0]?.['id'], detail: 'role ra_replica' }]);
});
