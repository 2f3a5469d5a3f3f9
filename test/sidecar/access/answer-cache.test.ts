import fc from 'fast-check';
import t from 'tap';
import { AnswerCache } from '../../../sidecar/access/answer-cache.js';
import type { Caller, Denied } from '../../../sidecar/access/identity.js';
import { FakeClock } from '../../support/fake-clock.js';
import { ACME } from '../../support/in-process.js';

const OPTIONS = { entries: 3, ttlMs: 100, deniedTtlMs: 50, staleMs: 1000 };
const UNKNOWN: Denied = { kind: 'denied', code: 'invalid_api_key' };

function make(changes = {}): { clock: FakeClock; cache: AnswerCache } {
  const clock = new FakeClock();
  return { clock, cache: new AnswerCache(clock, { ...OPTIONS, ...changes }) };
}

t.test('callers and denials are kept for their times, to the millisecond', async (t) => {
  const { clock, cache } = make();
  cache.keep('a', ACME);
  cache.keep('b', UNKNOWN);
  clock.advance(49);
  t.equal(cache.fresh('a'), ACME);
  t.same(cache.fresh('b'), UNKNOWN);
  clock.advance(1);
  t.equal(cache.fresh('b'), undefined);
  clock.advance(50);
  t.equal(cache.fresh('a'), undefined);
  t.equal(cache.fresh('c'), undefined);
});

t.test('a caller may be kept longer within its bound, a denial never', async (t) => {
  const { clock, cache } = make();
  cache.keep('a', ACME);
  cache.keep('b', UNKNOWN);
  clock.advance(1099);
  t.equal(cache.stale('a', 0), ACME);
  t.equal(cache.stale('b', 0), undefined);
  t.equal(cache.fresh('a'), undefined, 'it is looked up again');
  clock.advance(1);
  t.equal(cache.stale('a', 0), undefined);
  t.equal(cache.size, 1);

  cache.keep('a', ACME);
  clock.advance(150);
  cache.stale('a', 30);
  clock.advance(29);
  t.equal(cache.fresh('a'), ACME, 'it is kept for a short time');
  clock.advance(1);
  t.equal(cache.fresh('a'), undefined);
  for (let i = 0; i < 2000; i += 1) {
    cache.stale('a', 30);
    clock.advance(1);
  }
  t.equal(cache.stale('a', 30), undefined, 'keeping it does not change its bound');
});

t.test('the last answer counts', async (t) => {
  const { cache } = make();
  cache.keep('a', ACME);
  cache.keep('a', { kind: 'denied', code: 'revoked_api_key' });
  t.match(cache.fresh('a'), { code: 'revoked_api_key' });
  t.equal(cache.stale('a', 0), undefined, 'a revoked key is no longer known');
  cache.keep('a', ACME);
  t.equal(cache.fresh('a'), ACME);
  t.equal(cache.size, 1);
});

t.test('a named wait counts down and ends with its time', async (t) => {
  const { clock, cache } = make({ deniedTtlMs: 10_000 });
  cache.keep('a', { kind: 'denied', code: 'quota_exceeded', retryAfterMs: 1000 });
  clock.advance(400.5);
  t.same(cache.fresh('a'), { kind: 'denied', code: 'quota_exceeded', retryAfterMs: 600 });
  clock.advance(599.5);
  t.equal(cache.fresh('a'), undefined);
  cache.keep('a', UNKNOWN, 7);
  clock.advance(7);
  t.equal(cache.fresh('a'), undefined);
});

t.test('invalid keys displace no caller', async (t) => {
  const { cache } = make();
  cache.keep('a', ACME);
  for (let i = 0; i < 1000; i += 1) cache.keep(`made up ${i}`, UNKNOWN);
  t.equal(cache.fresh('a'), ACME);
  t.equal(cache.size, 4);
});

t.test('the least recently used is removed first', async (t) => {
  const { cache } = make();
  for (const index of ['a', 'b', 'c']) cache.keep(index, ACME);
  cache.fresh('a');
  cache.keep('d', ACME);
  t.same(
    ['a', 'b', 'c', 'd'].map((index) => cache.fresh(index) !== undefined),
    [true, false, true, true],
  );
  const none = make({ entries: 0 }).cache;
  none.keep('a', ACME);
  none.keep('b', UNKNOWN);
  t.equal(none.size, 0, 'it can be disabled');
});

t.test('compared with a cache that removes nothing', async (t) => {
  const step = fc.record({
    act: fc.constantFrom('caller', 'denied', 'fresh', 'stale', 'wait'),
    index: fc.constantFrom('a', 'b', 'c', 'd', 'e'),
    ms: fc.nat(40),
  });
  let hits = 0;
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100, size: 'max' }), (steps) => {
      const { clock, cache } = make();
      const last = new Map<string, { answer: Caller | Denied; at: number }>();
      for (const { act, index, ms } of steps) {
        const kept = last.get(index);
        const age = clock.now() - (kept?.at ?? 0);
        if (act === 'wait') clock.advance(ms);
        else if (act === 'caller' || act === 'denied') {
          const answer = act === 'caller' ? { ...ACME, account: `${index}${clock.now()}` } : UNKNOWN;
          cache.keep(index, answer);
          last.set(index, { answer, at: clock.now() });
        } else {
          const found = act === 'fresh' ? cache.fresh(index) : cache.stale(index, 0);
          if (found !== undefined) {
            hits += 1;
            const bound = found.kind === 'denied' ? 50 : act === 'fresh' ? 100 : 1100;
            const same = found.kind === 'caller' ? found === kept?.answer : kept?.answer.kind === 'denied';
            if (!same || age >= bound) return false;
          }
        }
        if (cache.size > 6) return false;
      }
      return true;
    }),
    { numRuns: 2000 },
  );
  t.ok(hits > 2000, `${hits} answers were compared`);
});
