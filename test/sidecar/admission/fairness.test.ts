/** The goals of docs/admission.md#goals, on a fake clock with random loads. */
import fc from 'fast-check';
import t from 'tap';
import type { ReplicaSize } from '../../../sidecar/admission/seats.js';
import { jain } from '../../../sidecar/admission/state.js';
import type { QueueReport } from '../../../sidecar/admission/report.js';
import { SEATS, SeatHarness, share } from '../../support/seat-harness.js';
import { cases, rounds } from '../../support/long-form.js';

const MINUTE = 60_000;
/** Simulated time of the longest cases. */
const FULL_MS = rounds({ short: 8, long: 20 }) * MINUTE;

/** Arrivals that would keep all seats busy `times` over. */
function everyMs(holdMs: number, times: number, seats = SEATS): number {
  return holdMs / (seats * times);
}

t.test('accounts with a backlog get the same seat time, however long their requests are', async (t) => {
  const harness = new SeatHarness(1);
  harness.offer({ account: 'short', holdMs: 250, everyMs: everyMs(250, 1.5) });
  harness.offer({ account: 'long', holdMs: 2000, everyMs: everyMs(2000, 1.5) });
  harness.offer({ account: 'flood', holdMs: 1000, everyMs: everyMs(1000, 6) });
  await harness.run(FULL_MS);
  const index = jain(['short', 'long', 'flood'].map((account) => harness.usefulMs(account)));
  t.ok(index >= 0.99, `Jain's index ${index}`);
  const { fairness } = harness.queue.report(10);
  t.ok(fairness !== null && fairness >= 0.99, `as operators see it: ${fairness}`);
});

t.test('with the seats on four replicas accounts get the same seat time as on one engine', async (t) => {
  const index = async (seats: number | readonly ReplicaSize[]): Promise<number> => {
    const harness = new SeatHarness(4, { seats });
    const accounts = ['short', 'long', 'flood'];
    harness.offer({ account: 'short', holdMs: 250, everyMs: everyMs(250, 1.5, 8) });
    harness.offer({ account: 'long', holdMs: 2000, everyMs: everyMs(2000, 1.5, 8) });
    harness.offer({ account: 'flood', holdMs: 1000, everyMs: everyMs(1000, 6, 8) });
    await harness.run(5 * MINUTE);
    return jain(accounts.map((account) => harness.usefulMs(account)));
  };
  const one = await index(8);
  const four = await index(Array.from({ length: 4 }, () => ({ seats: 2, contextPerSeat: 2048 })));
  t.ok(four >= 0.99 && four >= one - 0.002, `${four}, and ${one} on one engine`);
});

t.test('the fairness index leaves out accounts that had no request to seat', async (t) => {
  const harness = new SeatHarness(7, { seats: 3 });
  t.equal(harness.queue.report(1).fairness, null);
  const entry = { account: 'alone', weight: 4, bytes: 1, seatsWanted: 2 };
  const ticket = harness.queue.enter(entry);
  if ('kind' in ticket) throw new Error(ticket.reason);
  ticket.ready({ promptTokens: 1 });
  const outcome = await ticket.outcome;
  t.ok(outcome.kind === 'seated' && outcome.lease.takeSeat(), 'two seats all the time');
  for (const account of ['a', 'b']) harness.offer({ account, holdMs: 200, everyMs: everyMs(200, 2, 1) });
  await harness.run(4 * MINUTE);
  const { fairness } = harness.queue.report(1);
  t.ok(fairness !== null && fairness > 0.99, `${fairness}`);
});

t.test('light accounts are served within their budget beside one at four times the load', async (t) => {
  const harness = new SeatHarness(2);
  harness.offer({ account: 'heavy', holdMs: 1500, everyMs: everyMs(1500, 4), deadlineMs: 8000 });
  const light = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
  for (const account of light) harness.offer({ account, holdMs: 800, everyMs: everyMs(800, 0.06), deadlineMs: 8000 });
  await harness.run(FULL_MS);
  const served = harness.of(undefined, 0, FULL_MS - MINUTE).filter(({ account }) => account !== 'heavy');
  t.ok(share(served, 'done') >= 0.98, `${share(served, 'done')} of ${served.length}`);
});

t.test('light accounts are served beside more heavy ones than requests may wait', async (t) => {
  const [seats, heavies, lights] = [8, 60, 10];
  const harness = new SeatHarness(9, { seats });
  const fair = seats / (heavies + lights);
  const accounts = Array.from({ length: heavies }, (_, i) => `heavy ${i}`);
  for (const account of accounts) harness.offer({ account, holdMs: 1000, everyMs: everyMs(1000, 4 / heavies, seats) });
  for (let i = 0; i < lights; i += 1)
    harness.offer({ account: `light ${i}`, holdMs: 1000, everyMs: 1000 / (fair / 2) });
  await harness.run(FULL_MS);
  const all = harness.of(undefined, MINUTE, FULL_MS - MINUTE);
  const light = all.filter(({ account }) => account.startsWith('light'));
  // Not all: at random times some ask for more than their share.
  t.comment(`served: ${share(light, 'done').toFixed(3)} of the light accounts’ requests`);
  t.ok(share(light, 'done') >= 0.78, `${share(light, 'done')} of the light accounts’ requests`);
  const least = Math.min(...accounts.map((account) => harness.usefulMs(account))) / (FULL_MS * fair);
  t.ok(least >= 0.98, `the least of a heavy account’s seat time is ${least} of a fair share`);
  const admitted = all.filter(({ end }) => end === 'done' || end === 'wait');
  t.ok(share(admitted, 'wait') <= 0.03, `waited in vain ${share(admitted, 'wait')}`);
});

t.test('callers of one account that leave on purpose change nothing for small accounts', async (t) => {
  const served = async (patienceMs: number): Promise<number> => {
    const harness = new SeatHarness(11, { seats: 8 });
    for (const account of ['a', 'b']) harness.offer({ account, holdMs: 2000, everyMs: 250 });
    for (let i = 0; i < 20; i += 1)
      harness.offer({ account: `small ${i}`, holdMs: 2000, everyMs: 100_000, atOnce: 4, fromMs: 30_000 });
    for (let fromMs = 30_000; fromMs < FULL_MS; fromMs += 90_000)
      harness.offer({ account: 'x', holdMs: 2000, everyMs: 40, patienceMs, fromMs, untilMs: fromMs + 8000 });
    await harness.run(FULL_MS);
    const small = harness.of(undefined, 0, FULL_MS - MINUTE).filter(({ account }) => account.startsWith('small'));
    return share(small, 'done');
  };
  const [stay, leave] = [await served(Infinity), await served(2500)];
  t.ok(
    leave >= stay - 0.01 && stay >= 0.98,
    `${leave} of the small accounts’ requests, and ${stay} if x’s callers stay`,
  );
});

/** Time under a load that is more than the seats can do. */
const LOADED_MS = rounds({ short: 5, long: 15 }) * MINUTE;

for (const times of cases([1.5, 2, 4, 10], (each) => each === 4)) {
  t.test(`at ${times} times the load seats do useful work, and few requests wait without a seat`, async (t) => {
    const harness = new SeatHarness(3);
    const load = { holdMs: 1500, everyMs: everyMs(1500, times / 3), deadlineMs: 8000 };
    for (const account of ['a', 'b', 'c']) harness.offer({ ...load, account });
    await harness.run(LOADED_MS);
    const useful = harness.usefulMs() / (SEATS * LOADED_MS);
    t.ok(useful >= 0.98, `useful ${useful}`);
    // Without the first minute: nothing can be predicted before a request has ended.
    const admitted = harness
      .of(undefined, MINUTE, LOADED_MS - MINUTE)
      .filter(({ end }) => end !== 'full' && end !== 'predicted');
    const vain = share(admitted, 'wait', 'deadline');
    t.ok(vain <= 0.03, `waited in vain ${vain}`);
  });
}

/** Of a model with a small replica for long requests (docs/sizing.md#replicas). */
const SHORT_AND_LONG: readonly ReplicaSize[] = [
  { seats: 32, contextPerSeat: 4096 },
  { seats: 4, contextPerSeat: 65_536 },
];
const LONG_SEATS = 4;
const LONG_TOKENS = 20_000;

for (const patienceMs of cases([6000, Infinity], (each) => each === 6000)) {
  const callers = patienceMs === Infinity ? 'who stay' : 'who leave after 6 s';
  t.test(
    `long requests at twice the load of their seats while short ones are free, of callers ${callers}`,
    async (t) => {
      const harness = new SeatHarness(10, { seats: SHORT_AND_LONG });
      const long = { holdMs: 3000, everyMs: everyMs(3000, 2, LONG_SEATS), seatTokens: LONG_TOKENS, patienceMs };
      const short = { holdMs: 3000, everyMs: everyMs(3000, 0.2, 32), seatTokens: 500 };
      harness.offer({ ...long, account: 'both' });
      harness.offer({ ...short, account: 'both' });
      harness.offer({ ...short, account: 'short' });
      await harness.run(LOADED_MS);
      const later = harness.of(undefined, MINUTE, LOADED_MS - MINUTE);
      const longs = later.filter(({ seatTokens }) => seatTokens === LONG_TOKENS);
      const shorts = later.filter(({ seatTokens }) => seatTokens !== LONG_TOKENS);
      t.equal(share(shorts, 'done'), 1, 'all short requests are served, also those of the same account');
      const usefulMs = longs.reduce((sum, { end, seatMs }) => sum + (end === 'done' ? seatMs : 0), 0);
      const useful = usefulMs / (LONG_SEATS * (LOADED_MS - 2 * MINUTE));
      t.ok(useful >= 0.95, `useful share of the long seats ${useful}`);
      const admitted = longs.filter(({ end }) => end === 'done' || end === 'wait' || end === 'left');
      t.ok(share(admitted, 'wait') <= 0.03, `waited in vain ${share(admitted, 'wait')}`);
    },
  );
}

t.test('a minute at twice the load has no effect ten seconds later', async (t) => {
  const harness = new SeatHarness(4);
  const load = { holdMs: 1000, deadlineMs: 12_000 };
  harness.offer({ ...load, account: 'a', everyMs: everyMs(1000, 1), untilMs: MINUTE });
  harness.offer({ ...load, account: 'b', everyMs: everyMs(1000, 1), untilMs: MINUTE });
  harness.offer({ ...load, account: 'a', everyMs: everyMs(1000, 0.3), fromMs: MINUTE });
  harness.offer({ ...load, account: 'b', everyMs: everyMs(1000, 0.3), fromMs: MINUTE });
  await harness.run(4 * MINUTE);
  const after = harness.of(undefined, MINUTE + 10_000, 3.5 * MINUTE);
  t.equal(share(after, 'done'), 1);
  t.ok(
    harness.of(undefined, MINUTE + 30_000).every(({ waitedMs }) => waitedMs < 3000),
    'and its backlog is gone',
  );
});

t.test('weights: each account’s share is the computed max-min share', async (t) => {
  // As shares of the seats, for weights 16, 4, 4, 1: the first needs only 0.2, which leaves 0.8 in parts of 4, 4 and 1.
  const wants = { interactive: 0.2, standard: 3, other: 3, batch: 3 };
  const weights = { interactive: 16, standard: 4, other: 4, batch: 1 };
  const expected = { interactive: 0.2, standard: (0.8 * 4) / 9, other: (0.8 * 4) / 9, batch: 0.8 / 9 };
  const harness = new SeatHarness(5);
  for (const account of ['interactive', 'standard', 'other', 'batch'] as const) {
    harness.offer({ account, weight: weights[account], holdMs: 500, everyMs: everyMs(500, wants[account]) });
  }
  await harness.run(1.5 * FULL_MS);
  for (const [account, part] of Object.entries(expected)) {
    const found = harness.usefulMs(account) / (SEATS * 1.5 * FULL_MS);
    t.ok(Math.abs(found - part) < 0.05 * part, `${account}: ${found}, not ${part}`);
  }
});

t.test('virtual times of waiting accounts stay close together', async () => {
  const loadArb = fc.record({
    weight: fc.constantFrom(1, 4, 16),
    holdMs: fc.integer({ min: 100, max: 3000 }),
    times: fc.double({ min: 0.2, max: 3, noNaN: true }),
    fromMs: fc.integer({ min: 0, max: 30_000 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.integer(), fc.array(loadArb, { minLength: 2, maxLength: 5 }), async (seed, loads) => {
      const harness = new SeatHarness(seed);
      loads.forEach(({ weight, holdMs, times, fromMs }, i) => {
        harness.offer({ account: `t${i}`, weight, holdMs, everyMs: everyMs(holdMs, times), fromMs });
      });
      const longest = 1.5 * Math.max(...loads.map(({ holdMs }) => holdMs));
      const lightest = Math.min(...loads.map(({ weight }) => weight));
      let widest = 0;
      await harness.run(MINUTE, ({ accounts }: QueueReport) => {
        const waiting = accounts.filter((account) => account.waiting > 0).map(({ virtualMs }) => virtualMs);
        if (waiting.length > 1) widest = Math.max(widest, Math.max(...waiting) - Math.min(...waiting));
      });
      const bound = (2 * SEATS * longest) / lightest;
      if (widest > bound) throw new Error(`${widest} is more than ${bound}`);
    }),
    { numRuns: rounds({ short: 3, long: 60 }) },
  );
});
