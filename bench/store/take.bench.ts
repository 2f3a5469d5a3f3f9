/**
 * What the store of a fleet costs a request. `take`: three replicas' own limits and connections in this process, without the rest of a
 * sidecar. `ra-admit`: of whole requests through three sidecars, in turns with three others that count limits in memory. Both also beside a
 * transaction that has been open for ten minutes of 1,000 requests a second, so that no row deleted since could be removed from an index.
 * Arguments: seconds of a round, and rounds.
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
import { descendantsOf, usedCpuMs, waitedForCoreMs } from '../../test/support/processes.js';
import { byTheClock, onWhoIsFree, type Rate } from '../support/by-the-clock.js';
import { messageOf } from '../support/children.js';
import { keep, markdown, medians, type Row } from '../support/results.js';
import { median, quantile, shown } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';
import { TimedCaller } from '../support/timed-caller.js';

/** Requests a second, the goal's first, and the goals at p99, ms. */
const TAKE_RATES = [1000, 500] as const;
const TAKE_MS = 1;
const ADMIT_RATES = [1000, 500, 200] as const;
const ADMIT_MS = 2;
const SECONDS = Number(process.argv[2] ?? 3);
const ROUNDS = Number(process.argv[3] ?? 5);
/**
 * Rounds before those that count: compilers, and all connections with their plans, are ready by then. More before the first of a process:
 * up to some 4,000 requests of a sidecar a chat takes up to twice the processor time.
 */
const WARM_UP_ROUNDS = 2;
const FIRST_ROUNDS = 6;
/** How long sidecars are watched without requests, s. */
const IDLE_S = 5;
/** Between two looks whether a sidecar is ready, ms. */
const LOOK_MS = 50;
const SIDECARS = 3;
/** One stand-in engine each: they wake 200 times a second. */
const MODELS = JSON.stringify([{ id: 'wide', kind: 'chat', seats: 64 }]);
/** Keys of `take`: no multiple of the replicas, each of which gets requests of every key. */
const KEYS = 97;
/** Connections of `ra-admit`, one at each sidecar with the same key. */
const CALLERS = 96;
const LIMIT = { inFlight: 32, perMinute: 6000 };
const NONE = { inFlight: 0, perMinute: 0 };
/** Requests of ten minutes, and beats of each replica at the default lease. */
const OLD = 600_000;
const BEATS = 180;

const teardowns = new Teardowns();
const server = await Postgres.start({ real: true });
const { name, url } = await server.database();

const members = await Promise.all(
  Array.from({ length: SIDECARS }, async (_, i) => {
    const { database, replica } = await replicaAt(teardowns, url, `bench-${i}`, { connections: 8, leaseMs: 10_000 });
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

interface Sidecar {
  readonly child: ChildProcess;
  readonly port: number;
}

/** Sidecars that share the store, or count for themselves. */
function begun(store: boolean): Promise<Sidecar[]> {
  return Promise.all(
    Array.from({ length: SIDECARS }, async () => {
      const config = { limits: { chat: LIMIT }, ...(store && { store: { url, timeoutMs: 5000 } }) };
      const sidecar = fileURLToPath(new URL('../support/timing-sidecar.js', import.meta.url));
      const child = fork(sidecar, [JSON.stringify(config), MODELS]);
      const port = await messageOf<number>(child);
      while ((await fetch(`http://127.0.0.1:${port}/readyz`)).status !== 200) await wait(LOOK_MS);
      return { child, port };
    }),
  );
}

async function end({ child }: Sidecar): Promise<void> {
  child.disconnect();
  await once(child, 'exit');
}

/** Processor time so far of other processes, with all that they have started, and how long these and this one have waited for a core, ms. */
function used(sidecars: readonly Sidecar[]): Readonly<Record<'postgres' | 'sidecars' | 'waited', number>> {
  const sum = (pids: readonly number[], of: (pid: number) => number): number =>
    pids.reduce((ms, pid) => ms + ifAlive(() => of(pid)), 0);
  const all = (pid: number): number[] => [pid, ...descendantsOf(pid)];
  const [own, theirs] = [all(server.pid), sidecars.flatMap(({ child }) => all(child.pid ?? 0))];
  return {
    postgres: usedCpuMs(server.pid, true) + sum(own.slice(1), usedCpuMs),
    sidecars: sum(theirs, usedCpuMs),
    waited: sum([...own, ...theirs, process.pid], waitedForCoreMs),
  };
}

/** 0: it has ended meanwhile. */
function ifAlive(read: () => number): number {
  try {
    return read();
  } catch {
    return 0;
  }
}

interface Round {
  /** Of each request, ms. */
  readonly times: readonly number[];
  /** The actual rate. */
  readonly perSecond: number;
}

/** Takes by the clock. `begins` is called just before the first. */
async function takes(rate: Rate, begins: () => void): Promise<Round> {
  begins();
  let started = 0;
  const times: number[] = [];
  const open: Promise<void>[] = [];
  let sent = 0;
  await byTheClock(rate, () => {
    const limits = members[sent % SIDECARS];
    const caller: LimitedCaller = { account: 'acme', keyId: `key-${sent % KEYS}` };
    sent += 1;
    const from = performance.now();
    started ||= from;
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
  return { times, perSecond: times.length / ((performance.now() - started) / 1000) };
}

/** `ra-admit` by the clock, of who has been free for longest, so that all sidecars and keys have as much to do. */
async function admits(sidecars: readonly Sidecar[], keys: string, rate: Rate, begins: () => void): Promise<Round> {
  const body = JSON.stringify(chatBody('wide', 'clocked'));
  const open = (i: number): Promise<TimedCaller> =>
    TimedCaller.open(sidecars[i % SIDECARS]?.port ?? 0, body, `${keys}-${Math.floor(i / SIDECARS)}`);
  const callers = await Promise.all(Array.from({ length: CALLERS }, (_, i) => open(i)));
  for (const caller of callers) await caller.ask();
  begins();
  const next = (free: TimedCaller[]): TimedCaller | undefined => free.shift();
  const { done, perSecond } = await onWhoIsFree(callers, rate, (caller) => caller.ask(), next);
  for (const caller of callers) caller.close();
  return { times: done.map(({ admitMs }) => admitMs), perSecond };
}

/** What is measured in turns with others. */
interface Case {
  readonly what: string;
  readonly sidecars: readonly Sidecar[];
  /** Processor time of the sidecars in a second without requests, ms. */
  readonly idleMs: number;
  readonly round: (rate: Rate, begins: () => void) => Promise<Round>;
}

/** The cases take turns in each round, at one rate after the other. */
async function measured(rates: readonly number[], cases: readonly Case[], first = WARM_UP_ROUNDS): Promise<Row[]> {
  const rows: Row[] = [];
  for (const perSecond of rates) {
    const rounds = cases.map((): Row[] => []);
    for (let round = perSecond === rates[0] ? -first : -WARM_UP_ROUNDS; round < ROUNDS; round += 1) {
      for (const [at, { what, sidecars, idleMs, round: run }] of cases.entries()) {
        let [from, own] = [used(sidecars), process.cpuUsage()];
        const { times: all, perSecond: actual } = await run({ perSecond, seconds: SECONDS }, () => {
          [from, own] = [used(sidecars), process.cpuUsage()];
        });
        const seconds = all.length / actual;
        const { user, system } = process.cpuUsage(own);
        const to = used(sidecars);
        if (round < 0) continue;
        rounds[at]?.push({
          what,
          'requests/s': perSecond,
          'actual requests/s': actual,
          'p50 ms': median(all),
          'p99 ms': quantile(all, 0.99),
          'most ms': Math.max(...all),
          'postgres CPU ms': (to.postgres - from.postgres) / all.length,
          'sidecars CPU ms': (to.sidecars - from.sidecars - idleMs * seconds) / all.length,
          'callers CPU ms': (user + system) / 1000 / all.length,
          'waiting for a core, ms': (to.waited - from.waited) / all.length,
        });
      }
    }
    rows.push(...rounds.map(medians));
    process.stdout.write(`${markdown(rows.slice(-cases.length))}\n`);
  }
  return rows;
}

/** A transaction that sees all rows of before, and what ten minutes of the load write, change and remove meanwhile. */
async function tenMinutesOld(): Promise<() => Promise<void>> {
  const client = await server.connect(name);
  await client.query('begin isolation level repeatable read');
  await client.query('select count(*), txid_current() from ra_sidecar.hit');
  // The stamps of all minutes, and the places that each request had.
  await server.sql(
    `insert into ra_sidecar.hit select key, now() - (i + 61000) * interval '1 ms', -i, r.no, -i
       from generate_series(1, ${OLD}) i join (select no, row_number() over (order by no) as n from ra_sidecar.replica) r
       on r.n = i % (select count(*) from ra_sidecar.replica) + 1 join (select distinct key, dense_rank() over (order by key) as n from ra_sidecar.hit) k
       on k.n = i % (select count(distinct key) from ra_sidecar.hit) + 1`,
    name,
  );
  await server.sql(
    `insert into ra_sidecar.flight select key, replica, request, 1 from ra_sidecar.hit where request < 0`,
    name,
  );
  for (const table of ['flight', 'hit']) await server.sql(`delete from ra_sidecar.${table} where request < 0`, name);
  await server.sql(
    `do $$ begin for i in 1..${BEATS} loop update ra_sidecar.replica set beat = beat; commit; end loop; end $$`,
    name,
  );
  // What was written at once here is written over ten minutes otherwise.
  await server.sql('checkpoint', name);
  return async () => {
    await client.query('commit');
    await client.end();
  };
}

const TAKE = 'take';
const MEMORY = 'ra-admit, limits in memory';
const SHARED = 'ra-admit, limits in the store';
const QUOTAS = 'ra-admit, limits and quotas in the store';
const BESIDE = ', beside an old transaction';

const take = { what: TAKE, sidecars: [], idleMs: 0, round: takes };
const rows = await measured(TAKE_RATES, [take], FIRST_ROUNDS);
const [counting, sharing] = [await begun(false), await begun(true)];
const from = used([...counting, ...sharing]);
await wait(IDLE_S * 1000);
/** Of three sidecars, without requests, ms of a second. */
const idleMs = (used([...counting, ...sharing]).sidecars - from.sidecars) / IDLE_S / 2;
function admitted(what: string, sidecars: readonly Sidecar[], keys = 'key'): Case {
  return { what, sidecars, idleMs, round: (rate, begins) => admits(sidecars, keys, rate, begins) };
}
const memory = admitted(MEMORY, counting);
const shared = admitted(SHARED, sharing);
rows.push(...(await measured(ADMIT_RATES, [memory, shared], FIRST_ROUNDS)));
rows.push(...(await measured(ADMIT_RATES.slice(-1), [admitted(QUOTAS, sharing, 'quota')])));
const close = await tenMinutesOld();
const beside = (each: Case): Case => ({ ...each, what: each.what + BESIDE });
rows.push(...(await measured(ADMIT_RATES, [beside(memory), beside(shared)])));
await Promise.all([...counting, ...sharing].map(end));
rows.push(...(await measured(TAKE_RATES, [beside(take)])));
await close();

await Promise.all(members.map((limits) => limits.close()));
await teardowns.run();
await server.stop();

/** A figure of a row. */
function figure(what: string, perSecond: number, name: string): number {
  return Number(rows.find((row) => row['what'] === what && row['requests/s'] === perSecond)?.[name]);
}

/** The goal, and at which rates it holds. */
function goal(what: string, rates: readonly number[], ms: number): string {
  const worst = (rate: number): number =>
    Math.max(...[what, what + BESIDE].map((each) => figure(each, rate, 'p99 ms')));
  const kept = rates.filter((rate) => worst(rate) <= ms);
  const [first = 0] = rates;
  const so = worst(first) <= ms ? 'Held' : 'Missed';
  const most = kept.length === 0 ? 'at none of the rates' : `at up to ${Math.max(...kept)} requests a second`;
  return `${so}: \`${what}\` p99 at most ${ms} ms at ${first} requests a second, also beside an old transaction (${worst(first).toFixed(2)} ms at worst; held ${most}).`;
}

/** What the store costs beside limits in memory. */
function ratio(what: string, other: string): string {
  const [first] = ADMIT_RATES;
  const [p50, p99] = ['p50 ms', 'p99 ms'].map((name) => figure(what, first, name) / figure(other, first, name));
  return `\`${what}\` takes ${shown(p50 ?? 0)} times as long as \`${other}\` at ${first} requests a second (p50; p99 ${shown(p99 ?? 0)} times).`;
}

/** Where a wait is the machine's. */
function waited(what: string, perSecond: number): string {
  return `At ${perSecond} requests a second of \`${what}\` the processes that could run waited for a core for ${shown(figure(what, perSecond, 'waiting for a core, ms'))} ms a request, all together; p99 is ${shown(figure(what, perSecond, 'p99 ms'))} ms.`;
}

/** What a request takes, so that it can be seen where the machine is full. `idle`: what is used without requests, ms of a second. */
function share(what: string, perSecond: number, idle: number): string {
  const parts = ['postgres', 'sidecars', 'callers'] as const;
  const sum = parts.reduce((ms, part) => ms + figure(what, perSecond, `${part} CPU ms`), 0);
  return `\`${what}\` takes ${shown(sum)} ms of processor time at ${perSecond} requests a second, so ${cpus().length} cores that do nothing else are full at ${shown((cpus().length * 1000 - idle) / sum)} requests a second.`;
}

await keep('store-take', {
  title: 'Limits of a fleet in PostgreSQL',
  about: [
    `Requests by the clock, of ${KEYS} keys (for \`ra-admit\` ${CALLERS / SIDECARS}) that come to all replicas, with a limit of ${LIMIT.inFlight} in flight and ${LIMIT.perMinute} in a minute, ${SIDECARS} replicas and one PostgreSQL on this machine, which writes its log to the disk (fsync) and has its default settings. \`take\`: from the call to the answer, in one process with the limits and connections of three replicas. \`ra-admit\`: as Server-Timing says it, of whole chat requests through three sidecars, in turns with three that count for themselves. Callers, sidecars, their prompt hosts and stand-in engines, and the server share the cores.`,
    `Beside an old transaction: it was begun before ${OLD.toLocaleString('en')} stamps and places, those of ten minutes at 1,000 requests a second, were written and removed again and each replica's row was changed by ${BEATS} beats, and stays open, so that none of these rows can be removed.`,
    `CPU: processor time of each request in PostgreSQL, in the sidecars with their prompt hosts and stand-in engines, without the ${shown(idleMs)} ms of each second that these take without requests, and in the process of the callers with its clock, which for \`take\` is also the replicas. Waiting for a core: the time that processes which could run had none, all of them together, a request. Medians of ${ROUNDS} rounds of ${SECONDS} seconds each.`,
  ],
  rows,
  conclusions: [
    goal(TAKE, TAKE_RATES, TAKE_MS),
    goal(SHARED, ADMIT_RATES, ADMIT_MS),
    ratio(SHARED, MEMORY),
    ratio(SHARED + BESIDE, MEMORY + BESIDE),
    share(TAKE, TAKE_RATES[0], 0),
    share(SHARED, ADMIT_RATES[0], idleMs),
    ...TAKE_RATES.map((rate) => waited(TAKE, rate)),
    ...ADMIT_RATES.map((rate) => waited(SHARED, rate)),
    `With limits in memory \`ra-admit\` p99 is ${ADMIT_RATES.map((rate) => `${shown(figure(MEMORY, rate, 'p99 ms'))} ms at ${rate}`).join(', ')} requests a second.`,
  ],
});
