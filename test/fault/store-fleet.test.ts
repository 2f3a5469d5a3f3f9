/** Three sidecars in processes of their own, each with a relay to the PostgreSQL that they share: bursts, kills, stops, a bad network. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { KeyLimits } from '../../sidecar/access/limits.js';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { calm, disturb, fleetMember, type FleetMember } from '../support/fleet-member.js';
import { makeKey } from '../support/keys.js';
import { rounds } from '../support/long-form.js';
import { eventually } from '../support/processes.js';
import { sharedPostgres } from '../support/postgres.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';
import { STUB_JOB } from '../support/stub-script.js';

const LEASE_MS = 10_000;
/** The sidecars and this process share the cores, so that requests of a burst wait for each other longer than the default of 250 ms. */
const TIMEOUT_MS = 2000;
/** What an answer may take beyond the time of the store, on a loaded machine, ms. */
const SLACK_MS = 8000;
/** After so long a reply without a token has its head, with a comment, ms. */
const KEEP_ALIVE_MS = 500;

const server = await sharedPostgres();
const { name: database, url } = await server.database();
const dir = t.testdir();

const LIMITS: Readonly<Record<string, KeyLimits>> = {
  running: { chat: { inFlight: 32 } },
  stopped: { chat: { inFlight: 8 } },
  network: { models: { perMinute: 60, inFlight: 8 } },
  idempotent: {},
};
/** Tokens in a day, of the key with that quota. */
const QUOTA = rounds({ short: 2000, long: 5000 });
const made = Object.entries(LIMITS).map(([id, limits]) => ({ id, ...makeKey({ id, limits }) }));
const entitlements = { development: { models: 'all', tokensPerDay: QUOTA } } as const;
made.push({ id: 'reserved', ...makeKey({ id: 'reserved', account: 'reserved', entitlements }) });
const KEYS = Object.fromEntries(made.map(({ id, key }) => [id, key]));
writeFileSync(join(dir, 'keys.json'), JSON.stringify({ version: 1, keys: made.map(({ stored }) => stored) }));

const config = {
  ...(await chatOnly(32)),
  keys: { file: join(dir, 'keys.json') },
  queue: { ...PATIENT_QUEUE, waitingPerSeat: 40 },
  stream: { keepAliveMs: KEEP_ALIVE_MS },
  store: { url, leaseMs: LEASE_MS, timeoutMs: TIMEOUT_MS },
};
const fleet = await Promise.all(['a', 'b', 'c'].map((id) => fleetMember(t, server, join(dir, id), config)));
const [a, b, c] = fleet as [FleetMember, FleetMember, FleetMember];

async function rows(from: string): Promise<number> {
  return Number((await server.sql(`select count(*) as n from ra_sidecar.${from}`, database)).rows[0]?.['n']);
}

/** The places that count. */
const PLACES = 'flight f join ra_sidecar.replica r on r.no = f.replica and r.epoch = f.epoch and f.request >= r.oldest';

async function models({ sidecar }: FleetMember, key: string): Promise<number> {
  const response = await fetch(`${sidecar.base}/models`, { headers: { authorization: `Bearer ${KEYS[key]}` } });
  await response.arrayBuffer();
  return response.status;
}

/** A reply that has begun and does not end by itself, or why not. */
interface Begun {
  /** Held, since `fetch` leaves an answer whose object was collected. */
  readonly response: Response;
  readonly status: number;
  readonly leave: () => void;
}

async function slow({ sidecar }: FleetMember, key: string): Promise<Begun> {
  const leaving = new AbortController();
  const body = { model: CHAT, messages: [{ role: 'user', content: 'x' }], seed: STUB_JOB.hold, stream: true };
  const response = await sidecar.post('/chat/completions', body, { key: KEYS[key] ?? '', signal: leaving.signal });
  return { response, status: response.status, leave: () => leaving.abort() };
}

const count = (statuses: readonly number[], wanted: number): number => statuses.filter((one) => one === wanted).length;

/** All three have a lease, with time left. */
async function joined(): Promise<void> {
  const live = `replica where lease_until > clock_timestamp() + interval '5 seconds'`;
  await eventually('all have a lease', async () => (await rows(live)) === fleet.length);
}

/** The tokens that quotas have counted. */
async function counted(): Promise<number> {
  const days = `(select day from ra_sidecar.token_stamp union all select tokens from ra_sidecar.token_total) s`;
  return Number((await server.sql(`select sum(day) as n from ${days}`, database)).rows[0]?.['n']);
}

async function over(what: string, from: string): Promise<void> {
  await eventually(what, async () => (await rows(from)) === 0);
}

/** Waits until a reply begins at one, which it returns with how long that took from `from` on. */
async function returned(at: FleetMember, key: string, from: number): Promise<readonly [Begun, number]> {
  let begun: Begun | undefined;
  await eventually('it returns', async () => {
    const one = await slow(at, key);
    if (one.status === 200) begun = one;
    return begun !== undefined;
  });
  return [begun as Begun, Math.round(performance.now() - from)];
}

t.test('96 slow requests: 32 run; places and tokens of one that is killed return with its lease', async (t) => {
  await joined();
  const own = await Promise.all(Array.from({ length: 8 }, () => slow(c, 'running')));
  const others = await Promise.all(Array.from({ length: 88 }, (_, i) => slow(fleet[i % 2] as FleetMember, 'running')));
  const begun = [...own, ...others];
  const running = begun.map(({ status }) => status);
  t.equal(count(running, 200), 32);
  t.equal(count(running, 429), 64);
  const reserved: Begun[] = [];
  for (let status = 200; status === 200;) {
    const one = await slow(c, 'reserved');
    status = one.status;
    reserved.push(one);
  }
  t.equal(reserved.length - 1, Math.floor(QUOTA / 270), 'with 256 tokens and a prompt each');
  t.equal((await slow(a, 'reserved')).status, 429);
  c.sidecar.child.kill('SIGKILL');
  const from = performance.now();
  const tokens = returned(a, 'reserved', from);
  const later: Begun[] = [];
  for (let i = 0; i < own.length; i += 1) {
    const [one, ms] = await returned(b, 'running', from);
    later.push(one);
    t.ok(ms < LEASE_MS + SLACK_MS, `place ${i} after ${ms} ms`);
  }
  t.equal((await slow(a, 'running')).status, 429, 'and no more');
  const [after, ms] = await tokens;
  t.ok(ms < LEASE_MS + SLACK_MS, `tokens after ${ms} ms`);
  for (const { leave } of [...begun, ...later, after]) leave();
  await c.restart();
  await over('all have ended', PLACES);
  await over('all have ended', 'token_flight');
});

async function post({ sidecar }: FleetMember, name: string, tokens: number): Promise<{ status: number; text: string }> {
  const body = { model: CHAT, messages: [{ role: 'user', content: 'x' }], max_tokens: tokens };
  const headers = { 'Idempotency-Key': name };
  const response = await sidecar.post('/chat/completions', body, { key: KEYS['idempotent'] ?? '', headers });
  return { status: response.status, text: await response.text() };
}

t.test('a second start on a data folder that is in use ends, and takes nothing from the first', async (t) => {
  await joined();
  const epoch = async (): Promise<unknown> =>
    (await server.sql('select sum(epoch) as epoch from ra_sidecar.replica', database)).rows[0]?.['epoch'];
  const before = await epoch();
  const config = { ...(await chatOnly(1)), dataDir: join(dir, 'a'), store: { url, leaseMs: LEASE_MS } };
  const second = await Sidecar.launch(t, { stub: true, config });
  t.not((await second.exited()).code, 0);
  t.match(second.printed, /is written by process/);
  t.equal(await epoch(), before);
  const one = await slow(a, 'running');
  t.equal(one.status, 200);
  one.leave();
});

t.test('stopped past its lease and continued: its places are given to others, then it counts again', async (t) => {
  await joined();
  const own = await Promise.all(Array.from({ length: 4 }, () => slow(c, 'stopped')));
  t.equal(
    count(
      own.map(({ status }) => status),
      200,
    ),
    4,
  );
  c.sidecar.child.kill('SIGSTOP');
  const others: Begun[] = [];
  await eventually('its lease is over', async () => {
    const one = await slow(others.length % 2 ? a : b, 'stopped');
    if (one.status === 200) others.push(one);
    return others.length === 8;
  });
  t.equal((await slow(a, 'stopped')).status, 429);
  c.sidecar.child.kill('SIGCONT');
  // Its lease is over by the store's clock: a request that it sends first is not let in, whatever it believes.
  t.ok([429, 503].includes((await slow(c, 'stopped')).status));
  await eventually('it beats again', async () => (await slow(c, 'stopped')).status === 429);
  for (const { leave } of others.slice(0, 4)) leave();
  await eventually('those have ended', async () => (await rows(PLACES)) <= 8);
  t.equal((await slow(b, 'stopped')).status, 429, 'what it runs counts');
  for (const { leave } of [...own, ...others]) leave();
});

t.test('a network that drops, delays and half-opens: the limit holds, and no answer outlasts its time', async (t) => {
  await joined();
  const statuses: number[] = [];
  let longest = 0;
  const ask = async (of: FleetMember): Promise<void> => {
    const from = performance.now();
    statuses.push(await models(of, 'network'));
    longest = Math.max(longest, performance.now() - from);
  };
  const from = Date.now();
  for (let round = 0; round < rounds({ short: 10, long: 60 }) && Date.now() - from < 50_000; round += 1) {
    disturb(fleet, round);
    await Promise.all(Array.from({ length: 12 }, (_, i) => ask(fleet[i % 3] as FleetMember)));
  }
  t.ok(longest < TIMEOUT_MS + SLACK_MS, `the longest took ${Math.round(longest)} ms`);
  t.strictSame(
    [...new Set(statuses)].filter((status) => ![200, 429, 503].includes(status)),
    [],
  );
  t.ok(count(statuses, 200) <= 60, `${count(statuses, 200)} of ${statuses.length} were let in`);
  calm(fleet);
  await eventually('what no answer was heard of is free', async () => {
    return (await rows(PLACES)) === 0;
  });
  t.pass('what no answer was heard of is free');
});

t.test('killed twice before the store hears of a reply: a later start tells what it used, and its key', async (t) => {
  await joined();
  const before = await counted();
  const body = { model: CHAT, messages: [{ role: 'user', content: 'x' }], max_tokens: 60 };
  const answer = a.sidecar.post('/chat/completions', body, { key: KEYS['reserved'] ?? '' });
  await eventually('it has reserved', async () => (await rows('token_flight')) === 1);
  const claimed = post(a, 'killed', 60);
  await eventually('it is claimed', async () => (await rows('claim where not completed')) === 1);
  a.relay.fault = 'hold';
  const { usage } = (await (await answer).json()) as { usage: { total_tokens: number } };
  t.equal((await claimed).status, 200);
  a.sidecar.child.kill('SIGKILL');
  await a.sidecar.exited();
  a.relay.fault = 'refuse';
  a.relay.cut();
  t.match(await post(b, 'killed', 60), { status: 409 });
  await a.restart();
  t.equal(await rows('token_flight'), 1, 'it starts without the store');
  a.relay.fault = 'none';
  await a.restart();
  await over('the store has heard of its end', 'token_flight');
  t.equal((await counted()) - before, usage.total_tokens);
  await over('its start settles the key', 'claim where not completed');
  for (const one of fleet) t.match(await post(one, 'killed', 60), { status: 409, text: /completed/ });
});
