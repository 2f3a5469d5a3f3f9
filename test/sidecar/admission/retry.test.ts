import t from 'tap';
import type { AccountClass } from '../../../sidecar/admission/accounts.js';
import { Demand } from '../../../sidecar/admission/measures.js';
import { MAX_RETRY_MS, RetryReservations, retryAfter } from '../../../sidecar/admission/retry.js';

const WINDOW_MS = 10_000;

/** Of a class that has reserved none. */
const none = (): AccountClass['reservedTimes'] => [{ at: 0, retries: 1 }];

/** A class that gets a seat each second while four requests arrive. */
function overloaded(): Pick<AccountClass, 'load' | 'demand' | 'reservedTimes'> {
  const demand = new Demand();
  for (let at = 0; at < 100_000; at += 250) {
    demand.arrived(at, WINDOW_MS);
    if (at % 1000 === 0) demand.seated(at, WINDOW_MS);
  }
  return { demand, load: demand.load(0), reservedTimes: none() };
}

t.test('times are reserved at half the rate at which the class gets seats', async (t) => {
  const returns = new RetryReservations();
  const of = overloaded();
  const times = ['a', 'b', 'c'].map((key) => returns.offer(of, key, 100_000)?.ms ?? 0);
  t.equal(times[0], 1000, 'the first soon');
  for (const [before, after] of [
    [times[0], times[1]],
    [times[1], times[2]],
  ] as const) {
    const gap = (after ?? 0) - (before ?? 0);
    t.ok(Math.abs(gap - 2000) < 100, `${gap} ms apart`);
  }
});

t.test('a caller gets a long time that reserves nothing if the next free one is too far ahead', async (t) => {
  const returns = new RetryReservations();
  const of = overloaded();
  const kinds = Array.from({ length: 100 }, (_, at) => returns.offer(of, `${at}`, 100_000));
  const reserved = kinds.filter((retry) => retry?.kind === 'reserved');
  t.ok(reserved.length > 25 && reserved.length < 32, `${reserved.length} in a minute`);
  t.ok(reserved.every((retry) => (retry?.ms ?? Infinity) < MAX_RETRY_MS));
  t.strictSame(kinds.at(-1), { kind: 'none', ms: MAX_RETRY_MS });
  t.strictSame(returns.counts, { reserved: reserved.length, none: 100 - reserved.length, kept: 0 });
  t.equal(returns.size, reserved.length);
});

t.test('a class that gets many seats has few times, which its retries share at the same rate', async (t) => {
  for (const everyMs of [0, 0.1, 7, 33, 49, 50, 70]) {
    const returns = new RetryReservations();
    const of = { demand: new Demand(), load: 1, reservedTimes: none() };
    const offers = Array.from({ length: 25_000 }, (_, i) =>
      returns.offer(of, `${i}`, 100_000, { everyMs, from: 0 }),
    ).filter((offer) => offer?.kind === 'reserved');
    const expected = Math.min(20_000, Math.floor(57_000 / (2 * everyMs)) + 1);
    t.ok(Math.abs(offers.length / expected - 1) < 0.01, `${offers.length} for ${expected} at ${everyMs} ms`);
    t.ok(of.reservedTimes.length <= 641, `${of.reservedTimes.length} times`);
    const half = offers.filter((offer) => (offer?.ms ?? 0) <= 30_000).length;
    if (everyMs > 1) t.ok(Math.abs((2 * half) / offers.length - 1) < 0.03, 'spread evenly');
    // They pass, as many as were reserved.
    returns.offer(of, 'later', 200_000, { everyMs, from: 0 });
    t.equal(returns.size, 1);
    t.equal(of.reservedTimes.length, 2);
  }
});

t.test('a time is valid once, not before it and not long after', async (t) => {
  const returns = new RetryReservations();
  const of = overloaded();
  for (const key of ['a', 'b', 'c']) returns.offer(of, key, 100_000);
  t.notOk(returns.redeem('a', 100_500), 'too early');
  t.ok(returns.redeem('a', 101_000));
  t.notOk(returns.redeem('a', 101_000), 'used up');
  t.notOk(returns.redeem('b', 200_000), 'too late');
  t.notOk(returns.redeem('unknown', 101_000));
  t.notOk(returns.redeem(undefined, 101_000));
  t.equal(returns.counts.kept, 1);
  returns.offer(of, 'd', 300_000);
  t.equal(returns.size, 1, 'past times are forgotten');
  t.equal(of.reservedTimes.length, 2, 'but for the last one');
});

t.test('a request that comes before its time keeps it, and takes no other', async (t) => {
  const returns = new RetryReservations();
  const of = overloaded();
  t.equal(returns.offer(of, 'a', 100_000)?.ms, 1000);
  t.equal(returns.offer(of, 'a', 100_400)?.ms, 600);
  t.equal(returns.counts.reserved, 1);
  const next = returns.offer(of, 'b', 100_400)?.ms ?? 0;
  t.ok(Math.abs(next - 2600) < 100, `the next one is given the next time: ${next} ms`);
  t.ok(returns.redeem('a', 101_000));
});

t.test('no time is reserved for a class whose seats serve all of it, nor without a key', async (t) => {
  const returns = new RetryReservations();
  t.equal(returns.offer({ demand: new Demand(), load: 1, reservedTimes: none() }, 'a', 0), undefined);
  t.equal(returns.offer(overloaded(), undefined, 100_000)?.kind, 'none');
});

t.test(
  'where seats are kept for sessions, times are reserved at any load, and at half the fair share if that is more',
  async (t) => {
    const gapOf = (of: Pick<AccountClass, 'load' | 'demand' | 'reservedTimes'>, everyMs: number): number => {
      const returns = new RetryReservations();
      const [first = 0, second = 0] = ['a', 'b'].map(
        (key) => returns.offer(of, key, 100_000, { everyMs, from: 0 })?.ms,
      );
      return second - first;
    };
    t.ok(Math.abs(gapOf(overloaded(), 10_000) - 2000) < 100, 'at half of its own seats');
    t.equal(gapOf(overloaded(), 500), 1000);
    t.equal(
      gapOf({ demand: new Demand(), load: 1, reservedTimes: none() }, 3000),
      6000,
      'of a class that was given none',
    );
    const ofNone = { demand: new Demand(), load: 1, reservedTimes: none() };
    const first = new RetryReservations().offer(ofNone, 'a', 100_000, { everyMs: 3000, from: 130_000 });
    t.match(first, { kind: 'reserved', ms: 30_000 }, 'not before the first keep of its account ends');
  },
);

t.test('a first keep that ends late puts off its own newcomer alone, by no more than a retry may wait', async (t) => {
  const returns = new RetryReservations();
  const of = { demand: new Demand(), load: 1, reservedTimes: none() };
  const offer = (key: string, from: number): unknown => returns.offer(of, key, 100_000, { everyMs: 5000, from });
  t.match(offer('a', 400_000), { kind: 'reserved', ms: 58_000 }, 'though the keep ends much later');
  t.match(offer('b', 0), { kind: 'reserved', ms: 1000 }, 'that keep has ended meanwhile');
  t.match(offer('c', 0), { kind: 'reserved', ms: 11_000 });
  t.match(offer('d', 145_000), { kind: 'reserved', ms: 45_000 });
  t.match(offer('e', 144_000), { kind: 'none' }, 'no two are closer than at half of the share');
  t.match(offer('f', 0), { kind: 'reserved', ms: 21_000 });
});

t.test('retries come back 1 to 59 s later, spread over a quarter more', async (t) => {
  t.equal(retryAfter(0, 0), 1000);
  t.equal(retryAfter(0, 1), 1250);
  t.equal(retryAfter(10_000, 0.5), 11_250);
  t.equal(retryAfter(1000.2, 0), 1001, 'whole ms, upward');
  t.equal(retryAfter(1e9, 0), 59_000);
});
