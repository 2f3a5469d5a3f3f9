import fc from 'fast-check';
import t from 'tap';
import { MOST_KEYS, TOKEN_LIMITS, type LimitedCaller, type TokenLimits } from '../../../sidecar/access/limits.js';
import { QuotaLedger, type TokenReservation, type TokensReserved } from '../../../sidecar/access/quotas.js';
import { rounds } from '../../support/long-form.js';
import { FakeClock } from '../../support/fake-clock.js';

const MINUTE = 60_000;
const DAY = 86_400_000;
/** The wall clock when the fake one is at 0: some hours before the end of a month. */
const START = Date.parse('2026-06-30T20:00:00Z');

const KEY: LimitedCaller = { account: 'acme', keyId: 'k' };

function open(start = START): { clock: FakeClock; quotas: QuotaLedger } {
  const clock = new FakeClock();
  return { clock, quotas: new QuotaLedger(clock, () => new Date(start + clock.now())) };
}

function held(reserved: TokensReserved<TokenReservation<number>>): TokenReservation<number> {
  if (reserved.kind !== 'reserved') throw new Error(reserved.kind);
  return reserved.reservation;
}

function remaining(quotas: QuotaLedger, caller: LimitedCaller): number[] {
  return quotas.left(caller).map((left) => left.remaining);
}

/** What a request of the model has. */
interface Running {
  readonly caller: LimitedCaller;
  readonly reservation: TokenReservation<number>;
  reserved: number;
  /** Tokens that it used, by time. */
  used: { at: number; tokens: number }[];
}

/** The same as the ledger, by counting everything again. */
class Model {
  readonly running: Running[] = [];
  readonly ended: { caller: LimitedCaller; at: number; tokens: number; used: Running['used'] }[] = [];

  /** Tokens in the time of a quota. */
  used(of: (caller: LimitedCaller) => boolean, name: keyof TokenLimits, now: number): number {
    const running = this.running.filter(({ caller }) => of(caller));
    const ended = this.ended.filter(({ caller }) => of(caller));
    const reserved = running.reduce((sum, each) => sum + each.reserved, 0);
    if (name !== 'tokensPerMinute') {
      const time = name === 'tokensPerDay' ? 'YYYY-MM-DD'.length : 'YYYY-MM'.length;
      const text = (at: number): string => new Date(START + at).toISOString().slice(0, time);
      return ended.reduce((sum, { at, tokens }) => sum + (text(at) === text(now) ? tokens : 0), reserved);
    }
    const counted = [...running, ...ended].flatMap(({ used }) => used);
    const recent = counted.reduce((sum, { at, tokens }) => sum + (at + MINUTE > now ? tokens : 0), 0);
    return running.reduce((sum, each) => sum + each.reserved - tokensOf(each.used), recent);
  }
}

function tokensOf(used: Running['used']): number {
  return used.reduce((sum, { tokens }) => sum + tokens, 0);
}

const limits = fc.record(Object.fromEntries(TOKEN_LIMITS.map((name) => [name, fc.integer({ min: 1, max: 3000 })])), {
  requiredKeys: [],
});

const event = fc.oneof(
  fc.record({ kind: fc.constant('begin' as const), of: fc.nat(), tokens: fc.integer({ min: 1, max: 700 }) }),
  fc.record({
    kind: fc.constant('grow' as const),
    of: fc.nat(),
    tokens: fc.integer({ min: -200, max: 400 }),
    used: fc.nat(100),
  }),
  fc.record({ kind: fc.constant('end' as const), of: fc.nat(), used: fc.nat(100) }),
  // Of a fault of the service, which is not billed.
  fc.record({ kind: fc.constant('fail' as const), of: fc.nat() }),
  fc.record({
    kind: fc.constant('wait' as const),
    ms: fc.oneof(fc.nat(500), fc.nat(30_000), fc.constantFrom(MINUTE, DAY / 8, DAY)),
  }),
);

t.test('no quota is ever passed, nothing stays reserved, and what is left is exact at each moment', async (t) => {
  let events = 0;
  let refused = 0;
  fc.assert(
    fc.property(
      fc.array(fc.record({ key: limits, account: fc.nat(1) }), { minLength: 1, maxLength: 4 }),
      fc.array(limits, { minLength: 2, maxLength: 2 }),
      fc.array(event, { minLength: 100, maxLength: 300 }),
      (keys, accounts, walk) => {
        const { clock, quotas } = open();
        const model = new Model();
        const callers = keys.map(({ key, account }, i): LimitedCaller => {
          const accountTokens = accounts[account] ?? {};
          return { account: `account-${account}`, keyId: `key-${i}`, ...key, accountTokens };
        });
        const quotasOf = (caller: LimitedCaller): { limit: number; used: number }[] => {
          const scopes = [
            [caller, (other: LimitedCaller) => other.keyId === caller.keyId],
            [caller.accountTokens ?? {}, (other: LimitedCaller) => other.account === caller.account],
          ] as const;
          return scopes.flatMap(([all, of]) =>
            TOKEN_LIMITS.flatMap((name) => {
              const limit = all[name];
              return limit === undefined ? [] : [{ limit, used: model.used(of, name, clock.now()) }];
            }),
          );
        };
        const fits = (caller: LimitedCaller, tokens: number): boolean =>
          quotasOf(caller).every(({ limit, used }) => used + tokens <= limit);
        const check = (): void => {
          for (const caller of callers) {
            const all = quotasOf(caller);
            if (all.some(({ limit, used }) => used > limit)) throw new Error('a quota was passed');
            const left = all.map(({ limit, used }) => limit - used);
            if (String(left) !== String(remaining(quotas, caller)))
              throw new Error(`left ${String(left)}, told ${String(remaining(quotas, caller))}`);
          }
          if (quotas.outstanding !== model.running.length) throw new Error('of other reservations');
        };
        for (const each of walk) {
          events += 1;
          if (each.kind === 'wait') clock.advance(each.ms);
          else if (each.kind === 'begin') {
            const caller = callers[each.of % callers.length] ?? KEY;
            const expected = fits(caller, each.tokens);
            const result = quotas.reserve(caller, each.tokens);
            if ((result.kind === 'reserved') !== expected) throw new Error(`expected ${expected}`);
            if (result.kind === 'reserved') {
              model.running.push({ caller, reservation: result.reservation, reserved: each.tokens, used: [] });
            } else refused += 1;
          } else {
            const running = model.running[each.of % Math.max(1, model.running.length)];
            if (!running) continue;
            const before = tokensOf(running.used);
            const used = each.kind === 'fail' ? 0 : before + Math.min(each.used, running.reserved - before);
            if (used > before) running.used.push({ at: clock.now(), tokens: used - before });
            if (each.kind === 'grow') {
              const further = Math.max(running.reserved + each.tokens, used) - running.reserved;
              const free = quotasOf(running.caller).map(({ limit, used: taken }) => limit - taken);
              const expected = running.reserved + Math.min(further, ...free);
              const extended = running.reservation.extend(running.reserved + each.tokens, used);
              if (extended !== expected) throw new Error(`expected ${expected}`);
              running.reserved = extended;
            } else {
              running.reservation.settle(used);
              running.reservation.settle(used + 1);
              model.running.splice(model.running.indexOf(running), 1);
              if (used === 0) running.used = [];
              model.ended.push({ caller: running.caller, at: clock.now(), tokens: used, used: running.used });
            }
          }
          check();
        }
        for (const { reservation } of model.running.splice(0)) reservation.settle(0);
        check();
        clock.advance(40 * DAY);
        for (const caller of callers) {
          const all = quotas.left(caller);
          if (all.some(({ limit, remaining }) => limit !== remaining)) throw new Error('not renewed');
        }
      },
    ),
    { numRuns: rounds({ short: 12, long: 2000 }) },
  );
  t.ok(refused > events / 50, `${refused} refusals in ${events} events`);
});

t.test('512 at once against each quota: as many begin as fit, and all is given back', async (t) => {
  for (const scope of ['key', 'account'] as const) {
    for (const name of TOKEN_LIMITS) {
      const { quotas } = open();
      const limit = { [name]: 1000 };
      const caller = scope === 'key' ? { ...KEY, ...limit } : { ...KEY, accountTokens: limit };
      const results = Array.from({ length: 512 }, (_, i) =>
        quotas.reserve(scope === 'key' ? caller : { ...caller, keyId: `k${i}` }, 30),
      );
      const begun = results.filter(({ kind }) => kind === 'reserved').map(held);
      t.equal(begun.length, 33, `${scope} ${name}`);
      t.match(results.at(-1), { kind: 'exceeded', quota: { scope, name, limit: 1000 }, retryAfterMs: 1000 });
      t.same(remaining(quotas, caller), [10]);
      for (const each of begun) each.settle(0);
      t.same(remaining(quotas, caller), [1000]);
      t.equal(quotas.outstanding, 0);
    }
  }
});

t.test('the wait that a refusal names is long enough, and no longer', async (t) => {
  const { clock, quotas } = open();
  const caller = { ...KEY, tokensPerMinute: 100, tokensPerDay: 300, tokensPerMonth: 500 };
  const use = (tokens: number): void => held(quotas.reserve(caller, tokens)).settle(tokens);
  const wait = (tokens: number): number => {
    const result = quotas.problem(caller, tokens);
    return result?.kind === 'exceeded' ? result.retryAfterMs : 0;
  };
  use(60);
  clock.advance(20_000);
  use(40);
  t.equal(wait(1), 40_000, 'until the first ones leave the minute');
  t.equal(wait(61), MINUTE, 'until the others do, too');
  t.equal(wait(101), Infinity, 'more than there ever is');
  clock.advance(40_000);
  t.equal(wait(60), 0);
  clock.advance(MINUTE);
  use(100);
  clock.advance(MINUTE);
  use(100);
  clock.advance(MINUTE);
  t.equal(
    wait(1),
    Date.parse('2026-07-01T00:00:00Z') - START - clock.now(),
    'until the next day, which begins a month',
  );
  clock.advance(wait(1) - 1);
  t.equal(wait(1), 1);
  clock.advance(1);
  t.equal(wait(100), 0);
  t.match(quotas.left(caller), [{}, { resetMs: DAY }, { resetMs: 31 * DAY }]);
  for (const tokens of [100, 100, 100]) {
    use(tokens);
    clock.advance(MINUTE);
  }
  clock.advance(DAY);
  use(100);
  clock.advance(MINUTE);
  use(100);
  clock.advance(MINUTE);
  t.equal(wait(1), Date.parse('2026-08-01T00:00:00Z') - START - clock.now(), 'until the next month');
});

t.test('day and month begin at what the totals have, and wait for them', async (t) => {
  const clock = new FakeClock();
  const asked: unknown[][] = [];
  let known = false;
  const earlier = (...of: unknown[]): number => {
    asked.push(of);
    return of[0] === '2026-06-03' ? 7 : 100;
  };
  const quotas = new QuotaLedger(
    clock,
    () => new Date('2026-06-03T12:00:00Z'),
    () => (known ? earlier : undefined),
  );
  const caller = { ...KEY, tokensPerDay: 10, accountTokens: { tokensPerMonth: 1000 } };
  t.same(quotas.reserve(caller, 1), { kind: 'unknown' });
  t.same(quotas.problem(caller, 1), { kind: 'unknown' });
  t.same(quotas.left(caller), []);
  t.equal(quotas.reserve(KEY, 1).kind, 'reserved', 'no quota waits for nothing');
  known = true;
  t.same(remaining(quotas, caller), [3, 1000 - 207]);
  const days = ['2026-06-01', '2026-06-02', '2026-06-03'];
  t.same(asked, [...days.map((day) => [day, 'acme', 'k']), ...days.map((day) => [day, 'acme'])], 'each day once');
  held(quotas.reserve(caller, 3)).settle(2);
  t.same(remaining(quotas, caller), [1, 1000 - 209]);
});

t.test('a quota that is set while a request runs counts it once it has ended', async (t) => {
  const { quotas } = open();
  const before = held(quotas.reserve(KEY, 50));
  const limited = { ...KEY, tokensPerMinute: 100, tokensPerDay: 100 };
  t.same(remaining(quotas, limited), [100, 100]);
  before.settle(40);
  t.same(remaining(quotas, limited), [60, 60]);
});

t.test('a clock that jumps ahead and back blocks no key for longer than a day', async (t) => {
  let now = Date.parse('2036-06-01T00:00:00Z');
  const quotas = new QuotaLedger(new FakeClock(), () => new Date(now));
  const daily = { ...KEY, tokensPerDay: 100 };
  const wait = (): number => {
    const result = quotas.problem(daily, 1);
    return result?.kind === 'exceeded' ? result.retryAfterMs : 0;
  };
  held(quotas.reserve(daily, 100)).settle(100);
  t.equal(wait(), DAY);
  now = Date.parse('2026-06-01T23:00:00Z');
  t.equal(wait(), DAY / 24);
  now += DAY / 24;
  t.equal(wait(), 0);
  held(quotas.reserve(daily, 100)).settle(100);
  now -= 10_000;
  t.equal(wait(), 10_000, 'a clock that is set back does not return tokens');
  now += 10_000;
  t.equal(wait(), DAY, 'nor does the same midnight a second time');
});

t.test('ever new keys neither fill the memory nor take tokens from one that runs', async (t) => {
  // Later in a month each of them is looked up on all its days.
  const { quotas } = open(Date.parse('2026-10-01T12:00:00Z'));
  const daily = { ...KEY, tokensPerDay: 100 };
  const running = held(quotas.reserve(daily, 100));
  for (let i = 0; i < MOST_KEYS + 1000; i += 1) held(quotas.reserve({ ...daily, keyId: `minted-${i}` }, 1)).settle(1);
  t.ok(quotas.size <= MOST_KEYS, `${quotas.size} keys`);
  t.same(remaining(quotas, daily), [0]);
  running.settle(100);
  t.same(remaining(quotas, daily), [0]);
});
