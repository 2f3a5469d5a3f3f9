import t from 'tap';
import { ReplicaSeats } from '../../../sidecar/admission/seats.js';
import { Standing, roomFor, Hedges } from '../../../sidecar/admission/overload.js';
import { QueuedRequest } from '../../../sidecar/admission/request.js';

const HOLD_MS = 1000;

/** One engine, of whose seats this share is free. */
const freeShare = (share: number): Pick<ReplicaSeats, 'freeShareFor'> => ({ freeShareFor: () => share });

t.test('overload stands once no seat was free for four times a request’s time', async (t) => {
  const standing = new Standing([Infinity]);
  standing.advance(3900, freeShare(0), HOLD_MS);
  t.notOk(standing.forAny);
  standing.advance(100, freeShare(0), HOLD_MS);
  t.match(standing, { forAny: true, fullMs: 4000, periods: 1 });
});

t.test('a free seat ends it soon: after a fiftieth of a request’s time with all seats free', async (t) => {
  const standing = new Standing([Infinity]);
  standing.advance(60_000, freeShare(0), HOLD_MS);
  t.ok(standing.forAny);
  standing.advance(150, freeShare(0.5), HOLD_MS);
  t.ok(standing.forAny, 'a short while does not');
  standing.advance(200, freeShare(0.5), HOLD_MS);
  t.match(standing, { forAny: false, fullMs: 60_000 });
});

t.test('no time passes backwards', async (t) => {
  const standing = new Standing([Infinity]);
  standing.advance(-5, freeShare(0), HOLD_MS);
  t.equal(standing.fullMs, 0);
});

t.test('it stands for long requests alone while only short seats are free', async (t) => {
  const replicas = new ReplicaSeats([
    { seats: 2, contextPerSeat: 2048 },
    { seats: 1, contextPerSeat: 8192 },
  ]);
  const standing = new Standing(replicas.lengths);
  replicas.count(1, 'busy', 1);
  standing.advance(4000, replicas, HOLD_MS);
  const stands = (): readonly boolean[] => [0, 2048, 2049, 8192, 9000].map((tokens) => standing.isFor(tokens));
  t.strictSame(stands(), [false, false, true, true, true]);
  t.match(standing, { forAny: true, periods: 1, fullMs: 4000 });
  replicas.pause(1);
  standing.advance(60_000, replicas, HOLD_MS);
  t.strictSame(stands(), [false, false, true, true, true], 'no time without the engine of the long seats counts');
  replicas.resume(1, 1);
  replicas.count(0, 'busy', 2);
  standing.advance(4000, replicas, HOLD_MS);
  t.strictSame(stands(), [true, true, true, true, true]);
  replicas.count(1, 'busy', -1);
  standing.advance(500, replicas, HOLD_MS);
  t.match(standing, { forAny: false, fullMs: 8000 });
  replicas.pause(1);
  standing.advance(500, replicas, HOLD_MS);
  t.equal(standing.fullMs, 8500, 'patience is learned on the short seats while the long ones are away');
});

/** How often an M/M/1 queue with room for `most` is empty. */
function empty(load: number, most: number): number {
  return (load - 1) / (load ** (most + 1) - 1);
}

t.test('room: the least that is empty for at most the given share of time', async (t) => {
  for (const load of [1.1, 1.25, 2, 4, 10]) {
    for (const part of [0.01, 0.0005]) {
      const room = roomFor(load, part);
      t.ok(empty(load, room) <= part * (1 + 1e-9), `${load}, ${part}: ${room} is enough`);
      t.ok(room === 1 || empty(load, room - 1) > part, `${load}, ${part}: ${room - 1} is not`);
    }
  }
  t.equal(roomFor(0.5), roomFor(1), 'an account below its share has the most room');
});

function request(bodyDigest: string | undefined, enteredAt = 0, account = 'a'): QueuedRequest {
  const body = bodyDigest === undefined ? {} : { bodyDigest };
  const queued = new QueuedRequest({ account, weight: 4, bytes: 1, seatsWanted: 1, ...body }, 1);
  queued.enteredAt = enteredAt;
  return queued;
}

t.test('a caller that disconnects because a copy was answered shows no patience', async (t) => {
  const hedges = new Hedges();
  const [first, copy] = [request('x'), request('x', 10)];
  hedges.entered(first);
  hedges.entered(copy);
  t.notOk(hedges.mayEnd(copy, 400), 'no copy was answered yet');
  hedges.answered(first, 500);
  hedges.over(first);
  t.ok(hedges.mayEnd(copy, 600));
  t.notOk(hedges.mayEnd(copy, 5000), 'long after that it disconnects for itself');
});

t.test('only copies count: same account, same body, in flight', async (t) => {
  const hedges = new Hedges();
  const [first, otherBody, otherAccount, later, unknown] = [
    request('x'),
    request('y'),
    request('x', 0, 'b'),
    request('x', 700),
    request(undefined),
  ];
  for (const each of [first, otherBody, otherAccount, unknown]) hedges.entered(each);
  hedges.answered(first, 500);
  hedges.entered(later);
  t.notOk(hedges.mayEnd(otherBody, 600));
  t.notOk(hedges.mayEnd(otherAccount, 600));
  t.notOk(hedges.mayEnd(unknown, 600));
  t.notOk(hedges.mayEnd(later, 800), 'it came after that answer');
});

t.test('many equal requests are a load, not a hedge', async (t) => {
  const hedges = new Hedges();
  const all = Array.from({ length: 4 }, () => request('x'));
  for (const each of all) hedges.entered(each);
  hedges.answered(all[0] ?? request('x'), 500);
  t.notOk(hedges.mayEnd(all[1] ?? request('x'), 600));
});
