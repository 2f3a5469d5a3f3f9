/** Limits of keys over three replicas, on a real PostgreSQL. */
import pg from 'pg';
import t, { type Test } from 'tap';
import { groupedId, type FleetLimitResult, type LimitedCaller, type Permit } from '../../../sidecar/access/limits.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import type { Database } from '../../../sidecar/store/database.js';
import { StoreLimits, uuidOf } from '../../../sidecar/store/limits.js';
import { placeIn, type Replica } from '../../../sidecar/store/replica.js';
import { LONG } from '../../support/long-form.js';
import { FakeClock } from '../../support/fake-clock.js';
import type { RecordingLog } from '../../support/in-process.js';
import { eventually } from '../../support/processes.js';
import { PATIENCE, Relay, replicaAt, storeDatabase } from '../../support/postgres.js';

const NONE = { inFlight: 0, perMinute: 0 };
const KEY: LimitedCaller = { account: 'acme', keyId: 'k' };

interface Member {
  readonly database: Database;
  readonly replica: Replica;
  readonly limits: StoreLimits;
  readonly log: RecordingLog;
  readonly take: (caller?: LimitedCaller) => Promise<FleetLimitResult>;
}

async function member(
  t: Test,
  url: string,
  id: string,
  own: {
    timeoutMs?: number;
    connections?: number;
    leaseMs?: number;
    replicas?: number;
    clock?: FakeClock;
    whenDown?: 'refuse' | 'share';
    decisions?: { inFlight: number; perMinute: number };
  } = {},
): Promise<Member> {
  const { log, database, replica } = await replicaAt(t, url, id, own);
  const limits = new StoreLimits({
    clock: own.clock ?? systemClock,
    database,
    replica,
    whenDown: own.whenDown ?? 'refuse',
    timeoutMs: own.timeoutMs ?? 5000,
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
  const database = await storeDatabase();
  return { ...database, members: await Promise.all(['a', 'b', 'c'].map((id) => member(t, database.url, id, own))) };
}

const permitsOf = (taken: readonly FleetLimitResult[]): Permit[] =>
  taken.flatMap((one) => (one.kind === 'taken' ? [one.permit] : []));

async function until(t: Test, what: string, holds: () => Promise<boolean> | boolean): Promise<void> {
  await eventually(what, holds);
  t.pass(what);
}

/** The largest number of stamps in any 60 seconds. */
async function fullestMinute(sql: Awaited<ReturnType<typeof storeDatabase>>['sql']): Promise<number> {
  const within = "over (order by at range between interval '60 seconds' preceding and current row)";
  const [row] = await sql(`select max(n) as n from (select count(*) ${within} as n from ra_sidecar.hit) counted`);
  return Number(row?.['n']);
}

const MINUTE = LONG ? 600 : 60;

t.test('a third of three times the limit of a minute, and a refused one frees its stamp', async (t) => {
  const { members, sql } = await fleet(t, { decisions: { inFlight: 0, perMinute: MINUTE } });
  const taken = await Promise.all(Array.from({ length: 3 * MINUTE }, (_, i) => (members[i % 3] as Member).take()));
  const permits = permitsOf(taken);
  t.equal(permits.length, MINUTE);
  t.equal(await fullestMinute(sql), MINUTE);
  const refused = taken.find((one) => one.kind === 'limited');
  t.match(refused, { kind: 'limited', by: 'perMinute' });
  t.ok(refused?.kind === 'limited' && refused.retryAfterMs > 0 && refused.retryAfterMs <= 60_000);
  permits[0]?.end(true);
  permits[1]?.end(false);
  permits[1]?.end(false);
  await until(t, 'its stamp is free', async () => (await fullestMinute(sql)) === MINUTE - 1);
  t.equal((await members[2]?.take())?.kind, 'taken');
  t.equal((await members[0]?.take())?.kind, 'limited', 'no more than one');
  t.match(members[0]?.limits.remaining(KEY, 'decisions'), { limit: MINUTE, remaining: 0 });
  t.equal((await members[0]?.take({ ...KEY, keyId: 'other' }))?.kind, 'taken', 'another key');
});

t.test('32 of 96 at once; the places of one that ends, or is gone, return', async (t) => {
  const { url, members, sql, count } = await fleet(t);
  const firsts = await Promise.all(Array.from({ length: 8 }, () => (members[0] as Member).take()));
  const others = await Promise.all(Array.from({ length: 88 }, (_, i) => (members[i % 3] as Member).take()));
  const taken = [...firsts, ...others];
  const permits = permitsOf(taken);
  t.equal(permits.length, 32);
  t.match(
    taken.find((one) => one.kind === 'limited'),
    { by: 'inFlight', retryAfterMs: 1000 },
  );
  t.equal(members[0]?.limits.inFlightLeft(KEY, 'decisions')?.remaining, 0);
  permits[0]?.end(true);
  t.equal(members[0]?.limits.inFlightLeft(KEY, 'decisions')?.remaining, 1);
  await until(t, 'the place is free', async () => (await count('flight')) === 31);
  t.equal((await members[1]?.take())?.kind, 'taken');
  t.equal((await members[1]?.take())?.kind, 'limited');

  // Killed: it says nothing more and its connections are gone, until its lease ends.
  await members[0]?.database.close();
  t.equal((await members[1]?.take())?.kind, 'limited');
  await sql(`update ra_sidecar.replica set lease_until = now() where id = 'a'`);
  t.equal((await members[1]?.take())?.kind, 'taken', 'its places are free');
  const again = await member(t, url, 'a');
  t.ok(again.replica.session, 'the next start of it has none of them');
  t.equal((await again.take()).kind, 'taken');
});

t.test('what is left of a minute is exact at each take, also after some were taken back', async (t) => {
  const { members, count } = await fleet(t, { decisions: { inFlight: 0, perMinute: 40 } });
  const open: Permit[] = [];
  let stamps = 0;
  let refused = 0;
  for (let step = 0; step < 120; step += 1) {
    const { limits, take } = members[step % 3] as Member;
    const taken = await take();
    open.push(...permitsOf([taken]));
    if (taken.kind === 'taken') stamps += 1;
    else refused += 1;
    t.equal(limits.remaining(KEY, 'decisions')?.remaining, 40 - stamps);
    // The last, the first, or one between.
    for (const permit of step % 4 === 0
      ? []
      : open.splice([-1, 0, Math.floor(open.length / 2)][step % 3] ?? 0, step % 2)) {
      permit.end(false);
      stamps -= 1;
    }
    await eventually('it is taken back', async () => (await count('hit')) === stamps);
  }
  t.ok(refused > 0);
  for (const permit of open) permit.end(true);
});

t.test('stamps whose numbers are far apart, after the clock was set back, are counted', async (t) => {
  const { members, sql } = await fleet(t, { decisions: { inFlight: 0, perMinute: 3 } });
  await sql(
    `insert into ra_sidecar.hit select $1::uuid, now() - interval '30 seconds' + i * interval '1 second', i * 5000000000, 999, i
     from generate_series(1, 2) i`,
    [uuidOf(groupedId(KEY, 'decisions'))],
  );
  t.equal((await members[0]?.take())?.kind, 'taken');
  t.match(await members[1]?.take(), { kind: 'limited', by: 'perMinute' });
});

t.test(
  'keys of one turn share a call, and the next call takes ends along; without one, or where few places are free, they come by themselves',
  async (t) => {
    const { members, count } = await fleet(t, { decisions: { inFlight: 4, perMinute: 0 } });
    const [a] = members as [Member];
    const { database } = a;
    const call = database.call.bind(database);
    const calls: string[] = [];
    database.call = (fn, args, options) => {
      calls.push(fn === 'take' ? `takes ${(args[9] as number[]).length} along` : fn);
      return call(fn, args, options) as never;
    };
    const take = async (keyId: string): Promise<Permit> => permitsOf([await a.take({ ...KEY, keyId })])[0] as Permit;
    const two = await Promise.all(['k2', 'k3'].map(take));
    t.strictSame(calls.splice(0), ['takes 0 along'], 'both');
    for (const permit of two) permit.end(true);
    await until(t, 'both are free', async () => (await count('flight')) === 0);
    calls.length = 0;
    await take('k1').then((permit) => permit.end(true));
    const third = await take('k1');
    t.strictSame(calls, ['takes 0 along', 'takes 1 along']);
    t.equal(await count('flight'), 1);
    const fourth = await take('k1');
    third.end(true);
    t.equal(calls.at(-1), 'release', 'of two places of four');
    await until(t, 'it is free', async () => (await count('flight')) === 1);
    await take('k2').then((permit) => permit.end(true));
    await until(t, 'one comes without another call', async () => (await count('flight')) === 1);
    fourth.end(true);
  },
);

t.test(
  'while a take waits for other calls of its key, ends of other keys are sent, and later those of its own',
  async (t) => {
    const { server, name, members, sql, count } = await fleet(t, { decisions: { inFlight: 4, perMinute: 0 } });
    const [{ database, take }] = members as [Member];
    const [one, other] = ['k1', 'k2'].map((keyId): LimitedCaller => ({ ...KEY, keyId })) as [
      LimitedCaller,
      LimitedCaller,
    ];
    const call = database.call.bind(database);
    const sent: unknown[] = [];
    let isLost = false;
    database.call = async (fn, args, options) => {
      if (fn === 'release' && args[5] === false) sent.push(args[3]);
      const answer = await call(fn, args, options);
      return isLost && fn === 'take'
        ? { kind: 'down', why: 'timeout', retryAfterMs: 1, sent: true }
        : (answer as never);
    };
    const keys = [one, other].map((caller) => uuidOf(groupedId(caller, 'decisions')));
    const permits = permitsOf([await take(one), await take(other)]);
    const client = await server.connect(name);
    t.teardown(() => client.end());
    await client.query('begin');
    await client.query('select ra_sidecar.lock_keys($1, 0)', [[keys[0]]]);
    permits[0]?.end(true);
    let answered = 0;
    const waiting = take(one).finally(() => (answered += 1));
    const locks = 'select 1 from pg_locks join pg_database d on d.oid = database where datname = current_database()';
    await until(t, 'it waits', async () => (await sql(`${locks} and not granted`)).length === 1);
    permits[1]?.end(true);
    await until(
      t,
      'the place of the other key is free',
      async () => (await count(`flight where key = '${keys[1]}'`)) === 0,
    );
    const others = permitsOf([await take(other)]);
    t.equal(answered, 0, 'meanwhile');
    for (const permit of others) permit.end(true);
    await until(t, 'and again', async () => (await count(`flight where key = '${keys[1]}'`)) === 0);
    t.strictSame(sent, [[keys[1]], [keys[1]]], 'in calls without the end that the take has');
    await client.query('rollback');
    const again = permitsOf([await waiting]);
    t.equal(await count('flight'), 1);

    isLost = true;
    for (const permit of again) permit.end(true);
    t.equal((await take(one)).kind, 'unavailable');
    await until(t, 'an end whose take was lost is sent again', () => sent.length > 2);
    t.strictSame(sent[2], [keys[0]]);
  },
);

t.test('a call that ended before it was sent leaves nothing to take back', async (t) => {
  const { url } = await storeDatabase();
  const { database } = await replicaAt(t, url, 'a');
  // eslint-disable-next-line @typescript-eslint/unbound-method -- called with its own `this`
  const { query } = pg.Client.prototype;
  t.teardown(() => (pg.Client.prototype.query = query));
  let [asks, answers] = [0, 0];
  let goOn = (): void => undefined;
  const held = new Promise<void>((resolve) => (goOn = resolve));
  pg.Client.prototype.query = async function (this: pg.Client, ...args: [string]) {
    asks += 1;
    const answer: unknown = await Reflect.apply(query, this, args);
    answers += 1;
    await held;
    return answer;
  } as never;
  const abort = new AbortController();
  const asked = database.call('sweep', [], { signal: abort.signal });
  await until(t, 'the server says what the connection leads to', () => answers === 1);
  abort.abort();
  t.strictSame(await asked, { kind: 'down', why: 'timeout', retryAfterMs: 1000 }, 'not sent');
  goOn();
  await held.then(() => new Promise(setImmediate));
  t.equal(asks, 1, 'nor is it sent later');
});

t.test('a caller that sends its next request at the answer to its last one stays within its limit', async (t) => {
  const { members } = await fleet(t, { decisions: { inFlight: 4, perMinute: 0 } });
  const one = members[0] as Member;
  const refused: string[] = [];
  const worker = async (): Promise<void> => {
    for (let i = 0; i < 100; i += 1) {
      const taken = await one.take();
      if (taken.kind === 'taken') taken.permit.end(true);
      else refused.push(taken.kind);
    }
  };
  await Promise.all([worker(), worker(), worker(), worker()]);
  t.strictSame(refused, []);
  const running = await Promise.all(Array.from({ length: 5 }, () => one.take()));
  t.equal(running.filter(({ kind }) => kind === 'limited').length, 1, 'and no more than that run');
});

t.test('while an end is stuck, a caller at its limit asks again only with time for the answer', async (t) => {
  const { url } = await storeDatabase();
  const [clock, timeoutMs] = [new FakeClock(), 1000];
  const { database, take } = await member(t, url, 'a', { clock, timeoutMs, decisions: { inFlight: 1, perMinute: 0 } });
  const call = database.call.bind(database);
  /** The time that each call of `take` had, ms, and how many were answered. */
  let asked: number[] = [];
  let answered = 0;
  let release = (): Promise<boolean> => Promise.resolve(true);
  database.call = async (fn, args, options) => {
    if (fn === 'take') asked.push(options?.withinMs ?? 0);
    if (fn === 'release' && !(await release())) return { kind: 'down', why: 'timeout', retryAfterMs: 1 };
    const answer = await call(fn, args, options);
    if (fn === 'take') answered += 1;
    return answer as never;
  };
  const limited = { kind: 'limited', by: 'inFlight' };
  const end = (taken: FleetLimitResult): void => {
    t.equal(permitsOf([taken]).length, 1);
    [asked, answered] = [[], 0];
    for (const permit of permitsOf([taken])) permit.end(true);
  };
  const first = await take();
  let fail = (): void => undefined;
  release = () => new Promise((resolve) => (fail = () => resolve(false)));
  end(first);
  const refused = take();
  await until(t, 'the end is not known', () => answered === 1);
  fail();
  t.match(await refused, limited, 'the store does not take the end');
  const second = await take();
  t.equal(second.kind, 'taken', 'a later call takes it along');

  let goOn = (): void => undefined;
  release = () => new Promise((resolve) => (goOn = () => resolve(true)));
  end(second);
  const waiting = take();
  await until(t, 'it is refused', () => answered === 1);
  clock.advance(timeoutMs - 1);
  goOn();
  t.match(await waiting, limited, 'the store takes the end when the time is nearly over');
  t.strictSame(asked, [timeoutMs]);
  release = () => Promise.resolve(true);
  end(await take());
});

t.test('a request whose time is over has its answer, and the call that it shares goes on for the others', async (t) => {
  const { url, count } = await storeDatabase();
  const [clock, timeoutMs] = [new FakeClock(), 1000];
  const { database, take } = await member(t, url, 'a', { clock, timeoutMs, decisions: { inFlight: 4, perMinute: 0 } });
  const call = database.call.bind(database);
  /** Keys of each call of `take`, the time that it had, ms, and what lets it go on. */
  const asked: { readonly keys: number; readonly ms: number; readonly goOn: () => void }[] = [];
  database.call = async (fn, args, options) => {
    if (fn === 'take')
      await new Promise<void>((goOn) => asked.push({ keys: (args[3] as []).length, ms: options?.withinMs ?? 0, goOn }));
    return await call(fn, args, options);
  };
  const of = (keyId: string): Promise<FleetLimitResult> => take({ ...KEY, keyId });
  const firsts = [of('k1')];
  await until(t, 'one call', () => asked.length === 1);
  firsts.push(of('k2'));
  await until(t, 'as many as may be in flight', () => asked.length === 2);
  const old = of('k3');
  clock.advance(900);
  const young = of('k4');
  asked[0]?.goOn();
  await until(t, 'the next one', () => asked.length === 3);
  t.match(asked[2], { keys: 2, ms: timeoutMs });
  clock.advance(100);
  t.match(await old, { kind: 'unavailable' });
  for (const { goOn } of asked) goOn();
  const permits = permitsOf(await Promise.all([...firsts, young]));
  t.equal(permits.length, 2, 'of the one in time, and of the first; the second was late too');
  await until(t, 'the places of both late ones are given back', async () => (await count('flight')) === 2);
  for (const permit of permits) permit.end(true);
});

t.test('a take whose answer is lost frees its place and its stamp', async (t) => {
  const { members, sql, count } = await fleet(t);
  const [a] = members as [Member];
  const { database } = a;
  const call = database.call.bind(database);
  // The store works on it, and the answer does not arrive.
  database.call = async (fn, args, options) => {
    const answer = await call(fn, args, options);
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
  const one = [['00000000000000000000000000000001'], [1], [99], [1], [1], [], [], false];
  t.match(await call('take', [no, epoch, beat - 2, ...one, 200]), { rows: [{ outcome: 'late' }] });
  t.match(await call('take', [no, epoch - 1, beat, ...one, 200]), { rows: [{ outcome: 'fenced' }] });
  await sql(`update ra_sidecar.replica set lease_until = now()`);
  t.match(await call('take', [no, epoch, beat + 9, ...one, 200]), { rows: [{ outcome: 'lease' }] });
});

t.test('beside an old transaction no call reads what was removed since, or a whole table', async (t) => {
  const { server, name, url } = await storeDatabase();
  const { database } = await replicaAt(t, url, 'a', { connections: 1 });
  const tables = ['hit', 'flight', 'freed', 'replica', 'fleet'];
  const key = uuidOf('a key');
  // Plans are made for tables that are known to be empty.
  const written = await server.connect(name);
  await written.query('analyze');
  await written.query(`select ra_sidecar.join_fleet('a', 'host', 'release', 0, 600000)`);
  const load = async (from: number): Promise<void> => {
    for (let i = from; i < from + 20; i += 1) {
      const taken = await database.call('take', [1, 1, 0, [key], [1], [i], [32], [600], [], [], false, 5000]);
      t.match(taken, { rows: [{ outcome: 'taken', running: 0 }] });
      await database.call('release', [1, 1, [i], [key], [true], false]);
    }
  };
  // No take reads all stamps of its minute either.
  await written.query(
    `insert into ra_sidecar.hit select '${key}', now() - i * interval '1 ms', -i, 1, 1000 + i from generate_series(1, 300) i`,
  );
  await load(1);
  const old = await server.connect(name);
  t.teardown(() => old.end());
  await old.query('begin isolation level repeatable read; select count(*) from ra_sidecar.hit');
  await written.query('set enable_seqscan = off');
  const before = `now() - i * interval '1 ms' - interval '61 seconds'`;
  await written.query(
    `insert into ra_sidecar.hit select '${key}', ${before}, -i, 1, -i from generate_series(1, 5000) i`,
  );
  await written.query(`insert into ra_sidecar.flight select '${key}', 1, -i, 1 from generate_series(1, 5000) i`);
  for (const table of ['hit', 'flight'])
    await written.query(`delete from ra_sidecar.${table} where key = '${key}' and request < 0`);
  await written.end();
  await until(t, 'these are counted', async () => (await server.scans(name, tables)).entries >= 10_000);
  const from = await server.scans(name, tables);
  await load(101);
  await database.close();
  await until(t, 'all calls are counted', async () => (await server.scans(name, tables)).entries >= from.entries + 20);
  const to = await server.scans(name, tables);
  t.equal(to.whole, from.whole, 'scans of whole tables');
  t.ok(to.entries < from.entries + 1000, `${to.entries - from.entries} entries of indexes`);
});

t.test('a second process with the data folder of the first fences it', async (t) => {
  const { url, members } = await fleet(t);
  const [a] = members as [Member];
  const twin = await member(t, url, 'a');
  a.replica.hurry();
  await until(t, 'it is fenced', () => a.replica.fenced);
  t.equal((await a.take()).kind, 'unavailable');
  t.match(a.log.lines.at(-1), { event: 'store has another replica in this place' });
  t.equal((await twin.take()).kind, 'taken');
});

t.test('what is over is removed, some at a time: stamps, places, replicas', async (t) => {
  const { url, sql, count } = await storeDatabase();
  // One that removes nothing by itself.
  const { database } = await replicaAt(t, url, 'idle');
  const swept = () => database.call('sweep', []);
  await sql(`update ra_sidecar.swept set until = '-infinity'`);
  await sql(`insert into ra_sidecar.hit select gen_random_uuid(), now() - i * interval '5 milliseconds', i, 1, i
     from generate_series(0, 24000) i`);
  t.match(await database.call('sweep', []), { rows: [{ more: true }] });
  t.equal(await count('hit'), 14_001);
  t.match(await database.call('sweep', []), { rows: [{ more: false }] });
  const left = await count('hit');
  t.ok(left > 1000 && left <= 12_201, `those of the last 61 s: ${left}`);

  // The clock of the host was set back by an hour after the last removal.
  await sql(`update ra_sidecar.swept set until = now() + interval '1 hour' where what = 'hit'`);
  await sql(`insert into ra_sidecar.hit values (gen_random_uuid(), now() - interval '90 seconds', 1, 1, 1)`);
  await swept();
  await sql(`update ra_sidecar.swept set until = until - interval '1 minute' where what = 'hit'`);
  await swept();
  t.equal(await count(`hit where at < now() - interval '62 seconds'`), 0);

  const a = await member(t, url, 'a');
  const permits = permitsOf([await a.take()]);
  // At once: the sidecar that has begun removes what is over too.
  await sql(`insert into ra_sidecar.replica (id, host, release, epoch, joined_at, lease_until)
       select 'gone-' || i, 'h', '1', 1, now(), now() - i * interval '1 day' from generate_series(1, 10) i;
     insert into ra_sidecar.flight select gen_random_uuid(), no, 1, epoch from ra_sidecar.replica where id like 'gone-%';
     insert into ra_sidecar.claim select gen_random_uuid(), '', false, no, 1, 1, 0, 0, 0, now() + interval '1 day'
       from ra_sidecar.replica where id = 'gone-10'`);
  await database.call('sweep_replicas', []);
  t.equal(await count('flight'), 1, 'the place of one that runs stays');
  t.equal(await count('replica'), 1 + 6 + 1, 'those of a week, and the one that has a key in flight');
  permits[0]?.end(true);
});

t.test('a burst on one key is a few transactions: each is answered at the default timeout', async (t) => {
  const { members, sql } = await fleet(t, {
    decisions: { inFlight: 0, perMinute: MINUTE },
    timeoutMs: 250 * PATIENCE,
    connections: 8,
  });
  let calls = 0;
  for (const { database } of members) {
    const call = database.call.bind(database);
    database.call = (fn, args, options) => {
      if (fn === 'take') calls += 1;
      return call(fn, args, options);
    };
  }
  const taken = await Promise.all(Array.from({ length: 1800 }, (_, i) => (members[i % 3] as Member).take()));
  t.equal(permitsOf(taken).length, MINUTE);
  t.equal(taken.filter(({ kind }) => kind === 'limited').length, 1800 - MINUTE, 'none is refused for its time');
  t.ok(calls <= 9, `in ${calls} calls`);
  t.equal(await fullestMinute(sql), MINUTE);
  t.ok(
    members.every(
      ({ limits, log }) => limits.size <= MINUTE && !log.lines.some(({ event }) => event === 'store is left alone'),
    ),
  );
});

t.test('a restart keeps the minute: no request of it takes back a stamp of the start before', async (t) => {
  const { url, members, sql } = await fleet(t);
  const [a, b] = members as [Member, Member];
  t.equal((await a.take()).kind, 'taken');
  t.equal((await b.take()).kind, 'taken');
  const again = await member(t, url, 'a');
  const refused = permitsOf([await again.take()]);
  for (const permit of refused) permit.end(false);
  await until(t, 'its own stamp is free', () => again.limits.size === 0);
  t.equal(await fullestMinute(sql), 2, 'that of the request before the restart stays');
});

t.test('after an outage longer than a lease, those that have not beaten again keep their places', async (t) => {
  const { url, members, sql } = await fleet(t);
  const [a, b, c] = members as [Member, Member, Member];
  for (const { take } of [a, b])
    t.equal(permitsOf(await Promise.all(Array.from({ length: 16 }, () => take()))).length, 16);
  // The clock moves, not the sidecars: c was gone before, then nobody could beat for an hour.
  const outage = async (): Promise<void> => {
    await sql(`update ra_sidecar.replica set lease_until = lease_until - interval '1 hour'`);
    await sql(`update ra_sidecar.replica set lease_until = lease_until - interval '1 hour' where id = 'c'`);
  };
  await outage();
  c.replica.hurry();
  await until(t, 'the first is back', async () => (await c.take()).kind === 'limited');
  a.replica.hurry();
  await until(t, 'the second is back', async () => (await a.take()).kind === 'limited');
  await sql(`update ra_sidecar.fleet set grace_until = now()`);
  t.equal(
    permitsOf(await Promise.all(Array.from({ length: 32 }, () => c.take()))).length,
    16,
    'b is gone a lease later',
  );

  // Not so if one sidecar alone is gone, or all were stopped in order.
  const d = await member(t, url, 'd');
  await d.replica.close();
  t.equal((await sql(`select 1 from ra_sidecar.fleet where grace_until > now()`)).length, 0);
});

t.test('a sidecar whose takes wait keeps its lease; an error of the store leaves nothing to take back', async (t) => {
  const { server, name, url } = await fleet(t);
  const busy = await member(t, url, 'busy', { connections: 2, timeoutMs: 2500 });
  const { beat = 0 } = busy.replica.session ?? {};
  const client = await server.connect(name);
  t.teardown(() => client.end());
  await client.query('begin; lock table ra_sidecar.flight in access exclusive mode');
  let answered = 0;
  const takes = Array.from({ length: 2 }, async (_, i) => {
    const { kind } = await busy.take({ ...KEY, keyId: `k${i}` });
    answered += 1;
    return kind;
  });
  busy.replica.hurry();
  await until(t, 'it beats', () => (busy.replica.session?.beat ?? 0) > beat);
  t.equal(answered, 0, 'while takes hold all other connections');
  t.strictSame(new Set(await Promise.all(takes)), new Set(['unavailable']));
  t.equal(busy.limits.size, 0, 'the store has answered that it did nothing');
  await client.query('rollback');
  t.equal((await busy.take()).kind, 'taken', 'and its locks are no failures');
});

t.test('a limit of 100,000 in a minute: one count serves all that wait', async (t) => {
  const { members, sql } = await fleet(t, { decisions: { inFlight: 0, perMinute: 100_000 } });
  await sql(
    `insert into ra_sidecar.hit select $1::uuid, now() - i * interval '0.5 milliseconds', -i, 999, i from generate_series(1, 99900) i`,
    [uuidOf(groupedId(KEY, 'decisions'))],
  );
  const from = performance.now();
  const taken = await Promise.all(Array.from({ length: 600 }, (_, i) => (members[i % 3] as Member).take()));
  t.comment(`600 takes in ${Math.round(performance.now() - from)} ms`);
  t.equal(permitsOf(taken).length, 100);
  t.ok(
    taken.filter(({ kind }) => kind === 'limited').length >= 100,
    'one call at most had to wait too long for another',
  );
});

t.test('while the store is down: refused, or a share of the limits', async (t) => {
  const { url, members, sql } = await fleet(t, {
    decisions: { inFlight: 0, perMinute: 30 },
    whenDown: 'share',
  });
  const strict = await member(t, url, 'd');
  const [a, b] = members as [Member, Member];
  for (const { replica } of [a, b]) replica.hurry();
  await until(t, 'each knows how many there are', () => [a, b].every(({ replica }) => replica.replicas === 4));
  for (let i = 0; i < 4; i++) t.equal((await a.take()).kind, 'taken');
  await sql(`revoke usage on schema ra_sidecar from ra_replica`);
  t.match(await strict.take(), { kind: 'unavailable' });
  const own = await Promise.all(Array.from({ length: 20 }, () => a.take()));
  t.equal(permitsOf(own).length, 7 - 4, 'with those that the store let in');
  t.equal(permitsOf(await Promise.all(Array.from({ length: 20 }, () => b.take()))).length, 7, 'a fourth of 30');
});

t.test('a share needs the number of sidecars: of the last start, or there is none', async (t) => {
  const address = 'postgresql://u@%2Fnowhere/d';
  const decisions = { inFlight: 0, perMinute: 30 };
  const taken = async (own: { replicas?: number }): Promise<number> => {
    const { database, replica } = await replicaAt(t, address, 'a', own);
    const defaults = { decisions, chat: NONE, embeddings: NONE, models: NONE };
    const limits = new StoreLimits({
      clock: systemClock,
      database,
      replica,
      whenDown: 'share',
      timeoutMs: 250,
      defaults,
    });
    t.equal(await replica.begin(), undefined);
    const answers = await Promise.all(Array.from({ length: 40 }, async () => await limits.take(KEY, 'decisions')));
    return permitsOf(answers).length;
  };
  t.equal(await taken({ replicas: 3 }), 10);
  t.equal(await taken({}), 0);
  const dir = t.testdir();
  const place = await placeIn(dir);
  t.equal(place.replicas, undefined);
  await place.keep(3);
  t.match(await placeIn(dir), { id: place.id, replicas: 3 });
});

t.test('a network that drops, stops or comes late: no call outlasts its time, no place is lost', async (t) => {
  const { server, url, sql, count } = await storeDatabase();
  const relay = await new Relay(t, server).listen();
  const a = await member(t, relay.through(url), 'a', { timeoutMs: 1000 });
  const b = await member(t, url, 'b');
  const first = await a.take();
  t.equal(first.kind, 'taken');

  relay.fault = 'hold';
  t.equal((await a.take()).kind, 'unavailable', 'half open');
  permitsOf([first])[0]?.end(true);
  await sql(`update ra_sidecar.replica set lease_until = now() where id = 'a'`);
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
  t.equal(await count('flight'), 0);
  relay.cut();
  relay.fault = 'refuse';
  t.equal((await a.take()).kind, 'unavailable', 'dropped');
  relay.fault = 'none';
  await until(t, 'it is back again', async () => (await a.take()).kind === 'taken');
});
