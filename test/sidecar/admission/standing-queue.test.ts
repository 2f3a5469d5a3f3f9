import t from 'tap';
import { StandingQueue } from '../../../sidecar/admission/standing-queue.js';

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
