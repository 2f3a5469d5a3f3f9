/**
 * What the store of a fleet costs a request: `take` from the call to its answer, and `ra-admit` of whole requests through three sidecars
 * that share it, by the clock; also beside a transaction that has been open for ten minutes of such a load, so that no row deleted since
 * could be removed from an index. And whose processor time a request takes.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cpus } from 'node:os';
import { setTimeout as wait } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { LimitedCaller } from '../../sidecar/access/limits.js';
import { systemClock } from '../../sidecar/lib/clock.js';
import { StoreLimits } from '../../sidecar/store/limits.js';
import { chatBody } from '../../test/support/in-process.js';
import { Postgres, replicaAt } from '../../test/support/postgres.js';
import { descendantsOf, usedCpuMs } from '../../test/support/processes.js';
import { byTheClock, onWhoIsFree, type Rate } from '../support/by-the-clock.js';
import { messageOf } from '../support/children.js';
import { keep, medians, type Row } from '../support/results.js';
import { median, quantile, shown } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';
import { TimedCaller } from '../support/timed-caller.js';

/** Requests a second: the first is that of the goals, and these are at p99, ms. */
const RATES = [1000, 500, 200] as const;
const TAKE_MS = 1;
const ADMIT_MS = 2;
const SECONDS = 3;
const ROUNDS = 5;
/** Between two looks whether a sidecar is ready, ms. */
const LOOK_MS = 50;
const SIDECARS = 3;
/** Callers with a key each, and as many connections. */
const KEYS = 96;
const LIMIT = { inFlight: 32, perMinute: 6000 };
const NONE = { inFlight: 0, perMinute: 0 };
/** Requests of ten minutes. */
const OLD = 600_000;

const teardowns = new Teardowns();
const server = await Postgres.start({ real: true });
const { name, url } = await server.database();

const members = await Promise.all(
  Array.from({ length: SIDECARS }, async (_, i) => {
    const { database, replica } = await replicaAt(teardowns, url, `bench-${i}`, { connections: 8 });
    const defaults = { chat: LIMIT, decisions: NONE, embeddings: NONE, models: NONE };
    const limits = new StoreLimits({
      clock: systemClock,
      database,
      replica,
      whenDown: 'refuse',
      timeoutMs: 5000,
      defaults,
    });
    await replica.begin();
    return limits;
  }),
);
interface Running {
  readonly child: ChildProcess;
  readonly port: number;
}

/** Those that run now: idle ones would take the cores from what is measured. */
let sidecars: readonly Running[] = [];

/** Sidecars run, which share the store or count for themselves, while this does something. */
async function withSidecars<T>(store: boolean, use: () => Promise<T>): Promise<T> {
  sidecars = await Promise.all(
    Array.from({ length: SIDECARS }, async () => {
      const config = { limits: { chat: LIMIT }, ...(store && { store: { url, timeoutMs: 5000 } }) };
      const sidecar = fileURLToPath(new URL('../support/timing-sidecar.js', import.meta.url));
      const child = fork(sidecar, [JSON.stringify(config)]);
      const port = await messageOf<number>(child);
      while ((await fetch(`http://127.0.0.1:${port}/readyz`)).status !== 200) await wait(LOOK_MS);
      return { child, port };
    }),
  );
  const done = await use();
  for (const { child } of sidecars) {
    child.disconnect();
    await once(child, 'exit');
  }
  sidecars = [];
  return done;
}

/** Processor time so far of other processes, with all that they have started, ms. */
function used(): { readonly postgres: number; readonly sidecars: number } {
  const sum = (pids: readonly number[]): number =>
    pids.flatMap((pid) => [pid, ...descendantsOf(pid)]).reduce((ms, pid) => ms + msOf(pid), 0);
  return { postgres: sum([server.pid]), sidecars: sum(sidecars.map(({ child }) => child.pid ?? 0)) };
}

/** 0: it has ended meanwhile. */
function msOf(pid: number): number {
  try {
    return usedCpuMs(pid);
  } catch {
    return 0;
  }
}

/** Takes by the clock, in ms. */
async function takes(rate: Rate): Promise<number[]> {
  const times: number[] = [];
  const open: Promise<void>[] = [];
  let sent = 0;
  await byTheClock(rate, () => {
    const limits = members[sent % SIDECARS];
    const caller: LimitedCaller = { account: 'acme', keyId: `key-${sent % KEYS}` };
    sent += 1;
    const from = performance.now();
    const take = async (): Promise<void> => {
      const taken = await limits?.take(caller, 'chat');
      times.push(performance.now() - from);
      if (taken?.kind !== 'taken') throw new Error(`a take was ${taken?.kind}`);
      taken.permit.end(true);
    };
    open.push(take());
    return true;
  });
  await Promise.all(open);
  return times;
}

/** `ra-admit` by the clock, in ms. */
async function admits(rate: Rate, keys = 'key'): Promise<number[]> {
  const body = JSON.stringify(chatBody('wide', 'clocked'));
  const callers = await Promise.all(
    Array.from({ length: KEYS }, (_, i) => TimedCaller.open(sidecars[i % SIDECARS]?.port ?? 0, body, `${keys}-${i}`)),
  );
  for (const caller of callers) await caller.ask();
  const { done } = await onWhoIsFree(callers, rate, (caller) => caller.ask());
  for (const caller of callers) caller.close();
  return done.map(({ admitMs }) => admitMs);
}

async function measured(what: string, times: (rate: Rate) => Promise<number[]>): Promise<Row[]> {
  const rows: Row[] = [];
  for (const perSecond of RATES) {
    await times({ perSecond, seconds: SECONDS });
    const rounds: Row[] = [];
    while (rounds.length < ROUNDS) {
      const [from, own] = [used(), process.cpuUsage()];
      const all = await times({ perSecond, seconds: SECONDS });
      const { user, system } = process.cpuUsage(own);
      const to = used();
      rounds.push({
        what,
        'requests/s': perSecond,
        'p50 ms': median(all),
        'p99 ms': quantile(all, 0.99),
        'most ms': Math.max(...all),
        'postgres CPU ms': (to.postgres - from.postgres) / all.length,
        'sidecars CPU ms': (to.sidecars - from.sidecars) / all.length,
        'callers CPU ms': (user + system) / 1000 / all.length,
      });
    }
    rows.push(medians(rounds));
  }
  return rows;
}

/** A transaction that sees all rows of before, and what ten minutes of the load write and remove meanwhile. */
async function tenMinutesOld(): Promise<() => Promise<void>> {
  const client = await server.connect(name);
  await client.query('begin isolation level repeatable read');
  await client.query('select count(*), txid_current() from ra_sidecar.hit');
  // The stamps of all minutes, and the places that each request had.
  await server.sql(
    `insert into ra_sidecar.hit select key, now() - (i + 61000) * interval '1 ms', 1, -i
       from generate_series(1, ${OLD}) i join (select distinct key, dense_rank() over (order by key) as n from ra_sidecar.hit) k
       on k.n = i % (select count(distinct key) from ra_sidecar.hit) + 1`,
    name,
  );
  await server.sql(`update ra_sidecar.swept set until = '-infinity' where what = 'hit'`, name);
  await server.sql(
    `insert into ra_sidecar.flight select key, replica, request, 1 from ra_sidecar.hit where request < 0`,
    name,
  );
  await server.sql(`delete from ra_sidecar.flight where request < 0`, name);
  while ((await server.sql('select more from ra_sidecar.sweep()', name)).rows[0]?.['more'] === true);
  return async () => {
    await client.query('commit');
    await client.end();
  };
}

const TAKE = 'take';
const SHARED = 'ra-admit, limits in the store';
const BESIDE = ', beside an old transaction';
const rows = [
  ...(await measured(TAKE, takes)),
  ...(await withSidecars(false, () => measured('ra-admit, limits in memory', admits))),
  ...(await withSidecars(true, async () => [
    ...(await measured(SHARED, admits)),
    ...(await measured('ra-admit, limits and quotas in the store', (rate) => admits(rate, 'quota'))),
  ])),
];
const close = await tenMinutesOld();
rows.push(
  ...(await measured(TAKE + BESIDE, takes)),
  ...(await withSidecars(true, () => measured(SHARED + BESIDE, admits))),
);
await close();

await Promise.all(members.map((limits) => limits.close()));
await teardowns.run();
await server.stop();

function worst(what: string, perSecond: number): number {
  const own = rows.filter(
    (row) => [what, what + BESIDE].includes(String(row['what'])) && row['requests/s'] === perSecond,
  );
  return Math.max(...own.map((row) => Number(row['p99 ms'])));
}

/** The goal, and at which rates it holds. */
function goal(what: string, ms: number): string {
  const [first] = RATES;
  const kept = RATES.filter((rate) => worst(what, rate) <= ms);
  const so = worst(what, first) <= ms ? 'Held' : 'Missed';
  const most = kept.length === 0 ? 'at none of the rates' : `at up to ${Math.max(...kept)} requests a second`;
  return `${so}: \`${what}\` p99 at most ${ms} ms at ${first} requests a second, also beside an old transaction (${worst(what, first).toFixed(2)} ms at worst; held ${most}).`;
}

/** What a request takes, so that it can be seen where the machine is full. */
function share(what: string): string {
  const row = rows.find((each) => each['what'] === what && each['requests/s'] === RATES[2]);
  const sum = (['postgres', 'sidecars', 'callers'] as const).reduce(
    (ms, part) => ms + Number(row?.[`${part} CPU ms`]),
    0,
  );
  return `\`${what}\` takes ${shown(sum)} ms of processor time at ${RATES[2]} requests a second, so ${cpus().length} cores that do nothing else are full at ${shown((cpus().length * 1000) / sum)} requests a second.`;
}

await keep('store-take', {
  title: 'Limits of a fleet in PostgreSQL',
  about: [
    `Requests by the clock, of ${KEYS} keys with a limit of ${LIMIT.inFlight} in flight and ${LIMIT.perMinute} in a minute, over ${SIDECARS} sidecars and one PostgreSQL on this machine, which writes its log to the disk (fsync) and has its default settings. Callers, sidecars, their prompt hosts and stand-in engines, and the server share its cores. \`take\`: from the call to the answer, in one process with three replicas. \`ra-admit\`: as Server-Timing says it, of whole chat requests.`,
    `Beside an old transaction: it was begun before ${OLD.toLocaleString('en')} stamps and places, those of ten minutes at 1,000 requests a second, were written and removed again, and stays open, so that none of them can be removed from the indexes.`,
    `CPU: processor time of each request in PostgreSQL, in the sidecars with their prompt hosts and stand-in engines, and in the process of the callers, which for \`take\` is also the replicas. Medians of ${ROUNDS} rounds of ${SECONDS} seconds each.`,
  ],
  rows,
  conclusions: [goal(TAKE, TAKE_MS), goal(SHARED, ADMIT_MS), share(TAKE), share(SHARED)],
});
