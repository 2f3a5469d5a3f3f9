import t from 'tap';
import { createFairQueue } from '../../../sidecar/admission/fair-queue.js';
import type { Lease, Ticket } from '../../../sidecar/admission/seat-queue.js';
import { ServiceRate } from '../../../sidecar/admission/service-rate.js';
import { FakeClock } from '../../support/fake-clock.js';

t.test('nothing is known before two consecutive grants to an account that waits', async (t) => {
  const serviceRate = new ServiceRate();
  t.equal(serviceRate.waitMs(5), 0);
  serviceRate.seated(1000, 1e6, true);
  t.equal(serviceRate.waitMs(5), 0);
  serviceRate.seated(1200, 1e6, false);
  t.equal(serviceRate.waitMs(5), 6 * 200);
  t.equal(serviceRate.waitMs(0), 0, 'a request without others of its account before it is not predicted by the rate');
});

t.test('a pause in waiting is no gap', async (t) => {
  const serviceRate = new ServiceRate();
  serviceRate.seated(0, 1e6, true);
  serviceRate.seated(100, 1e6, false);
  serviceRate.seated(50_000, 1e6, true);
  serviceRate.seated(50_100, 1e6, true);
  serviceRate.rest();
  serviceRate.seated(90_000, 1e6, true);
  t.equal(serviceRate.waitMs(1), 200);
});

t.test('it follows a changed rate', async (t) => {
  const serviceRate = new ServiceRate();
  let now = 0;
  for (let i = 0; i < 100; i += 1) serviceRate.seated((now += 100), 1e6, true);
  for (let i = 0; i < 100; i += 1) serviceRate.seated((now += 300), 1e6, true);
  t.ok(serviceRate.waitMs(9) > 2950 && serviceRate.waitMs(9) <= 3000);
});

t.test('an old gap is forgotten by an account with one waiting request at a time', async (t) => {
  const serviceRate = new ServiceRate();
  serviceRate.seated(0, 0, true);
  serviceRate.seated(5000, 5000, false);
  t.equal(serviceRate.waitMs(1), 10_000);
  for (let i = 1; i <= 100; i += 1) serviceRate.seated(5000 + 300 * i, 100, false);
  t.ok(serviceRate.waitMs(1) < 300, `${serviceRate.waitMs(1)} ms`);
});

/** A queue of one seat, each request of `a` holding it for 100 ms. */
function oneSeat() {
  const clock = new FakeClock();
  const config = { maxWaitMs: 600_000, waitingPerSeat: 100, waitingBytes: 1e6 };
  const queue = createFairQueue({ clock, random: () => 0.5, config, seats: 1 });
  const leases: Lease[] = [];
  const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  return {
    clock,
    queue,
    leases,
    settled,
    enter: (): Ticket => {
      const ticket = queue.enter({ account: 'a', weight: 1, bytes: 1, seatsWanted: 1 });
      if ('kind' in ticket) throw new Error('refused');
      void ticket.outcome.then((outcome) => outcome.kind === 'seated' && leases.push(outcome.lease));
      ticket.ready({ promptTokens: 1 });
      return ticket;
    },
    serve: async (times: number): Promise<void> => {
      for (let i = 0; i < times; i += 1) {
        await settled();
        clock.advance(100);
        leases.shift()?.release('done');
      }
      await settled();
    },
    predicted: (): number => queue.report(1).accounts[0]!.predictedWaitMs,
  };
}

t.test('the time in which the engine was away does not count as a slow rate', async (t) => {
  const { clock, queue, leases, enter, serve, predicted } = oneSeat();
  for (let i = 0; i < 20; i += 1) enter();
  await serve(5);
  queue.pause();
  leases.shift()?.release('engine-lost');
  clock.advance(60_000);
  queue.resume(1);
  await serve(5);
  const { waiting } = queue.snapshot();
  t.ok(waiting > 5);
  t.ok(predicted() < 150 * (waiting + 2), `${predicted()} ms`);
});

t.test('nor does the time after the waiting requests left', async (t) => {
  const { clock, enter, serve, predicted } = oneSeat();
  enter();
  enter();
  const left = enter();
  await serve(1);
  left.cancel();
  await serve(1);
  clock.advance(60_000);
  for (let i = 0; i < 10; i += 1) enter();
  await serve(2);
  t.ok(predicted() < 150 * 9, `${predicted()} ms`);
});
