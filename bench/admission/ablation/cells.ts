/** The cells of the ablation: one load each, on a simulated clock, with what it measures. Of all measures more is better, and 1 is the most. */
import { seeded } from '../../support/load.js';
import { share, SeatHarness, type Load } from '../../../test/support/seat-harness.js';
import { talk, type Talks } from '../conversations.js';
import { measure } from '../measures.js';
import { callers, ENDURANCES, MIXES, type Caller, type Kind } from '../patience/callers.js';
import { figuresOf, simulate as simulateCallers } from '../patience/simulate.js';
import { ours } from '../policies.js';
import { ALL_OVER, NEAR_SHARE, ONE_LENGTH, PATIENCE_MS, SEATS, TWO_LENGTHS, type Mix } from '../scenarios.js';
import { simulate } from '../simulate.js';
import { arrivals, oneHeavy } from '../traffic.js';
import type { Subject } from './rules.js';

export interface Cell {
  readonly name: string;
  readonly has: readonly Subject[];
  /** Deterministic. `minutes` are simulated, at least 4; `seed`, from 1 on, draws the arrivals and the queue's random numbers. */
  readonly run: (minutes: number, seed: number) => Promise<Readonly<Record<string, number>>>;
}

const MINUTE = 60_000;
/** Requests of the last seconds may still run at the end. */
const TAIL_MS = 10_000;
const MAX_WAIT_MS = 10_000;

/** The seed of the queue's random numbers, which are not those of the arrivals: so another decision of it changes no arrival. */
const queueSeed = (seed: number): number => seed + 6;

/** By mix, patience, what callers wait for, loads: a part of the grid of bench/results/patience.md. */
const PATIENCE: readonly (readonly [string, string, Kind, readonly number[]])[] = [
  ['short', '2 s', 'whole', [1.2, 4, 10]],
  ['short', '8 s', 'whole', [2]],
  ['short', 'log-normal, median 8 s', 'whole', [4]],
  ['short', '2, 8 or 30 s by account', 'whole', [1.2, 4]],
  ['short', '8 s, then 2 s', 'whole', [4]],
  ['short', '2 s, then 8 s', 'whole', [2, 10]],
  ['long', '2 s', 'whole', [4, 10]],
  ['long', '8 s', 'whole', [1.2, 4]],
  ['long', '2, 8 or 30 s by account', 'whole', [10]],
  ['mixed', '2 s', 'whole', [4]],
  ['mixed', '2, 8 or 30 s by account', 'whole', [10]],
  ['short', '2 s', 'stream', [2, 10]],
  ['long', '2 s', 'stream', [4, 10]],
  ['long', '2, 8 or 30 s by account', 'stream', [4]],
  ['long', '2 s, then 8 s', 'stream', [4]],
  ['mixed', '8 s', 'stream', [4]],
];

function patienceCells(): Cell[] {
  return PATIENCE.flatMap(([mixName, patience, kind, loads]) =>
    loads.map((load): Cell => {
      const mix = MIXES.find(({ name }) => name === mixName);
      const endurance = ENDURANCES.find(({ name }) => name === patience);
      if (mix === undefined || endurance === undefined) throw new Error(`${mixName}, ${patience}`);
      return {
        name: `${mixName} ${kind} replies, callers stay ${patience}, load ${load}`,
        has: ['overload'],
        run: async (minutes, seed) => {
          const untilMs = minutes * MINUTE;
          const fromMs = patience.includes('then') ? untilMs / 2 + MINUTE : 2 * MINUTE;
          const list = callers(load, endurance, mix, untilMs, seed);
          const visits = await simulateCallers(list, {
            kind,
            untilMs,
            maxWaitMs: MAX_WAIT_MS,
            learns: true,
            seed: queueSeed(seed),
          });
          return { 'good seat time': figuresOf(visits, fromMs, untilMs - TAIL_MS).good };
        },
      };
    }),
  );
}

const SCENARIOS: readonly (readonly [Mix, readonly number[]])[] = [
  [ONE_LENGTH, [2, 10]],
  [NEAR_SHARE, [1.5, 4]],
  [TWO_LENGTHS, [4]],
  [ALL_OVER, [2, 10]],
];

function scenarioCells(): Cell[] {
  return SCENARIOS.flatMap(([mix, loads]) =>
    loads.map((load): Cell => ({
      name: `${mix.name}, load ${load}`,
      has: ['overload', 'accounts'],
      run: async (minutes, seed) => {
        const window = { fromMs: MINUTE, toMs: minutes * MINUTE, seats: SEATS, patienceMs: PATIENCE_MS };
        const untilMs = window.toMs + PATIENCE_MS + 1;
        const accounts = oneHeavy(load, mix.light, mix.lengths);
        const visits = await simulate(ours, arrivals(accounts, SEATS, untilMs, seed), { ...window, untilMs });
        const { goodput, lightServed, jain, timedOut } = measure(visits, accounts, window);
        return {
          'good seat time': goodput,
          ...(mix === ALL_OVER ? { 'Jain of seat time': jain } : { 'light served': lightServed }),
          'admitted and not timed out': 1 - timedOut,
        };
      },
    })),
  );
}

/** Six accounts at four times the load, whose refused callers return once, after Retry-After. */
const RETURNING: Cell = {
  name: 'callers who return after Retry-After, load 4',
  has: ['overload', 'returns'],
  run: async (minutes, seed) => {
    const untilMs = minutes * MINUTE;
    const stay = ENDURANCES.find(({ name }) => name === 'none leaves');
    const short = MIXES.find(({ name }) => name === 'short');
    if (stay === undefined || short === undefined) throw new Error('no such callers');
    const visits = await simulateCallers(callers(4, stay, short, untilMs, seed), {
      kind: 'whole',
      untilMs,
      maxWaitMs: MAX_WAIT_MS,
      learns: true,
      seed: queueSeed(seed),
      // Not those whom it tells to stay away for as long as clients do.
      comesBack: ({ retry, retryAfterMs }) => (retry === 'none' ? undefined : retryAfterMs),
    });
    const again = visits.filter((visit) => visit.again && visit.atMs > 2 * MINUTE && visit.atMs < untilMs - MINUTE);
    return {
      'returning callers served': again.filter(({ end }) => end === 'good').length / again.length,
      'good seat time': figuresOf(visits, 2 * MINUTE, untilMs - TAIL_MS).good,
    };
  },
};

/** A group of accounts, each request of a random one of them. */
function group(
  name: string,
  accounts: number,
  perSecond: number,
  { patienceMs, untilMs, seed }: { readonly patienceMs: number; readonly untilMs: number; readonly seed: number },
): Caller[] {
  const random = seeded(accounts + 1000 * (seed - 1));
  const list: Caller[] = [];
  for (let atMs = 0; atMs < untilMs; atMs -= (Math.log(1 - random()) / perSecond) * 1000) {
    const account = `${name} ${Math.floor(random() * accounts)}`;
    list.push({ atMs, account, holdMs: 1000, patienceMs, long: false });
  }
  return list;
}

function attack(name: string, attackers: number, perSecond: number, patienceMs: number): Cell {
  return {
    name,
    has: ['overload', 'accounts'],
    run: async (minutes, seed) => {
      const untilMs = minutes * MINUTE;
      const list = [
        ...group('large', 6, 8.6, { patienceMs: 8000, untilMs, seed }),
        ...group('small', 40, 1, { patienceMs: 8000, untilMs, seed }),
        ...group('attacker', attackers, perSecond, { patienceMs, untilMs, seed }),
      ].sort((a, b) => a.atMs - b.atMs);
      const visits = await simulateCallers(list, {
        kind: 'stream',
        untilMs,
        maxWaitMs: MAX_WAIT_MS,
        learns: true,
        seed: queueSeed(seed),
      });
      const of = (who: string): number => {
        const theirs = visits.filter(
          ({ account, atMs }) => account.startsWith(who) && atMs > MINUTE && atMs < untilMs - TAIL_MS,
        );
        return theirs.filter(({ end }) => end === 'good').length / theirs.length;
      };
      return { 'small accounts served': of('small'), 'large accounts served': of('large') };
    },
  };
}

/** A cell of loads on the seat harness. Requests that arrived in the first minute are not counted. */
function harnessCell(
  [name, ...more]: readonly [string, ...Subject[]],
  options: ConstructorParameters<typeof SeatHarness>[1],
  loads: readonly Load[],
  measures: Readonly<Record<string, (load: string, seatTokens: number | undefined, weight: number) => boolean>>,
): Cell {
  return {
    name,
    has: ['overload', 'accounts', ...more],
    run: async (minutes, seed) => {
      const harness = new SeatHarness(seed, { ...options, random: seeded(queueSeed(seed)) });
      for (const load of loads) harness.offer(load);
      await harness.run(minutes * MINUTE);
      const fates = harness.of(undefined, MINUTE, minutes * MINUTE - TAIL_MS);
      return Object.fromEntries(
        Object.entries(measures).map(([what, isOf]) => {
          const of = fates.filter(({ account, seatTokens, weight }) => isOf(account, seatTokens, weight));
          return [what, share(of, 'done')];
        }),
      );
    },
  };
}

/** Mean times between arrivals that keep so many seats busy `load` times over. */
function everyMs(holdMs: number, load: number, seats: number): number {
  return holdMs / (seats * load);
}

function manyAccounts(): Cell {
  const heavy = Array.from({ length: 60 }, (_, i): Load => {
    return { account: `heavy ${i}`, holdMs: 1000, everyMs: everyMs(1000, 4 / 60, 8) };
  });
  const light = Array.from({ length: 10 }, (_, i): Load => {
    return { account: `light ${i}`, holdMs: 1000, everyMs: everyMs(1000, 1 / 140, 8) };
  });
  return harnessCell(['60 heavy and 10 light accounts on 8 seats, load 4'], { seats: 8 }, [...heavy, ...light], {
    'light served': (account) => account.startsWith('light'),
  });
}

/** Two replicas, one with longer seats. `long`, `short`: how many times over their requests would keep these seats busy. */
function lengths(long: number, short: number, patienceMs: number): Cell {
  const seats = [
    { seats: 12, contextPerSeat: 4096 },
    { seats: 4, contextPerSeat: 65_536 },
  ];
  const of = (account: string, seatTokens: number, load: number, count: number): Load => {
    return { account, holdMs: 2000, everyMs: everyMs(2000, load / 2, count), seatTokens, patienceMs };
  };
  const loads = ['a', 'b'].flatMap((account) => [of(account, 20_000, long, 4), of(account, 500, short, 12)]);
  const stay = patienceMs === Infinity ? 'for ever' : `${patienceMs / 1000} s`;
  return harnessCell(
    [`seats of two lengths, long requests ${long}, short ${short}, callers stay ${stay}`, 'lengths'],
    { seats },
    loads,
    {
      'long served': (_, tokens) => tokens === 20_000,
      'short served': (_, tokens) => tokens === 500,
    },
  );
}

const BURSTS = harnessCell(
  ['bursts of 40 on 8 seats, load 0.7'],
  { seats: 8 },
  ['a', 'b'].map((account) => ({ account, holdMs: 1000, everyMs: 14_300, atOnce: 40 })),
  { served: () => true },
);

const CLASSES = harnessCell(
  ['interactive requests beside the same account’s batch, load 4', 'classes'],
  { seats: 8 },
  [
    { account: 'both', weight: 16, holdMs: 1000, everyMs: everyMs(1000, 0.2, 8), deadlineMs: 6000 },
    { account: 'both', weight: 1, holdMs: 1000, everyMs: everyMs(1000, 2, 8) },
    { account: 'other', weight: 4, holdMs: 1000, everyMs: everyMs(1000, 2, 8) },
  ],
  {
    'interactive served': (_, __, weight) => weight === 16,
    'the other account’s served': (account) => account === 'other',
  },
);

const TALKS = { conversations: 64, turns: 12, tokenMs: 0.5, stepMs: 20, loadFactor: 2, by: 'queue' } as const;
/** Time of a mean reply's tokens on an idle engine, ms. */
const LEAST_REPLY_MS = 160 * TALKS.stepMs;

function conversations(name: string, talks: Pick<Talks, 'replicas' | 'slower' | 'thinkMs'>): Cell {
  return {
    name: `conversations ${name}, pauses of ${talks.thinkMs / 1000} s`,
    has: ['replicas'],
    run: async (_, seed) => {
      const { replyMs, reused } = await talk({ ...TALKS, ...talks, seed });
      const meanMs = replyMs.reduce((sum, ms) => sum + ms, 0) / replyMs.length;
      return { 'tokens’ time of a reply’s time': LEAST_REPLY_MS / meanMs, 'prompt tokens reused': reused };
    },
  };
}

const FOUR = [16, 16, 16, 16];

export const CELLS: readonly Cell[] = [
  ...patienceCells(),
  ...scenarioCells(),
  RETURNING,
  attack('one account disconnects on purpose after 0.1 s', 1, 4, 100),
  attack('twenty accounts disconnect on purpose after 0.1 s', 20, 4, 100),
  manyAccounts(),
  BURSTS,
  CLASSES,
  lengths(2, 0.3, Infinity),
  lengths(2, 0.3, 6000),
  lengths(0.6, 2, Infinity),
  lengths(0.6, 2, 6000),
  lengths(2, 2, 6000),
  conversations('on 4 × 16 seats', { replicas: FOUR, thinkMs: 8000 }),
  conversations('on 4 × 16 seats, one replica three times as slow', {
    replicas: FOUR,
    slower: [1, 1, 1, 3],
    thinkMs: 8000,
  }),
  conversations('on 4 × 16 seats, two twice as slow', { replicas: FOUR, slower: [1, 1, 2, 2], thinkMs: 8000 }),
  conversations('on 4 × 6 seats', { replicas: [6, 6, 6, 6], thinkMs: 1000 }),
];
