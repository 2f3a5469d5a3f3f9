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
  readonly long: boolean;
}

/** How long callers wait, by their account and their arrival. */
export interface Endurance {
  readonly name: string;
  patienceMs(normal: () => number, account: number, atMs: number, untilMs: number): number;
}

const fixed = (seconds: number): Endurance => ({ name: `${seconds} s`, patienceMs: () => seconds * 1000 });

/** Spread of the log-normal. */
const SPREAD = 0.7;

export const ENDURANCES: readonly Endurance[] = [
  fixed(2),
  fixed(8),
  fixed(30),
  { name: 'none leaves', patienceMs: () => Infinity },
  { name: 'log-normal, median 8 s', patienceMs: (normal) => 8000 * Math.exp(SPREAD * normal()) },
  { name: '2, 8 or 30 s by account', patienceMs: (_, account) => [2000, 8000, 30_000][account % 3] ?? 0 },
  { name: '8 s, then 2 s', patienceMs: (_, __, atMs, untilMs) => (atMs < untilMs / 2 ? 8000 : 2000) },
  { name: '2 s, then 8 s', patienceMs: (_, __, atMs, untilMs) => (atMs < untilMs / 2 ? 2000 : 8000) },
];

export interface Mix {
  readonly name: string;
  readonly meanMs: number;
  /** A share of long ones, and their mean. */
  readonly long?: { readonly share: number; readonly meanMs: number };
}

export const MIXES: readonly Mix[] = [
  { name: 'short', meanMs: 1000 },
  { name: 'long', meanMs: 4000 },
  { name: 'mixed', meanMs: 400, long: { share: 0.2, meanMs: 3400 } },
];

export const SEATS = 8;
const ACCOUNTS = 6;
/** To the first token of a stream, of its seat time. */
export const PREFILL = 0.05;
/** Spread of seat times. */
export const HOLD_SIGMA = 0.8;

/** Mean seat time, ms. */
export function meanOf({ meanMs, long }: Mix): number {
  return long === undefined ? meanMs : meanMs * (1 - long.share) + long.meanMs * long.share;
}

/** Poisson arrivals of six accounts with equal demand; the same for the same seed. */
export function callers(load: number, endurance: Endurance, mix: Mix, untilMs: number, seed: number): Caller[] {
  const random = seeded(seed);
  const exponential = (): number => -Math.log(1 - random());
  const normal = (): number => Math.sqrt(2 * exponential()) * Math.cos(2 * Math.PI * random());
  const { long } = mix;
  const everyMs = meanOf(mix) / (load * SEATS);
  const list: Caller[] = [];
  for (let atMs = exponential() * everyMs; atMs < untilMs; atMs += exponential() * everyMs) {
    const account = Math.floor(random() * ACCOUNTS);
    const isLong = long !== undefined && random() < long.share;
    const holdMs = (isLong ? long.meanMs : mix.meanMs) * Math.exp(HOLD_SIGMA * normal() - HOLD_SIGMA ** 2 / 2);
    const patienceMs = endurance.patienceMs(normal, account, atMs, untilMs);
    list.push({ atMs, account: `account ${account}`, holdMs, patienceMs, long: isLong });
  }
  return list;
}
