import t from 'tap';
import type { SeatQueue } from '../../../sidecar/admission/queue.js';
import type {
  QueueConfig,
  QueueRequest,
  Lease,
  Refused,
  Ticket,
  TicketOutcome,
} from '../../../sidecar/admission/types.js';
import { leaseOf, QueueDesk, ticketOf } from '../../support/queue-desk.js';

const WORK = { promptTokens: 1, maxTokens: 1 };
const MAX_WAIT_MS = 10_000;

const setup = (seats = 1, config: Partial<QueueConfig> = {}, isServed = () => true): QueueDesk =>
  new QueueDesk(seats, config, { isServed });

function tryEnter(queue: SeatQueue, entry: Partial<QueueRequest> = {}): Ticket | Refused {
  return queue.enter({ account: 'a', weight: 1, bytes: 10, seatsWanted: 1, ...entry });
}

const enter = (queue: SeatQueue, entry: Partial<QueueRequest> = {}): Ticket => ticketOf(tryEnter(queue, entry));

const enterReady = (queue: SeatQueue, entry: Partial<QueueRequest> = {}): Ticket =>
  ticketOf(tryEnter(queue, entry), WORK);

const seated = (outcome: Promise<TicketOutcome>): Promise<Lease> => outcome.then(leaseOf);

/** Labels in the order in which their outcomes settled as seated. */
function record(tickets: Record<string, Ticket>): string[] {
  const order: string[] = [];
  for (const [name, ticket] of Object.entries(tickets)) {
    void ticket.outcome.then(({ kind }) => kind === 'seated' && order.push(name));
  }
  return order;
}

t.test('a free seat is granted at once, and counted at once', async (t) => {
  const { queue } = setup();
  const ticket = enter(queue);
  t.match(queue.snapshot(), { busy: 0, waiting: 1, waitingBytes: 10 }, 'not before it is ready');
  ticket.ready(WORK);
  ticket.ready(WORK);
  t.match(queue.snapshot(), {
    busy: 1,
    waiting: 0,
    waitingBytes: 0,
    accounts: [{ account: 'a', waiting: 0, running: 1 }],
  });
  const lease = await seated(ticket.outcome);
  t.equal(lease.seats(), 1);
  t.equal(lease.waitedMs, 0);
  lease.release('done');
  lease.release('failed');
  t.equal(lease.seats(), 0);
  t.match(queue.snapshot(), { busy: 0, accounts: [], released: { done: 1 } });
  t.notOk('failed' in queue.snapshot().released);
});

t.test('an account’s seats are granted in the order of entering, past those that are not ready', async (t) => {
  const { clock, queue } = setup();
  const first = await seated(enterReady(queue).outcome);
  const [b, c, d, e] = [enter(queue), enter(queue), enter(queue), enter(queue)];
  const order = record({ b, c, d, e });
  d.ready(WORK);
  c.ready(WORK);
  e.ready(WORK);
  clock.advance(250);
  first.release('done');
  const second = await seated(c.outcome);
  t.equal(second.waitedMs, 250);
  b.ready(WORK);
  second.release('done');
  (await seated(b.outcome)).release('done');
  (await seated(d.outcome)).release('done');
  (await seated(e.outcome)).release('done');
  t.same(order, ['c', 'b', 'd', 'e']);
});

t.test('without places to wait, requests that find a free seat are admitted', async (t) => {
  const { queue } = setup(2, { waitingPerSeat: 0 });
  const first = await seated(enterReady(queue).outcome);
  const second = enter(queue);
  t.match(tryEnter(queue), { kind: 'refused', reason: 'full' }, 'the last seat is taken');
  second.ready(WORK);
  t.match(tryEnter(queue), { kind: 'refused', reason: 'full' });
  first.release('done');
  await seated(enterReady(queue).outcome);
  queue.pause();
  t.match(tryEnter(queue), { kind: 'refused', reason: 'full' }, 'a lost engine has no free seats');
});

t.test('bytes: waiting bodies are bounded, running ones are not counted', async (t) => {
  const { queue } = setup(1);
  await seated(enterReady(queue, { bytes: 1000 }).outcome);
  const waiting = enter(queue, { bytes: 600 });
  t.match(tryEnter(queue, { bytes: 401 }), { reason: 'bytes' });
  enter(queue, { bytes: 400 });
  waiting.cancel();
  enter(queue, { bytes: 600 });
});

t.test('the longest wait is counted from entering and is 429; a deadline is 504', async (t) => {
  const { clock, queue } = setup();
  await seated(enterReady(queue).outcome);
  const slow = enter(queue);
  const dated = enter(queue, { deadlineAt: clock.now() + 3000 });
  const both = enterReady(queue, { deadlineAt: clock.now() + 4000 });
  clock.advance(2000);
  const late = enterReady(queue, { deadlineAt: clock.now() + 60_000 });
  clock.advance(3000);
  slow.ready(WORK);
  t.match(await dated.outcome, { reason: 'deadline' });
  t.match(await both.outcome, { reason: 'deadline' });
  clock.advance(4999);
  t.equal(queue.snapshot().waiting, 2);
  clock.advance(1);
  t.match(await slow.outcome, { reason: 'wait' });
  clock.advance(2000);
  t.match(await late.outcome, { reason: 'wait' });
  t.equal(clock.pending, 0);
  t.match(tryEnter(queue, { deadlineAt: clock.now() }), { reason: 'deadline' });
  t.same(queue.snapshot().refused, { deadline: 3, wait: 2 });
});

t.test('without any wait a request gets a free seat after its checks, and is refused where none is free', async (t) => {
  const { clock, queue } = setup(2, { maxWaitMs: 0 });
  const checked = enter(queue);
  clock.advance(250);
  checked.ready(WORK);
  await seated(checked.outcome);

  const overtaken = enter(queue);
  clock.advance(10);
  const lease = await seated(enterReady(queue).outcome);
  overtaken.ready(WORK);
  clock.advance(100);
  t.match(await overtaken.outcome, { reason: 'wait' }, 'another one took the seat meanwhile');
  const busy = enter(queue);
  clock.advance(0);
  t.match(await busy.outcome, { reason: 'wait' }, 'during its checks, since no seat is free');

  lease.release('done');
  const slow = enter(queue);
  clock.advance(4900);
  t.equal(queue.snapshot().waiting, 1);
  clock.advance(100);
  t.match(await slow.outcome, { reason: 'wait' }, 'its checks took too long');
  const dated = enter(queue, { deadlineAt: clock.now() + 150 });
  clock.advance(150);
  t.match(await dated.outcome, { reason: 'deadline' }, 'a deadline applies in any case');
  t.equal(clock.pending, 0);
});

t.test('a wait that checks extend is looked at ten times a second, and no more often', async (t) => {
  const { clock, queue } = setup(2, { maxWaitMs: 1000 });
  const slow = enter(queue);
  let looks = 0;
  while (queue.snapshot().waiting > 0 && looks < 1000 && clock.step(60_000)) looks += 1;
  t.match(await slow.outcome, { reason: 'wait' });
  t.equal(clock.now(), 5000);
  t.equal(looks, 41);
});

t.test('seated and cancelled requests leave no timer', async (t) => {
  const { clock, queue } = setup();
  const lease = await seated(enterReady(queue, { deadlineAt: 5000 }).outcome);
  t.equal(clock.pending, 0);
  const gone = enterReady(queue);
  t.equal(clock.pending, 1);
  gone.cancel();
  t.equal(clock.pending, 0);
  clock.advance(60_000);
  t.equal(lease.seats(), 1, 'the deadline of a running request is not watched by the queue');
});

t.test('cancel: before ready, while waiting, after the end', async (t) => {
  const { queue } = setup();
  const unready = enter(queue);
  unready.cancel();
  unready.cancel();
  unready.ready(WORK);
  t.same(await unready.outcome, { kind: 'cancelled' });
  const lease = await seated(enterReady(queue).outcome);
  const waiting = enterReady(queue);
  waiting.cancel();
  t.same(await waiting.outcome, { kind: 'cancelled' });
  lease.release('done');
  t.match(queue.snapshot(), { busy: 0, waiting: 0, waitingBytes: 0, accounts: [] });
});

t.test('a cancel between grant and delivery takes the seat back for the next', async (t) => {
  const { queue } = setup();
  const [a, b] = [enterReady(queue), enterReady(queue)];
  t.equal(queue.snapshot().busy, 1);
  a.cancel();
  t.match(queue.snapshot(), { busy: 1, waiting: 0 });
  t.same(await a.outcome, { kind: 'cancelled' });
  await seated(b.outcome);
});

t.test('a cancel, then a lost engine between grant and delivery: the seat is taken back once', async (t) => {
  const { queue } = setup();
  const ticket = enterReady(queue);
  ticket.cancel();
  queue.pause();
  t.same(await ticket.outcome, { kind: 'cancelled' });
  t.match(queue.snapshot(), { busy: 0, waiting: 0, accounts: [] });
});

t.test('a cancel after delivery changes nothing: the lease belongs to its owner', async (t) => {
  const { queue } = setup();
  const ticket = enterReady(queue);
  const lease = await seated(ticket.outcome);
  ticket.cancel();
  t.equal(lease.seats(), 1);
  t.equal(queue.snapshot().busy, 1);
});

t.test('a paused queue grants no seat; places and timers stay; resume has its own number of seats', async (t) => {
  const { clock, queue } = setup();
  queue.pause();
  const [a, b, c] = [enterReady(queue), enterReady(queue), enterReady(queue)];
  t.match(queue.snapshot(), { busy: 0, waiting: 3, paused: true });
  clock.advance(1000);
  queue.resume(2);
  t.equal((await seated(a.outcome)).waitedMs, 1000);
  await seated(b.outcome);
  t.match(queue.snapshot(), { seats: 2, busy: 2, waiting: 1, paused: false });
  clock.advance(MAX_WAIT_MS - 1000);
  t.match(await c.outcome, { reason: 'wait' });
});

t.test('an engine lost between grant and delivery: the request continues to wait', async (t) => {
  const { clock, queue } = setup();
  const a = enterReady(queue);
  queue.pause();
  const late = enterReady(queue);
  await Promise.resolve();
  t.match(queue.snapshot(), { busy: 0, waiting: 2 });
  t.equal(clock.pending, 2);
  queue.resume(1);
  const lease = await seated(a.outcome);
  queue.pause();
  const again = lease.giveBack();
  queue.resume(1);
  (await seated(again)).release('done');
  await seated(late.outcome);
});

t.test('giveBack: to the head of the queue, in the old order, once', async (t) => {
  const { clock, queue } = setup(2);
  const unready = enter(queue);
  const [a, b] = [enterReady(queue), enterReady(queue)];
  const [la, lb] = [await seated(a.outcome), await seated(b.outcome)];
  const c = enterReady(queue);
  unready.ready(WORK);
  clock.advance(100);
  queue.pause();
  const backB = lb.giveBack();
  const backA = la.giveBack();
  t.equal(la.giveBack(), backA, 'twice is once');
  la.release('done');
  t.match(queue.snapshot(), { busy: 0, waiting: 4, released: { 'given-back': 2 } });
  clock.advance(200);
  queue.resume(1);
  const second = await seated(backA);
  t.equal(second.waitedMs, 200, 'running does not count as waiting');
  t.equal(queue.snapshot().waiting, 3);
  queue.pause();
  t.match(await second.giveBack(), { kind: 'refused', reason: 'engine-lost', retry: undefined });
  queue.resume(1);
  (await seated(backB)).release('done');
  (await seated(unready.outcome)).release('done');
  (await seated(c.outcome)).release('done');
  t.match(queue.snapshot(), { busy: 0, waiting: 0, waitingBytes: 0, accounts: [] });
});

t.test('giveBack keeps the time already waited and the deadline', async (t) => {
  const { clock, queue } = setup();
  const first = await seated(enterReady(queue).outcome);
  const slow = enterReady(queue);
  clock.advance(6000);
  first.release('failed');
  const lease = await seated(slow.outcome);
  const dated = enterReady(queue, { deadlineAt: 9000 });
  clock.advance(1000);
  queue.pause();
  const back = lease.giveBack();
  clock.advance(2000);
  t.match(await dated.outcome, { reason: 'deadline' });
  clock.advance(1999);
  t.equal(queue.snapshot().waiting, 1);
  clock.advance(1);
  t.match(await back, { reason: 'wait', retry: 'predicted' });

  queue.resume(1);
  const expired = await seated(enterReady(queue, { deadlineAt: clock.now() + 10 }).outcome);
  clock.advance(10);
  t.match(await expired.giveBack(), { reason: 'deadline' });
  t.equal(clock.pending, 0);
});

t.test('the waits before and after are added', async (t) => {
  const { clock, queue } = setup();
  const first = await seated(enterReady(queue).outcome);
  const ticket = enterReady(queue);
  clock.advance(100);
  first.release('done');
  const lease = await seated(ticket.outcome);
  clock.advance(50);
  queue.pause();
  const back = lease.giveBack();
  clock.advance(30);
  queue.resume(1);
  t.equal((await seated(back)).waitedMs, 130);
});

t.test('the caller of a request that was given back can still disconnect', async (t) => {
  const { queue } = setup();
  const ticket = enterReady(queue);
  const lease = await seated(ticket.outcome);
  queue.pause();
  const back = lease.giveBack();
  ticket.cancel();
  t.same(await back, { kind: 'cancelled' });
  t.match(queue.snapshot(), { busy: 0, waiting: 0 });
});

t.test('giveBack of a lease that has ended', async (t) => {
  const { queue } = setup();
  const lease = await seated(enterReady(queue).outcome);
  lease.release('failed');
  t.same(await lease.giveBack(), { kind: 'cancelled' });
  t.equal(queue.snapshot().busy, 0);
});

t.test('a lease grows while seats are free for which no request waits, and shrinks to one', async (t) => {
  const { queue } = setup(3);
  const lease = await seated(enterReady(queue, { seatsWanted: 3 }).outcome);
  t.equal(lease.takeSeat(), true);
  t.match(queue.snapshot(), { busy: 2, accounts: [{ running: 2 }] });
  queue.pause();
  t.equal(lease.takeSeat(), false, 'no engine');
  const waiting = enterReady(queue, { account: 'b' });
  queue.resume(2);
  t.equal(lease.takeSeat(), false, 'someone waits');
  lease.freeSeat();
  t.equal(lease.seats(), 1);
  const other = await seated(waiting.outcome);
  other.release('done');
  queue.resume(4);
  t.same([lease.takeSeat(), lease.takeSeat(), lease.takeSeat()], [true, true, false], 'never more than it wants');
  t.equal(lease.seats(), 3);
  lease.freeSeat();
  lease.freeSeat();
  lease.freeSeat();
  t.equal(lease.seats(), 1, 'the last one goes with release');
  lease.takeSeat();
  lease.release('done');
  lease.freeSeat();
  t.equal(lease.takeSeat(), false);
  t.match(queue.snapshot(), { busy: 0, accounts: [], released: { done: 2 } });
});

t.test(
  'a lease of several seats is recalled for one when others wait, and for the next once that is free',
  async (t) => {
    const { queue } = setup(4);
    const lease = await seated(enterReady(queue, { seatsWanted: 4 }).outcome);
    while (lease.takeSeat());
    let asked = 0;
    lease.whenWanted(() => (asked += 1));
    const unready = enter(queue, { account: 'b' });
    t.equal(asked, 0, 'no request could use it yet');
    unready.ready(WORK);
    t.equal(asked, 1);
    const third = enterReady(queue, { account: 'c' });
    t.equal(asked, 1, 'one is recalled already');
    lease.freeSeat();
    await seated(unready.outcome);
    t.equal(asked, 2, 'a request still waits');
    lease.freeSeat();
    const last = await seated(third.outcome);
    t.equal(asked, 2, 'no request waits');
    const fourth = enterReady(queue, { account: 'd' });
    t.equal(asked, 3);
    lease.freeSeat();
    await seated(fourth.outcome);
    enterReady(queue, { account: 'e' });
    t.equal(asked, 3, 'its last one is never recalled');
    last.release('done');
  },
);

t.test('a lease that has ended or has one seat is not recalled', async (t) => {
  const { queue } = setup(2);
  const one = await seated(enterReady(queue, { seatsWanted: 2 }).outcome);
  const never = (): void => void t.fail('asked');
  one.whenWanted(never);
  one.takeSeat();
  one.whenWanted(never);
  one.release('done');
  const [a, b] = [await seated(enterReady(queue).outcome), await seated(enterReady(queue).outcome)];
  const waits = enterReady(queue, { account: 'b' });
  t.equal(queue.snapshot().waiting, 1);
  a.release('done');
  b.release('done');
  (await seated(waits.outcome)).release('done');
});

t.test('fewer seats after a restart: none is granted until they are free', async (t) => {
  const { queue } = setup(2);
  const leases = [await seated(enterReady(queue).outcome), await seated(enterReady(queue).outcome)];
  queue.pause();
  queue.resume(1);
  const waiting = enterReady(queue);
  leases[0]!.release('engine-lost');
  t.match(queue.snapshot(), { seats: 1, busy: 1, waiting: 1 });
  leases[1]!.release('engine-lost');
  await seated(waiting.outcome);
});

t.test('drain refuses all requests that wait, arrive or return; leases continue', async (t) => {
  const { clock, queue } = setup();
  const lease = await seated(enterReady(queue).outcome);
  const [unready, ready] = [enter(queue), enterReady(queue)];
  queue.drain();
  queue.drain();
  const refusal = { kind: 'refused', reason: 'drain', retryAfterMs: 1000 };
  t.same(await unready.outcome, refusal);
  t.same(await ready.outcome, refusal);
  t.same(tryEnter(queue), refusal);
  t.match(queue.snapshot(), { busy: 1, waiting: 0, waitingBytes: 0, refused: { drain: 3 } });
  t.equal(clock.pending, 0);
  queue.pause();
  t.same(await lease.giveBack(), refusal);
  t.match(queue.snapshot(), { busy: 0, waiting: 0 });
});

t.test('without a replica that is or becomes ready those that wait or return are refused', async (t) => {
  let isServed = true;
  const { queue } = setup(1, {}, () => isServed);
  const lease = await seated(enterReady(queue).outcome);
  const waiting = enterReady(queue);
  isServed = false;
  queue.pause();
  queue.refuseUnserved();
  const refusal = { kind: 'refused', reason: 'no-engine', retryAfterMs: 1000 };
  t.match(await waiting.outcome, refusal);
  t.match(await lease.giveBack(), refusal);
  t.match(queue.snapshot(), { busy: 0, waiting: 0 });
});

t.test('drain and a lost engine between grant and delivery', async (t) => {
  const { queue } = setup();
  const ticket = enterReady(queue);
  queue.pause();
  queue.drain();
  t.match(await ticket.outcome, { reason: 'drain' });
  t.match(queue.snapshot(), { busy: 0, waiting: 0 });
});

/** What a lease does at the end of a part of its work. */
async function turn(lease: Lease, after?: Promise<void>): Promise<Lease> {
  return await seated(lease.nextTurn(after));
}

t.test('work in parts takes turns with other accounts, and holds no seat for longer than a part', async (t) => {
  const { clock, queue } = setup(1);
  const order: string[] = [];
  const parts = async (account: string, weight: number, count: number, ms: number): Promise<void> => {
    let lease = await seated(enterReady(queue, { account, weight }).outcome);
    for (let part = 0; part < count; part += 1) {
      order.push(account);
      clock.advance(ms);
      if (part === count - 1) lease.release('done');
      else lease = await turn(lease);
    }
  };
  const both = Promise.all([parts('heavy', 4, 8, 10), parts('light', 1, 2, 10)]);
  await both;
  t.equal(order.slice(0, 6).filter((account) => account === 'light').length, 2, `by weight: ${order.join(' ')}`);
  t.match(queue.snapshot(), { busy: 0, waiting: 0, released: { done: 10 } });
});

t.test('a list does not delay other requests of its account for longer than a part', async (t) => {
  for (const deadlineAt of [undefined, 1e6]) {
    const { clock, queue } = setup(2);
    const deadline = (ms: number): object => (deadlineAt === undefined ? {} : { deadlineAt: deadlineAt + ms });
    const lists = [
      await seated(enterReady(queue, deadline(0)).outcome),
      await seated(enterReady(queue, deadline(0)).outcome),
    ];
    clock.advance(1);
    const single = enterReady(queue, deadline(1));
    clock.advance(1);
    const next = lists[0]?.nextTurn();
    const lease = await seated(single.outcome);
    clock.advance(1);
    lease.release('done');
    t.ok(next && (await seated(next)), 'the list goes on');
  }
});

t.test(
  'a request between two parts is not refused for its wait, dropped or drained, and may be cancelled',
  async (t) => {
    const { clock, queue } = setup(1, { waitingPerSeat: 1 });
    const list = enterReady(queue, { account: 'list' });
    const first = await seated(list.outcome);
    const other = enterReady(queue, { account: 'other' });
    const next = first.nextTurn();
    t.equal(first.seats(), 0);
    const held = await seated(other.outcome);
    t.match(queue.snapshot(), { busy: 1, waiting: 1 });
    clock.advance(10 * MAX_WAIT_MS);
    queue.drain();
    held.release('done');
    const second = await seated(next);
    t.equal(second.waitedMs, 10 * MAX_WAIT_MS);
    second.release('done');

    const { queue: again } = setup(1);
    const gone = enterReady(again, { account: 'gone' });
    const lease = await seated(gone.outcome);
    const never = lease.nextTurn(new Promise(() => undefined));
    t.match(again.snapshot(), { busy: 0, waiting: 0 }, 'it waits for its reader, without a seat');
    gone.cancel('disconnected');
    t.match(await never, { kind: 'cancelled' });
    t.match(await lease.nextTurn(), { kind: 'cancelled' }, 'a lease that has ended');
  },
);

t.test('a part waits until its reader has read, and its deadline ends it', async (t) => {
  const { clock, queue } = setup(1);
  let read = (): void => undefined;
  const ticket = enterReady(queue, { deadlineAt: 500 });
  const lease = await seated(ticket.outcome);
  const next = lease.nextTurn(new Promise<void>((resolve) => (read = resolve)));
  const other = await seated(enterReady(queue, { account: 'b' }).outcome);
  read();
  await new Promise(setImmediate);
  t.match(queue.snapshot(), { busy: 1, waiting: 1 });
  clock.advance(500);
  t.match(await next, { kind: 'refused', reason: 'deadline' });
  other.release('done');
  t.match(queue.snapshot(), { busy: 0, waiting: 0 });
});

t.test('without an engine a request between two parts is refused', async (t) => {
  const served = { is: true };
  const { queue } = setup(1, {}, () => served.is);
  const lease = await seated(enterReady(queue).outcome);
  const other = await seated(enterReady(setup(1).queue).outcome);
  other.release('done');
  const next = lease.nextTurn();
  const second = await seated(next);
  const third = second.nextTurn(new Promise(() => undefined));
  served.is = false;
  queue.pause();
  queue.refuseUnserved();
  t.match(await third, { kind: 'refused', reason: 'no-engine' });
});
