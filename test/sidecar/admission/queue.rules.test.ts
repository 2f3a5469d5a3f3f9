/** Each rule of the queue alone: without it one of these tests fails. */
import t from 'tap';
import type { SeatQueue } from '../../../sidecar/admission/queue.js';
import type { QueueRequest, Lease, Ticket } from '../../../sidecar/admission/types.js';
import { FakeClock } from '../../support/fake-clock.js';
import { QueueDesk } from '../../support/queue-desk.js';

const WORK = { promptTokens: 1000, maxTokens: 1 };

class Harness extends QueueDesk {
  wait(account: string, entry: Partial<QueueRequest> = {}, prefix?: number): Ticket {
    const ticket = this.enter(account, entry);
    ticket.ready({ ...WORK, ...(prefix !== undefined && { prefix: Uint32Array.of(prefix) }) });
    return ticket;
  }

  /** A request of `account` that takes `ms`, from start to end, on a queue with a free seat. */
  async serve(account: string, ms: number, entry: Partial<QueueRequest> = {}): Promise<void> {
    const lease = await this.seat(this.wait(account, entry));
    this.clock.advance(ms);
    lease.release('done');
  }

  /** Ends the seated request after `ms`, `count` times in turn; returns their names in order. */
  async turns(first: Lease, waiting: Readonly<Record<string, Ticket>>, ms: number): Promise<string[]> {
    const order: string[] = [];
    const leases: Lease[] = [first];
    for (const [name, ticket] of Object.entries(waiting)) {
      void ticket.outcome.then((outcome) => {
        if (outcome.kind !== 'seated') return;
        order.push(name);
        leases.push(outcome.lease);
      });
    }
    for (let lease = leases.shift(); lease !== undefined; lease = leases.shift()) {
      this.clock.advance(ms);
      lease.release('done');
      for (let i = 0; i < 4; i += 1) await Promise.resolve();
    }
    return order;
  }

  virtual(account: string): number | undefined {
    return this.report.accounts.find((found) => found.account === account)?.virtualMs;
  }
}

t.test('accrue: seats held, over time, over weight', async (t) => {
  const desk = new Harness(3);
  const lease = await desk.seat(desk.wait('a', { weight: 4, seatsWanted: 2 }));
  desk.clock.advance(100);
  t.equal(lease.takeSeat(), true);
  desk.clock.advance(100);
  lease.freeSeat();
  desk.clock.advance(100);
  t.equal(desk.virtual('a'), 100);
  t.equal(desk.queue.report(1).accounts[0]?.seatMs, 400);
  lease.release('done');
  desk.clock.advance(100);
  t.equal(desk.virtual('a'), 100);
  t.equal(desk.queue.report(1).accounts[0]?.holdMs, 400, 'its seat time');
});

t.test('the lowest V goes next, so accounts take turns whatever the number of their requests', async (t) => {
  const desk = new Harness();
  const first = await desk.seat(desk.wait('a'));
  const [a1, a2, b1, b2] = [desk.wait('a'), desk.wait('a'), desk.wait('b'), desk.wait('b')];
  t.same(await desk.turns(first, { a1, a2, b1, b2 }, 100), ['b1', 'a1', 'b2', 'a2']);
});

t.test('of two with equal V, the one with fewer seats goes first', async () => {
  const desk = new Harness(2);
  desk.queue.pause();
  const tickets = { a1: desk.wait('a'), a2: desk.wait('a'), b1: desk.wait('b'), b2: desk.wait('b') };
  desk.queue.resume(2);
  await desk.seat(tickets.a1);
  await desk.seat(tickets.b1);
});

t.test('lift: an idle account saves nothing', async (t) => {
  const desk = new Harness(1, { maxWaitMs: 100_000 });
  await desk.serve('b', 10);
  await desk.serve('a', 5000);
  const first = await desk.seat(desk.wait('a'));
  desk.clock.advance(5000);
  const [a1, a2] = [desk.wait('a'), desk.wait('a')];
  const [b1, b2] = [desk.wait('b'), desk.wait('b')];
  t.equal(desk.virtual('b'), desk.virtual('a'));
  t.same(await desk.turns(first, { a1, a2, b1, b2 }, 100), ['b1', 'a1', 'b2', 'a2']);
});

t.test('lift: nor does one that runs little while others run much', async (t) => {
  const desk = new Harness(4, { maxWaitMs: 100_000 });
  await desk.seat(desk.wait('b'));
  const leases = [await desk.seat(desk.wait('a')), await desk.seat(desk.wait('a')), await desk.seat(desk.wait('a'))];
  desk.clock.advance(60_000);
  leases.pop()?.release('done');
  leases.push(await desk.seat(desk.wait('a')));
  desk.wait('b');
  t.equal(desk.virtual('b'), desk.virtual('a'));
});

t.test('lift: not to the level of an account that only runs', async (t) => {
  const desk = new Harness(3, { maxWaitMs: 100_000 });
  await desk.seat(desk.wait('ever', { weight: 16 }));
  for (let i = 0; i < 3; i += 1) await desk.serve('a', 5000);
  await desk.seat(desk.wait('a'));
  desk.wait('b');
  t.equal(desk.virtual('a'), 15_000);
  t.equal(desk.virtual('b'), 15_000);
});

t.test('lift: no debt outlives the contention that caused it', async (t) => {
  const desk = new Harness(1, { maxWaitMs: 100_000 });
  await desk.serve('a', 50_000);
  await desk.serve('b', 10);
  desk.wait('c');
  desk.wait('a');
  t.equal(desk.virtual('c'), desk.virtual('a'));
});

t.test(
  'within an account: users take turns, a user’s earliest deadline goes first, then the order of arrival',
  async (t) => {
    const desk = new Harness();
    const first = await desk.seat(desk.wait('a', { user: 'x' }));
    const x1 = desk.wait('a', { user: 'x' });
    const x2 = desk.wait('a', { user: 'x' });
    const x3 = desk.wait('a', { user: 'x', deadlineAt: 9000 });
    const x4 = desk.wait('a', { user: 'x', deadlineAt: 8000 });
    const y1 = desk.wait('a', { user: 'y' });
    const none = desk.wait('a');
    const gone = desk.wait('a', { user: 'z' });
    gone.cancel();
    const found = await desk.turns(first, { x1, x2, x3, x4, y1, none }, 100);
    t.same(found, ['x4', 'y1', 'none', 'x3', 'x1', 'x2']);
  },
);

t.test('predicted: refused at once if the wait would exceed the longest, with the excess as Retry-After', async (t) => {
  const desk = new Harness(2);
  await desk.serve('a', 4000);
  await desk.seat(desk.wait('a'));
  await desk.seat(desk.wait('a'));
  for (let i = 0; i < 4; i += 1) desk.wait('a');
  // Ahead of it (4 · 4 s + 2 · 4 s / 2) / 2 = 10 s.
  const last = desk.wait('a');
  t.match(desk.ask('a'), { reason: 'predicted', retryAfterMs: 2000 });
  last.cancel();
  t.notOk('kind' in desk.ask('a'), 'not by less');
});

t.test('predicted: other accounts count with their claims until then, by weight', async (t) => {
  const desk = new Harness(1, { maxWaitMs: 20_000 });
  await desk.serve('a', 1000);
  await desk.seat(desk.wait('a'));
  for (let i = 0; i < 7; i += 1) desk.wait('a', { weight: 1 });
  const predicted = (entry: Partial<QueueRequest>): number | undefined => {
    const ticket = desk.enter('b', entry);
    const found = desk.queue.report(10).accounts.find(({ account }) => account === 'b')?.predictedWaitMs;
    ticket.cancel();
    return found;
  };
  // As if one more arrived: its own 1 s, of the other 2 s by weight, and 1 s until the seat is free.
  t.equal(predicted({ weight: 1 }), 4000);
  t.equal(predicted({ weight: 4 }), 2500);
});

t.test('predicted: the deadline counts, less the hold time; not where a seat is free', async (t) => {
  const desk = new Harness();
  await desk.serve('a', 3000);
  const deadlineAt = (ms: number): number => desk.clock.now() + ms;
  const lease = await desk.seat(desk.wait('a', { deadlineAt: deadlineAt(1000) }));
  t.match(desk.ask('a', { deadlineAt: deadlineAt(5900) }), { reason: 'predicted', retryAfterMs: 1000 });
  desk.enter('a', { deadlineAt: deadlineAt(6000) }).cancel();
  lease.release('failed');
  desk.enter('a', { deadlineAt: deadlineAt(1) });

  const wide = new Harness(2);
  await wide.serve('a', 60_000);
  await wide.seat(wide.wait('a'));
  wide.enter('a', { deadlineAt: wide.clock.now() + 1 });
});

t.test('predicted: an account that was charged more waits for others to catch up', async (t) => {
  const desk = new Harness();
  await desk.serve('a', 1000);
  await desk.seat(desk.wait('a'));
  for (let i = 0; i < 4; i += 1) desk.wait('b');
  desk.clock.advance(1500);
  // Of b’s 4 s its claim: a’s next 1 s and the 1.5 s that a is ahead; and 1 s until the seat is free.
  t.match(desk.queue.report(1).accounts, [{ account: 'a', predictedWaitMs: 3500 }]);
});

t.test('nothing is predicted before a first lease has ended; then a new account has the usual hold time', async (t) => {
  const desk = new Harness(1, { maxWaitMs: 1500 });
  const lease = await desk.seat(desk.wait('a'));
  for (let i = 0; i < 7; i += 1) desk.wait('a');
  desk.wait('b').cancel();
  desk.clock.advance(1400);
  lease.release('done');
  t.match(desk.ask('new'), { reason: 'predicted' });

  const other = new Harness();
  await other.serve('a', 3000);
  await other.seat(other.wait('a'));
  other.wait('new');
  t.match(other.queue.report(2).accounts[1], { account: 'new', holdMs: null, predictedWaitMs: 6000 });
});

t.test(
  'calibration: longer after a wait in vain, a little shorter after a good one, twice as long for a seat in vain',
  async (t) => {
    const desk = new Harness(1, { maxWaitMs: 5000 });
    const calibration = (): number | undefined => desk.queue.report(1).accounts[0]?.calibration;
    await desk.serve('a', 100);
    const lease = await desk.seat(desk.wait('a'));
    t.equal(calibration(), 1, 'without a wait nothing is learned');
    const vain = desk.wait('a');
    const unready = desk.enter('a');
    desk.clock.advance(5000);
    t.match([await vain.outcome, await unready.outcome], [{ reason: 'wait' }, { reason: 'wait' }]);
    t.equal(calibration(), 1.08, 'if a request was not ready, its checks took too long and not the queue');
    const well = desk.wait('a');
    desk.clock.advance(1);
    lease.release('engine-lost');
    const second = await desk.seat(well);
    const after = 1.08 * (1 - 0.08 * 0.02);
    t.equal(calibration(), after);
    second.release('deadline');
    t.equal(calibration(), after * 1.08 * 1.08);
  },
);

t.test('calibration: a wait that is too long because of a lost engine changes nothing', async (t) => {
  const desk = new Harness();
  await desk.serve('a', 100);
  desk.queue.pause();
  const vain = desk.wait('a');
  desk.clock.advance(10_000);
  t.match(await vain.outcome, { reason: 'wait' });
  t.equal(desk.queue.report(1).accounts[0]?.calibration, 1);
});

t.test('calibration: nor a wait during part of which the engine was away', async (t) => {
  const desk = new Harness();
  const calibration = (): number | undefined => desk.queue.report(1).accounts[0]?.calibration;
  await desk.serve('a', 100);
  const lease = await desk.seat(desk.wait('a'));
  const vain = desk.wait('a');
  desk.queue.pause();
  desk.clock.advance(9000);
  const during = desk.wait('a');
  desk.queue.resume(1);
  desk.clock.advance(1000);
  t.match(await vain.outcome, { reason: 'wait' });
  desk.clock.advance(9000);
  t.match(await during.outcome, { reason: 'wait' });
  t.equal(calibration(), 1);
  const cut = desk.wait('a');
  desk.queue.pause();
  desk.clock.advance(1000);
  desk.queue.resume(1);
  lease.release('failed');
  (await desk.seat(cut)).release('deadline');
  t.ok((calibration() ?? 9) <= 1);
});

t.test('calibration: a wait that is short compared with the hold time did not make the reply late', async (t) => {
  for (const [heldMs, steps] of [
    [1001, 0],
    [1000, 2],
  ] as const) {
    const desk = new Harness();
    const lease = await desk.seat(desk.wait('a'));
    desk.clock.advance(100);
    lease.release('done');
    const first = await desk.seat(desk.wait('a'));
    const next = desk.wait('a');
    desk.clock.advance(100);
    first.release('failed');
    const cut = await desk.seat(next);
    desk.clock.advance(heldMs);
    cut.release('deadline');
    const found = desk.queue.report(1).accounts[0]?.calibration ?? 0;
    t.ok(Math.abs(found - (1 - 0.08 * 0.02) * 1.08 ** steps) < 1e-9, `${found}`);
  }
});

t.test(
  'calibration: it blocks no account, since each refusal caused by it alone makes it a little smaller',
  async (t) => {
    const desk = new Harness(1, { maxWaitMs: 5000 });
    const calibration = (): number | undefined =>
      desk.queue.report(9).accounts.find(({ account }) => account === 'a')?.calibration;
    await desk.serve('b', 4000);
    await desk.serve('a', 4000);
    const lease = await desk.seat(desk.wait('b'));
    for (let i = 0; i < 3; i += 1) {
      const vain = desk.wait('a');
      desk.clock.advance(5000);
      t.match(await vain.outcome, { reason: 'wait' });
    }
    // 4 s until the seat is free are predicted as more than the 5 s that it may wait.
    t.ok((calibration() ?? 0) > 1.25);
    let refused = 0;
    for (; 'kind' in desk.ask('a'); refused += 1);
    t.equal(refused, 5);
    t.match(desk.ask('a'), { reason: 'predicted' });
    const kept = calibration();
    t.match(desk.ask('a'), { reason: 'predicted' });
    t.equal(calibration(), kept, 'not if it would be refused without it too');
    lease.release('failed');
  },
);

t.test('calibration: refusals reduce it to 1 and no further', async (t) => {
  const desk = new Harness(1, { maxWaitMs: 5000 });
  const calibration = (): number | undefined =>
    desk.queue.report(9).accounts.find(({ account }) => account === 'a')?.calibration;
  await desk.serve('b', 5000);
  await desk.seat(desk.wait('b'));
  // Without a correction the wait of one more of it equals the longest.
  const vain = desk.wait('a');
  desk.clock.advance(5000);
  t.match(await vain.outcome, { reason: 'wait' });
  t.equal(calibration(), 1.08);
  let refused = 0;
  for (; 'kind' in desk.ask('a'); refused += 1);
  t.equal(refused, 49, 'steps of 0.0016 each');
  t.equal(calibration(), 1);
});

t.test(
  'calibration: while a request of the account waits, its wait is learned from, and refusals are not',
  async (t) => {
    const desk = new Harness(1, { maxWaitMs: 5000 });
    const calibration = (): number | undefined =>
      desk.queue.report(9).accounts.find(({ account }) => account === 'a')?.calibration;
    await desk.serve('b', 2400);
    await desk.seat(desk.wait('b'));
    const vain = desk.wait('a');
    desk.clock.advance(5000);
    t.match(await vain.outcome, { reason: 'wait' });
    // One of 2.4 s before it and 2.4 s until the seat is free: too long only by the correction of 1.08.
    const line = desk.wait('a');
    for (let i = 0; i < 3; i += 1) t.match(desk.ask('a'), { reason: 'predicted' });
    t.equal(calibration(), 1.08);
    line.cancel();
    const unready = desk.enter('a');
    t.match(desk.ask('a'), { reason: 'predicted' });
    t.equal(calibration(), 1.08 * (1 - 0.08 * 0.02), 'one that is still checked teaches nothing');
    unready.cancel();
  },
);

t.test('service rate: an account that is alone is not limited by an old one', async (t) => {
  const desk = new Harness(1, { maxWaitMs: 1e6 });
  await desk.serve('a', 1000);
  const predicted = (): number | undefined =>
    desk.queue.report(9).accounts.find(({ account }) => account === 'a')?.predictedWaitMs;
  let lease = await desk.seat(desk.wait('b'));
  const waiting = [1, 2, 3, 4].map(() => desk.wait('a'));
  for (const next of waiting.slice(0, 2)) {
    desk.clock.advance(1000);
    lease.release('failed');
    lease = await desk.seat(next);
    desk.clock.advance(19_000); // 20 s between two of its seats
  }
  t.ok((predicted() ?? 9e9) <= 3000, 'two that wait and one that runs, of 1 s each');
  const beside = desk.enter('b');
  t.ok((predicted() ?? 0) >= 59_000, 'beside another its gap of 20 s counts');
  beside.cancel();
});

t.test('predicted: several seats of one request count once, as one lease', async (t) => {
  const desk = new Harness(8, { maxWaitMs: 1e6 });
  const grown = async (ms: number): Promise<Lease> => {
    const lease = await desk.seat(desk.wait('a', { seatsWanted: 8 }));
    while (lease.takeSeat());
    desk.clock.advance(ms);
    return lease;
  };
  (await grown(1000)).release('done');
  const lease = await grown(0);
  t.match(desk.queue.report(1).accounts, [{ running: 8, holdMs: 8000, predictedWaitMs: 8000 / 8 / 8 }]);
  const deadlineAt = (ms: number): number => desk.clock.now() + ms;
  // It takes 8 s of seat time, but 1 s by the clock.
  desk.enter('a', { deadlineAt: deadlineAt(1125) }).cancel();
  t.match(desk.ask('a', { deadlineAt: deadlineAt(1124) }), { reason: 'predicted' });
  lease.release('done');
});

t.test(
  'a request that is seated in the step in which it became ready has not waited, on a clock that always advances',
  async (t) => {
    const time = new FakeClock();
    let reads = 0;
    const clock = { now: () => (reads += 0.003), after: (ms: number, fn: () => void) => time.after(ms, fn) };
    const desk = new Harness(1, {}, { clock });
    const first = await desk.seat(desk.wait('a'));
    t.equal(first.waitedMs, 0);
    const next = desk.wait('a');
    first.release('done');
    const lease = await desk.seat(next);
    t.ok(lease.waitedMs > 0);
    lease.release('deadline');
    (await desk.seat(desk.wait('a'))).release('deadline');
    const before = desk.queue.report(1).accounts[0]?.calibration;
    (await desk.seat(desk.wait('a'))).release('deadline');
    t.equal(desk.queue.report(1).accounts[0]?.calibration, before);
  },
);

t.test(
  'full: the newest of the longest queue makes room, but not for its own account or one with as many',
  async (t) => {
    const desk = new Harness(1, { waitingPerSeat: 6 });
    const lease = await desk.seat(desk.wait('a'));
    desk.clock.advance(500);
    lease.release('done');
    await desk.seat(desk.wait('a'));
    const [a1, a2, a3, a4] = [desk.wait('a'), desk.wait('a'), desk.wait('a'), desk.enter('a')];
    const [b1, b2] = [desk.wait('b'), desk.wait('b')];
    t.match(desk.ask('a'), { reason: 'full' }, 'its own is the longest');
    const b3 = desk.enter('b');
    t.match(await a4.outcome, { kind: 'refused', reason: 'dropped', retryAfterMs: 1000 });
    t.match(desk.ask('b'), { reason: 'full' }, 'as long');
    const c1 = desk.enter('c');
    t.match(desk.queue.snapshot(), { waiting: 6, refused: { full: 2, dropped: 2 } });
    t.match(
      desk.ask('c', { deadlineAt: desk.clock.now() }),
      { reason: 'deadline' },
      'a request without a chance displaces none',
    );
    for (const ticket of [a1, a2, a3, b1, b2, b3, c1]) ticket.cancel();
    t.match(desk.queue.snapshot(), { waiting: 0, waitingBytes: 0 });
  },
);

t.test('full: where each has one, that of an account ahead by more than half a request makes room', async (t) => {
  for (const passedMs of [400, 600]) {
    const desk = new Harness(1, { waitingPerSeat: 2 });
    const first = await desk.seat(desk.wait('a'));
    const next = desk.wait('b');
    desk.clock.advance(1000);
    first.release('done');
    await desk.seat(next);
    const again = desk.wait('a');
    // What b holds its seat for is the virtual time of those that come now; that of a is 1000.
    desk.clock.advance(passedMs);
    desk.wait('c');
    if (passedMs === 400) {
      desk.wait('d');
      t.match(await again.outcome, { kind: 'refused', reason: 'dropped' });
    }
    t.match(desk.ask('e'), { reason: 'full' }, passedMs === 400 ? 'it is not ahead of c and d' : 'a is ahead by less');
    t.match(desk.ask('a'), { reason: 'full' });
    t.match(desk.queue.snapshot(), { waiting: 2 });
  }
});

t.test('full: Retry-After of a dropped request is when one of its own is seated', async (t) => {
  const desk = new Harness(1, { waitingPerSeat: 3 });
  await desk.serve('a', 2800);
  await desk.seat(desk.wait('a'));
  desk.wait('a');
  desk.wait('a');
  const newest = desk.wait('a');
  desk.wait('b');
  // Two of its own that still wait and one until a seat is free, over three places.
  t.match(await newest.outcome, { reason: 'dropped', retryAfterMs: 2800 });
});

t.test('full: when seats are lost, admitted requests stay, and a new one takes the place of only one', async (t) => {
  const desk = new Harness(2, { waitingPerSeat: 3 });
  await desk.seat(desk.wait('a'));
  await desk.seat(desk.wait('a'));
  for (let i = 0; i < 6; i += 1) desk.wait('a');
  desk.queue.pause();
  desk.queue.resume(1);
  t.match(desk.queue.snapshot(), { busy: 2, waiting: 6 }, 'there is room for three');
  desk.wait('b');
  t.match(desk.queue.snapshot(), { waiting: 6, refused: { dropped: 1 } });
  t.match(desk.ask('a'), { reason: 'full' });
});

t.test('bytes: the same, and none is dropped if that does not help', async (t) => {
  const desk = new Harness();
  await desk.seat(desk.wait('a'));
  const big = [300, 200, 300].map((bytes) => desk.wait('a', { bytes }));
  desk.wait('b', { bytes: 150 });
  t.match(desk.ask('b', { bytes: 700 }), { reason: 'bytes' });
  t.match(desk.ask('a', { bytes: 60 }), { reason: 'bytes' });
  t.equal(desk.queue.snapshot().waiting, 4);
  desk.wait('b', { bytes: 250 });
  t.match(await big[2]?.outcome, { reason: 'dropped' });
  t.match(desk.queue.snapshot(), { waiting: 4, waitingBytes: 900 });
});

t.test('bytes: a body over the cap may wait alone, and only alone', async (t) => {
  const desk = new Harness();
  await desk.seat(desk.wait('a'));
  const small = desk.wait('b');
  t.match(desk.ask('a', { bytes: 1200 }), { reason: 'bytes' });
  small.cancel();
  const big = desk.wait('a', { bytes: 1200 });
  t.match(desk.ask('a', { bytes: 1200 }), { reason: 'bytes' });
  t.match(desk.queue.snapshot(), { waiting: 1, waitingBytes: 1200 });
  desk.wait('b');
  t.match(await big.outcome, { reason: 'dropped' }, 'it makes room like any other');
});

t.test('Retry-After is spread over a quarter more', async (t) => {
  const desk = new Harness(1, {}, { random: () => 1 });
  await desk.serve('a', 9000);
  await desk.seat(desk.wait('a'));
  desk.wait('a');
  t.match(desk.ask('a'), { reason: 'predicted', retryAfterMs: 10_000 });
});

t.test('what a free sequence has of a prompt changes no turn between accounts', async (t) => {
  const desk = new Harness(1, {}, { reusableTokens: ([tokens]) => tokens ?? 0 });
  const lease = await desk.seat(desk.wait('other'));
  const waiting = { a: desk.wait('a', {}, 0), b: desk.wait('b', {}, 900) };
  t.same(await desk.turns(lease, waiting, 0), ['a', 'b']);
});

t.test('a request that is still checked, or proves too large, blocks no other', async (t) => {
  const desk = new Harness();
  const first = await desk.seat(desk.wait('b'));
  const oversize = desk.enter('a', { deadlineAt: 1 });
  const second = desk.wait('b');
  desk.clock.advance(1);
  first.release('done');
  const lease = await desk.seat(second);
  oversize.cancel();
  t.match(desk.queue.snapshot(), { busy: 1, waiting: 0 });
  lease.release('done');
});

t.test(
  'grow: takes free seats for which no ready request waits; requests that are not ready prevent nothing',
  async (t) => {
    const desk = new Harness(3);
    const a = await desk.seat(desk.wait('a', { seatsWanted: 4 }));
    desk.clock.advance(10);
    const unready = desk.enter('b');
    t.equal(a.takeSeat(), true);
    unready.ready(WORK);
    t.equal(a.takeSeat(), false, 'it took the last seat');
    const next = desk.wait('b');
    a.freeSeat();
    t.equal(a.takeSeat(), false, 'a freed seat goes to a waiting request');
    await desk.seat(next);
  },
);

t.test('lift: overlapping bodies that never become ready save nothing', async (t) => {
  const desk = new Harness(1, { maxWaitMs: 1e6 });
  let body = desk.enter('b');
  let lease = await desk.seat(desk.wait('a'));
  for (let i = 0; i < 10; i += 1) {
    const next = desk.wait('a');
    desk.clock.advance(1000);
    lease.release('failed');
    lease = await desk.seat(next);
    const overlapping = desk.enter('b');
    body.cancel();
    body = overlapping;
  }
  const first = desk.wait('a');
  const b = [desk.wait('b'), desk.wait('b')];
  body.cancel();
  t.same(await desk.turns(lease, { b1: b[0]!, b2: b[1]!, a1: first }, 1000), ['b1', 'a1', 'b2']);
});

t.test('accounts: ten thousand are remembered, and none that waits or runs is removed', async (t) => {
  const desk = new Harness(1, { maxWaitMs: 1e9 });
  const lease = await desk.seat(desk.wait('running'));
  for (let i = 0; i < 10_050; i += 1) desk.wait(`idle ${i}`).cancel();
  const { accounts, others } = desk.queue.report(1);
  t.equal(accounts.length + others.accounts, 10_000);
  desk.clock.advance(5);
  lease.release('done');
  t.match(desk.queue.report(1).accounts, [{ account: 'running', seatMs: 5 }]);
});

t.test('accounts: the least recently active is removed first', async (t) => {
  const desk = new Harness(1, { maxWaitMs: 1e9 });
  const known = (): string[] => {
    const { accounts } = desk.queue.report(10);
    return accounts.filter(({ seatMs }) => seatMs > 0).map(({ account }) => account);
  };
  const come = (account: string): void => desk.wait(account).cancel();
  for (const account of ['a', 'b', 'c']) await desk.serve(account, 5);
  await desk.serve('a', 5);
  for (let i = 3; i < 10_000; i += 1) come(`idle ${i}`);
  await desk.serve('last', 5);
  t.same(known(), ['a', 'c', 'last'], 'b before a, which came back');
  come('one more');
  t.same(known(), ['a', 'last']);
  come('and another');
  t.same(known(), ['last']);
  t.match(desk.queue.report(1).accounts, [{ account: 'last', seatMs: 5, holdMs: 5 }]);
  await desk.serve('b', 7);
  t.match(
    desk.queue.report(10).accounts.find(({ account }) => account === 'b'),
    { seatMs: 7, holdMs: 7 },
    'an account that returns is a new one',
  );
});

t.test(
  'standing: as the queue begins to stand, requests that wait beyond the room are refused, the last first',
  async (t) => {
    const h = new Harness(1, { maxWaitMs: 60_000, waitingPerSeat: 64, waitingBytes: Infinity });
    await h.serve('a', 1000);
    const seated = await h.seat(h.wait('a'));
    const ended: string[] = [];
    const wait = (name: string, user: string): void => {
      const ticket = h.wait('a', { user });
      void ticket.outcome.then((outcome) => {
        if (outcome.kind !== 'cancelled') ended.push(outcome.kind === 'refused' ? `${name} ${outcome.reason}` : name);
      });
    };
    for (let i = 0; i < 40; i += 1) wait(`many ${i}`, 'many');
    wait('one', 'one');
    h.clock.advance(3000);
    // They are refused at once, and make the load far above 1.
    const ask = (): unknown => h.ask('a', { deadlineAt: 1 });
    for (let i = 0; i < 40; i += 1) ask();
    t.equal(h.queue.snapshot().waiting, 41, 'it does not stand yet');
    h.clock.advance(1100);
    ask();
    for (let i = 0; i < 4; i += 1) await Promise.resolve();
    const { waiting, refused } = h.queue.snapshot();
    t.ok(waiting >= 3 && waiting < 12, `${waiting} wait`);
    t.equal(ended.length, refused.standing, ended.join(', '));
    t.equal(ended[0], 'many 39 standing');
    t.notOk(
      ended.some((name) => name.startsWith('one')),
      'the user with one keeps it',
    );
    seated.release('done');
  },
);

t.test('standing: as it begins to stand for long requests only, waiting short ones stay', async (t) => {
  const seats = [2048, 8192].map((contextPerSeat) => ({ seats: 1, contextPerSeat }));
  const h = new Harness(seats, { maxWaitMs: 60_000, waitingPerSeat: 64, waitingBytes: Infinity });
  await h.serve('a', 1000);
  const long = h.enter('long');
  long.ready({ ...WORK, seatTokens: 6000 });
  await h.seat(long);
  h.clock.advance(3000);
  await h.seat(h.wait('a'));
  for (let i = 0; i < 40; i += 1) h.wait('a');
  for (let i = 0; i < 40; i += 1) h.ask('a', { deadlineAt: 1 });
  h.clock.advance(1100);
  h.ask('a', { deadlineAt: 1 });
  t.equal(h.queue.report(1).overload.standing, true, 'for long ones');
  t.match(h.queue.snapshot(), { waiting: 40, refused: { deadline: 41 } });
  t.notOk('standing' in h.queue.snapshot().refused);
});

t.test(
  'a queue in which no request waits is not reported as standing, though one long reply holds the only seat',
  async (t) => {
    const h = new Harness(1);
    for (let i = 0; i < 20; i += 1) await h.serve('a', 1000);
    const long = await h.seat(h.wait('a'));
    h.clock.advance(60_000);
    const standing = (): boolean => h.queue.report(1).overload.standing;
    t.notOk(standing());
    const next = h.wait('a');
    t.ok(standing(), 'it stood all the same');
    next.cancel();
    t.notOk(standing());
    long.release('done');
  },
);

/** Eight seats that have served requests of a second, and one more request, with how each of those admitted ended. */
async function eightSeats(): Promise<{ h: Harness; run: () => void; ends: string[] }> {
  const h = new Harness(8, { waitingBytes: Infinity });
  for (let i = 0; i < 8; i += 1) await h.serve('a', 1000);
  const ends: string[] = [];
  const run = (): void => {
    const ticket = h.ask('a');
    if ('kind' in ticket) return;
    ticket.ready(WORK);
    void ticket.outcome.then((outcome) => {
      ends.push(outcome.kind === 'refused' ? outcome.reason : outcome.kind);
      if (outcome.kind === 'seated') h.clock.after(1000, () => outcome.lease.release('done'));
    });
  };
  return { h, run, ends };
}

t.test('a burst of four requests a seat on an idle service is served whole', async (t) => {
  const { h, run, ends } = await eightSeats();
  for (let i = 0; i < 32; i += 1) run();
  for (let ms = 0; ms < 5000; ms += 50) {
    h.clock.advance(50);
    for (let i = 0; i < 4; i += 1) await Promise.resolve();
  }
  t.strictSame(ends, Array(32).fill('seated'));
});

t.test('standing: a burst that was partly refused is served, if few requests follow', async (t) => {
  const { h, run, ends } = await eightSeats();
  for (let i = 0; i < 150; i += 1) run();
  t.match(h.queue.snapshot(), { waiting: 64 });
  // Then half of what the seats can serve.
  for (let ms = 0; ms < 12_000; ms += 50) {
    if (ms % 250 === 0) run();
    h.clock.advance(50);
    for (let i = 0; i < 4; i += 1) await Promise.resolve();
  }
  t.ok(ends.length > 72, `${ends.length} ended`);
  t.strictSame(
    ends.filter((end) => end !== 'seated'),
    [],
    'each of the admitted was served',
  );
});

/** One seat in use, and one request that waits for it, of an account whose callers leave after a second at several times the load. */
async function onlyOneWaits(
  maxWaitMs: number,
  eachSecond: (queue: SeatQueue) => void = () => undefined,
): Promise<{ h: Harness; first: Lease; ended: string[] }> {
  const rules = { maxWaitMs, waitingPerSeat: 64, waitingBytes: Infinity };
  const h = new Harness(1, rules, { random: () => 0.9 });
  await h.serve('a', 100);
  const first = await h.seat(h.wait('a'));
  for (let i = 0; i < 12; i += 1) {
    const tickets = Array.from({ length: 3 }, () => h.ask('a')).filter((each) => !('kind' in each)) as Ticket[];
    for (const ticket of tickets) ticket.ready(WORK);
    h.clock.advance(500);
    eachSecond(h.queue);
    h.clock.advance(500);
    for (const ticket of tickets) ticket.cancel('disconnected');
  }
  const ended: string[] = [];
  void h.wait('a').outcome.then(({ kind }) => ended.push(kind));
  return { h, first, ended };
}

t.test('standing: the only request that waits is seated, however long it waited', async (t) => {
  const { h, first, ended } = await onlyOneWaits(60_000);
  h.clock.advance(5000);
  for (let i = 0; i < 4; i += 1) await Promise.resolve();
  t.strictSame([ended, h.queue.snapshot().waiting], [[], 1], 'it waits');
  const newer = h.wait('a');
  h.clock.advance(2500);
  for (let i = 0; i < 4; i += 1) await Promise.resolve();
  t.strictSame(ended, ['refused'], 'until another one waits too');
  h.clock.advance(30_000);
  first.release('done');
  await h.seat(newer);
});

t.test('standing: but the longest wait ends that too', async (t) => {
  const { h, ended } = await onlyOneWaits(4000);
  h.clock.advance(3900);
  for (let i = 0; i < 4; i += 1) await Promise.resolve();
  t.strictSame(ended, [], 'it waits');
  h.clock.advance(200);
  for (let i = 0; i < 4; i += 1) await Promise.resolve();
  t.strictSame(ended, ['refused']);
});

t.test(
  'a caller who leaves its seat is patient until then, and its seat is lost until the engine has stopped',
  async (t) => {
    const h = new Harness(1);
    for (let i = 0; i < 40; i += 1) {
      const ticket = h.wait(`a${i}`);
      const lease = await h.seat(ticket);
      h.clock.advance(2000);
      ticket.cancel('disconnected');
      h.clock.advance(30_000);
      lease.release('cancelled');
    }
    const { leftMs, patience } = h.queue.report(0).overload;
    t.equal(leftMs, 40 * 32_000);
    const p50 = patience.end.p50 ?? NaN;
    t.ok(p50 > 1500 && p50 < 3000, String(p50));
  },
);

t.test('standing: patience is learned also while a replica reports its seats again and again', async (t) => {
  const { h, ended } = await onlyOneWaits(60_000, (queue) => queue.resume(1));
  h.clock.advance(5000);
  h.wait('a');
  h.clock.advance(2500);
  for (let i = 0; i < 4; i += 1) await Promise.resolve();
  t.strictSame(ended, ['refused'], 'its caller is known to have left');
});

t.test(
  'nextVirtualMs is that of the next account to be seated, also while another with a lower one runs',
  async (t) => {
    const desk = new Harness(2);
    const leases = [await desk.seat(desk.wait('a', { weight: 16 })), await desk.seat(desk.wait('b'))];
    t.equal(desk.queue.report(2).nextVirtualMs, null, 'none waits');
    desk.clock.advance(100);
    desk.wait('b');
    t.equal(desk.queue.report(2).nextVirtualMs, desk.virtual('b'));
    t.ok((desk.virtual('a') ?? Infinity) < (desk.virtual('b') ?? 0));
    for (const lease of leases) lease.release('done');
  },
);
