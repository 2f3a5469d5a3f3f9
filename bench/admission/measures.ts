/** Measures of a simulation. Shares are from 0 to 1, NaN if there is nothing to share. */
import { quantile } from '../support/stats.js';
import { inTime, type SimulatedRequest } from './simulate.js';
import { HEAVY, type Account } from './traffic.js';

/** Requests that arrive in it are followed to their end; seats are counted from its begin to its end. */
export interface Window {
  readonly fromMs: number;
  readonly toMs: number;
  readonly seats: number;
  readonly patienceMs: number;
}

export interface Figures {
  /** Seat time of replies whose client had not left when they began, over all seat time. */
  readonly goodput: number;
  /** Light accounts’ requests that got a seat in time, as a share of all that they sent. */
  readonly lightServed: number;
  /** Jain’s index of seat time over the accounts that demand more than their equal share. */
  readonly jain: number;
  /** The same of seat time over the max-min fair share, over all accounts. */
  readonly jainOfShares: number;
  /** Of the admitted: their client waited to the end of its patience and was not served. */
  readonly timedOut: number;
  /** The same of the heavy account alone, which the others’ would hide. */
  readonly heavyTimedOut: number;
  /** Of all: refused at once. */
  readonly refused: number;
  /** Of all: admitted, then dropped before the client’s patience ended. */
  readonly pushedOut: number;
  /** The light accounts’ wait for a seat that 99 of 100 did not exceed, of those served in time, s. */
  readonly lightWait99: number;
}

export function measure(all: readonly SimulatedRequest[], accounts: readonly Account[], window: Window): Figures {
  const { fromMs, toMs, seats, patienceMs } = window;
  const capacity = seats * (toMs - fromMs);
  const visits = all.filter(({ atMs, retries }) => atMs >= fromMs && atMs < toMs && retries === undefined);
  const light = visits.filter(({ account }) => account !== HEAVY);
  const lightInTime = light.filter((visit) => inTime(visit, patienceMs));
  const letIn = visits.filter(({ fate }) => fate !== 'refused');
  const useful = all.filter((visit) => inTime(visit, patienceMs));
  const held = accounts.map(({ name }) =>
    sum(all.map((visit) => (visit.account === name ? seatMs(visit, window) : 0))),
  );
  const shares = maxMin(
    accounts.map(({ demand }) => demand),
    1,
  );
  return {
    goodput: sum(useful.map((visit) => seatMs(visit, window))) / capacity,
    lightServed: lightInTime.length / light.length,
    jain: jain(held.filter((_, i) => (accounts[i]?.demand ?? 0) > 1 / accounts.length)),
    jainOfShares: jain(held.map((ms, i) => ms / (shares[i] ?? NaN))),
    timedOut: shareTimedOut(letIn, patienceMs),
    heavyTimedOut: shareTimedOut(
      letIn.filter(({ account }) => account === HEAVY),
      patienceMs,
    ),
    refused: (visits.length - letIn.length) / visits.length,
    pushedOut: letIn.filter((visit) => pushedOut(visit, patienceMs)).length / visits.length,
    lightWait99:
      quantile(
        lightInTime.map(({ atMs, settledAt }) => settledAt - atMs),
        0.99,
      ) / 1000,
  };
}

/** Predicted and actual waits, s, over seated requests that waited with a prediction. */
export interface Errors {
  readonly foretold: number;
  /** Mean wait. */
  readonly wait: number;
  /** Mean of predicted less actual: above 0 the prediction is pessimistic. */
  readonly bias: number;
  /** Of the absolute difference: what half of them do not exceed, and nine of ten. */
  readonly off50: number;
  readonly off90: number;
}

export function predictionErrors(visits: readonly SimulatedRequest[]): Errors {
  const waits: number[] = [];
  const errors: number[] = [];
  for (const { fate, predictedMs, atMs, settledAt } of visits) {
    if (fate !== 'seated' || predictedMs === undefined || settledAt === atMs) continue;
    waits.push((settledAt - atMs) / 1000);
    errors.push((predictedMs - (settledAt - atMs)) / 1000);
  }
  const off = errors.map(Math.abs);
  return {
    foretold: errors.length,
    wait: sum(waits) / waits.length,
    bias: sum(errors) / errors.length,
    off50: quantile(off, 0.5),
    off90: quantile(off, 0.9),
  };
}

/** Admitted, and its client left unserved. */
export function timedOut(visit: SimulatedRequest, patienceMs: number): boolean {
  return visit.fate !== 'refused' && !inTime(visit, patienceMs) && !pushedOut(visit, patienceMs);
}

/** Refused or dropped while its client could still have gone elsewhere. */
export function turnedAway(visit: SimulatedRequest, patienceMs: number): boolean {
  return visit.fate === 'refused' || pushedOut(visit, patienceMs);
}

/** (Σx)² / (n·Σx²): 1 if all have the same, 1/n if one has all. */
export function jain(shares: readonly number[]): number {
  return shares.length < 2 ? NaN : sum(shares) ** 2 / (shares.length * sum(shares.map((share) => share ** 2)));
}

/** The max-min fair share of each of `demands` of `capacity`: all that it demands, or an equal part of the rest. */
export function maxMin(demands: readonly number[], capacity: number): number[] {
  const given = demands.map(() => 0);
  const rising = demands.map((demand, i) => ({ demand, i })).sort((a, b) => a.demand - b.demand);
  let left = capacity;
  for (const [before, { demand, i }] of rising.entries()) {
    const part = Math.min(demand, left / (rising.length - before));
    given[i] = part;
    left -= part;
  }
  return given;
}

function shareTimedOut(letIn: readonly SimulatedRequest[], patienceMs: number): number {
  return letIn.filter((visit) => timedOut(visit, patienceMs)).length / letIn.length;
}

function pushedOut({ fate, settledAt, atMs }: SimulatedRequest, patienceMs: number): boolean {
  return fate === 'dropped' && settledAt - atMs < patienceMs - 1e-6;
}

/** How long the request held a seat within the window. */
function seatMs({ fate, settledAt, holdMs }: SimulatedRequest, { fromMs, toMs }: Window): number {
  if (fate !== 'seated') return 0;
  return Math.max(0, Math.min(settledAt + holdMs, toMs) - Math.max(settledAt, fromMs));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
