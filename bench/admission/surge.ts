/** The recovery time after a surge, and the accuracy of Retry-After. */
import { quantile } from '../support/stats.js';
import { turnedAway } from './measures.js';
import type { Policy } from './policies.js';
import { ONE_LENGTH, PATIENCE_MS, SEATS } from './scenarios.js';
import { inTime, simulate, type SimulatedRequest } from './simulate.js';
import { HEAVY, arrivals, oneHeavy, type Arrival } from './traffic.js';

const SURGE_MS = 60_000;
const SURGE_LOAD = 2;
const CALM_LOAD = 0.5;
/** An unbounded queue of a minute’s surplus needs two minutes. */
const UNTIL_MS = SURGE_MS + 240_000;
const RUNS = 20;
const REFUSALS_A_RUN = 10;
/** No Retry-After is longer. */
const MAX_RETRY_MS = 60_000;

export interface Recovery {
  /** From the end of the surge until no request is refused or times out any more, s. */
  readonly median: number;
  readonly worst: number;
}

export interface Truth {
  /** Retries made. */
  readonly retries: number;
  /** Of these: let in. */
  readonly letIn: number;
  /** Of these: seated in time. */
  readonly served: number;
}

/** When a refused client returns, ms after it was refused. */
export type ReturnDelay = (visit: SimulatedRequest) => number;

export const BY_MILLISECONDS: ReturnDelay = ({ retryAfterMs }) => retryAfterMs;
export const BY_SECONDS: ReturnDelay = ({ retryAfterMs }) => Math.ceil(retryAfterMs / 1000) * 1000;

/** A minute at twice the load, then half the load. */
export async function recovery(policy: Policy): Promise<Recovery> {
  const seconds: number[] = [];
  for (let seed = 1; seed <= RUNS; seed++) {
    const visits = await surge(policy, seed);
    const last = Math.max(SURGE_MS, ...visits.filter((visit) => !inTime(visit, PATIENCE_MS)).map(gaveUpAt));
    seconds.push((last - SURGE_MS) / 1000);
  }
  return { median: quantile(seconds, 0.5), worst: Math.max(...seconds) };
}

/**
 * Of the heavy account’s requests that are refused at twice the load, each in a run of its own: the account’s other
 * requests stop with the refusal, and it retries after its Retry-After, which predicts whether there is room then.
 */
export async function truthInSilence(policy: Policy, reported: ReturnDelay): Promise<Truth> {
  const found: SimulatedRequest[] = [];
  for (let seed = 1; seed <= RUNS; seed++) {
    const list = traffic(SURGE_LOAD, 2 * SURGE_MS, seed);
    const visits = await simulate(policy, list, { seats: SEATS, patienceMs: PATIENCE_MS, untilMs: 2 * SURGE_MS });
    const refused = visits.filter(
      ({ fate, account, atMs }) => fate === 'refused' && account === HEAVY && atMs > SURGE_MS,
    );
    for (const { atMs } of refused.filter((_, i) => i % Math.ceil(refused.length / REFUSALS_A_RUN) === 0)) {
      const alone = list.filter((arrival) => arrival.account !== HEAVY || arrival.atMs <= atMs);
      const untilMs = atMs + MAX_RETRY_MS + PATIENCE_MS;
      const comesBack = (visit: SimulatedRequest): number | undefined =>
        visit.fate === 'refused' && visit.atMs === atMs ? reported(visit) : undefined;
      const again = await simulate(policy, alone, { seats: SEATS, patienceMs: PATIENCE_MS, untilMs, comesBack });
      found.push(...again.filter(({ retries }) => retries !== undefined));
    }
  }
  return truth(found);
}

/** The load stays: one in a hundred refused requests is retried once, after its Retry-After. */
export async function truthUnderLoad(policy: Policy, reported: ReturnDelay, load: number): Promise<Truth> {
  const untilMs = 1_800_000;
  let refusals = 0;
  const comesBack = (visit: SimulatedRequest): number | undefined =>
    refusals++ % 100 === 0 ? reported(visit) : undefined;
  const traffic = arrivals(oneHeavy(load, ONE_LENGTH.light, ONE_LENGTH.lengths), SEATS, untilMs, 1);
  const visits = await simulate(policy, traffic, { seats: SEATS, patienceMs: PATIENCE_MS, untilMs, comesBack });
  return truth(visits.filter(({ retries, atMs }) => retries !== undefined && atMs < untilMs - PATIENCE_MS));
}

function truth(retries: readonly SimulatedRequest[]): Truth {
  const share = (visits: readonly SimulatedRequest[]): number => visits.length / retries.length;
  return {
    retries: retries.length,
    letIn: share(retries.filter((visit) => !turnedAway(visit, PATIENCE_MS))),
    served: share(retries.filter((visit) => inTime(visit, PATIENCE_MS))),
  };
}

function surge(policy: Policy, seed: number): Promise<SimulatedRequest[]> {
  const during = traffic(SURGE_LOAD, SURGE_MS, seed);
  const after = traffic(CALM_LOAD, UNTIL_MS - SURGE_MS, RUNS + seed);
  const list = [...during, ...after.map((arrival) => ({ ...arrival, atMs: arrival.atMs + SURGE_MS }))];
  return simulate(policy, list, { seats: SEATS, patienceMs: PATIENCE_MS, untilMs: UNTIL_MS });
}

function traffic(load: number, ms: number, seed: number): Arrival[] {
  return arrivals(oneHeavy(load, ONE_LENGTH.light, ONE_LENGTH.lengths), SEATS, ms, seed);
}

function gaveUpAt({ fate, atMs, settledAt }: SimulatedRequest): number {
  return fate === 'refused' ? atMs : Math.min(settledAt, atMs + PATIENCE_MS);
}
