import fc from 'fast-check';
import t from 'tap';
import {
  MOST_KEYS,
  RequestLimits,
  type LimitedCaller,
  type LimitGroup,
  type Permit,
  type LimitResult,
} from '../../../sidecar/access/limits.js';
import { FakeClock } from '../../support/fake-clock.js';
import { rounds } from '../../support/long-form.js';

const NONE = { inFlight: 0, perMinute: 0 };
const SPEC = { decisions: { inFlight: 32, perMinute: 600 }, chat: NONE, embeddings: NONE, models: NONE };
const KEY: LimitedCaller = { account: 'acme', keyId: 'k' };
const MINUTE = 60_000;

function placeOf(taken: LimitResult): Permit {
  if (taken.kind === 'limited') throw new Error(`limited by ${taken.by}`);
  return taken.permit;
}

t.test('32 in flight, not 33, and each that ends admits one', async (t) => {
  const limits = new RequestLimits(new FakeClock(), SPEC);
  const places = Array.from({ length: 32 }, () => placeOf(limits.take(KEY, 'decisions')));
  t.strictSame(limits.take(KEY, 'decisions'), { kind: 'limited', by: 'inFlight', retryAfterMs: 1000 });
  t.equal(limits.take({ ...KEY, keyId: 'other' }, 'decisions').kind, 'taken', 'another key');
  t.equal(limits.take({ ...KEY, account: 'other' }, 'decisions').kind, 'taken', 'the same id of another account');
  t.equal(limits.take(KEY, 'chat').kind, 'taken', 'another group');
  places[7]?.end(true);
  places[7]?.end(true);
  t.equal(limits.take(KEY, 'decisions').kind, 'taken');
  t.equal(limits.take(KEY, 'decisions').kind, 'limited', 'a permit that ends twice admits one');
});

t.test('600 in a minute, not 601, and the wait is exact', async (t) => {
  const clock = new FakeClock();
  const limits = new RequestLimits(clock, SPEC);
  for (let i = 0; i < 600; i++) {
    placeOf(limits.take(KEY, 'decisions')).end(true);
    clock.advance(10);
  }
  t.equal(clock.now(), 6000);
  t.strictSame(limits.take(KEY, 'decisions'), { kind: 'limited', by: 'perMinute', retryAfterMs: 54_000 });
  clock.advance(53_999);
  t.match(limits.take(KEY, 'decisions'), { kind: 'limited', retryAfterMs: 1 });
  clock.advance(1);
  placeOf(limits.take(KEY, 'decisions')).end(true);
  t.match(limits.take(KEY, 'decisions'), { kind: 'limited', retryAfterMs: 10 }, 'the next leaves 10 ms later');
});

t.test('a refused request does not count, in whatever order they end', async (t) => {
  const clock = new FakeClock();
  const limits = new RequestLimits(clock, { ...SPEC, decisions: { inFlight: 0, perMinute: 3 } });
  const [first, second, third] = [1, 2, 3].map(() => {
    clock.advance(100);
    return placeOf(limits.take(KEY, 'decisions'));
  });
  t.match(limits.take(KEY, 'decisions'), { by: 'perMinute', retryAfterMs: 59_800 });
  second?.end(false);
  second?.end(false);
  placeOf(limits.take(KEY, 'decisions')).end(true);
  t.match(limits.take(KEY, 'decisions'), { retryAfterMs: 59_800 }, 'one place is free and no more');
  first?.end(false);
  third?.end(true);
  const again = placeOf(limits.take(KEY, 'decisions'));
  t.match(limits.take(KEY, 'decisions'), { retryAfterMs: 60_000 }, 'the third, at 300, is the oldest now');
  clock.advance(MINUTE);
  again.end(false);
  for (let i = 0; i < 3; i++) placeOf(limits.take(KEY, 'decisions')).end(true);
  t.match(limits.take(KEY, 'decisions'), { by: 'perMinute' }, 'removing a request after its minute changes nothing');
});

t.test('a key’s own limits, one by one', async (t) => {
  const limits = new RequestLimits(new FakeClock(), SPEC);
  const own: LimitedCaller = {
    ...KEY,
    limits: { decisions: { perMinute: 1 }, chat: { inFlight: 1 }, embeddings: NONE, models: NONE },
  };
  placeOf(limits.take(own, 'decisions')).end(true);
  t.match(limits.take(own, 'decisions'), { by: 'perMinute' });
  limits.take(own, 'chat');
  t.match(limits.take(own, 'chat'), { by: 'inFlight' });
  const free: LimitedCaller = { ...KEY, keyId: 'free', limits: { decisions: NONE } };
  const kinds = Array.from({ length: 1000 }, () => limits.take(free, 'decisions').kind);
  t.strictSame(new Set(kinds), new Set(['taken']));
  t.strictSame(limits.take({ ...free, limits: { decisions: { inFlight: 1000 } } }, 'decisions').kind, 'limited');
});

t.test('a limit that is set later counts what runs already, and a key without limits is forgotten', async (t) => {
  const clock = new FakeClock();
  const limits = new RequestLimits(clock, SPEC);
  const running = Array.from({ length: 5 }, () => placeOf(limits.take(KEY, 'chat')));
  const bounded: LimitedCaller = { ...KEY, limits: { chat: { inFlight: 4 } } };
  t.match(limits.take(bounded, 'chat'), { by: 'inFlight' });
  running.pop()?.end(true);
  t.match(limits.take(bounded, 'chat'), { by: 'inFlight' }, 'four still run');
  running.pop()?.end(true);
  placeOf(limits.take(bounded, 'chat')).end(true);
  for (const permit of running) permit.end(true);
  for (let i = 0; i < 1000; i++) placeOf(limits.take({ ...KEY, keyId: String(i) }, 'chat')).end(true);
  t.ok(limits.size <= 2, `${limits.size} keys remembered`);
});

t.test('a lowered limit applies at once, and the wait is until enough requests have left', async (t) => {
  const clock = new FakeClock();
  const limits = new RequestLimits(clock, SPEC);
  for (let i = 0; i < 10; i++) {
    placeOf(limits.take(KEY, 'decisions')).end(true);
    clock.advance(1000);
  }
  const lower: LimitedCaller = { ...KEY, limits: { decisions: { perMinute: 4 } } };
  t.match(limits.take(lower, 'decisions'), { by: 'perMinute', retryAfterMs: 56_000 });
  clock.advance(56_000);
  t.equal(limits.take(lower, 'decisions').kind, 'taken');
});

/** One step of a key’s history. */
type Step =
  | { readonly do: 'pass'; readonly ms: number }
  | { readonly do: 'take'; readonly key: number; readonly group: LimitGroup }
  | { readonly do: 'end'; readonly which: number; readonly ran: boolean };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ do: fc.constant('pass' as const), ms: fc.integer({ min: 0, max: 9000 }) }) },
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant('take' as const),
      key: fc.nat(1),
      group: fc.constantFrom<LimitGroup>('decisions', 'chat'),
    }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('end' as const), which: fc.nat(20), ran: fc.boolean() }) },
);

t.test('compared with a model that keeps every request', async (t) => {
  const bound = { inFlight: 4, perMinute: 6 };
  let limitedRuns = 0;
  fc.assert(
    fc.property(fc.array(step, { minLength: 50, maxLength: 300 }), (steps) => {
      const clock = new FakeClock();
      const limits = new RequestLimits(clock, { decisions: bound, chat: bound, embeddings: NONE, models: NONE });
      const all: { id: string; at: number; kept: boolean; open: boolean; place: Permit }[] = [];
      let limited = false;
      for (const one of steps) {
        if (one.do === 'pass') clock.advance(one.ms);
        else if (one.do === 'end') {
          const open = all.filter((request) => request.open);
          const request = open[one.which % Math.max(1, open.length)];
          if (!request) continue;
          request.open = false;
          request.kept = one.ran;
          request.place.end(one.ran);
        } else {
          const now = clock.now();
          const id = `${one.key} ${one.group}`;
          const mine = all.filter((request) => request.id === id);
          const counted = mine.filter(({ kept, at }) => kept && at > now - MINUTE);
          const running = mine.filter(({ open }) => open).length;
          const taken = limits.take({ account: 'a', keyId: String(one.key) }, one.group);
          if (taken.kind === 'taken') {
            if (counted.length >= bound.perMinute) throw new Error('one too many in a minute');
            if (running >= bound.inFlight) throw new Error('one too many in flight');
            all.push({ id, at: now, kept: true, open: true, place: taken.permit });
          } else {
            limited = true;
            const minute = counted.length >= bound.perMinute;
            if (taken.by !== (minute ? 'perMinute' : 'inFlight')) throw new Error(`limited by ${taken.by}`);
            const wait = minute ? (counted[0]?.at ?? NaN) + MINUTE - now : 1000;
            if (taken.retryAfterMs !== wait) throw new Error(`wait ${taken.retryAfterMs}, not ${wait}`);
            if (!minute && running < bound.inFlight) throw new Error('limited for nothing');
          }
        }
      }
      if (limited) limitedRuns++;
    }),
    { numRuns: rounds({ short: 30, long: 500 }) },
  );
  t.ok(limitedRuns > rounds({ short: 10, long: 250 }), 'many runs reach a limit');
});

t.test('ever new keys within a minute do not fill the memory, and what is in flight stays counted', async (t) => {
  const limits = new RequestLimits(new FakeClock(), SPEC);
  const places = Array.from({ length: 32 }, () => placeOf(limits.take(KEY, 'decisions')));
  for (let i = 0; i < MOST_KEYS + 1000; i++) placeOf(limits.take({ ...KEY, keyId: `k${i}` }, 'decisions')).end(true);
  t.ok(limits.size <= MOST_KEYS + 1, `${limits.size} keys remembered`);
  t.match(limits.take(KEY, 'decisions'), { kind: 'limited', by: 'inFlight' });
  for (const place of places) place.end(true);
});

/** Of which each key has 20; those of three minutes and more. */
const REQUESTS = rounds({ short: 40_000, long: 1_000_000 });

t.test(`${REQUESTS} requests of many keys leave nothing behind`, async (t) => {
  const clock = new FakeClock();
  const limits = new RequestLimits(clock, { ...SPEC, decisions: { inFlight: 2, perMinute: 5 } });
  let most = 0;
  const running: Permit[] = [];
  for (let i = 0; i < REQUESTS; i++) {
    if (i % 10 === 0) clock.advance(20);
    // A new key every 20 requests, as with permanent rotation.
    const taken = limits.take({ account: 'a', keyId: String(i / 20 - ((i / 20) % 1)) }, 'decisions');
    if (taken.kind === 'taken') running.push(taken.permit);
    if (running.length > 50) running.shift()?.end(i % 3 > 0);
    most = Math.max(most, limits.size);
  }
  // A key lasts 40 ms and counts for a minute after it: some 1,500 at a time.
  t.ok(most < 2000, `at most ${most} keys remembered`);
  for (const place of running) place.end(true);
  clock.advance(MINUTE);
  const last: LimitedCaller = { account: 'a', keyId: 'last' };
  for (let i = 0; i < most; i++) limits.take(last, 'decisions');
  t.equal(limits.size, 1, 'only the one that is still used');
});
