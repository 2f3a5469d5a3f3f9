/** Service classes within one account, on a fake clock with random loads. */
import fc from 'fast-check';
import t from 'tap';
import type { QueueRequest } from '../../../sidecar/admission/types.js';
import { SeatQueue } from '../../../sidecar/admission/queue.js';
import { CLASS_WEIGHTS } from '../../../sidecar/domain/service-class.js';
import { FakeClock } from '../../support/fake-clock.js';
import { SEATS, SeatHarness, share, type Fate, type Load } from '../../support/seat-harness.js';
import { cases, rounds } from '../../support/long-form.js';

const MINUTE = 60_000;
const { interactive: INTERACTIVE, standard: STANDARD, batch: BATCH } = CLASS_WEIGHTS;
/** Patience as of batch jobs, and room for their backlog. */
const PATIENT = { config: { maxWaitMs: 60_000, waitingPerSeat: 25, waitingBytes: 1e9 } };

/** Arrivals that would keep all seats busy `times` over. */
function everyMs(holdMs: number, times: number): number {
  return holdMs / (SEATS * times);
}

function ofClass(harness: SeatHarness, account: string, weight: number): Fate[] {
  return harness.of(account).filter((fate) => fate.weight === weight);
}

function seatMs(fates: readonly Fate[]): number {
  return fates.reduce((sum, fate) => sum + fate.seatMs, 0);
}

function longestWait(fates: readonly Fate[]): number {
  return Math.max(...fates.map(({ waitedMs }) => waitedMs));
}

t.test('an interactive request goes before the batch backlog of its own account', async (t) => {
  const harness = new SeatHarness(1, PATIENT);
  harness.offer({ account: 'a', weight: BATCH, holdMs: 1000, everyMs: everyMs(1000, 3) });
  harness.offer({ account: 'a', weight: INTERACTIVE, holdMs: 1000, everyMs: everyMs(1000, 0.2) });
  await harness.run(5 * MINUTE);
  const fates = ofClass(harness, 'a', INTERACTIVE).filter(({ at }) => at < 4.5 * MINUTE);
  t.equal(share(fates, 'done'), 1, 'none is refused');
  // A seat is freed every quarter of a second, and a batch request may get the first by its share.
  t.ok(longestWait(fates) < 2500, `${longestWait(fates)} ms`);
});

t.test(
  'also beside another account: seat time of its batch requests is not charged to its interactive ones',
  async (t) => {
    let asked = 0;
    let late = 0;
    // How many wait for a batch request to end depends on the seed: 0 to 10 %, 4 % over 24 seeds.
    for (const seed of cases([1, 2, 3, 4, 5, 6, 7, 8], (each) => each <= 4)) {
      const harness = new SeatHarness(seed, PATIENT);
      harness.offer({ account: 'a', weight: BATCH, holdMs: 10_000, everyMs: everyMs(10_000, 2) });
      harness.offer({ account: 'b', weight: STANDARD, holdMs: 1000, everyMs: everyMs(1000, 3), fromMs: 30_000 });
      harness.offer({ account: 'a', weight: INTERACTIVE, holdMs: 500, everyMs: everyMs(500, 0.1), fromMs: 30_000 });
      await harness.run(5 * MINUTE);
      const fates = ofClass(harness, 'a', INTERACTIVE).filter(({ at }) => at < 4.5 * MINUTE);
      t.equal(share(fates, 'done'), 1, 'none is refused');
      asked += fates.length;
      late += fates.filter(({ waitedMs }) => waitedMs > 2500).length;
    }
    t.ok(late < 0.06 * asked, `${late} of ${asked} waited longer than a few of the other's requests take`);
  },
);

t.test('batch gets its share while interactive requests of the same account always wait', async (t) => {
  const harness = new SeatHarness(3, PATIENT);
  for (const weight of [INTERACTIVE, STANDARD, BATCH]) {
    harness.offer({ account: 'a', weight, holdMs: 300, everyMs: everyMs(300, 2) });
  }
  await harness.run(rounds({ short: 5, long: 10 }) * MINUTE);
  const all = seatMs(harness.of('a'));
  for (const [weight, parts] of [
    [INTERACTIVE, 12],
    [STANDARD, 3],
    [BATCH, 1],
  ] as const) {
    const part = seatMs(ofClass(harness, 'a', weight)) / all;
    t.ok(Math.abs(part - parts / 16) < 0.15 * (parts / 16), `weight ${weight}: ${part}, not ${parts / 16}`);
  }
});

t.test('a full queue: each class keeps the places that its weight gives it', async (t) => {
  const clock = new FakeClock();
  const config = { maxWaitMs: 1e6, waitingPerSeat: 17, waitingBytes: 1e6 };
  const queue = new SeatQueue({ clock, random: () => 0, config, seats: 1 });
  queue.pause();
  const settled: string[] = [];
  const enter = (weight: number): string => {
    const request: QueueRequest = { account: 'a', weight, bytes: 1, seatsWanted: 1 };
    const ticket = queue.enter(request);
    if ('kind' in ticket) return ticket.reason;
    void ticket.outcome.then((outcome) =>
      settled.push(`${weight} ${outcome.kind === 'refused' ? outcome.reason : ''}`),
    );
    return 'waits';
  };
  for (let i = 0; i < 17; i += 1) t.equal(enter(BATCH), 'waits');
  t.equal(enter(BATCH), 'full');
  for (let i = 0; i < 16; i += 1) t.equal(enter(INTERACTIVE), 'waits', 'in place of a batch request');
  t.equal(enter(INTERACTIVE), 'full', 'the last batch request keeps its place');
  t.match(queue.snapshot(), { waiting: 17, waitingBy: { interactive: 16, batch: 1 } });
  await Promise.resolve();
  t.strictSame([...new Set(settled)], [`${BATCH} dropped`]);
});

t.test('a new batch request gets a place in a queue that is full of its account’s interactive requests', async (t) => {
  const config = { maxWaitMs: 1e6, waitingPerSeat: 34, waitingBytes: 1e6 };
  const queue = new SeatQueue({ clock: new FakeClock(), random: () => 0, config, seats: 1 });
  queue.pause();
  const enter = (weight: number): boolean =>
    !('kind' in queue.enter({ account: 'a', weight, bytes: 1, seatsWanted: 1 }));
  for (let i = 0; i < 34; i += 1) enter(INTERACTIVE);
  t.ok(enter(BATCH) && enter(BATCH));
  t.notOk(enter(BATCH), 'but no more than its share');
  t.match(queue.snapshot().waitingBy, { interactive: 32, batch: 2 });
});

t.test('the wait predicted for an interactive request is that of its own class', async (t) => {
  // A long queue, before the overload counts as standing.
  const harness = new SeatHarness(4, { ...PATIENT, learns: false });
  harness.offer({ account: 'a', weight: BATCH, holdMs: 2000, everyMs: everyMs(2000, 3) });
  harness.offer({ account: 'a', weight: INTERACTIVE, holdMs: 200, everyMs: everyMs(200, 0.05) });
  await harness.run(3 * MINUTE);
  const [line] = harness.queue.report(1).accounts;
  const predicted = new Map(line?.classes.map((of) => [of.class, of.predictedWaitMs]));
  t.ok((predicted.get('interactive') ?? Infinity) < 3000, `interactive: ${predicted.get('interactive')} ms`);
  t.ok((predicted.get('batch') ?? 0) > 20_000, `batch: ${predicted.get('batch')} ms`);
  t.ok(share(ofClass(harness, 'a', INTERACTIVE), 'predicted') === 0, 'and none is refused for the batch backlog');
});

t.test('the users of an account take turns in each class', async (t) => {
  const harness = new SeatHarness(5, PATIENT);
  const load = { account: 'a', weight: INTERACTIVE, holdMs: 1000 };
  harness.offer({ account: 'a', weight: BATCH, holdMs: 1000, users: ['loud', 'quiet'], everyMs: everyMs(1000, 2) });
  harness.offer({ ...load, users: ['loud'], everyMs: everyMs(1000, 2) });
  harness.offer({ ...load, users: ['quiet'], everyMs: everyMs(1000, 0.1) });
  await harness.run(5 * MINUTE);
  const fates = ofClass(harness, 'a', INTERACTIVE).filter(({ user, end }) => user === 'quiet' && end === 'done');
  t.ok(longestWait(fates) < 2500, `${longestWait(fates)} ms`);
});

/** The share of all seat time that `a` gets beside an account of each class that always waits. */
async function shareOfA(seed: number, loads: readonly Load[]): Promise<number> {
  const harness = new SeatHarness(seed, PATIENT);
  for (const [account, weight] of Object.entries({ i: INTERACTIVE, s: STANDARD, b: BATCH })) {
    harness.offer({ account, weight, holdMs: 400, everyMs: everyMs(400, 1.5) });
  }
  for (const load of loads) harness.offer(load);
  await harness.run(4 * MINUTE);
  return seatMs(harness.of('a')) / (SEATS * 4 * MINUTE);
}

t.test('an account gains nothing by spreading its requests over classes', async () => {
  const part = fc.record({
    weight: fc.constantFrom(INTERACTIVE, STANDARD, BATCH),
    holdMs: fc.integer({ min: 100, max: 1500 }),
    times: fc.double({ min: 0.3, max: 2, noNaN: true }),
    // In turn, so that a class is active and idle.
    fromMs: fc.integer({ min: 0, max: 60_000 }),
    forMs: fc.integer({ min: 10_000, max: 4 * MINUTE }),
  });
  await fc.assert(
    fc.asyncProperty(fc.integer(), fc.array(part, { minLength: 2, maxLength: 6 }), async (seed, parts) => {
      const heaviest = Math.max(...parts.map(({ weight }) => weight));
      const loads = parts.map(({ holdMs, times, fromMs, forMs, weight }): Load => {
        return { account: 'a', weight, holdMs, everyMs: everyMs(holdMs, times), fromMs, untilMs: fromMs + forMs };
      });
      const spread = await shareOfA(seed, loads);
      const most = heaviest / (heaviest + INTERACTIVE + STANDARD + BATCH);
      // Turns are whole requests: a few of the longest more or less in four minutes.
      const grain = (3 * 1500) / (4 * MINUTE);
      if (spread > most + grain) throw new Error(`${spread} of the seats, at most ${most} by its heaviest class`);
    }),
    { numRuns: rounds({ short: 2, long: 10 }), endOnFailure: true },
  );
});

t.test('an account gains nothing by asking for a heavier class than its keys have', async (t) => {
  const own = { holdMs: 400, everyMs: everyMs(400, 1.5), ownWeight: STANDARD };
  const [most, grain] = [STANDARD / (STANDARD + INTERACTIVE + STANDARD + BATCH), (3 * 1500) / (4 * MINUTE)];
  const [normal, priority] = [
    await shareOfA(7, [{ account: 'a', weight: STANDARD, ...own }]),
    await shareOfA(7, [{ account: 'a', weight: INTERACTIVE, ...own }]),
  ];
  t.comment(`${normal} of the seats as default, ${priority} as priority, ${most} by its class`);
  t.ok(Math.abs(priority - normal) <= 0.01 * normal + grain, `${priority} of the seats, ${normal} without`);
  const part = fc.record({
    weight: fc.constantFrom(INTERACTIVE, INTERACTIVE, STANDARD, BATCH),
    holdMs: fc.integer({ min: 100, max: 1500 }),
    times: fc.double({ min: 0.3, max: 2, noNaN: true }),
    fromMs: fc.integer({ min: 0, max: 60_000 }),
    forMs: fc.integer({ min: 10_000, max: 4 * MINUTE }),
  });
  await fc.assert(
    fc.asyncProperty(fc.integer(), fc.array(part, { minLength: 1, maxLength: 6 }), async (seed, parts) => {
      const loads = parts.map(({ holdMs, times, fromMs, forMs, weight }): Load => {
        const until = { fromMs, untilMs: fromMs + forMs };
        return { account: 'a', weight, ownWeight: STANDARD, holdMs, everyMs: everyMs(holdMs, times), ...until };
      });
      const got = await shareOfA(seed, loads);
      if (got > most + grain) throw new Error(`${got} of the seats, at most ${most} by the class of its keys`);
    }),
    { numRuns: rounds({ short: 2, long: 15 }), endOnFailure: true },
  );
});

t.test('an account that has lost its heavier key gains nothing by that class', async (t) => {
  const before: Load = { account: 'a', weight: INTERACTIVE, holdMs: 100, everyMs: 100, untilMs: 1000 };
  const own = { account: 'a', ownWeight: STANDARD, holdMs: 400, everyMs: everyMs(400, 1.5), fromMs: 5000 };
  const normal = await shareOfA(7, [{ ...own, weight: STANDARD }]);
  const lost = await shareOfA(7, [before, { ...own, weight: INTERACTIVE }]);
  t.ok(Math.abs(lost - normal) < 0.05 * normal, `${lost} of the seats, ${normal} without that key`);
});

t.test('inside its account a heavier class goes first all the same, and the others get their part', async (t) => {
  const harness = new SeatHarness(8, PATIENT);
  for (const weight of [INTERACTIVE, STANDARD, BATCH])
    harness.offer({ account: 'a', weight, ownWeight: STANDARD, holdMs: 300, everyMs: everyMs(300, 2) });
  harness.offer({ account: 'b', weight: STANDARD, holdMs: 300, everyMs: everyMs(300, 2) });
  await harness.run(5 * MINUTE);
  const all = seatMs(harness.of('a'));
  const parts = [INTERACTIVE, STANDARD, BATCH].map((weight) => seatMs(ofClass(harness, 'a', weight)) / all);
  for (const [i, part] of [12, 3, 1].entries())
    t.ok(Math.abs((parts[i] ?? 0) - part / 16) < 0.2 * (part / 16), `${parts.join(', ')}, not 12 : 3 : 1`);
  t.ok(Math.abs(all / seatMs(harness.of('b')) - 1) < 0.03, `${all / seatMs(harness.of('b'))} times as much as another`);
});

t.test('changing classes does not reduce what an account is charged', async (t) => {
  // One class at a time, always full: without a common charge each would begin at the queue’s level.
  const loads: Load[] = [];
  for (let at = 0; at < 4 * MINUTE; at += 6000) {
    [INTERACTIVE, STANDARD, BATCH].forEach((weight, i) => {
      const fromMs = at + 2000 * i;
      loads.push({ account: 'a', weight, holdMs: 400, everyMs: everyMs(400, 2), fromMs, untilMs: fromMs + 2000 });
    });
  }
  const most = INTERACTIVE / (2 * INTERACTIVE + STANDARD + BATCH);
  const got = await shareOfA(6, loads);
  t.ok(got <= 1.03 * most, `${got} of the seats, at most ${most}`);
});
