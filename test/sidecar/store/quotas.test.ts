/** Quotas of tokens over three replicas, on a real PostgreSQL. */
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { TOKEN_LIMITS, type LimitedCaller } from '../../../sidecar/access/limits.js';
import { idOf, QuotaLedger, type FleetTokensReserved, type TokenReservation } from '../../../sidecar/access/quotas.js';
import { systemClock, type Clock } from '../../../sidecar/lib/clock.js';
import type { Database } from '../../../sidecar/store/database.js';
import { uuidOf } from '../../../sidecar/store/limits.js';
import { StoreQuotas } from '../../../sidecar/store/quotas.js';
import type { Replica } from '../../../sidecar/store/replica.js';
import { rounds } from '../../support/long-form.js';
import { MemorySpool } from '../../support/memory-spool.js';
import { eventually } from '../../support/processes.js';
import { replicaAt, storeDatabase } from '../../support/postgres.js';
import { usageRecord } from '../../support/usage-records.js';

const KEY: LimitedCaller = { account: 'acme', keyId: 'k' };

interface Member {
  readonly database: Database;
  readonly replica: Replica;
  readonly quotas: StoreQuotas;
  /** Calls of the store, by function. */
  readonly calls: string[];
}

interface Own {
  readonly leaseMs?: number;
  readonly whenDown?: 'refuse' | 'share';
  readonly spool?: MemorySpool;
  readonly connections?: number;
  /** The store is never asked. */
  readonly apart?: boolean;
  /** Of the quotas alone. */
  readonly clock?: Clock;
  /** Tokens that a sidecar has used today, by its own totals. */
  readonly used?: () => number;
}

async function member(t: Test, url: string, id: string, own: Own = {}): Promise<Member> {
  const { whenDown = 'refuse', clock = systemClock, leaseMs = 60_000, connections = 4, used = () => 0 } = own;
  const { log, database, replica } = await replicaAt(t, url, id, { leaseMs, connections });
  const calls: string[] = [];
  const call = database.call.bind(database);
  database.call = (fn, ...rest) => {
    calls.push(fn);
    return call(fn, ...rest) as never;
  };
  const quotas = new StoreQuotas({ clock, log, database, replica, whenDown, timeoutMs: 5000 });
  const totals = (day: string): number => (day === new Date().toISOString().slice(0, 10) ? used() : 0);
  quotas.begin(
    new QuotaLedger(
      systemClock,
      () => new Date(),
      () => totals,
    ),
  );
  if (own.spool) quotas.ends.recovered(own.spool);
  if (own.apart !== true) t.equal(await replica.begin(), undefined);
  t.teardown(() => quotas.ends.close());
  return { database, replica, quotas, calls };
}

async function fleet(t: Test, own: Own = {}) {
  const database = await storeDatabase();
  const members = await Promise.all(['a', 'b', 'c'].map((id) => member(t, database.url, id, own)));
  return { ...database, members: members as [Member, Member, Member] };
}

function held(reserved: FleetTokensReserved): TokenReservation {
  if (reserved.kind !== 'reserved') throw new Error(reserved.kind);
  return reserved.reservation;
}

const reserve = async ({ quotas }: Member, caller: LimitedCaller, tokens: number): Promise<FleetTokensReserved> =>
  await quotas.reserve(caller, tokens);

/** What the store says now. */
async function remaining(of: Member, caller: LimitedCaller): Promise<number[]> {
  const reserved = await of.quotas.reserve(caller, 0);
  if (reserved.kind === 'reserved') reserved.reservation.settle(0);
  await settled(of);
  return of.quotas.left(caller).map((left) => left.remaining);
}

async function settled(...members: readonly Member[]): Promise<void> {
  await eventually('each end is sent', () => Promise.resolve(members.every(({ quotas }) => quotas.size === 0)));
}

t.test('512 at once over three, against each quota: as many begin as fit, and all is given back', async (t) => {
  const { members, count } = await fleet(t);
  for (const scope of ['key', 'account'] as const) {
    for (const name of TOKEN_LIMITS) {
      const limit = { [name]: 1000 };
      const of = (i: number): LimitedCaller =>
        scope === 'key'
          ? { account: 'acme', keyId: name, ...limit }
          : { account: name, keyId: `k${i % 4}`, accountTokens: limit };
      const asked = await Promise.all(
        Array.from({ length: 512 }, (_, i) => reserve(members[i % 3] as Member, of(i), 30)),
      );
      const begun = asked.filter(({ kind }) => kind === 'reserved').map(held);
      t.equal(begun.length, 33, `${scope} ${name}`);
      const refused = asked.filter(({ kind }) => kind === 'exceeded');
      t.equal(refused.length, 512 - 33);
      t.match(refused[0], { quota: { scope, name, limit: 1000 }, retryAfterMs: 1000 });
      for (const each of begun) each.settle(10);
      await settled(...members);
      t.equal(await count('token_flight'), 0);
      t.same(await remaining(members[0], of(0)), [1000 - 330]);
    }
  }
});

t.test('each answer is that of the ledger of one sidecar', async (t) => {
  let steps = 0;
  // No refusal is remembered, since the other key of the account may have given something back.
  const clock = { ...systemClock, now: () => systemClock.now() + 300 * (steps += 1) };
  const {
    members: [a],
  } = await fleet(t, { clock });
  const event = fc.record({
    kind: fc.constantFrom('begin', 'begin', 'grow', 'end', 'fail'),
    of: fc.nat(),
    tokens: fc.integer({ min: 1, max: 400 }),
  });
  let refused = 0;
  let walks = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(event, { minLength: 20, maxLength: 40 }), async (walk) => {
      walks += 1;
      const account = `walk-${walks}`;
      const callers = [
        { account, keyId: 'a', tokensPerMinute: 500, tokensPerDay: 1100, accountTokens: { tokensPerMonth: 900 } },
        { account, keyId: 'b', accountTokens: { tokensPerMonth: 900 } },
      ];
      const ledger = new QuotaLedger(systemClock, () => new Date());
      const running: { own: TokenReservation; fleet: TokenReservation; reserved: number; used: number }[] = [];
      for (const { kind, of, tokens } of walk) {
        const caller = callers[of % 2] ?? KEY;
        if (kind === 'begin') {
          const own = ledger.reserve(caller, tokens);
          const fleet = await reserve(a, caller, tokens);
          if (own.kind !== fleet.kind) throw new Error(`${own.kind}, not ${fleet.kind}`);
          if (own.kind !== 'reserved' || fleet.kind !== 'reserved') {
            refused += 1;
            continue;
          }
          running.push({ own: own.reservation, fleet: fleet.reservation, reserved: tokens, used: 0 });
          const left = [ledger, a.quotas].map((each) => String(each.left(caller).map((one) => one.remaining)));
          if (left[0] !== left[1]) throw new Error(`${left[0]}, not ${left[1]}`);
        } else {
          const one = running[of % Math.max(1, running.length)];
          if (!one) continue;
          const used = Math.min(one.reserved, one.used + Math.floor(tokens / 2));
          if (kind === 'grow') {
            const own = one.own.extend(one.reserved + tokens, used);
            const fleet = await one.fleet.extend(one.reserved + tokens, used);
            if (own !== fleet) throw new Error('the own ledger extends to another number than the store');
            Object.assign(one, { reserved: fleet, used });
          } else {
            running.splice(running.indexOf(one), 1);
            for (const each of [one.own, one.fleet]) each.settle(kind === 'fail' ? 0 : used);
            await eventually('its end is sent', () => Promise.resolve(a.quotas.size === running.length));
          }
        }
      }
      for (const { fleet } of running) fleet.settle(0);
      await settled(a);
    }),
    { numRuns: rounds({ short: 8, long: 200 }) },
  );
  t.ok(refused > 0, `${refused} refusals in ${walks} walks`);
});

t.test(
  'a reply grows by a round trip for each part, up to what is left; its tokens count as they are used',
  async (t) => {
    const { members, sql } = await fleet(t);
    const [a, b] = members;
    const caller = { ...KEY, tokensPerMinute: 1000, tokensPerDay: 2000 };
    const one = held(await reserve(a, caller, 300));
    t.equal(await one.extend(556, 200), 556);
    t.equal(await one.extend(812, 500), 812);
    t.same(await remaining(b, caller), [188, 1188]);
    t.equal(await one.extend(1068, 700), 1000, 'all that is left');
    t.equal(await one.extend(900, 700), 900, 'and something of it back');
    t.equal(a.calls.filter((fn) => fn === 'take_tokens').length, 5);
    t.same(await remaining(b, caller), [100, 1100]);
    // A minute later those that were counted have left it, and stay reserved for the day.
    await sql(`update ra_sidecar.token_stamp set at = at - interval '61 seconds'`);
    t.same(await remaining(b, caller), [800, 1100]);
    one.settle(850);
    one.settle(1);
    await settled(a);
    t.same(await remaining(b, caller), [850, 1150]);
    t.equal(await one.extend(1200, 900), 900, 'it is over');

    const failed = held(await reserve(a, caller, 300));
    await failed.extend(400, 250);
    failed.settle(0);
    await settled(a);
    t.same(await remaining(b, caller), [850, 1150], 'of a reply that is not billed nothing counts');
  },
);

t.test('a reply that ends while more is reserved for it counts once', async (t) => {
  const { members, sql } = await fleet(t);
  const [a] = members;
  // Holds up a call that reserves more, once it has read what is reserved.
  await sql('create table public.held_up as select true as is');
  await sql(`create function public.hold_up() returns trigger language plpgsql as $$ begin
    while exists (select from public.held_up) loop perform pg_sleep(0.002); end loop;
    return new;
  end $$`);
  await sql(`create trigger hold_up before insert on ra_sidecar.token_stamp
    for each row when (new.day = 0) execute function public.hold_up()`);
  const reply = held(await reserve(a, { ...KEY, tokensPerMinute: 1000 }, 300));
  const extended = reply.extend(556, 200);
  const waits = async (event: string): Promise<boolean> =>
    (await sql('select 1 from pg_stat_activity where datname = current_database() and wait_event = $1', [event]))
      .length > 0;
  await eventually('it is held up', () => waits('PgSleep'));
  reply.settle(250);
  await eventually('the end is there', async () => a.quotas.size === 0 || (await waits('transactionid')));
  await sql('delete from public.held_up');
  await extended;
  await settled(a);
  t.match(await sql('select sum(minute)::int as minute, sum(day)::int as day from ra_sidecar.token_stamp'), [
    { minute: 250, day: 250 },
  ]);
});

t.test('what a replica had reserved is free when its lease ends', async (t) => {
  const { members, sql } = await fleet(t);
  const [a, b] = members;
  const caller = { ...KEY, accountTokens: { tokensPerDay: 1000 } };
  held(await reserve(a, caller, 600));
  t.equal((await reserve(b, caller, 600)).kind, 'exceeded');
  await a.database.close();
  await sql(`update ra_sidecar.replica set lease_until = now() where id = 'a'`);
  await eventually('it is free', async () => (await reserve(b, caller, 600)).kind === 'reserved');
  t.pass('it is free');
});

t.test('what requests used counts once, however often a start is killed before the store hears of it', async (t) => {
  const { url, members, count } = await fleet(t);
  const [, b] = members;
  const spool = new MemorySpool();
  const killed = await member(t, url, 'killed', { spool });
  const caller = { ...KEY, tokensPerMinute: 5000, accountTokens: { tokensPerDay: 5000 } };
  const begin = async (tokens: number): Promise<TokenReservation> => held(await reserve(killed, caller, tokens));
  const [running, grown, ended, recalled, unopened, sent] = await Promise.all([600, 300, 100, 80, 70, 50].map(begin));
  await grown?.extend(500, 250);
  const record = (kind: 'progress' | 'close', id: string, { request = 0 } = {}, tokens = 0, rest = {}): void => {
    const price = { version: 'v', picodollars: '1' };
    const counts = { promptTokens: tokens, completionTokens: 0, price };
    spool.append(usageRecord(id, kind, { ...KEY, ...counts, quota: request, ...rest }));
  };
  record('progress', 'running', running, 400);
  record('progress', 'grown', grown, 250);
  record('close', 'recalled once', recalled, 60, { outcome: 'refused' });
  record('close', 'recalled', recalled, 70);
  record('close', 'sent', sent, 20);
  sent?.settle(20);
  await eventually('one end is sent', () => Promise.resolve(killed.quotas.size === 5));
  await killed.database.close();
  record('close', 'ended', ended, 90);
  ended?.settle(90);
  spool.flush();
  t.ok(unopened, 'of this one there is no record');

  spool.restart();
  t.equal(spool.estimated.length, 2);
  const second = await member(t, url, 'killed', { spool, apart: true });
  spool.flush();
  await second.database.close();
  spool.restart();
  t.equal(spool.estimated.length, 0, 'its recovery has closed them');
  t.equal(await count('token_flight'), 12 - 2);

  const used = 400 + 250 + 90 + 70 + 20;
  const third = await member(t, url, 'killed', { spool });
  await eventually('nothing is left', async () => (await count('token_flight')) === 0);
  t.same(await remaining(b, caller), [5000 - used, 5000 - used]);
  await eventually('the spool need not be kept', () => Promise.resolve(third.quotas.ends.keepFrom === undefined));
  await third.database.close();
  const fourth = await member(t, url, 'killed', { spool });
  await eventually('it has looked', () => Promise.resolve(fourth.quotas.ends.keepFrom === undefined));
  t.same(await remaining(b, caller), [5000 - used, 5000 - used], 'counted once');
});

t.test('of a request whose records are gone from the spool all that was reserved counts', async (t) => {
  const { url, members, count, sql } = await fleet(t);
  const spool = new MemorySpool();
  const killed = await member(t, url, 'killed', { spool });
  const caller = { ...KEY, tokensPerDay: 5000 };
  held(await reserve(killed, caller, 300));
  await killed.database.close();
  // The sweep of another one leaves it to the next start.
  await sql(`update ra_sidecar.replica set lease_until = now() - interval '3 days' where id = 'killed'`);
  await members[0].database.call('sweep_replicas', []);
  for (let line = 0; line < 20; line += 1) spool.append(usageRecord(`other ${line}`, 'close'));
  spool.flush();
  spool.prune({ segment: 2, offset: 0 });
  await member(t, url, 'killed', { spool });
  await eventually('nothing is left', async () => (await count('token_flight')) === 0);
  t.same(await remaining(members[1], caller), [4700]);
});

t.test('a stop sends all ends that are known, not those of one call alone', async (t) => {
  const { url, count, members } = await fleet(t);
  // One that tries nothing again by itself.
  const after: Clock['after'] = (ms, fn) => (ms < 250 ? systemClock.after(ms, fn) : () => undefined);
  const one = await member(t, url, 'one', { clock: { ...systemClock, after } });
  const call = one.database.call.bind(one.database);
  one.database.call = (fn, ...rest) =>
    fn === 'settle_tokens'
      ? Promise.resolve({ kind: 'down', why: 'timeout', retryAfterMs: 1 })
      : (call(fn, ...rest) as never);
  const caller = { ...KEY, tokensPerDay: 100_000 };
  const begun = await Promise.all(Array.from({ length: 2100 }, () => reserve(one, caller, 10)));
  for (const each of begun) held(each).settle(3);
  t.equal(await count('token_flight'), 2100);
  one.database.call = call;
  await one.quotas.ends.close();
  t.equal(await count('token_flight'), 0);
  t.same(await remaining(members[0], caller), [100_000 - 2100 * 3]);
});

t.test('many keys of an account wait for its lock by one connection; other accounts do not wait', async (t) => {
  const { server, name, url } = await fleet(t);
  const one = await member(t, url, 'one', { connections: 2 });
  const client = await server.connect(name);
  t.teardown(() => client.end());
  const hot = (i: number): LimitedCaller => ({ account: 'hot', keyId: `k${i}`, accountTokens: { tokensPerDay: 1000 } });
  await client.query('select pg_advisory_lock(uuid_hash_extended($1, 2))', [uuidOf(idOf(hot(0), 'account'))]);
  const answered: string[] = [];
  const ask = async (caller: LimitedCaller): Promise<void> => {
    const { kind } = await reserve(one, caller, 10);
    answered.push(`${caller.account} ${kind}`);
  };
  const waiting = Promise.all(Array.from({ length: 8 }, (_, i) => ask(hot(i))));
  await ask({ account: 'other', keyId: 'k', tokensPerDay: 1000 });
  t.strictSame(answered, ['other reserved']);
  await client.query('select pg_advisory_unlock_all()');
  await waiting;
  t.strictSame(answered.slice(1), Array(8).fill('hot reserved'));
});

t.test('replies that grow and end at once do not deadlock, in whichever order they are sent', async (t) => {
  const { server, name, sql, members } = await fleet(t);
  const [a] = members;
  const caller = { ...KEY, tokensPerDay: 1000, accountTokens: { tokensPerDay: 1000 } };
  const [one, two] = [held(await reserve(a, caller, 10)), held(await reserve(a, caller, 10))];
  const keys = (['key', 'account'] as const).map((scope) => uuidOf(idOf(caller, scope)));
  const { no, epoch, beat } = a.replica.session ?? { no: 0, epoch: 0, beat: 0 };
  const [holds, ends, grows] = await Promise.all([0, 1, 2].map(() => server.connect(name)));
  if (!holds || !ends || !grows) throw new Error('not connected');
  t.teardown(() => Promise.all([holds.end(), ends.end(), grows.end()]));
  // Until all are there.
  await sql('alter function ra_sidecar.settle_tokens set lock_timeout = 0');
  const waits = (wanted: number) => async (): Promise<boolean> =>
    (await sql(`select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`))
      .length === wanted;
  await holds.query('begin');
  await holds.query('select from ra_sidecar.token_flight where request = $1 for update', [one.request]);
  const ended = ends.query('select ra_sidecar.settle_tokens($1, $2, $3, $4, $5, false)', [
    ...[no, epoch, [one.request, one.request, two.request, two.request]],
    ...[
      [...keys, ...keys],
      [10, 10, 10, 10],
    ],
  ]);
  await eventually('the ends wait', waits(1));
  const limits = [null, 1000, null, null, 1000, null];
  const grown = grows.query('select * from ra_sidecar.take_tokens($1, $2, $3, $4, $5, $6, $7, $8, 0, 1, 0)', [
    ...[no, epoch, beat, keys, limits],
    ...[
      [two.request, one.request],
      [20, 20],
      [5, 5],
    ],
  ]);
  await eventually('both wait', waits(2));
  await holds.query('rollback');
  const [, { rows }] = await Promise.all([ended, grown]);
  t.match(rows, [{ outcome: 'done', granted: ['-1', '-1'] }], 'the ends were first');
});

t.test('an answer that is lost leaves nothing reserved; a late call reserves nothing', async (t) => {
  const { members, count, sql } = await fleet(t);
  const [a] = members;
  const call = a.database.call.bind(a.database);
  a.database.call = async (fn, ...rest) => {
    const answer = await call(fn, ...rest);
    return (fn === 'take_tokens' ? { kind: 'down', why: 'timeout', retryAfterMs: 1000, sent: true } : answer) as never;
  };
  const caller = { ...KEY, tokensPerDay: 1000 };
  t.match(await reserve(a, caller, 900), { kind: 'unavailable', retryAfterMs: 1000 });
  t.equal(await count('token_flight'), 1);
  a.database.call = call;
  await eventually('it is free', () => {
    a.replica.hurry();
    return Promise.resolve(a.quotas.size === 0);
  });
  t.equal(await count('token_flight'), 0);
  const { no, epoch, beat } = a.replica.session ?? { no: 0, epoch: 0, beat: 0 };
  const taken = (e: number, b: number) =>
    call('take_tokens', [no, e, b, [uuidOf('x')], [null, null, null], [9], [1], [null], 200, 1, 0]);
  t.match(await taken(epoch, beat - 2), { rows: [{ outcome: 'late' }] });
  t.match(await taken(epoch - 1, beat), { rows: [{ outcome: 'fenced' }] });
  await sql(`update ra_sidecar.replica set lease_until = now()`);
  t.match(await taken(epoch, beat + 9), { rows: [{ outcome: 'lease' }] });
});

t.test('days and months are those of the store; what leaves the minute is summed up', async (t) => {
  const { members, sql, count } = await fleet(t);
  const [a, b] = members;
  const caller = { ...KEY, tokensPerMinute: 5000, tokensPerDay: 1000, tokensPerMonth: 3000 };
  const key = uuidOf(idOf(caller, 'key'));
  const use = async (tokens: number): Promise<void> => {
    held(await reserve(a, caller, tokens)).settle(tokens);
    await settled(a);
  };
  await use(100);
  await use(200);
  await sql(`update ra_sidecar.token_stamp set at = at - interval '2 minutes'`);
  await sql(`update ra_sidecar.swept set until = '-infinity' where what = 'token'`);
  // Midnight UTC may have been between.
  const [{ today } = {}] = await sql(
    `select coalesce(sum(day) filter (where at >= date_trunc('day', now(), 'UTC')), 0)::int as today from ra_sidecar.token_stamp`,
  );
  const before = await remaining(b, caller);
  t.same(before.slice(0, 2), [5000, 1000 - Number(today)]);
  await a.database.call('sweep_tokens', []);
  t.equal(await count('token_stamp'), 0);
  t.same(await remaining(b, caller), before);
  await sql(
    `insert into ra_sidecar.token_total select $1::uuid, (date_trunc('month', now(), 'UTC') at time zone 'UTC')::date - 1, 777`,
    [key],
  );
  t.same(await remaining(b, caller), before, 'not those of last month');
  await sql(`update ra_sidecar.token_total set tokens = 999 where day = (now() at time zone 'UTC')::date`);
  const refused = await reserve(b, caller, 500);
  t.match(refused, { kind: 'exceeded', quota: { name: 'tokensPerDay' } });
  const tomorrow = 86_400_000 - (Date.now() % 86_400_000);
  t.ok(refused.kind === 'exceeded' && Math.abs(refused.retryAfterMs - tomorrow) < 10_000);
  t.match(b.quotas.problem(caller, 500), { kind: 'exceeded' }, 'as is remembered for a moment');
  t.equal(b.quotas.problem(caller, 1), undefined);
  t.match(await reserve(b, caller, 1001), { kind: 'exceeded', retryAfterMs: Infinity }, 'more than there ever is');
  await sql(`insert into ra_sidecar.token_flight values ($1, 999, 1, 1, 5, 0, 1, 0)`, [key]);
  await a.database.call('sweep_replicas', []);
  t.equal(await count('token_flight where replica = 999'), 0);
});

t.test('while the store is down: refused, or a share; a reply that runs goes on and counts at its end', async (t) => {
  let used = 0;
  const { members, sql, url } = await fleet(t, { whenDown: 'share', used: () => used });
  const strict = await member(t, url, 'd');
  const [a, b] = members;
  for (const { replica } of [a, b]) replica.hurry();
  await eventually('each knows how many there are', () =>
    Promise.resolve([a, b].every(({ replica }) => replica.replicas === 4)),
  );
  const caller = { ...KEY, tokensPerDay: 4000 };
  const first = held(await reserve(a, caller, 300));
  const strictly = held(await reserve(strict, caller, 100));
  await sql(`revoke usage on schema ra_sidecar from ra_replica`);
  t.match(await reserve(strict, caller, 1), { kind: 'unavailable' });
  t.equal(await strictly.extend(2000, 100), 2000);
  first.settle(250);
  used = 250;
  t.equal((await reserve(a, caller, 751)).kind, 'exceeded', 'a fourth, with what the store let in');
  t.equal((await reserve(a, caller, 750)).kind, 'reserved');
  used = 0;
  t.equal((await reserve(b, caller, 1000)).kind, 'reserved');
  strictly.settle(1500);
  await sql(`grant usage on schema ra_sidecar to ra_replica`);
  await eventually('it is counted', async () => {
    for (const { replica } of [a, strict]) replica.hurry();
    return a.quotas.size + strict.quotas.size === 0;
  });
  t.same(await remaining(b, caller), [4000 - 250 - 1500]);
});
