/** The scenarios of all policies. One account of ten is heavy; the others’ demand stays the same, whatever the load. */
import { measure, type Figures } from './measures.js';
import { fifoUnbounded, fifoWithCap, ours, type Policy, roundRobin, vtc } from './policies.js';
import { simulate, type SimulatedRequest } from './simulate.js';
import { arrivals, oneHeavy, type Lengths, type Account } from './traffic.js';

export const SEATS = 8;
export const PATIENCE_MS = 10_000;
export const LOADS = [0.9, 1.5, 2, 4, 10] as const;
export const POLICIES: readonly Policy[] = [fifoUnbounded, fifoWithCap, roundRobin, vtc, ours];

export const MEASURED_MS = 1_800_000;
/** Queues fill up before anything is counted. */
const WARM_UP_MS = 60_000;
const WINDOW = { fromMs: WARM_UP_MS, toMs: WARM_UP_MS + MEASURED_MS, seats: SEATS, patienceMs: PATIENCE_MS };
const SEED = 20_240_710;

export interface Mix {
  readonly name: string;
  /** The demand of one light account, as a share of all seats. The equal share is a tenth. */
  readonly light: number;
  readonly lengths: (account: number) => Lengths;
}

export const ONE_LENGTH: Mix = { name: 'one heavy', light: 0.05, lengths: () => ({ meanMs: 1000 }) };

/** Hard to predict for the heavy account: what the light ones leave it is little, and varies. */
export const NEAR_SHARE: Mix = { name: 'near their share', light: 0.08, lengths: () => ({ meanMs: 1000 }) };

export const TWO_LENGTHS: Mix = {
  name: 'two lengths',
  light: 0.05,
  lengths: () => ({ meanMs: 400, long: { share: 0.2, meanMs: 3400 } }),
};

/** The heavy account and four light ones send requests four times as long as the other five. */
export const ALL_OVER: Mix = {
  name: 'all over their share',
  light: 0.125,
  lengths: (account) => ({ meanMs: account % 2 === 0 ? 1600 : 400 }),
};

export interface Result extends Figures {
  readonly mix: Mix;
  readonly load: number;
  readonly policy: Policy;
}

/** Every policy gets the same arrivals. Loads that the light accounts alone would exceed are left out. */
export async function results(mix: Mix): Promise<Result[]> {
  const list: Result[] = [];
  for (const load of LOADS.filter((load) => load > 9 * mix.light))
    for (const policy of POLICIES) {
      const visits = await run(policy, mix, load);
      list.push({ mix, load, policy, ...measure(visits, accountsOf(mix, load), WINDOW) });
    }
  return list;
}

/** Requests that arrive at the end of the window are followed until their client’s patience ends. */
export function run(policy: Policy, mix: Mix, load: number): Promise<SimulatedRequest[]> {
  const untilMs = WINDOW.toMs + PATIENCE_MS + 1;
  const traffic = arrivals(accountsOf(mix, load), SEATS, untilMs, SEED);
  return simulate(policy, traffic, { seats: SEATS, patienceMs: PATIENCE_MS, untilMs });
}

function accountsOf(mix: Mix, load: number): Account[] {
  return oneHeavy(load, mix.light, mix.lengths);
}
