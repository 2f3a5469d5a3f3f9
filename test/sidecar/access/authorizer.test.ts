import t from 'tap';
import fc from 'fast-check';
import { createHash } from 'node:crypto';
import { AuthorizerIdentity, type AuthorizerOptions, AnswerCache } from '../../../sidecar/access/authorizer.js';
import type { Reply } from '../../../sidecar/access/authorizer-client.js';
import type { Caller, Denied } from '../../../sidecar/access/identity.js';
import { FakeClock } from '../../support/fake-clock.js';
import { sends } from '../../support/keys.js';
import { ACME } from '../../support/in-process.js';
import { rounds } from '../../support/long-form.js';

const GOOD = { kind: 'json', value: { caller: { account: 'acme', keyId: 'k1', models: 'all' } } } as const;
const FAILED = { kind: 'failed', why: 'timeout' } as const;
const UNAVAILABLE = { kind: 'denied', code: 'gateway_unavailable' } as const;
const OVERLOADED = { kind: 'denied', code: 'control_plane_overloaded' } as const;

/** Replaces the network: requests wait until a test answers them. */
class Script {
  readonly questions: { readonly question: object; readonly answer: (reply: Reply) => void }[] = [];

  ask(question: object): Promise<Reply> {
    return new Promise((answer) => this.questions.push({ question, answer }));
  }
}

interface Harness {
  readonly clock: FakeClock;
  readonly script: Script;
  readonly from: (key: string) => Promise<Caller | Denied>;
  /** Resolves credentials, and answers the request that this must cause. */
  readonly said: (key: string, reply: Reply) => Promise<Caller | Denied>;
}

function harness(changes: Partial<AuthorizerOptions> = {}): Harness {
  const clock = new FakeClock();
  const script = new Script();
  const identity = new AuthorizerIdentity(clock, {
    client: script,
    environment: 'production',
    send: 'hash',
    concurrency: 3,
    cache: { entries: 100, ttlMs: 10_000, deniedTtlMs: 2000, staleMs: 60_000 },
    breaker: { failures: 3, openMs: 5000, trialMs: 500 },
    ...changes,
  });
  const from = (key: string): Promise<Caller | Denied> => identity.resolve(sends(`Bearer ${key}`));
  return {
    clock,
    script,
    from,
    said: (key, reply) => {
      const count = script.questions.length;
      const answer = from(key);
      if (script.questions.length !== count + 1) throw new Error('nothing was asked');
      script.questions[count]?.answer(reply);
      return answer;
    },
  };
}

t.test('requests, and the results of their answers', async (t) => {
  const hash = createHash('sha256').update('key-1').digest('hex');
  const hashed = harness();
  t.strictSame(await hashed.said('key-1', GOOD), {
    kind: 'caller',
    account: 'acme',
    keyId: 'k1',
    environment: 'production',
    models: 'all',
    weight: 4,
  });
  t.strictSame(hashed.script.questions[0]?.question, { keyHash: hash, environment: 'production' });

  const plain = harness({ send: 'key' });
  const limits = { decisions: { inFlight: 2 }, chat: { perMinute: 60 } };
  const quotas = { tokensPerMinute: 10, tokensPerMonth: 9000 };
  const gated = { cohort: 'early', tokensPerDay: 1000, accountTokens: quotas };
  const value = {
    caller: {
      account: 'a',
      keyId: 'b',
      models: ['m', 'n'],
      routes: ['chat'],
      class: 'batch',
      limits,
      ...gated,
      tiers: ['flex'],
    },
  };
  t.strictSame(await plain.said('t'.repeat(3000), { kind: 'json', value }), {
    kind: 'caller',
    account: 'a',
    keyId: 'b',
    environment: 'production',
    models: new Set(['m', 'n']),
    routes: new Set(['chat']),
    limits,
    ...gated,
    tiers: new Set(['flex']),
    weight: 1,
  });
  t.strictSame(plain.script.questions[0]?.question, { key: 't'.repeat(3000), environment: 'production' });

  const denied = { code: 'quota_exceeded', retryAfterMs: 1500 };
  t.strictSame(await harness().said('k', { kind: 'json', value: { denied } }), { kind: 'denied', ...denied });
});

t.test('a denial that names a wait names one not shorter than the time for which it is cached', async (t) => {
  const { clock, script, from, said } = harness();
  for (const code of ['user_rate_limited', 'quota_exceeded']) {
    t.same(await said(code, { kind: 'json', value: { denied: { code } } }), {
      kind: 'denied',
      code,
      retryAfterMs: 2000,
    });
    clock.advance(1500);
    t.match(await from(code), { retryAfterMs: 500 });
  }
  t.equal(script.questions.length, 2);
  const named = { kind: 'denied', code: 'user_rate_limited', retryAfterMs: 60_000 };
  t.same(await said('named', { kind: 'json', value: { denied: { code: named.code, retryAfterMs: 60_000 } } }), named);
});

t.test('malformed credentials are not looked up', async (t) => {
  const { script, from } = harness();
  for (const key of ['', 'a b', 'ü', 'x'.repeat(3073)]) t.match(await from(key), { code: 'invalid_api_key' });
  t.equal(script.questions.length, 0);
});

t.test('answers outside the schema are failures', async (t) => {
  const caller = GOOD.value.caller;
  const values: unknown[] = [
    null,
    [],
    {},
    'all',
    { caller, denied: { code: 'invalid_api_key' } },
    { caller: { ...caller, account: '' } },
    { caller: { ...caller, account: 'аcme' } },
    { caller: { ...caller, keyId: 'a b' } },
    { caller: { account: 'a', keyId: 'b' } },
    { caller: { ...caller, models: 'none' } },
    { caller: { ...caller, models: ['*'] } },
    { caller: { ...caller, models: Array.from({ length: 257 }, (_, i) => `m${i}`) } },
    { caller: { ...caller, region: 'an unknown restriction' } },
    { caller: { ...caller, vouched: true } },
    { caller: { ...caller, limits: { inFlight: 1, perMinute: 1 } } },
    { caller: { ...caller, limits: { inFlight: 2, chat: { perMinute: 1 } } } },
    { denied: { code: 'internal' } },
    { denied: { code: 'draining' } },
    { denied: { code: 'quota_exceeded', retryAfterMs: -1 } },
    { denied: { code: 'quota_exceeded', retryAfterMs: 1e12 } },
    JSON.parse('{"__proto__":{"caller":{}},"denied":{"code":"constructor"}}'),
  ];
  for (const value of values) {
    t.same(
      await harness().said('k', { kind: 'json', value }),
      { ...UNAVAILABLE, retryAfterMs: 1000 },
      JSON.stringify(value),
    );
  }
});

t.test('a key is looked up once at a time, and cached', async (t) => {
  const { clock, script, from } = harness();
  const waiting = Array.from({ length: 50 }, () => from('key-1'));
  t.equal(script.questions.length, 1);
  script.questions[0]?.answer(GOOD);
  for (const found of await Promise.all(waiting)) t.equal(found.kind, 'caller');
  clock.advance(9999);
  t.equal((await from('key-1')).kind, 'caller');
  t.equal(script.questions.length, 1);
  clock.advance(1);
  void from('key-1');
  t.equal(script.questions.length, 2);
});

t.test('no more lookups at once than allowed; cached callers continue', async (t) => {
  const { clock, script, from, said } = harness();
  await said('known', GOOD);
  clock.advance(10_000);
  for (const key of ['a', 'b', 'c']) void from(key);
  t.same(await from('d'), { ...OVERLOADED, retryAfterMs: 1000 });
  t.match(await from('known'), { account: 'acme' });
  t.equal(script.questions.length, 4);
  script.questions[1]?.answer(GOOD);
  t.match(await from('a'), { account: 'acme' });
  void from('d');
  t.equal(script.questions.length, 5, 'and there is room again');
});

t.test('a failing authorizer is not asked for a while, and cached callers are served meanwhile', async (t) => {
  const { clock, script, from, said } = harness();
  await said('known', GOOD);
  await said('revoked', { kind: 'json', value: { denied: { code: 'revoked_api_key' } } });
  clock.advance(10_000);
  t.match(await said('known', FAILED), { account: 'acme' });
  t.same(await said('a', FAILED), { ...UNAVAILABLE, retryAfterMs: 1000 });
  t.same(await said('b', FAILED), { ...UNAVAILABLE, retryAfterMs: 5000 }, 'the third opens the breaker');
  const asked = script.questions.length;
  t.same(await from('c'), { ...UNAVAILABLE, retryAfterMs: 5000 });
  t.same(await from('revoked'), { ...UNAVAILABLE, retryAfterMs: 5000 }, 'a denial is not kept longer');
  t.match(await from('known'), { account: 'acme' });
  clock.advance(4000);
  t.same(await from('c'), { ...UNAVAILABLE, retryAfterMs: 1000 }, 'Retry-After counts down');
  t.equal(script.questions.length, asked);
  clock.advance(1000);
  t.match(await said('c', GOOD), { account: 'acme' });
  t.match(await said('d', GOOD), { account: 'acme' });

  const down = harness({ breaker: { failures: 1, openMs: 100_000, trialMs: 500 } });
  await down.said('known', GOOD);
  down.clock.advance(10_000);
  await down.said('a', FAILED);
  down.clock.advance(59_999);
  t.match(await down.from('known'), { account: 'acme' });
  down.clock.advance(1);
  t.match(await down.from('known'), UNAVAILABLE, 'no caller is kept forever');
});

t.test('one key whose lookup always fails does not open the breaker', async (t) => {
  const { clock, script, from, said } = harness();
  await said('poisoned', FAILED);
  for (let i = 0; i < 100; i += 1) t.match(await from('poisoned'), UNAVAILABLE);
  t.equal(script.questions.length, 1);
  t.match(await said('good', GOOD), { account: 'acme' });
  clock.advance(1000);
  await said('poisoned', FAILED);
  t.match(await said('other', GOOD), { account: 'acme' });
  for (let i = 0; i < 10; i += 1) {
    clock.advance(1000);
    await said('poisoned', FAILED);
  }
  t.match(await said('new', GOOD), { account: 'acme' }, 'nor if no other key is looked up meanwhile');
  await said('a', FAILED);
  await said('b', FAILED);
  t.match(await said('c', FAILED), { retryAfterMs: 5000 }, 'several keys do');
});

t.test('the callbacks report how each caller was resolved, and the outcome of each lookup', async (t) => {
  const reported: string[] = [];
  const { clock, from, said, script } = harness({
    concurrency: 1,
    breaker: { failures: 1, openMs: 5000, trialMs: 500 },
    events: {
      lookedUp: (result) => reported.push(result),
      stale: () => reported.push('stale'),
      frozen: (account) => reported.push(`${account} is frozen`),
      asked: (outcome, ms) => reported.push(`${outcome} after ${ms}`),
    },
  });
  const heard = (): string[] => reported.splice(0);
  const first = from('a');
  const second = from('a');
  const third = from('b');
  clock.advance(30);
  script.questions[0]?.answer(GOOD);
  await Promise.all([first, second, third]);
  t.strictSame(heard(), ['asked', 'joined', 'left_alone', 'answered after 30']);
  await from('a');
  t.strictSame(heard(), ['cached']);
  await said('c', { kind: 'overloaded', retryAfterMs: 1000 });
  t.strictSame(heard(), ['asked', 'overloaded after 0']);
  clock.advance(11_000);
  await said('a', FAILED);
  t.strictSame(heard(), ['asked', 'failed after 0', 'stale'], 'a cached caller continues');
  await from('d');
  t.strictSame(heard(), ['left_alone']);
  clock.advance(5001);
  await said('d', { kind: 'json', value: {} });
  t.strictSame(heard(), ['asked', 'invalid after 0']);
  await from('');
  t.strictSame(heard(), [], 'no key, no lookup');
  clock.advance(60_000);
  await said('a', { kind: 'json', value: { denied: { code: 'account_frozen' } } });
  t.strictSame(heard(), ['asked', 'answered after 0', 'acme is frozen'], 'of a cached caller');
});

t.test('a refusal has the account and the key that it is about, for the log', async (t) => {
  const { clock, from, said } = harness();
  const named = { account: 'acme', keyId: 'k1' };
  const denied = { code: 'insufficient_credit' };
  t.match(
    await said('named', { kind: 'json', value: { denied: { ...denied, ...named } } }),
    { code: 'insufficient_credit', known: named },
    'as the answer names them',
  );
  t.match(await from('named'), { code: 'insufficient_credit', known: named }, 'from the cache too');
  t.strictSame(await said('new', { kind: 'json', value: { denied: { code: 'invalid_api_key' } } }), {
    kind: 'denied',
    code: 'invalid_api_key',
  });

  await said('known', GOOD);
  for (const code of ['account_frozen', 'revoked_api_key']) {
    clock.advance(10_000);
    t.match(
      await said('known', { kind: 'json', value: { denied: { code } } }),
      { code, known: named },
      'as of an earlier one',
    );
  }
  clock.advance(10_000);
  t.match(await said('known', FAILED), { ...UNAVAILABLE, known: named });
  t.equal(
    ((await said('x', { kind: 'json', value: { denied: { ...denied, keyId: 'k 1' } } })) as Denied).code,
    'gateway_unavailable',
  );
});

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
    { numRuns: rounds({ short: 80, long: 2000 }) },
  );
  t.ok(hits > rounds({ short: 200, long: 2000 }), `${hits} answers were compared`);
});
