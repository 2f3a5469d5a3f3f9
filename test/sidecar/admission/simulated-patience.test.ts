/** Overload in simulated time: what the queue reaches with what it learns (docs/admission.md#overload). */
import t from 'tap';
import { seeded } from '../../../bench/support/load.js';
import {
  callers,
  figuresOf,
  MEAN_MS,
  simulate,
  type Caller,
  type SimulatedCall,
} from '../../support/simulated-patience.js';

const MINUTE = 60_000;
const DEFAULT_MS = 10_000;
const LEARNS = { kind: 'whole', maxWaitMs: DEFAULT_MS, learns: true } as const;

/**
 * Good seat time on the arrivals of these tests by a queue that knows the distributions of patience and of lengths; it was simulated
 * once (bench/results/patience.md). The second is the sum over three seeds.
 */
const ORACLE = { short: 0.73843, long: 0.61468 } as const;

t.test('whole replies, callers who wait 2 s, twice the load: nearly as many are served as by an oracle', async (t) => {
  const untilMs = 5 * MINUTE;
  const list = callers(2, 2000, MEAN_MS.short, untilMs, 1);
  const [fromMs, toMs] = [MINUTE, untilMs - DEFAULT_MS];
  const { good } = figuresOf(await simulate(list, { ...LEARNS, untilMs }), fromMs, toMs);
  t.ok(good >= 0.95 * ORACLE.short, `${good} of ${ORACLE.short}`);
  const without = figuresOf(await simulate(list, { ...LEARNS, learns: false, untilMs }), fromMs, toMs).good;
  t.ok(good > without + 0.1, `${without} without learning`);
});

t.test(
  'most whole replies take longer than their callers wait: seats are kept for those who come, not for who waited',
  async (t) => {
    const untilMs = 5 * MINUTE;
    const [fromMs, toMs] = [MINUTE, untilMs - DEFAULT_MS];
    let good = 0;
    for (const seed of [1, 2, 3]) {
      const list = callers(4, 2000, MEAN_MS.long, untilMs, seed);
      good += figuresOf(await simulate(list, { ...LEARNS, untilMs }), fromMs, toMs).good;
    }
    t.ok(good >= 0.91 * ORACLE.long, `${good} of ${ORACLE.long}`);
  },
);

t.test('a burst of four requests a seat on an idle service is served', async (t) => {
  const burst = Array.from({ length: 32 }, (_, at): Caller => {
    return { atMs: 60_000 + at, account: `account ${at % 3}`, holdMs: 1000, patienceMs: Infinity };
  });
  const before = Array.from({ length: 20 }, (_, at): Caller => {
    return { atMs: at * 2000, account: 'account 0', holdMs: 1000, patienceMs: Infinity };
  });
  const visits = await simulate([...before, ...burst], { ...LEARNS, untilMs: 2 * MINUTE });
  t.ok(visits.every(({ end }) => end === 'good'));
});

t.test('at 0.8 of the load almost no request is refused', async (t) => {
  const untilMs = 10 * MINUTE;
  for (const patienceMs of [8000, Infinity]) {
    const list = callers(0.8, patienceMs, MEAN_MS.short, untilMs, 1);
    const { refused } = figuresOf(await simulate(list, { ...LEARNS, untilMs }), 0, untilMs - DEFAULT_MS);
    t.ok(refused <= 0.005, `${patienceMs} ms: ${refused}`);
  }
});

/** Shares of the requests of some accounts. */
function share(
  visits: readonly SimulatedCall[],
  who: (account: string) => boolean,
  how: (visit: SimulatedCall) => boolean,
): number {
  const theirs = visits.filter(({ account, atMs }) => who(account) && atMs > MINUTE && atMs < 5 * MINUTE);
  return theirs.filter(how).length / theirs.length;
}

t.test('an account whose callers disconnect on purpose does not reduce the service of the others', async (t) => {
  const untilMs = 5 * MINUTE + DEFAULT_MS;
  const list = callers(2, 8000, MEAN_MS.short, untilMs, 1);
  const isAttacker = (account: string): boolean => account === 'account 0';
  const attacked = list.map((each): Caller => (isAttacker(each.account) ? { ...each, patienceMs: 100 } : each));
  const others = (account: string): boolean => !isAttacker(account);
  const served = ({ end }: SimulatedCall): boolean => end === 'good';
  const calm = share(await simulate(list, { ...LEARNS, untilMs }), others, served);
  const visits = await simulate(attacked, { ...LEARNS, untilMs });
  t.ok(share(visits, others, served) >= calm, 'the other accounts are served as much as without it');
  t.ok(share(visits, isAttacker, served) < 0.2, 'and it is not');
});

t.test('many accounts whose callers disconnect on purpose do not reduce the service of small accounts', async (t) => {
  const untilMs = 5 * MINUTE + DEFAULT_MS;
  const random = seeded(1);
  const group = (name: string, accounts: number, perSecond: number, patienceMs: number): Caller[] => {
    const list: Caller[] = [];
    for (let atMs = 0; atMs < untilMs; atMs -= (Math.log(1 - random()) / perSecond) * 1000) {
      const account = `${name} ${Math.floor(random() * accounts)}`;
      list.push({ atMs, account, holdMs: 1000, patienceMs });
    }
    return list;
  };
  // 1.2 times the load, and forty accounts with a request in forty seconds. The attacker has twenty, and stays for 0.1 s.
  const list = [...group('large', 6, 8.6, 8000), ...group('small', 40, 1, 8000), ...group('attacker', 20, 4, 100)];
  const visits = await simulate(
    list.sort((a, b) => a.atMs - b.atMs),
    { ...LEARNS, kind: 'stream', untilMs },
  );
  const served = share(
    visits,
    (account) => account.startsWith('small'),
    ({ end }) => end === 'good',
  );
  t.ok(served >= 0.98, `${served} of the small accounts' requests were served`);
});

t.test('at four times the load nine of ten callers that wait for a reserved Retry-After are served', async (t) => {
  const untilMs = 6 * MINUTE;
  const list = callers(4, Infinity, MEAN_MS.short, untilMs, 1);
  let refusals = 0;
  const visits = await simulate(list, {
    ...LEARNS,
    untilMs,
    comesBack: ({ retry, retryAfterMs }) => {
      if (retry !== 'reserved') return undefined;
      refusals += 1;
      // As a client reads it, in whole seconds.
      return refusals % 2 === 0 ? retryAfterMs : Math.ceil(retryAfterMs / 1000) * 1000;
    },
  });
  const again = visits.filter((visit) => visit.again && visit.atMs < 5 * MINUTE);
  const served = again.filter(({ end }) => end === 'good').length / again.length;
  t.ok(again.length > 300, `${again.length} came back`);
  t.ok(served >= 0.9, `${served} were served`);
  t.ok(
    visits.some(({ retry, retryAfterMs }) => retry === 'none' && retryAfterMs === 59_000),
    'the others got a long Retry-After',
  );
});
