/** The callers of the overload simulation: their arrivals, patience, what they wait for, and their replies’ lengths. */
import { seeded } from '../../support/load.js';

/** What a caller waits for. */
export type Kind = 'stream' | 'whole';

export interface Caller {
  readonly atMs: number;
  readonly account: string;
  /** Seat time of its reply, ms. */
  readonly holdMs: number;
  /** From its arrival: when it leaves unless it has what it waits for. */
  readonly patienceMs: number;
}

/** Mean seat times of replies, ms. */
export const MEAN_MS = { short: 1000, long: 4000 } as const;

export const SEATS = 8;
const ACCOUNTS = 6;
/** To the first token of a stream, of its seat time. */
export const PREFILL = 0.05;
/** Spread of seat times. */
const HOLD_SIGMA = 0.8;

/** Poisson arrivals of six accounts with equal demand, whose callers wait `patienceMs`; the same for the same seed. */
export function callers(load: number, patienceMs: number, meanMs: number, untilMs: number, seed: number): Caller[] {
  const random = seeded(seed);
  const exponential = (): number => -Math.log(1 - random());
  const normal = (): number => Math.sqrt(2 * exponential()) * Math.cos(2 * Math.PI * random());
  const everyMs = meanMs / (load * SEATS);
  const list: Caller[] = [];
  for (let atMs = exponential() * everyMs; atMs < untilMs; atMs += exponential() * everyMs) {
    const account = `account ${Math.floor(random() * ACCOUNTS)}`;
    const holdMs = meanMs * Math.exp(HOLD_SIGMA * normal() - HOLD_SIGMA ** 2 / 2);
    list.push({ atMs, account, holdMs, patienceMs });
  }
  return list;
}
