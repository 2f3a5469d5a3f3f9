/** One queue over the seats of several replicas. */
import t from 'tap';
import type { SeatQueue } from '../../../sidecar/admission/queue.js';
import type { ReusableTokens } from '../../../sidecar/admission/choose.js';
import type { ReplicaSize } from '../../../sidecar/admission/seats.js';
import type { Lease, QueueRequest, Ticket, SeatNeeds } from '../../../sidecar/admission/types.js';
import { leaseOf, QueueDesk, ticketOf } from '../../support/queue-desk.js';

const NEEDS: SeatNeeds = { promptTokens: 1000, seatTokens: 1001 };
const LONG: SeatNeeds = { ...NEEDS, seatTokens: 6000 };

const equal = (seats: number): ReplicaSize => ({ seats, contextPerSeat: 2048 });
const long = (seats: number): ReplicaSize => ({ seats, contextPerSeat: 8192 });

const setup = (seats: readonly ReplicaSize[], reusableTokens?: ReusableTokens): QueueDesk =>
  new QueueDesk(seats, { waitingBytes: 100_000 }, reusableTokens && { reusableTokens });

function enter(queue: SeatQueue, needs: SeatNeeds = NEEDS, request: Partial<QueueRequest> = {}): Ticket {
  return ticketOf(queue.enter({ account: 'a', weight: 1, bytes: 10, seatsWanted: 1, ...request }), needs);
}

const seated = ({ outcome }: Pick<Ticket, 'outcome'>): Promise<Lease> => outcome.then(leaseOf);

t.test('while the long seats are away, requests for them do not take the places of short ones', async (t) => {
  const { clock, queue } = setup([equal(4), long(4)]);
  for (const needs of [NEEDS, LONG]) {
    const leases = await Promise.all([1, 2, 3, 4].map(() => seated(enter(queue, needs))));
    clock.advance(60_000);
    for (const lease of leases) lease.release('done');
  }
  queue.pause(1);
  const refused: string[] = [];
  for (let i = 0; i < 100; i += 1) {
    const entered = queue.enter({ account: 'a', weight: 1, bytes: 10, seatsWanted: 1 });
    if ('kind' in entered) continue;
    entered.ready(LONG);
    void entered.outcome.then((settled) => settled.kind === 'refused' && refused.push(settled.reason));
  }
  await new Promise(setImmediate);
  t.ok(queue.snapshot().waiting < 20, `${queue.snapshot().waiting} wait`);
  t.ok(refused.length > 50 && refused.every((reason) => reason === 'predicted'), refused.join(' '));
  t.equal((await seated(enter(queue))).replica, 0);
});

t.test('requests are spread over the replicas, and each lease names its replica', async (t) => {
  const { queue } = setup([equal(2), equal(2)]);
  const leases = await Promise.all([1, 2, 3, 4].map(() => seated(enter(queue))));
  t.strictSame(
    leases.map(({ replica }) => replica),
    [0, 1, 0, 1],
  );
  t.match(queue.report(1), {
    seats: 4,
    busy: 4,
    replicas: [
      { seats: 2, busy: 2, up: true },
      { seats: 2, busy: 2 },
    ],
  });
  enter(queue);
  t.match(queue.snapshot(), { busy: 4, waiting: 1 });
});

t.test('a conversation returns to the replica that has its past turns', async (t) => {
  const { queue } = setup([equal(4), equal(4)], (prefix, replica) => (prefix[0] === replica ? 960 : 0));
  for (const home of [1, 1, 0, 1]) {
    const lease = await seated(enter(queue, { ...NEEDS, prefix: Uint32Array.of(home) }));
    t.equal(lease.replica, home);
  }
});

t.test('a slower replica gets a request again after 100 of the others with seats as long', async (t) => {
  const { queue } = setup([equal(4), equal(4), long(4)]);
  const [slow, fast] = [await seated(enter(queue)), await seated(enter(queue))];
  for (let i = 0; i < 100; i += 1) {
    slow.observeTokenMs(30);
    fast.observeTokenMs(10);
  }
  slow.release('done');
  fast.release('done');
  const replicas: number[] = [];
  for (let i = 0; i < 102; i += 1) {
    for (const needs of [NEEDS, LONG]) {
      const lease = await seated(enter(queue, needs));
      if (needs === NEEDS) replicas.push(lease.replica);
      lease.release('done');
    }
  }
  // One of them was seated on the fast one before.
  t.strictSame([replicas.indexOf(0), replicas.lastIndexOf(0)], [99, 99]);
  const [first, second] = queue.report(1).replicas.map(({ tokenTimeRatio }) => tokenTimeRatio ?? NaN);
  t.ok((first ?? NaN) > 2 * (second ?? NaN));
});

t.test('a job of several seats grows on its own replica only', async (t) => {
  const { queue } = setup([equal(2), equal(3)]);
  const lease = await seated(enter(queue, NEEDS, { seatsWanted: 4 }));
  t.equal(lease.replica, 1, 'the one with the most free seats');
  t.strictSame([lease.takeSeat(), lease.takeSeat(), lease.takeSeat()], [true, true, false]);
  t.equal(queue.snapshot().busy, 3);
  lease.release('done');
  t.equal(queue.snapshot().busy, 0);
});

t.test('a lost replica removes its seats, and no request waits that another can serve', async (t) => {
  const { queue } = setup([equal(2), equal(2)]);
  const [first, second] = await Promise.all([seated(enter(queue)), seated(enter(queue))]);
  queue.pause(0);
  t.match(queue.snapshot(), { seats: 2, busy: 2, paused: false });
  const again = first.giveBack();
  const lease = await seated({ outcome: again });
  t.equal(lease.replica, 1, 'it runs elsewhere at once');
  t.match(queue.snapshot(), { busy: 2, waiting: 0, released: { 'given-back': 1 } });
  t.equal(second.replica, 1);
  const waiting = enter(queue);
  t.match(queue.snapshot(), { waiting: 1 }, 'no seat of the lost one is granted');
  queue.resume(2, 0);
  t.equal((await seated(waiting)).replica, 0, 'until it is back');
  t.match(queue.snapshot(), { seats: 4, busy: 3 });
});

t.test('a request is lost at most as often as there are replicas, then it is refused', async (t) => {
  const { queue } = setup([equal(1), equal(1)]);
  const ticket = enter(queue);
  let lease = await seated(ticket);
  lease = await seated({ outcome: lease.giveBack() });
  lease = await seated({ outcome: lease.giveBack() });
  t.match(await lease.giveBack(), { kind: 'refused', reason: 'engine-lost' });
});

t.test('a seat that was granted just before its replica was lost is taken back', async (t) => {
  const { queue } = setup([equal(1), equal(1)]);
  const ticket = enter(queue);
  queue.pause(0);
  t.equal((await seated(ticket)).replica, 1);
  t.match(queue.report(1), { busy: 1, replicas: [{ busy: 0, up: false }, { busy: 1 }] });
});

t.test('the queue pauses only if no replica is left', async (t) => {
  const { queue } = setup([equal(1), equal(3)]);
  queue.pause(1);
  t.match(queue.snapshot(), { paused: false, seats: 1 });
  queue.pause(0);
  t.match(
    queue.snapshot(),
    { paused: true, seats: 4 },
    'requests that arrive meanwhile are judged by all replicas’ seats',
  );
  const ticket = enter(queue);
  t.match(queue.snapshot(), { busy: 0, waiting: 1 });
  queue.resume(1, 0);
  await seated(ticket);
  t.match(queue.snapshot(), { paused: false, seats: 1, busy: 1 });
});

t.test('Retry-After follows the available seats', async (t) => {
  const { clock, queue } = setup([equal(2), equal(2)]);
  const leases = await Promise.all([1, 2, 3, 4].map(() => seated(enter(queue))));
  clock.advance(1000);
  leases.forEach((lease) => lease.release('done'));
  await Promise.all([1, 2, 3, 4].map(() => seated(enter(queue))));
  enter(queue, NEEDS, { account: 'b' });
  enter(queue, NEEDS, { account: 'b' });
  const predicted = (): number => queue.report(9).accounts.find(({ account }) => account === 'b')?.predictedWaitMs ?? 0;
  const both = predicted();
  queue.pause(1);
  t.ok(both > 0);
  t.ok(predicted() > 1.5 * both, `${predicted()} ms with one replica, ${both} ms with two`);
  queue.resume(2, 1);
  t.equal(predicted(), both);
});

t.test('a long request does not wait behind short ones while a long seat is free', async (t) => {
  const { queue } = setup([equal(2), long(1)]);
  const short = await Promise.all([1, 2].map(() => seated(enter(queue))));
  t.strictSame(
    short.map(({ replica }) => replica),
    [0, 0],
    'short ones leave the long seat free',
  );
  const lease = await seated(enter(queue, LONG));
  t.equal(lease.replica, 1);
});

t.test('a long request at the head blocks no short one, of whatever account', async (t) => {
  const { queue } = setup([equal(1), long(1)]);
  const first = await seated(enter(queue));
  const occupant = await seated(enter(queue, LONG));
  const waits = enter(queue, LONG);
  const own = enter(queue);
  const other = enter(queue, NEEDS, { account: 'b' });
  first.release('done');
  const lease = await seated(other);
  t.equal(lease.replica, 0, 'the account with less seat time goes first');
  lease.release('done');
  t.equal((await seated(own)).replica, 0);
  t.match(queue.snapshot(), { waiting: 1 });
  occupant.release('done');
  t.equal((await seated(waits)).replica, 1);
});

t.test('a freed long seat goes to an account’s long request, not to its short ones', async (t) => {
  const { queue } = setup([equal(1), long(1)]);
  await seated(enter(queue));
  const occupant = await seated(enter(queue));
  t.equal(occupant.replica, 1, 'a short one takes it while no long one waits');
  const short = enter(queue);
  const longOne = enter(queue, LONG);
  occupant.release('done');
  t.equal((await seated(longOne)).replica, 1);
  t.match(queue.snapshot(), { waiting: 1 });
  short.cancel();
});

t.test('a long request that was given back does not block those behind it', async (t) => {
  const { queue } = setup([equal(1), long(1)]);
  const lease = await seated(enter(queue, LONG));
  queue.pause(1);
  const again = lease.giveBack();
  t.equal((await seated(enter(queue))).replica, 0);
  queue.resume(1, 1);
  t.equal((await seated({ outcome: again })).replica, 1);
});

t.test('a request is judged again once it is known that only longer seats than the free ones will do', async (t) => {
  const { clock, queue } = setup([equal(2), long(1)]);
  const first = await seated(enter(queue, LONG));
  clock.advance(6000);
  first.release('done');
  const running = await seated(enter(queue, LONG));
  const waiting = enter(queue, LONG);
  // Of the same account and service class, and a short seat is free for it.
  await seated(enter(queue));
  const late = queue.enter({ account: 'a', weight: 1, bytes: 10, seatsWanted: 1 });
  if ('kind' in late) throw new Error('short seats are free, and its length is not known yet');
  clock.advance(500);
  late.ready(LONG);
  t.match(await late.outcome, { kind: 'refused', reason: 'predicted' }, 'two others of 6 s each go before it');
  t.match(queue.snapshot(), { waiting: 1, waitingBytes: 10, refused: { predicted: 1 } });
  waiting.cancel();
  const patient = enter(queue, LONG);
  clock.advance(1000);
  running.release('done');
  t.equal((await seated(patient)).replica, 1, 'the only other one is admitted again');
});

t.test('the longest wait of a request that is judged again is counted from entering', async (t) => {
  const { clock, queue } = setup([equal(2), long(1)]);
  await seated(enter(queue, LONG));
  const ticket = queue.enter({ account: 'a', weight: 1, bytes: 10, seatsWanted: 1 });
  if ('kind' in ticket) throw new Error(ticket.reason);
  clock.advance(4000);
  ticket.ready(LONG);
  clock.advance(5999);
  t.match(queue.snapshot(), { waiting: 1 });
  clock.advance(2);
  t.match(await ticket.outcome, { kind: 'refused', reason: 'wait' });
});
