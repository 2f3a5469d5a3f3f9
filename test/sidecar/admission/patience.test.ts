import fc from 'fast-check';
import t from 'tap';
import {
  PatienceBook,
  outcomeOf,
  type OwnPatience,
  type Times,
  ServiceTime,
  Survival,
  BIN_ENDS,
  binOf,
} from '../../../sidecar/admission/patience.js';

const HALF_MS = 15_000;
const at = (now: number): Times => ({ now, holdMs: 1000 });

/** Callers of one account that wait for whole replies of a second, and disconnect after `patienceMs`. */
function teach(book: PatienceBook, own: OwnPatience, patienceMs: number, from: number, count = 60): void {
  for (let i = 0; i < count; i += 1) {
    const now = from + i * 100;
    book.observe(own, 'end', { ms: patienceMs, left: true }, at(now));
    book.observe(own, 'end', { ms: Math.min(1000, patienceMs), left: false }, at(now));
    book.served('end', { ms: 1000, answered: true }, at(now));
  }
}

t.test('if no caller disconnects no wait is too long', async (t) => {
  const book = new PatienceBook();
  const own: OwnPatience = {};
  for (let i = 0; i < 50; i += 1) book.observe(own, 'end', { ms: 20_000, left: false }, at(i * 100));
  const { freshMs, longestMs, hopelessMs } = book.of(own, 'end', at(10_000));
  t.strictSame([freshMs, longestMs, hopelessMs], [Infinity, Infinity, Infinity]);
});

t.test('callers that disconnect after 4 s bound the wait by that less a reply’s time', async (t) => {
  const book = new PatienceBook();
  const own: OwnPatience = {};
  teach(book, own, 4000, 0);
  const { freshMs, longestMs, hopelessMs } = book.of(own, 'end', at(6000));
  t.ok(longestMs > 2000 && longestMs < 3500, `longest ${longestMs}`);
  t.ok(freshMs <= hopelessMs && hopelessMs < 4000, `${freshMs}, ${hopelessMs}`);
});

t.test('a reduced or increased patience is learned within 60 s', async (t) => {
  for (const [before, after] of [
    [8000, 2000],
    [2000, 8000],
  ] as const) {
    const book = new PatienceBook();
    const own: OwnPatience = {};
    teach(book, own, before, 0, 300);
    teach(book, own, after, 30_000, 600);
    const { longestMs } = book.of(own, 'end', at(90_000));
    // Less a reply’s time, to a bin or two.
    const most = after - 1000;
    t.ok(longestMs >= 0.7 * most && longestMs <= most, `${before} to ${after}: ${longestMs}`);
  }
});

t.test('an account whose callers disconnect on purpose affects its own requests only', async (t) => {
  const book = new PatienceBook();
  const [attacker, other, unknown]: OwnPatience[] = [{}, {}, {}];
  for (let i = 0; i < 2000; i += 1) {
    book.observe(attacker ?? {}, 'end', { ms: 60, left: true }, at(i * 10));
    if (i % 20 === 0) book.observe(other ?? {}, 'end', { ms: 5000, left: false }, at(i * 10));
    book.served('end', { ms: 1000, answered: true }, at(i * 10));
  }
  t.ok(book.of(attacker ?? {}, 'end', at(20_000)).longestMs < 100, 'its own');
  t.equal(book.of(other ?? {}, 'end', at(20_000)).longestMs, Infinity, 'a known account');
  t.equal(book.of(unknown ?? {}, 'end', at(20_000)).longestMs, Infinity, 'an unknown account');
});

t.test('callers who leave do not change how others are judged until those of two accounts do', async (t) => {
  const book = new PatienceBook();
  const unknown = (now: number): readonly number[] => {
    const { freshMs, longestMs, hopelessMs } = book.of({}, 'end', at(now));
    return [freshMs, longestMs, hopelessMs];
  };
  const leavers: readonly OwnPatience[] = [{}, {}];
  const leave = (own: OwnPatience = {}, from = 0): void => {
    for (let i = 0; i < 40; i += 1) book.observe(own, 'end', { ms: 2500, left: true }, at(from + i * 10));
  };
  for (let i = 0; i < 20; i += 1) book.served('end', { ms: 2000, answered: true }, at(i * 10));
  leave(leavers[0]);
  t.strictSame(unknown(1000), [Infinity, Infinity, Infinity], 'one account of which all leave');
  const { share } = book.ofAll('end', at(1000)).last;
  t.ok(Math.abs(share - 2 / 3) < 0.02, `it counts as one of three in the report, however many left: ${share}`);
  leave(leavers[1], 1000);
  t.ok(
    unknown(2000).every((ms) => ms < 2500),
    `two accounts: ${unknown(2000).join()}`,
  );
});

t.test(
  'the only request of an account that is not known is judged by the pool once one of its own callers left',
  async (t) => {
    const book = new PatienceBook();
    for (let account = 0; account < 20; account += 1) {
      const own: OwnPatience = {};
      for (let i = 0; i < 4; i += 1) book.observe(own, 'end', { ms: 60, left: true }, at(i * 100));
    }
    for (let i = 0; i < 20; i += 1) book.served('end', { ms: 50, answered: true }, at(i * 100));
    const own: OwnPatience = {};
    const longest = (now: number, alone: boolean): number => book.of(own, 'end', at(now), alone).longestMs;
    t.ok(longest(2000, false) < 100, 'several of its requests wait');
    t.equal(longest(2000, true), Infinity);
    book.observe(own, 'end', { ms: 1000, left: true }, at(2000));
    t.ok(longest(2000, true) < 100);
  },
);

t.test('streams and whole replies are learned separately', async (t) => {
  const book = new PatienceBook();
  const own: OwnPatience = {};
  teach(book, own, 2000, 0);
  t.equal(book.of(own, 'first-token', at(6000)).longestMs, Infinity);
});

t.test(
  'the chance that a seat is useful: compared with callers that all wait 3 s and replies of 1 or 4 s',
  async (t) => {
    const survival = new Survival();
    const service = new ServiceTime();
    for (let i = 0; i < 1000; i += 1) {
      survival.observe(0, HALF_MS, { ms: 3000, left: true });
      service.observe(0, HALF_MS, { ms: i % 2 === 0 ? 1000 : 4000, answered: true });
    }
    survival.fit(0, HALF_MS, { callers: 0, hazardOf: undefined });
    service.fit(0, HALF_MS);
    const { good, served } = outcomeOf(survival, service, 0, undefined);
    t.ok(Math.abs(served - 0.5) < 0.05, `half are served: ${served}`);
    t.ok(Math.abs(good - 1 / (1 + 3)) < 0.05, `a second of four is good: ${good}`);
    t.equal(outcomeOf(survival, service, 3500, undefined).good, 0, 'after they left');
    const stream = outcomeOf(survival, service, 0, 10_000);
    t.ok(Math.abs(stream.good - 10 / 13) < 0.05, `ten seconds of thirteen, once it began: ${stream.good}`);
  },
);

const NOTHING_BELIEVED = { callers: 0, hazardOf: undefined };

function fitted(seen: readonly { readonly ms: number; readonly left: boolean }[]): Survival {
  const survival = new Survival();
  for (const each of seen) survival.observe(0, HALF_MS, each);
  survival.fit(0, HALF_MS, NOTHING_BELIEVED);
  return survival;
}

t.test('a time belongs to the bin that ends after it', async (t) => {
  fc.assert(
    fc.property(fc.double({ min: 0, max: 500_000, noNaN: true }), (ms) => {
      const bin = binOf(ms);
      const from = bin === 0 ? 0 : (BIN_ENDS[bin - 1] ?? 0);
      const to = BIN_ENDS[bin] ?? 0;
      return from <= ms * (1 + 1e-9) && ms < to * (1 + 1e-9);
    }),
  );
  t.end();
});

t.test('without served callers the share still there is the share that has not left', async (t) => {
  const seen = [1000, 1000, 4000, 16_000].map((ms) => ({ ms, left: true }));
  const survival = fitted(seen);
  t.equal(survival.after(900), 1, 'no caller has left yet');
  for (const [ms, share] of [
    [1500, 0.5],
    [6000, 0.25],
    [30_000, 0],
  ] as const) {
    t.ok(Math.abs(survival.after(ms) - share) < 1e-6, `after ${ms} ms`);
  }
});

t.test('a served caller counts as there until then, and not as one that left', async (t) => {
  const left = { ms: 4000, left: true };
  const served = { ms: 1000, left: false };
  // Two of four were served before any left, so of the two at risk one leaves: Kaplan and Meier’s 1/2, not 1/4.
  const survival = fitted([served, served, left, { ms: 16_000, left: true }]);
  t.ok(Math.abs(survival.after(6000) - 0.5) < 1e-6);
  t.equal(fitted([served, served]).timeOf(0.5), undefined, 'if no caller left, nothing is known');
});

t.test('chances only fall with time, whatever was observed', async (t) => {
  const seen = fc.array(fc.record({ ms: fc.integer({ min: 0, max: 600_000 }), left: fc.boolean() }), { maxLength: 50 });
  fc.assert(
    fc.property(seen, (list) => {
      const survival = fitted(list);
      const shares = BIN_ENDS.map((ms) => survival.after(ms));
      return shares.every((share, i) => share >= -1e-9 && share <= (shares[i - 1] ?? 1) + 1e-9);
    }),
  );
  t.end();
});

t.test('observations lose half their weight in each half life, and later callers outweigh them', async (t) => {
  const survival = new Survival();
  for (let i = 0; i < 8; i++) survival.observe(0, HALF_MS, { ms: 1000, left: true });
  t.ok(Math.abs(survival.count(3 * HALF_MS, HALF_MS) - 1) < 1e-6, 'eight count as one after three half lives');
  const now = 20 * HALF_MS;
  for (let i = 0; i < 8; i++) survival.observe(now, HALF_MS, { ms: 16_000, left: true });
  survival.fit(now, HALF_MS, NOTHING_BELIEVED);
  t.ok(survival.after(6000) > 0.99);
  t.ok(Number.isFinite(survival.count(now + 1e9, HALF_MS)), 'weights stay bounded');
});

function mean({ parts }: ServiceTime): number {
  return parts.reduce((sum, { ms, weight }) => sum + ms * weight, 0);
}

t.test('before the first observation every time is 0', async (t) => {
  const service = new ServiceTime();
  service.fit(0, HALF_MS);
  t.equal(mean(service), 0);
});

t.test('parts: weights sum to 1, times rise, their mean is the observed one', async (t) => {
  const service = new ServiceTime();
  for (let i = 0; i < 5000; i += 1)
    service.observe(0, HALF_MS, { ms: -1000 * Math.log(1 - (i + 0.5) / 5000), answered: true });
  service.fit(0, HALF_MS);
  const { parts } = service;
  t.ok(Math.abs(parts.reduce((sum, { weight }) => sum + weight, 0) - 1) < 1e-9);
  t.ok(parts.every(({ ms }, at) => at === 0 || ms >= (parts[at - 1]?.ms ?? 0)));
  t.ok(Math.abs(mean(service) - 1000) < 60, `${mean(service)}`);
});

t.test('replies whose callers disconnected continue at the observed rate', async (t) => {
  const service = new ServiceTime();
  // Exponential, mean 1 s, observed up to 1 s.
  for (let i = 0; i < 5000; i += 1) {
    const ms = -1000 * Math.log(1 - (i + 0.5) / 5000);
    service.observe(0, HALF_MS, { ms: Math.min(ms, 1000), answered: ms < 1000 });
  }
  service.fit(0, HALF_MS);
  t.ok(Math.abs(mean(service) - 1000) < 120, `${mean(service)}`);
});
