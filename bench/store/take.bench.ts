/**
 * What the store of a fleet costs a request: `take` from the call to its answer, and `ra-admit` of whole requests through three sidecars
 * that share it, by the clock; also beside a transaction that has been open for ten minutes of such a load, so that no row deleted since
 * could be removed from an index.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as wait } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { LimitedCaller } from '../../sidecar/access/limits.js';
import { systemClock } from '../../sidecar/lib/clock.js';
import { StoreLimits } from '../../sidecar/store/limits.js';
import { chatBody } from '../../test/support/in-process.js';
import { Postgres, replicaAt } from '../../test/support/postgres.js';
import { byTheClock, onWhoIsFree } from '../support/by-the-clock.js';
import { messageOf } from '../support/children.js';
import { keep, medians, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';
import { TimedCaller } from '../support/timed-caller.js';

const RATE = { perSecond: 1000, seconds: 3 };
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
const server = await Postgres.start({ fsync: true });
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
const sidecars = await Promise.all(
  [url, undefined].map((at) =>
    Promise.all(
      Array.from({ length: SIDECARS }, async () => {
        const config = { limits: { chat: LIMIT }, ...(at !== undefined && { store: { url: at, timeoutMs: 5000 } }) };
        const child = fork(fileURLToPath(new URL('../support/timing-sidecar.js', import.meta.url)), [
          JSON.stringify(config),
        ]);
        const port = await messageOf<number>(child);
        while ((await fetch(`http://127.0.0.1:${port}/readyz`)).status !== 200) await wait(LOOK_MS);
        return { child, port };
      }),
    ),
  ),
);
const [sharing = [], alone = []] = sidecars;

/** Takes by the clock, in ms. */
async function takes(): Promise<number[]> {
  const times: number[] = [];
  const open: Promise<void>[] = [];
  let sent = 0;
  await byTheClock(RATE, () => {
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
async function admits(of: typeof sharing): Promise<number[]> {
  const body = JSON.stringify(chatBody('wide', 'clocked'));
  const callers = await Promise.all(
    Array.from({ length: KEYS }, (_, i) => TimedCaller.open(of[i % SIDECARS]?.port ?? 0, body, `key-${i}`)),
  );
  for (const caller of callers) await caller.ask();
  const { done } = await onWhoIsFree(callers, RATE, (caller) => caller.ask());
  for (const caller of callers) caller.close();
  return done.map(({ admitMs }) => admitMs);
}

async function measured(what: string, times: () => Promise<number[]>): Promise<Row> {
  await times();
  const rounds: Row[] = [];
  while (rounds.length < ROUNDS) {
    const all = await times();
    rounds.push({ what, 'p50 ms': median(all), 'p99 ms': quantile(all, 0.99), 'most ms': Math.max(...all) });
  }
  return medians(rounds);
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

const rows = [
  await measured('take', takes),
  await measured('ra-admit, limits in memory', () => admits(alone)),
  await measured('ra-admit, limits in the store', () => admits(sharing)),
];
const close = await tenMinutesOld();
const beside = [
  await measured('take, beside an old transaction', takes),
  await measured('ra-admit, limits in the store, beside an old transaction', () => admits(sharing)),
];
await close();
rows.push(...beside);

for (const { child } of sidecars.flat()) {
  child.disconnect();
  await once(child, 'exit');
}
await Promise.all(members.map((limits) => limits.close()));
await teardowns.run();
await server.stop();

const worst = (start: string): number =>
  Math.max(...rows.filter(({ what }) => String(what).startsWith(start)).map((row) => Number(row['p99 ms'])));
const [take, admit] = [worst('take'), worst('ra-admit, limits in the store')];
await keep('store-take', {
  title: 'Limits of a fleet in PostgreSQL',
  about: [
    `${RATE.perSecond} requests a second by the clock, of ${KEYS} keys with a limit of ${LIMIT.inFlight} in flight and ${LIMIT.perMinute} in a minute, over ${SIDECARS} sidecars and one PostgreSQL on this machine, which writes its log to the disk (fsync). Callers, sidecars, their prompt hosts and stand-in engines, and the server share its cores. \`take\`: from the call to the answer, in one process with three replicas. \`ra-admit\`: as Server-Timing says it, of whole chat requests.`,
    `Beside an old transaction: it was begun before ${OLD.toLocaleString('en')} stamps and places, those of ten minutes at this rate, were written and removed again, and stays open, so that none of them can be removed from the indexes.`,
    `Medians of ${ROUNDS} rounds of ${RATE.seconds} seconds each.`,
  ],
  rows,
  conclusions: [
    `${take <= 1 ? 'Held' : 'Missed'}: \`take\` p99 at most 1 ms (${take.toFixed(2)} ms at worst).`,
    `${admit <= 2 ? 'Held' : 'Missed'}: \`ra-admit\` p99 at most 2 ms (${admit.toFixed(2)} ms at worst).`,
  ],
});
