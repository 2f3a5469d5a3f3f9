/** The place of a waiting request in the queue, on a fake clock. */
import fc from 'fast-check';
import t from 'tap';
import { SeatQueue } from '../../../sidecar/admission/queue.js';
import { MOST_COUNTED } from '../../../sidecar/admission/request.js';
import type { Lease, QueuePlace, QueueRequest, Ticket } from '../../../sidecar/admission/types.js';
import { FakeClock } from '../../support/fake-clock.js';
import { seeded } from '../../support/gbnf.js';
import { rounds } from '../../support/long-form.js';

interface Waiting {
  readonly ticket: Ticket;
  /** At which it was told to stand when no request came any more. */
  told: QueuePlace | undefined;
  /** How many of those that wait then had a seat before it, and how long it waited. */
  before: number;
  waitedMs: number;
}

/** Requests that come, wait and hold seats; of those that wait at one moment, what each is told and what becomes of it. */
class Room {
  readonly clock = new FakeClock();
  readonly queue: SeatQueue;
  readonly waiting = new Set<Waiting>();
  #seated: Waiting[] = [];

  constructor(seats: number, options: Partial<ConstructorParameters<typeof SeatQueue>[0]> = {}) {
    const config = { maxWaitMs: 1e9, waitingPerSeat: 1e6, waitingBytes: 1e9 };
    this.queue = new SeatQueue({ clock: this.clock, random: () => 0.5, config, seats, learns: false, ...options });
  }

  enter(request: Partial<QueueRequest>, holdMs: number): void {
    const ticket = this.queue.enter({ account: 'a', weight: 4, bytes: 1, seatsWanted: 1, ...request });
    if ('kind' in ticket) throw new Error(ticket.reason);
    const one: Waiting = { ticket, told: undefined, before: 0, waitedMs: this.clock.now() };
    this.waiting.add(one);
    void ticket.outcome.then((outcome) => {
      if (outcome.kind === 'seated') this.#serve(one, outcome.lease, holdMs);
    });
    ticket.ready({ promptTokens: 1 });
  }

  /** All that wait are told their places; then time passes until none waits. Each has then seen how many were before it. */
  async empty(): Promise<readonly Waiting[]> {
    const all = [...this.waiting];
    const from = this.clock.now();
    for (const one of all) Object.assign(one, { told: one.ticket.place(), waitedMs: from });
    this.#seated = [];
    await this.run(Infinity);
    return all;
  }

  async run(ms: number): Promise<void> {
    const end = this.clock.now() + ms;
    do for (let i = 0; i < 4; i += 1) await Promise.resolve();
    while (this.clock.step(end));
  }

  #serve(one: Waiting, lease: Lease, holdMs: number): void {
    this.waiting.delete(one);
    one.before = this.#seated.push(one) - 1;
    one.waitedMs = this.clock.now() - one.waitedMs;
    if (one.ticket.place() !== undefined) throw new Error('a request that has a seat has no place');
    this.clock.after(holdMs, () => lease.release('done'));
  }
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
}

t.test('of one account’s requests the position is the number of those that are seated before', async () => {
  const request = fc.record({
    user: fc.constantFrom('u', 'v', 'w'),
    deadlineAt: fc.option(fc.integer({ min: 1e8, max: 2e8 }), { nil: undefined }),
    holdMs: fc.integer({ min: 1, max: 500 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(request, { maxLength: 30 }), fc.integer({ min: 1, max: 4 }), async (requests, seats) => {
      const room = new Room(seats);
      for (const { user, deadlineAt, holdMs } of requests)
        room.enter({ user, ...(deadlineAt !== undefined && { deadlineAt }) }, holdMs);
      await room.run(0);
      return (await room.empty()).every(({ told, before }) => told?.position === before);
    }),
    { numRuns: rounds({ short: 20, long: 500 }) },
  );
});

t.test('between accounts it is close to that, whatever their classes and the length of their requests', async (t) => {
  const errors: number[] = [];
  const lengths: number[] = [];
  const waits: number[] = [];
  for (let seed = 1; seed <= rounds({ short: 5, long: 100 }); seed += 1) {
    const random = seeded(seed);
    const room = new Room(1 + Math.floor(random() * 8));
    const accounts = Array.from({ length: 2 + Math.floor(random() * 8) }, (_, i) => ({
      account: `account ${i}`,
      weight: [16, 4, 4, 4, 1][Math.floor(random() * 5)] ?? 4,
      holdMs: 100 + random() * 1900,
    }));
    // A load that the seats cannot serve, for long enough that the usual times are known.
    for (let i = 0; i < 150; i += 1) {
      const { holdMs, ...request } = accounts[Math.floor(random() * accounts.length)] ?? { holdMs: 1000 };
      room.enter(request, holdMs * (0.7 + 0.6 * random()));
      await room.run(random() * 60);
    }
    const all = await room.empty();
    lengths.push(all.length);
    for (const { told, before, waitedMs } of all) {
      if (told?.expectedWaitMs === undefined || !Number.isInteger(told.position) || told.position < 0)
        t.fail(`told ${JSON.stringify(told)}`);
      errors.push(Math.abs((told?.position ?? NaN) - before) / all.length);
      if (before > 10) waits.push((told?.expectedWaitMs ?? NaN) / waitedMs);
    }
  }
  const wait = [...waits].sort((a, b) => a - b);
  const at = (share: number): number => wait[Math.floor(share * wait.length)] ?? NaN;
  t.comment(`${mean(lengths)} waited; ${mean(errors)} of the queue off; waits ${at(0.1)} ${at(0.5)} ${at(0.9)}`);
  t.ok(mean(errors) < 0.05, `the mean error is ${mean(errors)} of the queue’s length`);
  t.ok(at(0.5) > 0.8 && at(0.5) < 1.25, `the expected wait is ${at(0.5)} of the true one, in the median`);
});

t.test('no wait is expected before a first request has ended', async (t) => {
  const room = new Room(1);
  room.enter({}, 100);
  await room.run(0);
  for (let i = 0; i < 3; i += 1) room.enter({ user: `${i}` }, 100);
  t.strictSame(
    [...room.waiting].map(({ ticket }) => ticket.place()),
    [0, 1, 2].map((position) => ({ position, expectedWaitMs: undefined })),
  );
  await room.run(100);
  t.same(
    [...room.waiting].map(({ ticket }) => ticket.place()?.position),
    [0, 1],
  );
  await room.empty();
});

t.test('a request whose engine was lost is before all others', async (t) => {
  const room = new Room(1);
  const ticket = room.queue.enter({ account: 'a', weight: 4, bytes: 1, seatsWanted: 1 });
  if ('kind' in ticket) throw new Error(ticket.reason);
  ticket.ready({ promptTokens: 1 });
  const outcome = await ticket.outcome;
  if (outcome.kind !== 'seated') throw new Error(outcome.kind);
  room.enter({ account: 'b', weight: 16 }, 100);
  room.queue.pause();
  void outcome.lease.giveBack();
  t.equal(ticket.place()?.position, 0);
  t.same(
    [...room.waiting].map(({ ticket }) => ticket.place()?.position),
    [1],
  );
});

t.test('a refusal says where the request would stand', async (t) => {
  const config = { maxWaitMs: 1e6, waitingPerSeat: 2, waitingBytes: 1e6 };
  const room = new Room(1, { config });
  room.enter({}, 1000);
  await room.run(1000);
  for (let i = 0; i < 3; i += 1) room.enter({}, 1000);
  await room.run(0);
  const refused = room.queue.enter({ account: 'a', weight: 4, bytes: 1, seatsWanted: 1 });
  t.match(refused, { kind: 'refused', reason: 'full', place: { position: 2, expectedWaitMs: 3000 } });
  const late = room.queue.enter({ account: 'a', weight: 4, bytes: 1, seatsWanted: 1, deadlineAt: 0 });
  t.match(late, { reason: 'deadline' });
  t.notOk('place' in late, 'it is not refused for want of seats');
});

t.test(
  'a refusal of a lent seat tells the place after its account’s requests and as many of each other one',
  async (t) => {
    const config = { maxWaitMs: 1e9, waitingPerSeat: 5, waitingBytes: 1e9 };
    const room = new Room(1, { headroom: 0, config });
    const lent = { lent: true, weight: 1 };
    room.enter(lent, 100);
    await room.run(0);
    for (const account of ['a', 'a', 'b', 'b', 'b']) room.enter({ account, ...lent }, 100);
    const asked = { bytes: 1, seatsWanted: 1, ...lent };
    const places = ['a', 'b'].map((account) => room.queue.enter({ account, ...asked }));
    t.match(places, [
      { reason: 'full', place: { position: 5 } },
      { reason: 'full', place: { position: 5 } },
    ]);
  },
);

t.test('what a place looks at is bounded, however many wait', async (t) => {
  const room = new Room(1);
  room.queue.pause();
  for (let i = 0; i < 3 * MOST_COUNTED; i += 1) room.enter({ user: `${i % 2}` }, 1);
  for (let i = 0; i < 2 * MOST_COUNTED; i += 1) room.enter({ account: `${i % 500}` }, 1);
  for (let i = 0; i < MOST_COUNTED; i += 1) room.enter({ account: 'other' }, 1);
  const [first, ...others] = [...room.waiting].map(({ ticket }) => ticket.place()?.position ?? NaN);
  t.ok(first !== undefined && first <= MOST_COUNTED);
  t.equal(Math.max(...others), MOST_COUNTED);
});
