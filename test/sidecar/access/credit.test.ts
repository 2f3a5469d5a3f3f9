import fc from 'fast-check';
import t from 'tap';
import { CreditLedger, type Reservation, parseCreditFile } from '../../../sidecar/access/credit.js';
import { FileProblem } from '../../../sidecar/lib/checked-file.js';
import { rounds } from '../../support/long-form.js';

function held(ledger: CreditLedger, account: string, amount: bigint): Reservation {
  const reserved = ledger.reserve(account, amount);
  if (reserved.kind !== 'reserved') throw new Error(reserved.kind);
  return reserved.reservation;
}

t.test('a reservation is held in full, settled once, and its rest is available again', async (t) => {
  let settled = 0;
  const ledger = new CreditLedger(new Map([['acme', 100n]]), () => (settled += 1));
  ledger.open(new Map([['acme', 10n]]));
  const first = held(ledger, 'acme', 60n);
  t.strictSame(ledger.balance('acme'), { granted: 100n, settled: 10n, reserved: 60n });
  t.equal(ledger.outstanding, 1);
  t.strictSame(ledger.reserve('acme', 31n), { kind: 'insufficient' }, 'only 30 are left');
  const second = held(ledger, 'acme', 30n);
  first.settle(5n);
  first.settle(60n);
  t.strictSame(ledger.balance('acme'), { granted: 100n, settled: 15n, reserved: 30n });
  second.settle(0n);
  t.strictSame(ledger.balance('acme'), { granted: 100n, settled: 15n, reserved: 0n });
  t.equal(ledger.outstanding, 0);
  t.equal(settled, 2);
});

t.test('before earlier spending is known, only free requests are admitted', async (t) => {
  const ledger = new CreditLedger(new Map([['acme', 100n]]));
  t.strictSame(ledger.reserve('acme', 1n), { kind: 'unavailable' });
  const free = held(ledger, 'acme', 0n);
  ledger.open(new Map([['acme', 99n]]));
  t.strictSame(ledger.reserve('acme', 2n), { kind: 'insufficient' });
  held(ledger, 'acme', 1n);
  free.settle(0n);
  t.throws(() => ledger.open(new Map([['acme', 99n]])), 'earlier spending cannot be counted twice');
});

t.test('an account without a grant has nothing, and free requests need nothing', async (t) => {
  const ledger = new CreditLedger(new Map());
  ledger.open(new Map());
  t.strictSame(ledger.reserve('stranger', 1n), { kind: 'insufficient' });
  held(ledger, 'stranger', 0n).settle(0n);
  t.strictSame(ledger.reserve('toString', 1n), { kind: 'insufficient' });
});

t.test('grants change during requests', async (t) => {
  const ledger = new CreditLedger(new Map([['acme', 10n]]));
  ledger.open(new Map());
  const running = held(ledger, 'acme', 10n);
  ledger.grant(new Map([['acme', 15n]]));
  held(ledger, 'acme', 5n).settle(0n);
  ledger.grant(new Map());
  t.strictSame(ledger.reserve('acme', 1n), { kind: 'insufficient' });
  // Free requests continue below 0 too.
  held(ledger, 'acme', 0n).settle(0n);
  running.settle(10n);
  t.strictSame(ledger.balance('acme'), { granted: 0n, settled: 10n, reserved: 0n });
});

/** Requests of three accounts in any order: each reserves, and settles at most that much, possibly twice. */
const STEPS = fc.array(
  fc.oneof(
    fc.record({
      act: fc.constant('reserve' as const),
      account: fc.nat({ max: 2 }),
      amount: fc.bigInt({ min: 0n, max: 60n }),
    }),
    fc.record({ act: fc.constant('settle' as const), which: fc.nat(), percent: fc.bigInt({ min: 0n, max: 100n }) }),
    fc.record({
      act: fc.constant('grant' as const),
      account: fc.nat({ max: 2 }),
      amount: fc.bigInt({ min: 0n, max: 100n }),
    }),
  ),
  { maxLength: 200 },
);

t.test('however requests overlap: nothing is overspent, nothing leaks', async () => {
  fc.assert(
    fc.property(STEPS, (steps) => {
      const granted = new Map([0, 1, 2].map((account) => [String(account), 100n]));
      const ledger = new CreditLedger(granted);
      ledger.open(new Map());
      const running: { readonly account: string; readonly amount: bigint; readonly reservation: Reservation }[] = [];
      const ended: typeof running = [];
      const spent = new Map<string, bigint>();
      for (const step of steps) {
        if (step.act === 'grant') {
          // Top-ups only: what was granted may be spent already.
          const account = String(step.account);
          granted.set(account, (granted.get(account) ?? 0n) + step.amount);
          ledger.grant(new Map(granted));
        } else if (step.act === 'reserve') {
          const account = String(step.account);
          const before = ledger.balance(account);
          const left = before.granted - before.settled - before.reserved;
          const reserved = ledger.reserve(account, step.amount);
          if ((reserved.kind === 'reserved') !== step.amount <= left) return false;
          if (reserved.kind === 'reserved')
            running.push({ account, amount: step.amount, reservation: reserved.reservation });
        } else if (running.length > 0) {
          const [one] = running.splice(step.which % running.length, 1);
          if (!one) return false;
          const actual = (one.amount * step.percent) / 100n;
          one.reservation.settle(actual);
          spent.set(one.account, (spent.get(one.account) ?? 0n) + actual);
          ended.push(one);
          // A second settlement changes nothing.
          ended[step.which % ended.length]?.reservation.settle(60n);
        }
        for (const [account, amount] of granted) {
          const balance = ledger.balance(account);
          const held = running.filter((one) => one.account === account).reduce((sum, one) => sum + one.amount, 0n);
          const right = balance.reserved === held && balance.settled === (spent.get(account) ?? 0n);
          if (!right || balance.granted !== amount || amount - balance.settled - balance.reserved < 0n) return false;
        }
        if (ledger.outstanding !== running.length) return false;
      }
      return true;
    }),
    { numRuns: rounds({ short: 20, long: 300 }) },
  );
});

t.test('a free request that ends takes no other one’s reservation with it', async (t) => {
  const ledger = new CreditLedger(new Map([['acme', 10n]]));
  ledger.open(new Map());
  const free = [held(ledger, 'acme', 0n), held(ledger, 'acme', 0n)];
  free[0]?.settle(0n);
  const paid = held(ledger, 'acme', 10n);
  free[1]?.settle(0n);
  t.strictSame(ledger.balance('acme'), { granted: 10n, settled: 0n, reserved: 10n });
  t.strictSame(ledger.reserve('acme', 1n), { kind: 'insufficient' }, 'no dollar is spent twice');
  paid.settle(10n);
  t.strictSame(ledger.balance('acme'), { granted: 10n, settled: 10n, reserved: 0n });
});

t.test('free requests of ever new accounts leave nothing behind', async (t) => {
  const ledger = new CreditLedger(new Map([['paid', 10n]]));
  ledger.open(new Map());
  const settle = (account: string, most: bigint, actual: bigint): void => {
    const reserved = ledger.reserve(account, most);
    if (reserved.kind === 'reserved') reserved.reservation.settle(actual);
  };
  for (let i = 0; i < 100; i += 1) settle(`minted-${i}`, 0n, 0n);
  t.equal(ledger.accounts, 0);
  const [first, second] = [ledger.reserve('paid', 3n), ledger.reserve('paid', 4n)];
  if (first.kind === 'reserved') first.reservation.settle(0n);
  t.equal(ledger.balance('paid').reserved, 4n);
  if (second.kind === 'reserved') second.reservation.settle(2n);
  settle('paid', 1n, 0n);
  t.same(ledger.balance('paid'), { granted: 10n, settled: 2n, reserved: 0n }, 'what was paid stays');
});

const FILE = 'credit.json';

function parse(content: unknown): ReadonlyMap<string, bigint> {
  return parseCreditFile(typeof content === 'string' ? content : JSON.stringify(content), FILE);
}

function grants(...usd: string[]): object {
  return { version: 1, accounts: { acme: usd.map((amount, i) => ({ id: `g${i}`, usd: amount })) } };
}

t.test('an account has the sum of its grants', async (t) => {
  const granted = parse({
    version: 1,
    accounts: {
      acme: [
        { id: 'inv-1', usd: '25.00', at: '2026-10-03T00:00:00Z' },
        { id: 'inv-2', usd: '0.000000000001' },
        { id: 'back-1', usd: '-5' },
      ],
      empty: [],
    },
  });
  t.strictSame(
    granted,
    new Map([
      ['acme', 20_000_000_000_001n],
      ['empty', 0n],
    ]),
  );
});

t.test('amounts that cannot be read exactly are refused, with their place', async (t) => {
  for (const [content, line] of [
    ['{', /is not JSON/],
    [
      '{"version":1,"accounts":{\n"acme":[{"id":"g","usd":"25"}],\n"beta":[],\n"acme":[]}}',
      /repeats a name within one object, on line 4 /,
    ],
    [{ version: 1 }, /accounts is required/],
    [{ version: 1, accounts: { acme: [{ id: 'g', usd: 25 }] } }, /accounts\.acme\[0\]\.usd must be a string/],
    [grants('0.0000000000001'), /grant g0: usd must be dollars/],
    [grants('1e3'), /grant g0: usd must be dollars/],
    [{ version: 1, accounts: { a: [{ id: 'g', usd: '1' }], b: [{ id: 'g', usd: '1' }] } }, /two grants have the id g/],
    [{ version: 1, accounts: { a: [{ id: 'g', usd: '1', by: 'me' }] } }, /accounts\.a\[0\]\.by is not a known field/],
  ] as const) {
    t.throws(() => parse(content), FileProblem, String(line));
    t.throws(() => parse(content), { message: line });
  }
});
