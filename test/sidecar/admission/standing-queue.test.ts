import t from 'tap';
import { ReplicaSeats } from '../../../sidecar/admission/replica-seats.js';
import { StandingQueue, StandingQueues } from '../../../sidecar/admission/standing-queue.js';

const HOLD_MS = 1000;

t.test('overload stands once no seat was free for four times a request’s time', async (t) => {
  const queue = new StandingQueue();
  queue.passed(3900, 0, HOLD_MS);
  t.notOk(queue.stands);
  queue.passed(100, 0, HOLD_MS);
  t.ok(queue.stands);
  t.equal(queue.fullMs, 4000);
});

t.test('a free seat ends it soon: after a fiftieth of a request’s time with all seats free', async (t) => {
  const queue = new StandingQueue();
  queue.passed(60_000, 0, HOLD_MS);
  t.ok(queue.stands);
  queue.passed(150, 0.5, HOLD_MS);
  t.ok(queue.stands, 'a short while does not');
  queue.passed(200, 0.5, HOLD_MS);
  t.notOk(queue.stands);
  t.equal(queue.fullMs, 60_000);
});

t.test('no time passes backwards', async (t) => {
  const queue = new StandingQueue();
  queue.passed(-5, 0, HOLD_MS);
  t.equal(queue.fullMs, 0);
});

t.test('it stands for long requests alone while only short seats are free', async (t) => {
  const replicas = new ReplicaSeats([
    { seats: 2, contextPerSeat: 2048 },
    { seats: 1, contextPerSeat: 8192 },
  ]);
  const queues = new StandingQueues(replicas.lengths);
  replicas.hold(1, 1);
  queues.passed(4000, replicas, HOLD_MS);
  const stands = (): readonly boolean[] => [0, 2048, 2049, 8192, 9000].map((tokens) => queues.standsFor(tokens));
  t.strictSame(stands(), [false, false, true, true, true]);
  t.match(queues, { stand: true, periods: 1, fullMs: 4000 });
  replicas.pause(1);
  queues.passed(60_000, replicas, HOLD_MS);
  t.strictSame(stands(), [false, false, true, true, true], 'no time without the engine of the long seats counts');
  replicas.resume(1, 1);
  replicas.hold(0, 2);
  queues.passed(4000, replicas, HOLD_MS);
  t.strictSame(stands(), [true, true, true, true, true]);
  replicas.hold(1, -1);
  queues.passed(500, replicas, HOLD_MS);
  t.match(queues, { stand: false, fullMs: 8000 });
  replicas.pause(1);
  queues.passed(500, replicas, HOLD_MS);
  t.equal(queues.fullMs, 8500, 'patience is learned on the short seats while the long ones are away');
});
