/** The simulator, tested on cases with known results. */
import t from 'tap';
import { measure } from '../../../bench/admission/measures.js';
import { type Policy, ours, fifoUnbounded, fifoWithCap, roundRobin, vtc } from '../../../bench/admission/policies.js';
import { simulate } from '../../../bench/admission/simulate.js';
import { arrivals, type Arrival } from '../../../bench/admission/traffic.js';

const ALL: readonly Policy[] = [fifoUnbounded, fifoWithCap, roundRobin, vtc, ours];
const HOUR_MS = 3_600_000;
const ALONE = { name: 'heavy', lengths: { meanMs: 1000 } };

/** `count` requests of an account at the same moment. */
function burst(account: string, count: number, atMs: number, holdMs: number): Arrival[] {
  return Array.from({ length: count }, () => ({ account, atMs, holdMs }));
}

t.test(
  'M/D/1 at half load: busy half of the time, and a mean wait of half a service time (Pollaczek-Khinchine)',
  async (t) => {
    const untilMs = 20 * HOUR_MS;
    const list = arrivals([{ ...ALONE, demand: 0.5 }], 1, untilMs, 1).map((arrival) => ({ ...arrival, holdMs: 1000 }));
    const visits = await simulate(fifoUnbounded, list, { seats: 1, patienceMs: Infinity, untilMs: untilMs + 60_000 });
    const window = { fromMs: 0, toMs: untilMs, seats: 1, patienceMs: Infinity };
    const { goodput, timedOut, refused } = measure(visits, [], window);
    t.ok(near(goodput, 0.5, 0.02), `busy ${goodput}`);
    const wait = mean(visits.map(({ atMs, settledAt }) => settledAt - atMs));
    t.ok(near(wait, 500, 0.05), `waits ${wait} ms`);
    t.strictSame([timedOut, refused], [0, 0]);
  },
);

for (const policy of ALL) {
  t.test(`${policy.name}: never more seats in use than exist, and none idle while a request waits`, async (t) => {
    const list = [...burst('a', 12, 0, 1000), ...burst('b', 3, 500, 700)];
    const visits = await simulate(policy, list, { seats: 3, patienceMs: 60_000, untilMs: 60_000 });
    const starts = visits.map(({ settledAt }) => settledAt);
    t.ok(visits.every(({ fate }) => fate === 'seated'));
    for (const at of starts) {
      const busy = visits.filter(({ settledAt, holdMs }) => settledAt <= at && settledAt + holdMs > at).length;
      t.equal(busy, 3, `at ${at}`);
    }
  });
}

t.test('FIFO under overload serves clients that have disconnected; a time to live avoids that', async (t) => {
  const list = arrivals([{ ...ALONE, demand: 2 }], 4, 600_000, 4);
  const window = { fromMs: 60_000, toMs: 600_000, seats: 4, patienceMs: 10_000 };
  const goodput = async (policy: Policy): Promise<number> =>
    measure(await simulate(policy, list, { seats: 4, patienceMs: 10_000, untilMs: 610_000 }), [], window).goodput;
  t.equal(await goodput(fifoUnbounded), 0);
  t.ok((await goodput(fifoWithCap)) > 0.99);
  t.ok((await goodput(roundRobin)) > 0.99);
});

t.test('round robin alternates requests, VTC alternates seat time', async (t) => {
  const list = [...burst('long', 200, 0, 4000), ...burst('short', 800, 0, 1000)].map((arrival, i) => ({
    ...arrival,
    atMs: i / 1e3,
  }));
  const shares = async (policy: Policy): Promise<number> => {
    const visits = await simulate(policy, list, { seats: 2, patienceMs: Infinity, untilMs: 300_000 });
    const count = (name: string): number =>
      visits.filter(({ account, fate, settledAt }) => account === name && fate === 'seated' && settledAt < 300_000)
        .length;
    return count('short') / count('long');
  };
  t.ok(near(await shares(roundRobin), 1, 0.1));
  t.ok(near(await shares(vtc), 4, 0.1));
});

t.test(
  'VTC lifts an account that arrives late to the others, so that it has no claim for the time before',
  async (t) => {
    const list = [...burst('early', 100, 0, 1000), ...burst('late', 100, 20_500, 1000)];
    const visits = await simulate(vtc, list, { seats: 1, patienceMs: Infinity, untilMs: 40_500 });
    const served = visits.filter(({ account, settledAt }) => account === 'late' && settledAt <= 40_500).length;
    t.ok(served >= 9 && served <= 11, `${served} of 20`);
  },
);

t.test('a refused client retries at most once, after its Retry-After', async (t) => {
  const always: Policy = {
    name: 'refusing',
    open: () => ({
      enter: () => ({ kind: 'refused', code: 'capacity_exceeded', reason: 'full', retryAfterMs: 3000 }),
    }),
  };
  const simulation = { seats: 1, patienceMs: 10_000, untilMs: 60_000 };
  const list = burst('a', 2, 1000, 500);
  t.equal((await simulate(always, list, simulation)).length, 2);
  const visits = await simulate(always, list, { ...simulation, comesBack: ({ retryAfterMs }) => retryAfterMs });
  t.strictSame(
    visits.map(({ atMs, retries }) => [atMs, retries?.atMs]),
    [
      [1000, undefined],
      [1000, undefined],
      [4000, 1000],
      [4000, 1000],
    ],
  );
  t.strictSame(measure(visits, [], { fromMs: 0, toMs: 60_000, seats: 1, patienceMs: 10_000 }).refused, 1);
});

function near(value: number, wanted: number, tolerance: number): boolean {
  return Math.abs(value - wanted) <= tolerance * wanted;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
