/** Seats that are lent while nobody else needs them: each rule alone, and what always holds, on a fake clock. */
import fc from 'fast-check';
import t from 'tap';
import type { SeatQueue } from '../../../sidecar/admission/queue.js';
import type { ReplicaSize } from '../../../sidecar/admission/seats.js';
import type {
  Lease,
  QueueConfig,
  QueueRequest,
  Refused,
  Ticket,
  TicketOutcome,
} from '../../../sidecar/admission/types.js';
import type { FakeClock } from '../../support/fake-clock.js';
import { seeded } from '../../support/gbnf.js';
import { rounds } from '../../support/long-form.js';
import { later, leaseOf, QueueDesk, ticketOf } from '../../support/queue-desk.js';
import { SeatHarness } from '../../support/seat-harness.js';

const MAX_WAIT_MS = 10_000;

interface Setting extends Partial<QueueConfig> {
  readonly seats?: number | readonly ReplicaSize[];
  readonly headroom?: number;
}

class Desk extends QueueDesk {
  /** Jobs that were stopped, by the account of each. */
  readonly stopped: string[] = [];
  /** Whether a replica is or becomes ready. */
  readonly engines: { served: boolean };

  constructor({ seats = 4, headroom = 0.5, ...config }: Setting = {}) {
    const engines = { served: true };
    super(seats, { waitingBytes: 1e6, ...config }, { headroom, isServed: () => engines.served });
    this.engines = engines;
  }

  override ask(account: string, request: Partial<QueueRequest> = {}): Ticket | Refused {
    return super.ask(account, { weight: 4, bytes: 1, ...request });
  }

  /** A request that somebody waits for. */
  person(account = 'person', request: Partial<QueueRequest> = {}): Ticket {
    return ticketOf(this.ask(account, request), { promptTokens: 100 });
  }

  /** A request for a lent seat. */
  batch(account = 'batch', request: Partial<QueueRequest> = {}): Ticket {
    return this.person(account, { weight: 1, lent: true, ...request });
  }

  /** A lent seat, whose holder gives it back when it is recalled. */
  async lend(account = 'batch'): Promise<Holder> {
    return new Holder(await this.seat(this.batch(account)), () => this.stopped.push(account));
  }
}

/** Who holds a lent seat, and gives it back when it is recalled. */
class Holder {
  lease: Lease;
  readonly #stopped: () => void;
  #next: Promise<TicketOutcome> | undefined;

  constructor(lease: Lease, stopped: () => void) {
    this.#stopped = stopped;
    this.lease = this.#watched(lease);
  }

  /** Its next seat, after a recall. */
  async again(): Promise<Lease> {
    const outcome = await (this.#next ?? Promise.reject(new Error('it was not recalled')));
    return (this.lease = this.#watched(leaseOf(outcome)));
  }

  #watched(lease: Lease): Lease {
    lease.whenRecalled(() => {
      this.#stopped();
      // It learns of it after the operation of the queue.
      queueMicrotask(() => {
        this.#next = lease.giveBack();
      });
      return undefined;
    });
    return lease;
  }
}

/** Undefined: it has none by now. */
async function outcomeNow({ outcome }: Ticket): Promise<TicketOutcome | undefined> {
  return Promise.race([outcome, later()]);
}

t.test('seats are lent while more than the headroom are idle, and are free for all others', async (t) => {
  const desk = new Desk();
  const tickets = [desk.batch(), desk.batch(), desk.batch()];
  await desk.seat(tickets[0]!);
  await desk.seat(tickets[1]!);
  t.equal(await outcomeNow(tickets[2]!), undefined, 'two of four stay idle');
  t.match(desk.report, {
    busy: 0,
    waiting: 0,
    replicas: [{ busy: 0, lent: 2 }],
    lent: { headroom: 2, seats: 2, waiting: 1, accounts: [{ account: 'batch', seats: 2, waiting: 1 }] },
  });
  const person = await desk.seat(desk.person());
  t.match(person, { lent: false, waitedMs: 0 });
  t.match(desk.report, { busy: 1, lent: { seats: 2 } }, 'an idle one is taken first');
});

t.test(
  'a seat of one is lent, too; with a headroom of all none is, and class batch waits as the others do',
  async (t) => {
    const one = new Desk({ seats: 1 });
    t.equal((await one.lend()).lease.lent, true);
    const none = new Desk({ seats: 1, headroom: 1 });
    t.equal((await none.seat(none.batch())).lent, false);
    t.match(none.report, { busy: 1, lent: { seats: 0 } });
  },
);

t.test('the youngest is recalled for a request without an idle seat, which has the seat at once', async (t) => {
  const desk = new Desk();
  const old = await desk.lend('old');
  desk.clock.advance(1);
  const young = await desk.lend('young');
  const people = [desk.person('a'), desk.person('b'), desk.person('c')];
  t.strictSame(desk.stopped, ['young'], 'in the operation that takes its seat');
  t.match([old.lease.seats(), young.lease.seats()], [1, 0]);
  for (const person of people) t.equal((await desk.seat(person)).waitedMs, 0);
  t.match(desk.report, { busy: 3, waiting: 0, lent: { seats: 1, waiting: 1, ends: { recalled: 1 } } });
});

t.test('a recalled request goes before later ones of its account', async (t) => {
  const desk = new Desk({ seats: 2, headroom: 0 });
  const first = await desk.lend();
  const other = await desk.lend();
  const person = await desk.seat(desk.person('a'));
  const second = await desk.seat(desk.person('b'));
  const late = desk.batch();
  await later();
  t.equal(desk.stopped.length, 2);
  desk.clock.advance(1000);
  person.release('done');
  const again = await first.again();
  t.match(again, { lent: true, waitedMs: 1000 });
  second.release('done');
  t.match(await other.again(), { waitedMs: 1000 });
  t.equal(await outcomeNow(late), undefined);
  again.release('done');
  await desk.seat(late);
  t.match(desk.report.lent, { ends: { recalled: 2, ended: 1 }, seatMs: 0, seats: 2 });
});

t.test('where the engine confirms cancels, the seat is given to the other request then', async (t) => {
  const desk = new Desk({ seats: 1 });
  const lease = await desk.seat(desk.batch());
  let stopped = (): void => undefined;
  lease.whenRecalled(() => new Promise((resolve) => (stopped = resolve)));
  const person = desk.person();
  t.equal(await outcomeNow(person), undefined);
  t.match(desk.report, { busy: 1, replicas: [{ lent: 1 }], lent: { seats: 0 } });
  const again = lease.giveBack();
  stopped();
  const seat = await desk.seat(person);
  t.match(desk.report, { busy: 1, replicas: [{ lent: 0 }], lent: { waiting: 1 } });
  seat.release('done');
  t.equal((await again).kind, 'seated');
});

t.test('one that leaves while the recalled job stops takes no seat', async (t) => {
  const desk = new Desk({ seats: 1 });
  const lease = await desk.seat(desk.batch());
  let stopped = (): void => undefined;
  lease.whenRecalled(() => new Promise((resolve) => (stopped = resolve)));
  const person = desk.person();
  await later();
  person.cancel('disconnected');
  const again = lease.giveBack();
  t.equal(await Promise.race([again, later()]), undefined, 'not while its own job still runs there');
  stopped();
  t.equal((await again).kind, 'seated');
  t.match(desk.report, { busy: 0, replicas: [{ lent: 1 }] });
});

t.test('a seat that is recalled before its job is sent is not stopped', async (t) => {
  const desk = new Desk({ seats: 1 });
  const ticket = desk.batch();
  const lease = await desk.seat(ticket);
  const person = await desk.seat(desk.person());
  t.equal(lease.seats(), 0);
  lease.whenRecalled(() => {
    t.fail('there is no job');
    return undefined;
  });
  const again = lease.giveBack();
  ticket.cancel('disconnected');
  t.strictSame(await again, { kind: 'cancelled' }, 'its caller leaves while it waits again');
  person.release('done');
  const undelivered = desk.batch();
  t.equal((await desk.seat(desk.person())).waitedMs, 0);
  t.equal(await outcomeNow(undelivered), undefined, 'nor one that was not delivered yet');
});

t.test(
  'after three recalls a request enters the queue as class batch, and has a seat that is not recalled',
  async (t) => {
    const desk = new Desk({ seats: 2, headroom: 0 });
    const holder = await desk.lend();
    for (let recall = 1; recall <= 3; recall += 1) {
      const people = [await desk.seat(desk.person('a')), await desk.seat(desk.person('b'))];
      await later();
      t.equal(desk.stopped.length, recall);
      if (recall === 3) t.match(desk.report, { waitingBy: { batch: 1 }, lent: { waiting: 0, ends: { queued: 1 } } });
      for (const person of people) person.release('done');
      t.equal((await holder.again()).lent, recall < 3);
    }
    t.match(desk.report, { busy: 1, lent: { seats: 0, ends: { recalled: 3, ended: 0, queued: 1 } } });
    const [one, two] = [await desk.lend('x'), desk.person('y')];
    t.equal(await outcomeNow(two).then((outcome) => outcome?.kind), 'seated');
    t.equal(one.lease.seats(), 0, 'its seat stays its own');
    holder.lease.release('done');
  },
);

t.test('while no seat can be lent, a request enters the queue after each half of the longest wait', async (t) => {
  const desk = new Desk();
  for (const account of ['a', 'b']) await desk.seat(desk.person(account));
  const tickets = [desk.batch(), desk.batch()];
  desk.clock.advance(MAX_WAIT_MS / 2 - 1);
  t.equal(await outcomeNow(tickets[0]!), undefined);
  desk.clock.advance(1);
  const lease = await desk.seat(tickets[0]!);
  t.equal(lease.lent, false);
  t.match(desk.report, { busy: 3, lent: { waiting: 1, ends: { queued: 1 } } });
  desk.clock.advance(MAX_WAIT_MS / 2);
  t.match(await outcomeNow(tickets[1]!), { kind: 'refused', reason: 'wait' });
  const starved = desk.batch();
  desk.clock.advance(MAX_WAIT_MS / 2);
  starved.cancel();
  const newcomer = desk.batch();
  lease.release('done');
  t.equal(await outcomeNow(newcomer), undefined, 'not for the time that one waited which has left');
});

t.test('what an account has of the queue is charged at once, that before an engine loss included', async (t) => {
  const desk = new Desk({ seats: 32 });
  for (let i = 0; i < 16; i += 1) await desk.seat(desk.person(`${i}`));
  const first = desk.batch('a');
  desk.clock.advance(MAX_WAIT_MS / 2);
  const lease = await desk.seat(first);
  const [second, other] = [desk.batch('a'), desk.batch('b')];
  desk.clock.advance(MAX_WAIT_MS / 2 - 1);
  desk.queue.pause();
  void lease.giveBack();
  desk.clock.advance(1);
  desk.queue.resume(32);
  t.match(await outcomeNow(other), { kind: 'seated', lease: { lent: false } }, 'of the account that had nothing');
  t.equal(await outcomeNow(second), undefined);
  t.match(desk.report, { busy: 18, lent: { ends: { queued: 2 } } });
});

t.test('an account that was idle while others held seats has no claim to that time', async (t) => {
  const desk = new Desk({ seats: 1 });
  const busy = await desk.lend('busy');
  desk.clock.advance(MAX_WAIT_MS / 2);
  const [idle, next] = [desk.batch('idle'), desk.batch('busy')];
  desk.batch('idle');
  desk.clock.advance(1);
  busy.lease.release('done');
  const lease = await desk.seat(idle);
  desk.clock.advance(2);
  lease.release('done');
  t.match(await outcomeNow(next), { kind: 'seated' });
});

t.test('an account keeps what it was owed while all its requests are away', async (t) => {
  const desk = new Desk({ seats: 1 });
  const first = await desk.lend('ahead');
  const [away, second] = [desk.batch('owed'), desk.batch('ahead')];
  desk.clock.advance(1000);
  away.cancel();
  first.lease.release('done');
  const lease = await desk.seat(second);
  const other = desk.batch('other');
  desk.clock.advance(100);
  const back = [desk.batch('owed'), desk.batch('owed')];
  lease.release('done');
  for (const each of back) {
    const seat = await desk.seat(each);
    desk.clock.advance(100);
    seat.release('done');
  }
  t.equal((await desk.seat(other)).waitedMs, 300);
});

t.test('an account that could not take a seat is owed a minute at most', async (t) => {
  const desk = new Desk({ seats: 1, maxWaitMs: 1e9, waitingPerSeat: 50 });
  const { lease } = await desk.lend('ahead');
  const away = desk.enter('owed', { weight: 1, lent: true });
  desk.clock.advance(200_000);
  away.cancel();
  const other = desk.batch('other');
  const owed = Array.from({ length: 30 }, () => desk.batch('owed'));
  lease.release('done');
  let turns = 0;
  for (; (await outcomeNow(other)) === undefined; turns += 1) {
    const seat = await desk.seat(owed[turns]!);
    desk.clock.advance(10_000);
    seat.release('done');
  }
  t.equal(turns, 7, 'of ten seconds each, the last one at equal times');
});

t.test('why a request for a lent seat is refused', async (t) => {
  const desk = new Desk({ seats: 1, waitingPerSeat: 2, waitingBytes: 100 });
  const lease = await desk.seat(desk.batch('a'));
  const waiting = [desk.batch('a'), desk.batch('a', { deadlineAt: 500 })];
  t.match(desk.ask('a', { lent: true, weight: 1 }), { reason: 'full', retry: 'predicted' });
  t.match(desk.ask('a', { lent: true, weight: 1, deadlineAt: 0 }), { reason: 'deadline' });
  const other = desk.batch('b');
  t.match(await waiting[1]!.outcome, { kind: 'refused', reason: 'dropped' }, 'the account with the most makes room');
  waiting[0]!.cancel();
  t.match(desk.ask('c', { lent: true, weight: 1, bytes: 100 }), { reason: 'bytes' });
  other.cancel();
  desk.clock.advance(6000);
  lease.release('done');
  await desk.seat(desk.batch('d'));
  const second = desk.batch('d');
  t.match(desk.ask('d', { lent: true, weight: 1 }), { reason: 'predicted', retryAfterMs: 2000 });
  second.cancel();
  desk.queue.drain();
  t.match(desk.ask('d', { lent: true, weight: 1 }), { reason: 'drain' });
  t.equal(desk.clock.pending, 0);
});

t.test('the bodies that wait for lent seats make room for those of the queue', async (t) => {
  const desk = new Desk({ seats: 1, waitingBytes: 100 });
  await desk.seat(desk.person());
  const lent = [desk.batch('batch', { bytes: 40 }), desk.batch('batch', { bytes: 40 })];
  desk.person('other', { bytes: 50 });
  t.match(await outcomeNow(lent[1]!), { kind: 'refused', reason: 'dropped' });
  t.equal(await outcomeNow(lent[0]!), undefined);
  t.match(desk.report, { waiting: 1, lent: { waiting: 1 } });
});

t.test('a lost engine: what it had not begun runs elsewhere, and is refused where there is none', async (t) => {
  const desk = new Desk({
    seats: [
      { seats: 1, contextPerSeat: 1000 },
      { seats: 1, contextPerSeat: 1000 },
    ],
    headroom: 0,
  });
  const lease = await desk.seat(desk.batch());
  desk.queue.pause(lease.replica);
  const again = await lease.giveBack();
  t.match(again, { kind: 'seated', lease: { replica: 1 - lease.replica, lent: true } });
  desk.engines.served = false;
  desk.queue.pause(1 - lease.replica);
  if (again.kind === 'seated') t.match(await again.lease.giveBack(), { kind: 'refused', reason: 'no-engine' });
  t.match(desk.report.lent, { seats: 0, waiting: 0 });
});

t.test('a lent seat is on a replica that is idle, and long enough for its request', async (t) => {
  const seats = [
    { seats: 2, contextPerSeat: 1000 },
    { seats: 2, contextPerSeat: 4000 },
  ];
  const desk = new Desk({ seats, headroom: 0 });
  const long = desk.enter('long', { lent: true, weight: 1 });
  long.ready({ promptTokens: 2000, seatTokens: 3000 });
  t.equal((await desk.seat(long)).replica, 1);
  for (const account of ['a', 'b']) t.equal((await desk.seat(desk.batch(account))).replica, 0);
  t.equal((await desk.seat(desk.batch('c'))).replica, 1);
  t.match(desk.report.replicas, [{ lent: 2 }, { lent: 2 }]);
  const person = desk.enter('person');
  person.ready({ promptTokens: 100, seatTokens: 2000 });
  t.equal((await desk.seat(person)).replica, 1, 'the youngest there is recalled, not the youngest of all');
  t.match(desk.report.replicas, [
    { lent: 2, busy: 0 },
    { lent: 1, busy: 1 },
  ]);
});

/** Accounts with endless requests for lent seats, each recalled one given up by its holder and asked again. */
class Endless {
  /** Of replies that ended, by account. */
  readonly seatMs: Record<string, number> = {};
  readonly #queue: SeatQueue;
  readonly #clock: FakeClock;
  readonly #random: () => number;
  readonly #stayMs: number;

  /** `stayMs`: the wait that a request gives up after; by default before it would enter the queue. */
  constructor({ queue, clock }: Pick<Desk, 'queue' | 'clock'>, seed: number, stayMs = 4000) {
    this.#queue = queue;
    this.#clock = clock;
    this.#random = seeded(seed);
    this.#stayMs = stayMs;
  }

  /** Of which `requests` are there at once, of `holdMs` each in the mean. */
  offer(account: string, requests: number, holdMs: number): void {
    for (let i = 0; i < requests; i += 1) this.#ask(account, holdMs);
  }

  #ask(account: string, holdMs: number): void {
    const ticket = this.#queue.enter({ account, weight: 1, bytes: 1, seatsWanted: 1, lent: true });
    const after = (ms: number): (() => void) => this.#clock.after(ms, () => this.#ask(account, holdMs));
    if ('kind' in ticket) {
      after(ticket.retryAfterMs);
      return;
    }
    ticket.ready({ promptTokens: 100 });
    const leave = this.#clock.after(this.#stayMs, () => ticket.cancel());
    void ticket.outcome.then((outcome) => {
      leave();
      if (outcome.kind !== 'seated') {
        after(1);
        return;
      }
      const { lease } = outcome;
      const heldMs = Math.ceil(holdMs * (0.5 + this.#random()));
      const cancel = this.#clock.after(heldMs, () => {
        lease.release('done');
        this.seatMs[account] = (this.seatMs[account] ?? 0) + heldMs;
        this.#ask(account, holdMs);
      });
      lease.whenRecalled(() => {
        cancel();
        queueMicrotask(() => lease.release('cancelled'));
        after(1);
        return undefined;
      });
    });
  }
}

t.test('accounts share lent seats to within 2 %, however long their requests are', async (t) => {
  const desk = new Desk({ seats: 8, headroom: 0.25, waitingPerSeat: 100 });
  const endless = new Endless(desk, 1);
  endless.offer('short', 8, 100);
  endless.offer('long', 8, 1000);
  endless.offer('many', 24, 400);
  const end = 4 * 60_000;
  while (desk.clock.step(end)) await later();
  const { accounts, seatMs } = desk.report.lent;
  for (const account of accounts) {
    const share = (accounts.length * account.seatMs) / seatMs;
    t.ok(Math.abs(share - 1) < 0.02, `${account.account}: ${share} of its share`);
  }
  t.equal(seatMs, 6 * end, 'no seat above the headroom stays idle');
});

t.test('accounts share the seats that they have in the queue, too, while none is lent', async (t) => {
  const desk = new Desk();
  for (const account of ['x', 'y']) await desk.seat(desk.person(account));
  const endless = new Endless(desk, 1, 2 * MAX_WAIT_MS);
  endless.offer('short', 4, 500);
  endless.offer('long', 4, 4000);
  const end = 120 * 60_000;
  while (desk.clock.step(end)) await later();
  t.match(desk.report.lent, { seatMs: 0, accounts: [{ seatMs: 0 }, { seatMs: 0 }] });
  const { short = 0, long = 0 } = endless.seatMs;
  t.ok(Math.abs(short / long - 1) < 0.04, `${short} and ${long} ms: each within 2 % of the mean`);
  t.ok(short + long > 0.1 * end);
});

t.test('with an endless batch every other request has the fate that it has without', { timeout: 120_000 }, async () => {
  const loads = fc.array(
    fc.record({
      weight: fc.constantFrom(1, 4, 16),
      holdMs: fc.integer({ min: 100, max: 3000 }),
      times: fc.double({ min: 0.05, max: 1, noNaN: true }),
      atOnce: fc.integer({ min: 1, max: 5 }),
      patienceMs: fc.constantFrom(Infinity, 3000),
      deadlineMs: fc.constantFrom(undefined, 8000),
    }),
    { minLength: 1, maxLength: 3 },
  );
  const headrooms = fc.constantFrom(0, 0.25, 0.5);
  await fc.assert(
    fc.asyncProperty(fc.integer(), headrooms, loads, async (seed, headroom, offered) => {
      const run = async (lends: boolean): Promise<readonly unknown[]> => {
        const harness = new SeatHarness(seed, { headroom, random: () => 0.5, wholeMs: true });
        offered.forEach(({ holdMs, times, atOnce, deadlineMs, ...load }, i) => {
          const everyMs = (atOnce * holdMs) / (4 * times);
          const deadline = deadlineMs === undefined ? {} : { deadlineMs };
          harness.offer({ account: `${i}`, holdMs, everyMs, atOnce, ...load, ...deadline });
        });
        const endless = new Endless(harness, seed);
        if (lends) for (const account of ['0', 'batch']) endless.offer(account, 4, 700);
        await harness.run(30_000);
        const { overload, accounts, lent } = harness.queue.report(10);
        if (lends && (lent.ends.queued > 0 || lent.seatMs === 0)) throw new Error(JSON.stringify(lent));
        return [...harness.fates, overload, ...accounts];
      };
      const [without, beside] = [await run(false), await run(true)];
      without.forEach((each, at) => {
        const [left, right] = [JSON.stringify(each), JSON.stringify(beside[at])];
        if (left !== right) throw new Error(`without: ${left}, beside a batch: ${right}`);
      });
    }),
    { numRuns: rounds({ short: 3, long: 200 }) },
  );
});

/** What a request of a walk is. */
interface Asked {
  readonly lent: boolean;
  readonly tokens: number;
  ready: boolean;
}

/** Tokens of the seats of each replica, where there are several. */
const CONTEXTS = [1000, 1000, 4000] as const;

/** Random events on a queue with lent seats; `check` compares it with what was put in and what came out. */
class Walk {
  readonly #desk: Desk;
  readonly #contexts: readonly number[];
  readonly #waiting = new Map<Ticket, Asked>();
  readonly #people = new Set<Lease>();
  readonly #lent = new Set<Lease>();
  readonly #stops = new Set<() => void>();
  #owed = 0;
  readonly #up: boolean[];
  #isShort = false;

  /** `seats`: of one replica, or of each. */
  constructor(seats: readonly number[]) {
    const several = seats.length > 1;
    this.#contexts = several ? CONTEXTS : [Infinity];
    this.#up = seats.map(() => true);
    const sizes = seats.map((count, at) => ({ seats: count, contextPerSeat: CONTEXTS[at] ?? 1000 }));
    this.#desk = new Desk({
      seats: several ? sizes : (seats[0] ?? 1),
      maxWaitMs: 200,
      waitingPerSeat: 3,
      waitingBytes: 60,
    });
  }

  async event(value: number): Promise<void> {
    const [what, choice] = [value % 100, Math.floor(value / 100)];
    const { queue, clock } = this.#desk;
    const one = <T>(from: Iterable<T>): T | undefined => {
      const all = [...from];
      return all[choice % Math.max(1, all.length)];
    };
    if (what < 20) this.#enter(choice, false);
    else if (what < 45) this.#enter(choice, true);
    else if (what < 55) this.#ready(one(this.#waiting.keys()));
    else if (what < 60) one(this.#waiting.keys())?.cancel('disconnected');
    else if (what < 72) this.#end(this.#people, one(this.#people), choice);
    else if (what < 80) this.#end(this.#lent, one(this.#lent), choice);
    else if (what < 88) one(this.#stops)?.();
    else if (what < 92) {
      const at = choice % this.#up.length;
      this.#up[at] = what > 88;
      if (what === 88) queue.pause(at);
      else queue.resume(1 + (choice % 4), at);
    } else clock.advance(choice % 60);
    if (choice % 3 > 0) await this.#check();
  }

  async finish(): Promise<void> {
    const { queue, clock } = this.#desk;
    queue.drain();
    for (let left = Infinity; left > 0; left = this.#people.size + this.#lent.size + this.#stops.size) {
      for (const stop of this.#stops) stop();
      for (const leases of [this.#people, this.#lent]) for (const lease of leases) this.#end(leases, lease, 0);
      for (const ticket of this.#waiting.keys()) this.#ready(ticket);
      await later();
    }
    const { busy, waiting, waitingBytes, lent, replicas } = this.#desk.report;
    const left = {
      busy,
      waiting,
      waitingBytes,
      lent: lent.seats,
      waits: lent.waiting,
      held: replicas.reduce((sum, each) => sum + each.lent, 0),
    };
    const found = { ...left, owed: this.#owed, timers: clock.pending, requests: queue.requests };
    const wrong = Object.entries(found).filter(([, count]) => count !== 0);
    if (wrong.length > 0) throw new Error(`left at the end: ${JSON.stringify(wrong)}`);
  }

  #enter(choice: number, lent: boolean): void {
    const account = ['a', 'b', 'c'][choice % 3] ?? 'a';
    const deadlineAt = choice % 5 === 0 ? this.#desk.clock.now() + (choice % 300) : Infinity;
    const ticket = this.#desk.ask(account, { weight: lent ? 1 : 4, lent, bytes: choice % 20, deadlineAt });
    if ('kind' in ticket) return;
    this.#expect(ticket, ticket.outcome, { lent, tokens: choice % 7 === 0 ? 3000 : 500, ready: false });
    if (choice % 4 > 0) this.#ready(ticket);
  }

  #ready(ticket: Ticket | undefined): void {
    const waits = ticket && this.#waiting.get(ticket);
    if (waits === undefined) return;
    waits.ready = true;
    ticket?.ready({ promptTokens: 100, seatTokens: waits.tokens });
  }

  #expect(ticket: Ticket, outcome: Promise<TicketOutcome>, how: Asked): void {
    this.#owed += 1;
    this.#waiting.set(ticket, how);
    void outcome.then((settled) => {
      this.#owed -= 1;
      this.#waiting.delete(ticket);
      if (settled.kind !== 'seated') return;
      const { lease } = settled;
      this.#isShort ||= (this.#contexts[lease.replica] ?? 0) < how.tokens;
      if (!lease.lent) {
        this.#people.add(lease);
        return;
      }
      this.#lent.add(lease);
      const confirms = this.#desk.clock.now() % 2 === 1;
      const giveBack = (): void => {
        this.#lent.delete(lease);
        this.#expect(ticket, lease.giveBack(), { ...how, ready: true });
      };
      if (lease.seats() === 0) giveBack();
      lease.whenRecalled(() => {
        queueMicrotask(giveBack);
        return confirms ? new Promise((resolve) => this.#stops.add(this.#once(resolve))) : undefined;
      });
    });
  }

  #once(resolve: () => void): () => void {
    const stop = (): void => {
      this.#stops.delete(stop);
      resolve();
    };
    return stop;
  }

  #end(leases: Set<Lease>, lease: Lease | undefined, choice: number): void {
    if (lease === undefined) return;
    leases.delete(lease);
    lease.release((['done', 'cancelled', 'failed'] as const)[choice % 3] ?? 'done');
    lease.release('failed');
  }

  async #check(): Promise<void> {
    await later();
    const { busy, waiting, lent, replicas } = this.#desk.report;
    const pending = replicas.reduce((sum, each) => sum + each.lent, 0) - lent.seats;
    const say = (what: string): never => {
      throw new Error(`${what}: ${JSON.stringify({ busy, waiting, lent, replicas })}`);
    };
    if (this.#isShort) say('a seat is too short for its request');
    if (lent.seats !== this.#lent.size) say(`${this.#lent.size} leases of lent seats`);
    if (pending !== this.#stops.size) say(`${this.#stops.size} recalled jobs that still run`);
    for (const [at, replica] of replicas.entries()) {
      if (this.#up[at] !== true) continue;
      const people = [...this.#people].filter((lease) => lease.replica === at).length;
      // A request has its seat while the recalled job there stops.
      if (pending === 0 && people !== replica.busy) say(`${people} leases of replica ${at}`);
      const idle = replica.seats - replica.busy - replica.lent;
      // Of a recalled job the seat is not lent any more, and still in use.
      if ([...this.#lent].some((lease) => lease.replica === at) && idle < -pending)
        say('more seats are used than there are, and one is lent');
      // While a recalled job stops, a request that has its seat still waits for it.
      const fits = [...this.#waiting.values()].filter(
        ({ ready, tokens }) => pending === 0 && ready && tokens <= (this.#contexts[at] ?? 0),
      );
      if (fits.some((each) => !each.lent) && replica.busy < replica.seats)
        say(`a request waits for a seat of replica ${at} that is free or lent`);
      // How many of several replicas' seats are kept free depends on the others.
      if (replicas.length === 1 && fits.some((each) => each.lent) && idle > lent.headroom)
        say('a request waits for an idle seat');
    }
  }
}

const WALKS = rounds({ short: 30, long: 2000 });

t.test(
  'whatever happens, no seat, timer or outcome leaks, and none is too short, or free beside a request that could use it',
  { timeout: 120_000 },
  async () => {
    const seats = fc.oneof(
      fc.tuple(fc.integer({ min: 1, max: 4 })),
      fc.array(fc.integer({ min: 1, max: 3 }), { minLength: CONTEXTS.length, maxLength: CONTEXTS.length }),
    );
    const events = fc.array(fc.nat(), { minLength: 400, maxLength: 400 });
    await fc.assert(
      fc.asyncProperty(seats, events, async (of, values) => {
        const walk = new Walk(of);
        for (const value of values) await walk.event(value);
        await walk.finish();
      }),
      { numRuns: WALKS },
    );
  },
);
