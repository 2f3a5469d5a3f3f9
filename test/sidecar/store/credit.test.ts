/** Prepaid credit over three replicas, on a real PostgreSQL: what a replica draws, returns and posts. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import type { Reservation, Reserved } from '../../../sidecar/access/credit.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { StoreCredit } from '../../../sidecar/store/credit.js';
import type { Database } from '../../../sidecar/store/database.js';
import { hasCharges, Posting } from '../../../sidecar/store/posting.js';
import type { Replica } from '../../../sidecar/store/replica.js';
import { START } from '../../../sidecar/usage/spool-format.js';
import type { RecordingLog } from '../../support/in-process.js';
import { MemorySpool } from '../../support/memory-spool.js';
import { eventually } from '../../support/processes.js';
import { replicaAt, sharedPostgres, type Postgres } from '../../support/postgres.js';
import { usageRecord } from '../../support/usage-records.js';

interface StartOptions {
  readonly spool?: MemorySpool;
  readonly clock?: typeof systemClock;
  readonly onLost?: 'refuse' | 'begin';
  /** Whether it hears notifications. */
  readonly listens?: boolean;
  /** The store answers nothing about credit until this. */
  readonly answers?: Promise<void>;
  /** How long a request waits, ms. */
  readonly timeoutMs?: number;
}

class Member {
  readonly database: Database;
  readonly replica: Replica;
  readonly credit: StoreCredit;
  readonly posting: Posting;
  readonly spool: MemorySpool;
  readonly log: RecordingLog;
  /** Calls of the store, by function. */
  readonly calls: string[] = [];
  recalls = 0;
  uncovered = 0;
  /** Why credit will not be available, each time that this was told. */
  readonly lost: string[] = [];
  /** Tells it of a recall, if it hears no notifications. */
  told: (account: string) => void = () => undefined;

  private constructor(
    { log, database, replica }: Awaited<ReturnType<typeof replicaAt>>,
    spool: MemorySpool,
    clock: typeof systemClock,
    onLost: 'refuse' | 'begin',
    timeoutMs: number,
  ) {
    this.log = log;
    this.database = database;
    this.replica = replica;
    this.spool = spool;
    const call = database.call.bind(database);
    database.call = (fn, ...rest) => {
      this.calls.push(fn);
      return call(fn, ...rest) as never;
    };
    const parts = { clock, log, database, replica };
    const uncovered = (): void => void (this.uncovered += 1);
    const lost = (line: string): void => void this.lost.push(line);
    const own = { onLost, uncovered, lost, saved: spool.cursor, keepBytes: 40 };
    this.posting = new Posting({ ...parts, ...own, opened: () => this.credit.reopened() });
    const recalling = (): void => void (this.recalls += 1);
    this.credit = new StoreCredit({ ...parts, posting: this.posting, timeoutMs, recalling });
  }

  /** Joined, and open unless `problem` says why not. */
  static async start(
    t: Test,
    url: string,
    id: string,
    {
      spool = new MemorySpool(),
      clock = systemClock,
      onLost = 'refuse',
      listens = true,
      timeoutMs = 5000,
      answers,
    }: StartOptions = {},
  ): Promise<{ readonly member: Member; readonly problem: string | undefined }> {
    const member = new Member(await replicaAt(t, url, id, { clock }), spool, clock, onLost, timeoutMs);
    if (!listens)
      member.database.listen = (_channel, told) => {
        member.told = told;
        return () => Promise.resolve();
      };
    t.equal(await member.replica.begin(), undefined);
    t.teardown(() => member.credit.close());
    if (answers) {
      const call = member.database.call.bind(member.database);
      member.database.call = () => Promise.resolve({ kind: 'down', why: 'timeout', retryAfterMs: 1 });
      void answers.then(() => (member.database.call = call));
    }
    return { member, problem: await member.credit.begin(spool) };
  }

  async ask(picodollars: bigint, account = 'acme'): Promise<Reserved['kind']> {
    return (await this.credit.reserve(account, picodollars)).kind;
  }

  /** A request that runs. */
  async reserve(picodollars: bigint, account = 'acme'): Promise<Reservation> {
    const reserved = await this.credit.reserve(account, picodollars);
    if (reserved.kind !== 'reserved') throw new Error(reserved.kind);
    return reserved.reservation;
  }

  /** It ends with this price. */
  end(reservation: Reservation, picodollars: bigint, account = 'acme'): void {
    reservation.settle(picodollars);
    const price = { version: 'v', picodollars: `${picodollars}` };
    this.spool.append(usageRecord(randomUUID(), 'close', { account, price, prepaid: true, escrow: true }));
    this.spool.flush();
  }

  /** As a kill of its process. */
  async kill(): Promise<void> {
    await this.database.close();
  }
}

interface Sums {
  readonly settled: number;
  readonly held: number;
  readonly uncovered: number;
}

async function fleet(t: Test, granted: bigint, own: StartOptions = {}) {
  const server = await sharedPostgres();
  const { name, url } = await server.database();
  await grant(server, name, granted);
  const started = await Promise.all(['a', 'b', 'c'].map((id) => Member.start(t, url, id, { ...own })));
  const members = started.map(({ member }) => member) as [Member, Member, Member];
  const owner = await server.connect(name);
  t.teardown(() => owner.end());
  const sums = async (): Promise<Sums> => {
    const { rows } = await owner.query<Sums>(
      `select settled::float8, held::float8, uncovered::float8 from ra_sidecar.account where name = 'acme'`,
    );
    return rows[0] as Sums;
  };
  return { server, name, url, members, sums };
}

async function grant(server: Postgres, name: string, granted: bigint): Promise<void> {
  await server.sql(
    `insert into ra_sidecar.account as a (name, granted) values ('acme', $1)
     on conflict (name) do update set granted = a.granted + excluded.granted`,
    name,
    [`${granted}`],
  );
}

async function until(t: Test, what: string, holds: () => Promise<boolean> | boolean): Promise<void> {
  await eventually(what, holds);
  t.pass(what);
}

// Most of them wait for what a replica does after a second or more, each in a database of its own.
t.jobs = 4;

t.test('an ample balance: few round trips; what is idle is returned, what was spent is posted', async (t) => {
  const { members, sums } = await fleet(t, 10n ** 12n);
  const [a] = members;
  for (let i = 0; i < 200; i++) a.end(await a.reserve(1000n), 400n);
  const draws = a.calls.filter((fn) => fn === 'draw').length;
  t.ok(draws < 20, `${draws} draws for 200 requests`);
  await until(t, 'all is posted, nothing is held', async () => {
    const { settled, held } = await sums();
    return settled === 200 * 400 && held === 0;
  });
  t.match(await sums(), { uncovered: 0 });
  t.equal(a.credit.outstanding, 0);
  t.equal(await a.ask(1n, 'nobody'), 'insufficient', 'an account without a grant');
  t.equal((await a.credit.reserve('nobody', 0n)).kind, 'reserved', 'what is free needs none');
});

/** One by which nothing is returned since it is idle, nor the store asked for recalls. */
const notified: typeof systemClock = {
  now: () => systemClock.now(),
  after: (ms, fn) => (ms === 1000 || ms === 2000 ? () => undefined : systemClock.after(ms, fn)),
};

t.test('the last dollar: what is idle elsewhere pays, and the next request is refused', async (t) => {
  let stopped: number | undefined;
  const clock = { ...notified, now: () => stopped ?? systemClock.now() };
  const { members, sums } = await fleet(t, 100n, { clock });
  const [a, b, c] = members;
  const first = await a.reserve(60n);
  const second = await b.reserve(40n);
  stopped = clock.now();
  t.equal(await c.ask(1n), 'insufficient');
  t.equal(c.recalls, 1, 'others were asked');
  const draws = (): number => c.calls.filter((fn) => fn === 'draw').length;
  const before = draws();
  stopped += 249;
  for (let i = 0; i < 50; i += 1) t.equal(await c.ask(1n), 'insufficient');
  t.equal(draws(), before, 'which is remembered for 250 ms');
  stopped += 1;
  t.equal(await c.ask(1n), 'insufficient');
  t.ok(draws() > before, 'and no longer');
  stopped = undefined;
  // Both now have what no request needs.
  a.end(first, 10n);
  b.end(second, 5n);
  await until(t, 'their rest pays for one at the third', async () => (await c.ask(85n)) === 'reserved');
  t.equal(await a.ask(1n), 'insufficient');
  t.equal(await b.ask(1n), 'insufficient');
  await until(t, 'the sums are right', async () => {
    const { settled, held } = await sums();
    return settled === 15 && held === 85;
  });
});

t.test('a reply that grows draws more; what is short gets what is left, and balances say what is held', async (t) => {
  const { members, server, name } = await fleet(t, 100n, { clock: notified });
  const [a, b] = members;
  const grows = await a.reserve(10n);
  t.equal(await grows.extend(5n), 10n, 'never fewer');
  t.equal(await grows.extend(40n), 40n);
  const other = await b.reserve(50n);
  t.equal(await grows.extend(80n), 50n, 'all that is left');
  t.equal(await grows.extend(60n), 50n);
  const held = { granted: 100n, settled: 0n, reserved: 100n };
  const read = await b.credit.balances(['acme', 'nobody']);
  t.match(read.get('acme'), held);
  t.match(read.get('nobody'), { granted: 0n, settled: 0n, reserved: 0n });
  b.end(other, 20n);
  await until(t, 'what another returned pays for more', async () => (await grows.extend(75n)) === 75n);
  await server.sql('revoke usage on schema ra_sidecar from ra_replica', name);
  const more = await b.credit.balances(['acme', 'other']);
  t.notOk(more.has('other'), 'never read');
  t.ok((more.get('acme')?.ageMs ?? -1) >= 0);
  t.equal(await grows.extend(90n), 75n, 'the store does not answer');
  grows.settle(60n);
  t.equal(await grows.extend(90n), 75n, 'it is over');
  const inHand = await a.reserve(5n);
  t.equal(await inHand.extend(90n), 15n, 'what is in hand');
});

t.test('a burst on a poor account: as many as it can pay, and few recalls', async (t) => {
  const { members } = await fleet(t, 1000n);
  const kinds = await Promise.all(Array.from({ length: 300 }, (_, i) => (members[i % 3] as Member).ask(10n)));
  t.equal(kinds.filter((kind) => kind === 'reserved').length, 100);
  t.equal(kinds.filter((kind) => kind === 'insufficient').length, 200);
  const recalls = members.reduce((sum, { recalls }) => sum + recalls, 0);
  t.ok(recalls <= 3 * 4, `${recalls} waits for a recall`);
});

t.test('two that are short at once do not refuse each other: what one has in hand pays at the other', async (t) => {
  const { members } = await fleet(t, 100n, { clock: notified, listens: false });
  const [a, b] = members;
  for (const member of [a, b]) (await member.reserve(50n)).settle(0n);
  await until(t, 'one of them is served', async () =>
    (await Promise.all([a.ask(100n), b.ask(100n)])).includes('reserved'),
  );
});

t.test('a recall that comes while something is returned is answered afterwards', async (t) => {
  const { members, sums } = await fleet(t, 100n, { clock: notified, listens: false });
  const [a] = members;
  const [first, second] = [await a.reserve(30n), await a.reserve(30n)];
  const call = a.database.call.bind(a.database);
  let go = (): void => undefined;
  const held = new Promise<void>((resolve) => (go = resolve));
  a.database.call = async (fn, ...rest) => {
    const answer = await call(fn, ...rest);
    if (fn === 'return_escrow') await held;
    return answer as never;
  };
  first.settle(0n);
  a.told('acme');
  second.settle(0n);
  a.told('acme');
  go();
  await until(t, 'all is returned', async () => (await sums()).held === 0);
});

t.test('without notifications the store is asked for recalls', async (t) => {
  const { members } = await fleet(t, 100n, { listens: false });
  const [a, b] = members;
  const running = await a.reserve(50n);
  a.end(running, 0n);
  t.equal(await a.ask(20n), 'reserved', 'it is not idle');
  await until(t, 'what is in hand at one pays at the other', async () => (await b.ask(80n)) === 'reserved');
  t.ok(a.calls.includes('recalls'));
});

t.test('what is in hand is not used after the lease by its own clock', async (t) => {
  let skew = 0;
  const clock = { now: () => systemClock.now() + skew, after: systemClock.after.bind(systemClock) };
  const { members } = await fleet(t, 1000n, { clock });
  const [a] = members;
  const running = await a.reserve(100n);
  running.settle(0n);
  t.equal(await a.ask(10n), 'reserved', 'from what is in hand');
  skew = 60_000;
  t.equal(await a.ask(10n), 'unavailable');
  a.replica.hurry();
  await until(t, 'it beats again', async () => (await a.ask(10n)) === 'reserved');
});

t.test('a crash of the store that lost a post: it is posted again, also without further requests', async (t) => {
  let skew = 0;
  const clock = { now: () => systemClock.now() + skew, after: systemClock.after.bind(systemClock) };
  const { members, sums, server, name } = await fleet(t, 1000n, { clock });
  const [a] = members;
  a.end(await a.reserve(100n), 30n);
  await until(t, 'it is posted', async () => (await sums()).settled === 30);
  await server.sql(
    `delete from ra_sidecar.charge; update ra_sidecar.account set settled = 0, held = held + 30;
     update ra_sidecar.escrow set posted = 0; update ra_sidecar.spool_position set segment = 1, byte = 0`,
    name,
  );
  skew = 10_001;
  await until(t, 'it is posted again', async () => (await sums()).settled === 30);
  t.match(await sums(), { uncovered: 0 });
});

t.test('what takes the store too long is posted in smaller parts, and the spool is read once for it', async (t) => {
  const { members, sums } = await fleet(t, 1000n);
  const [a] = members;
  const running = await Promise.all(Array.from({ length: 8 }, () => a.reserve(10n)));
  const call = a.database.call.bind(a.database);
  const sent: number[] = [];
  a.database.call = (fn, args, ...rest) => {
    const ids = fn === 'post' ? (args[6] as string[]) : [];
    if (ids.length > 0) sent.push(ids.length);
    if (ids.length <= 2) return call(fn, args, ...rest) as never;
    return Promise.resolve({ kind: 'down', why: 'timeout', retryAfterMs: 1, sent: true }) as never;
  };
  const read = a.spool.read.bind(a.spool);
  let charges = 0;
  a.spool.read = async function* (from, to) {
    for await (const item of read(from, to)) {
      charges += 1;
      yield item;
    }
  };
  for (const reservation of running) a.end(reservation, 5n);
  await until(t, 'all is posted', async () => (await sums()).settled === 40);
  t.strictSame(sent.slice(0, 3), [8, 4, 2]);
  t.equal(charges, 8, 'each record was read once');
});

t.test('killed twice: the start that the store answers posts what the spool has and gives back the rest', async (t) => {
  const { members, sums, url } = await fleet(t, 1000n);
  const [a, b] = members;
  a.end(await a.reserve(100n), 30n);
  await a.reserve(200n);
  const price = { version: 'v', picodollars: '120' };
  a.spool.append(usageRecord(randomUUID(), 'progress', { price, prepaid: true, escrow: true }));
  a.spool.flush();
  await a.kill();
  t.equal(await b.ask(900n), 'insufficient', 'its escrow stays held');
  a.spool.restart();
  // One that closes what ran, and is killed before the store hears of it.
  const answers = new Promise<void>(() => undefined);
  const { member: second } = await Member.start(t, url, 'a', { spool: a.spool, answers });
  await second.kill();
  a.spool.restart();
  t.equal(a.spool.estimated.length, 0);
  const { member: again } = await Member.start(t, url, 'a', { spool: a.spool });
  t.match(await sums(), { settled: 150, held: 0, uncovered: 0 });
  t.equal(again.credit.known, true);
  await until(t, 'the rest can be spent', async () => (await b.ask(850n)) === 'reserved');
});

t.test('a failover that lost draws: charges are not refused, and the overdraft is told', async (t) => {
  const { members, sums, server, name } = await fleet(t, 100n);
  const [a] = members;
  const running = await a.reserve(80n);
  // The standby had not heard of it, nor of the start.
  await server.sql(`delete from ra_sidecar.escrow; update ra_sidecar.account set held = 0`, name);
  await server.sql(`update ra_sidecar.spool_position set epoch = epoch - 1`, name);
  const [, b] = members;
  a.end(running, 80n);
  await until(t, 'it is posted', async () => (await sums()).settled === 80);
  t.match(await sums(), { uncovered: 80, held: 0 });
  t.equal(a.uncovered, 1);
  t.ok(a.log.lines.some(({ event }) => event === 'credit was charged that the store does not hold'));
  await until(t, 'what is left is exact', async () => (await b.ask(20n)) === 'reserved');
  t.equal(await b.ask(1n), 'insufficient');
});

t.test('records that are gone, or a spool that is older than the store', async (t) => {
  const { members, url, server, name } = await fleet(t, 1000n);
  const [a] = members;
  a.end(await a.reserve(100n), 30n);
  await until(t, 'it is posted', async () => {
    const { rows } = await server.sql('select 1 from ra_sidecar.charge', name);
    return rows.length === 1;
  });
  await a.credit.close();
  await a.replica.close();
  const older = new MemorySpool();
  const { problem } = await Member.start(t, url, 'a', { spool: older });
  t.match(problem, /credit: the store has posted more than the spool holds; see credit.onLostBalances/);
  // The store answers after the start: what it says is reported then.
  let answer = (): void => undefined;
  const answers = new Promise<void>((resolve) => (answer = resolve));
  const { member: late, problem: unknown } = await Member.start(t, url, 'a', { spool: older, answers });
  t.equal(unknown, undefined);
  answer();
  await until(t, 'it is told once the store answers', () => late.lost.length > 0);
  t.match(late.lost, [/^credit: the store has posted more than the spool holds/]);
  const { member, problem: none } = await Member.start(t, url, 'a', { spool: older, onLost: 'begin' });
  t.equal(none, undefined);
  t.equal(await member.ask(10n), 'reserved');
});

t.test('a spool that becomes large keeps nothing that is posted', async (t) => {
  const { members, sums } = await fleet(t, 1000n);
  const [a] = members;
  for (let i = 0; i < 40; i++) a.end(await a.reserve(1n), 1n);
  await until(t, 'it is posted', async () => (await sums()).settled === 40);
  t.strictSame(a.credit.keepFrom, START);
  a.end(await a.reserve(1n), 1n);
  await until(t, 'no segment but the last is kept', () => a.credit.keepFrom.segment === a.spool.position.segment);
  t.equal((await sums()).settled, 41);
});

t.test('credit is in the store, in a file, and in the store again', async (t) => {
  const { members, sums, url, server, name } = await fleet(t, 1000n);
  const [{ spool, credit, replica }] = members;
  const [a] = members;
  a.end(await a.reserve(100n), 30n);
  await credit.close();
  await replica.close();
  t.equal((await sums()).settled, 30);
  const posted = spool.position;
  t.match(await spool.cursor.load(), { kind: 'at', position: posted }, 'all is posted');
  // The file pays meanwhile; what it has charged is pruned, and so is more of what the store has posted.
  const price = { version: 'v', picodollars: '7' };
  for (let i = 0; i < 25; i++) spool.append(usageRecord(randomUUID(), 'close', { price, prepaid: true }));
  spool.flush();
  t.equal(await hasCharges(spool, posted), false);
  spool.prune(spool.position);
  const { member: again, problem } = await Member.start(t, url, 'a', { spool });
  t.equal(problem, undefined);
  again.end(await again.reserve(100n), 40n);
  t.equal(await hasCharges(spool, posted), true);
  await until(t, 'the store goes on with the sum', async () => (await sums()).settled === 70);
  await again.credit.close();
  await again.replica.close();
  // An earlier state of the store is restored, and what it had posted is gone from the spool.
  await server.sql(`update ra_sidecar.spool_position set segment = 1, byte = 0`, name);
  t.match((await Member.start(t, url, 'a', { spool })).problem, /records that the store has not posted are gone/);
});

t.test('a draw whose answer is lost is returned', async (t) => {
  const { members, sums } = await fleet(t, 100n);
  const [a, b] = members;
  const call = a.database.call.bind(a.database);
  a.database.call = async (fn, ...rest) => {
    const answer = await call(fn, ...rest);
    return (fn === 'draw' ? { kind: 'down', why: 'timeout', retryAfterMs: 1, sent: true } : answer) as never;
  };
  t.equal(await a.ask(80n), 'unavailable');
  t.match(await sums(), { held: 80 });
  await until(t, 'it is returned', async () => (await sums()).held === 0);
  t.equal(await b.ask(100n), 'reserved');
  // One that arrives later than a return changes nothing, also if it was the first of its account.
  const { session, run } = a.replica;
  const returned = [session?.no, session?.epoch, run, 99, ['acme'], ['0']];
  t.match(await call('return_escrow', returned), { rows: [{ account: 'acme', drawn: '0' }] });
  const late = [session?.no, session?.epoch, run, 98, 'acme', '0', ['1'], '0', false];
  t.match(await call('draw', late), { rows: [{ outcome: 'short' }] });
});

t.test('while the store does not answer, what is in hand pays', async (t) => {
  const { members } = await fleet(t, 10_000n);
  const [a] = members;
  (await a.reserve(100n)).settle(0n);
  a.database.call = () => Promise.resolve({ kind: 'down', why: 'timeout', retryAfterMs: 1, sent: true });
  t.equal(await a.ask(60n), 'reserved');
  t.equal(await a.ask(60n), 'unavailable');
});

t.test(
  'a request waits no longer than its time, whatever is called for others, and what came later is returned',
  async (t) => {
    const { members, sums } = await fleet(t, 100n, { timeoutMs: 250 });
    const [a] = members;
    const call = a.database.call.bind(a.database);
    let go = (): void => undefined;
    const held = new Promise<void>((resolve) => (go = resolve));
    a.database.call = async (fn, ...rest) => {
      const answer = await call(fn, ...rest);
      if (fn === 'draw') await held;
      return answer as never;
    };
    t.teardown(() => go());
    const kinds: string[] = [];
    for (const need of [80n, 10n]) void a.ask(need).then((kind) => kinds.push(kind));
    await until(t, 'both are answered', () => kinds.length === 2);
    t.strictSame(kinds, ['unavailable', 'unavailable']);
    go();
    await until(t, 'what was drawn is returned', async () => (await sums()).held === 0);
    t.equal(a.credit.outstanding, 0);
  },
);
