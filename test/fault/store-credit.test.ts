/**
 * Prepaid credit of three sidecars in processes of their own that share a PostgreSQL: sidecars and the database are killed under load, an
 * account's last dollar is spent, a data folder is reconciled while its sidecar is stopped.
 */
import { cpSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { credit } from '../../sidecar/commands/credit.js';
import { loadConfig } from '../../sidecar/config/config.js';
import { formatUsd } from '../../sidecar/domain/money.js';
import { readFrom } from '../../sidecar/usage/reader.js';
import { START } from '../../sidecar/usage/spool-format.js';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { calm, disturb, fleetMember, type FleetMember } from '../support/fleet-member.js';
import { makeKey } from '../support/keys.js';
import { rounds } from '../support/long-form.js';
import { eventually } from '../support/processes.js';
import { PATIENCE, Postgres } from '../support/postgres.js';
import { CHAT, chatOnly } from '../support/sidecar.js';

const LEASE_MS = 10_000;
const TIMEOUT_MS = 250 * PATIENCE;
/** What an answer may take beyond its tokens and the times of the store, on a loaded machine, ms. */
const SLACK_MS = 2000 * PATIENCE;
/** Picodollars for a token of a reply. */
const OUTPUT = 600_000n;

const server = await Postgres.start();
t.teardown(() => server.stop());
const { name: database, url, ownersUrl } = await server.database();
const dir = t.testdir();

const { key, stored } = makeKey({ account: 'acme' });
writeFileSync(join(dir, 'keys.json'), JSON.stringify({ version: 1, keys: [stored] }));
const chat = { [CHAT]: { input: '0.6', cachedInput: '0.6', output: '0.6' } };
const prices = [{ version: 'v', effective: '2026-01-01T00:00:00Z', decisions: '0.042', chat }];
writeFileSync(join(dir, 'prices.json'), JSON.stringify({ version: 1, prices }));

const config = {
  ...(await chatOnly(8, 8192)),
  keys: { file: join(dir, 'keys.json') },
  pricing: { file: join(dir, 'prices.json') },
  credit: { source: 'store' },
  queue: { ...PATIENT_QUEUE, waitingPerSeat: 40 },
  store: { url, leaseMs: LEASE_MS, timeoutMs: TIMEOUT_MS },
};
const fleet = await Promise.all(['a', 'b', 'c'].map((id) => fleetMember(t, server, join(dir, id), config)));
const [a, b, c] = fleet as [FleetMember, FleetMember, FleetMember];

/** `ra-sidecar credit`. */
async function command(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const loaded = loadConfig({ RA_STORE_URL: url, RA_STORE_LEASE_MS: `${LEASE_MS}` });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  const texts = { out: '', err: '' };
  const code = await credit(loaded.config, args, {
    out: (text) => (texts.out += text),
    err: (text) => (texts.err += text),
  });
  return { code, ...texts };
}

let grants = 0;

/** Leaves the account with so much that can be drawn, while nothing runs about so much. */
async function leave(picodollars: bigint): Promise<void> {
  const { granted, settled, held } = await sums();
  grants += 1;
  picodollars -= granted - settled - held;
  const args = [`--usd=${formatUsd(picodollars)}`, '--id', `g${grants}`, '--url', ownersUrl];
  if ((await command('grant', 'acme', ...args)).code !== 0) throw new Error('not granted');
}

interface Sums {
  readonly granted: bigint;
  readonly settled: bigint;
  readonly held: bigint;
  readonly uncovered: bigint;
  readonly charges: bigint;
}

async function sums(): Promise<Sums> {
  const { rows } = await server.sql(
    `select granted, settled, held, uncovered, (select coalesce(sum(amount), 0) from ra_sidecar.charge) as charges
     from ra_sidecar.account where name = 'acme'`,
    database,
  );
  const none = { granted: 0, settled: 0, held: 0, uncovered: 0, charges: 0 };
  return Object.fromEntries(Object.entries(rows[0] ?? none).map(([name, sum]) => [name, BigInt(String(sum))])) as never;
}

/** The prices of all closes in all spools; each request has one. */
async function closed(t: Test): Promise<bigint> {
  const seen = new Map<string, bigint>();
  for (const { dataDir } of fleet) {
    for await (const read of readFrom(join(dataDir, 'usage'), START)) {
      if (read.kind !== 'record' || read.record.kind !== 'close') continue;
      const { id, price, escrow } = read.record;
      if (seen.has(id)) t.fail('two closes of one request');
      if (escrow === true) seen.set(id, BigInt(price?.picodollars ?? 0));
    }
  }
  return [...seen.values()].reduce((sum, one) => sum + one, 0n);
}

function ask({ sidecar }: FleetMember, tokens: number, signal?: AbortSignal): Promise<Response> {
  const body = {
    model: CHAT,
    messages: [{ role: 'user', content: 'x' }],
    max_tokens: tokens,
    stream: signal !== undefined,
  };
  return sidecar.post('/chat/completions', body, { key, ...(signal && { signal }) });
}

/** The status of a whole reply; 0: the sidecar was killed. */
async function status(of: FleetMember, tokens: number): Promise<number> {
  try {
    const answer = await ask(of, tokens);
    await answer.arrayBuffer();
    return answer.status;
  } catch {
    return 0;
  }
}

/** Those that were stopped, which answer late. */
const stopped = new Set<FleetMember>();

/** Requests at each sidecar, one after the other, with some costs. */
function begin(t: Test): { readonly statuses: ReadonlyMap<number, number>; readonly end: () => Promise<void> } {
  const statuses = new Map<number, number>();
  let longest = 0;
  let over = false;
  const load = async (of: FleetMember): Promise<void> => {
    for (let i = 0; !over; i += 1) {
      const tokens = 1 + ((i * 7) % 23);
      const from = performance.now();
      const seen = await status(of, tokens);
      if (!stopped.has(of)) longest = Math.max(longest, performance.now() - from - tokens * 20);
      statuses.set(seen, (statuses.get(seen) ?? 0) + 1);
      if (seen !== 200) await wait(20);
    }
  };
  t.teardown(() => {
    over = true;
  });
  const loads = fleet.map(load);
  return {
    statuses,
    // What was charged is what was closed, and no more than was granted.
    end: async () => {
      over = true;
      await Promise.all(loads);
      await settled(t);
      const { granted, settled: sum, charges, uncovered } = await sums();
      t.equal(sum, charges);
      t.ok(sum <= granted, `${sum} of ${granted}`);
      t.equal(uncovered, 0n);
      t.strictSame(
        [...statuses.keys()].filter((one) => ![0, 200, 402, 503].includes(one)),
        [],
      );
      t.ok(longest < 2 * TIMEOUT_MS + SLACK_MS, `the longest took ${Math.round(longest)} ms`);
    },
  };
}

async function settled(t: Test): Promise<void> {
  await eventually('all is posted, and nothing is held', async () => {
    const { settled: sum, held } = await sums();
    return held === 0n && sum === (await closed(t));
  });
}

t.test('sidecars and the database are killed under load: the sums are exact to the picodollar', async (t) => {
  await leave(1_000_000n * OUTPUT);
  const load = begin(t);
  const { statuses } = load;
  for (let round = 0; round < rounds({ short: 1, long: 50 }); round += 1) {
    await fleet[round % 3]?.restart();
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
  const id = JSON.parse((await command('balance', '--json')).out) as { replicas: { id: string }[] };
  t.equal(id.replicas.length, 1, 'it holds what its request has reserved');
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
  t.match(rows, [{ operator: /^uid:\d+@/, replica: id.replicas[0]?.id, detail: 'role ra_replica' }]);
});
