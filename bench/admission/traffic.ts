/** Arrival times and lengths of requests: open-loop Poisson arrivals, which do not wait for earlier answers. */
import { seeded } from '../support/load.js';

export interface Arrival {
  readonly atMs: number;
  readonly account: string;
  /** How long it will hold its seat, ms. No policy knows it before the end. */
  readonly holdMs: number;
}

/** Hold times of an account: log-normal with this mean; of two such classes if `long` has their share and mean. */
export interface Lengths {
  readonly meanMs: number;
  readonly long?: { readonly share: number; readonly meanMs: number };
}

export interface Account {
  readonly name: string;
  /** Demanded seat time over available seat time: 1 fills all seats alone. */
  readonly demand: number;
  readonly lengths: Lengths;
}

/** Spread of the log-normal: the coefficient of variation is 0.95, close to that of chat replies. 0 makes all alike. */
const SIGMA = 0.8;

/** Arrivals from 0 to `untilMs`, the same for the same seed, so that every policy gets the same ones. */
export function arrivals(accounts: readonly Account[], seats: number, untilMs: number, seed: number): Arrival[] {
  const random = seeded(seed);
  const rates = accounts.map(({ demand, lengths }) => (demand * seats) / mean(lengths));
  const total = rates.reduce((sum, rate) => sum + rate, 0);
  const list: Arrival[] = [];
  for (let atMs = exponential(random) / total; atMs < untilMs; atMs += exponential(random) / total) {
    let left = random() * total;
    const account = accounts.find((_, i) => (left -= rates[i] ?? 0) < 0) ?? accounts[0];
    if (account !== undefined) list.push({ atMs, account: account.name, holdMs: hold(account.lengths, random) });
  }
  return list;
}

/** The one heavy account, and nine light ones. */
export const HEAVY = 'heavy';
const LIGHT = Array.from({ length: 9 }, (_, i) => `light-${i + 1}`);

/** All demand `load` together: each light one `light`, the heavy one the rest. */
export function oneHeavy(load: number, light: number, lengths: (account: number) => Lengths): Account[] {
  const heavy = { name: HEAVY, demand: load - LIGHT.length * light, lengths: lengths(0) };
  return [heavy, ...LIGHT.map((name, i) => ({ name, demand: light, lengths: lengths(i + 1) }))];
}

function mean({ meanMs, long }: Lengths): number {
  return long === undefined ? meanMs : meanMs * (1 - long.share) + long.meanMs * long.share;
}

function hold({ meanMs, long }: Lengths, random: () => number): number {
  const of = long !== undefined && random() < long.share ? long.meanMs : meanMs;
  return of * Math.exp(SIGMA * normal(random) - SIGMA ** 2 / 2);
}

function exponential(random: () => number): number {
  return -Math.log(1 - random());
}

function normal(random: () => number): number {
  return Math.sqrt(2 * exponential(random)) * Math.cos(2 * Math.PI * random());
}
