import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import t from 'tap';
import { Account, AccountClass, AccountColumns } from '../../../sidecar/admission/accounts.js';
import { Demand, HoldTime, ServiceRate } from '../../../sidecar/admission/measures.js';
import { SeatQueue } from '../../../sidecar/admission/queue.js';
import type { Lease, Ticket } from '../../../sidecar/admission/types.js';
import { FakeClock } from '../../support/fake-clock.js';
import { rounds } from '../../support/long-form.js';

t.test('the mean moves by a tenth towards the newest lease', async (t) => {
  const hold = new HoldTime();
  t.equal(hold.meanMs, undefined, 'before anything is known');
  hold.observe(3000);
  t.equal(hold.meanMs, 3000);
  hold.observe(13_000);
  t.equal(hold.meanMs, 4000);
});

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
  serviceRate.interrupt();
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
  const queue = new SeatQueue({ clock, random: () => 0.5, config, seats: 1 });
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

const WINDOW_MS = 10_000;

t.test('load is arrivals per grant, and the time between grants is their mean', async (t) => {
  const demand = new Demand();
  t.equal(demand.load(0), 1, 'nothing known');
  t.equal(demand.everyMs, Infinity);
  for (let at = 0; at < 100_000; at += 100) {
    demand.arrived(at, WINDOW_MS);
    if (at % 400 === 0) demand.seated(at, WINDOW_MS);
  }
  t.ok(Math.abs(demand.load(0) - 4) < 0.2, `${demand.load(0)}`);
  t.ok(Math.abs(demand.everyMs - 400) < 20, `${demand.everyMs}`);
});

t.test('requests of callers that wait for their seat do not count as load', async (t) => {
  const demand = new Demand();
  for (let i = 0; i < 10; i += 1) demand.arrived(0, WINDOW_MS);
  demand.seated(0, WINDOW_MS);
  t.equal(demand.load(9), 1);
  t.equal(demand.load(20), 0.5, 'a request that waits longer than the window counts at most once');
});

t.test('old arrivals do not count', async (t) => {
  const demand = new Demand();
  for (let i = 0; i < 100; i += 1) demand.arrived(0, WINDOW_MS);
  demand.seated(10 * WINDOW_MS, WINDOW_MS);
  t.ok(demand.load(0) < 0.6, `${demand.load(0)}`);
});

t.test('predictions are corrected within bounds', async (t) => {
  const account = new AccountClass('standard');
  for (let i = 0; i < 100; i += 1) account.waitedTooLong();
  t.equal(account.calibration, 4);
  for (let i = 0; i < 10_000; i += 1) account.waitedAndSeated();
  t.equal(account.calibration, 0.5);
});

/** Operations on accounts, with a number that selects one of them. */
const steps = fc.array(
  fc.record({ what: fc.constantFrom('make', 'forget', 'wait', 'leave', 'end'), which: fc.nat(1000) }),
  { maxLength: 600, size: 'max' },
);

t.test('columns keep each account’s numbers while others are added, grow the columns and are removed', async () => {
  fc.assert(
    fc.property(steps, (list) => {
      const columns = new AccountColumns();
      const known: { readonly account: Account; waiting: number; hold: number | undefined }[] = [];
      const make = (): void => {
        known.push({ account: new Account('any', columns), waiting: 0, hold: undefined });
      };
      for (let i = 0; i < 60; i += 1) make();
      for (const { what, which } of list) {
        const each = known[which % Math.max(1, known.length)];
        if (what === 'make' || each === undefined) make();
        else if (what === 'forget' && each.waiting === 0) {
          columns.release(each.account);
          known.splice(known.indexOf(each), 1);
        } else if (what === 'wait' || (what === 'leave' && each.waiting > 0)) {
          each.waiting += what === 'wait' ? 1 : -1;
          each.account.waiting = each.waiting;
          each.account.rank();
          if (each.waiting === (what === 'wait' ? 1 : 0)) columns.setActive(each.account, what === 'wait');
        } else if (what === 'end') {
          each.account.observeHold(which, true);
          each.hold = each.account.holdMs;
        }
      }
      const active = known.filter(({ waiting }) => waiting > 0).map(({ account }) => account.slot);
      const same = (a: number[], b: number[]): boolean => isDeepStrictEqual(a.sort(), b.sort());
      return (
        same([...columns.active], active) &&
        known.every(({ account, waiting, hold }) => {
          const copied = columns.holdMs[account.slot];
          const isOwn = columns.accountAt(account.slot) === account;
          return (
            isOwn &&
            columns.waiting[account.slot] === waiting &&
            account.holdMs === hold &&
            Object.is(copied, hold ?? NaN)
          );
        })
      );
    }),
    { numRuns: rounds({ short: 20, long: 200 }) },
  );
});
