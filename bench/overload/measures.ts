/** The measures of a load, from how each of its requests ended. */
import { quantile } from '../support/stats.js';
import type { Attempt } from './attempt.js';
import type { Refusal } from './refusal.js';

/** Left out at the start of a period, in which the first replies have not ended yet. */
const WARM_MS = 2000;

export interface Point {
  /** Replies that were complete in their caller’s time, a second. */
  readonly good: number;
  /** The same of one account. */
  readonly goodOf: Readonly<Record<string, number>>;
  /** From when a request was due to its last byte, of good replies, ms. */
  readonly total: number;
  readonly total99: number;
  readonly refused: number;
  readonly refusal: number;
  readonly refusal99: number;
  /** Of the refused: those that never had a place in the queue; how many, and their time to the last byte, ms. */
  readonly atOnce: number;
  readonly atOnce50: number;
  readonly atOnce99: number;
  /** Those that had one. */
  readonly afterWait: number;
  /** The Retry-After of refused requests, ms. NaN: none. */
  readonly retryAfter: number;
  /** Callers that gave up. */
  readonly gone: number;
  /** Connections that broke or streams that ended early. */
  readonly broken: number;
}

/** Of loads of one rate, `seconds` each. Replies count when they end within their load, all else when it was sent then. */
export function measure(runs: readonly (readonly Attempt[])[], seconds: number): Point {
  const attempts = runs.flat();
  const within = attempts.filter(({ scheduledMs }) => scheduledMs < seconds * 1000);
  const ended = attempts.filter(({ end, scheduledMs, totalMs }) => {
    const at = scheduledMs + totalMs;
    return end === 'good' && at >= WARM_MS && at < seconds * 1000;
  });
  const perSecond = (some: readonly Attempt[]): number => some.length / (seconds - WARM_MS / 1000) / runs.length;
  const refusals = within.filter(({ end }) => end === 'refused');
  const refused = refusals.map(({ totalMs }) => totalMs);
  const came = (how: Refusal['came']): number[] =>
    refusals.filter(({ refusal }) => refusal?.came === how).map(({ totalMs }) => totalMs);
  const atOnce = came('at once');
  const totals = within.filter(({ end }) => end === 'good').map(({ totalMs }) => totalMs);
  const accounts = [...new Set(attempts.map(({ account }) => account))];
  return {
    good: perSecond(ended),
    goodOf: Object.fromEntries(accounts.map((name) => [name, perSecond(ended.filter((one) => one.account === name))])),
    total: quantile(totals, 0.5),
    total99: quantile(totals, 0.99),
    refused: refused.length,
    refusal: quantile(refused, 0.5),
    refusal99: quantile(refused, 0.99),
    atOnce: atOnce.length,
    atOnce50: quantile(atOnce, 0.5),
    atOnce99: quantile(atOnce, 0.99),
    afterWait: came('after a wait').length,
    retryAfter: quantile(
      refusals.flatMap(({ refusal }) => refusal?.retryAfterMs ?? []),
      0.5,
    ),
    gone: within.filter(({ end }) => end === 'gone').length,
    broken: within.filter(({ end }) => end === 'broken').length,
  };
}

/** How many of the refused got which error, by its code; `none`: of a proxy, which has none. */
export function codes(runs: readonly (readonly Attempt[])[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { refusal } of runs.flat()) {
    if (refusal === undefined) continue;
    const code = refusal.code ?? 'none';
    counts[code] = (counts[code] ?? 0) + 1;
  }
  return counts;
}

/**
 * Seconds from `fromMs`, when the load fell, to the sending of the last request that was not served in time; 0: all
 * were.
 */
export function recovery(attempts: readonly Attempt[], fromMs: number): number {
  const late = attempts.filter(({ scheduledMs, end }) => scheduledMs >= fromMs && end !== 'good');
  return Math.max(0, ...late.map(({ scheduledMs }) => (scheduledMs - fromMs) / 1000));
}

/** The max-min fair share of one of two accounts, a second: its demand, its half, or what the other leaves. */
export function fairShare(own: number, other: number, capacity: number): number {
  return Math.min(own, Math.max(capacity / 2, capacity - other));
}
