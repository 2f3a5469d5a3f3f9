/** The measurements of patience.bench.ts as a table, and the conclusions. */
import type { Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';

/** One point of one server. */
export interface Done {
  readonly round: number;
  readonly patienceMs: number;
  readonly load: number;
  readonly server: string;
  readonly capacity: number;
  /** Good replies a second, whole ones and streams. */
  readonly good: number;
  /** Of streams that were not refused, ms to their first token; null: their callers left before. */
  readonly firstTokens: readonly (number | null)[];
  /** Of whole replies, ms to their end. */
  readonly wholes: readonly (number | null)[];
  readonly refused: number;
  readonly gone: number;
}

/** A patience and a load with each server’s results, medians over rounds. */
interface Case {
  readonly patienceMs: number;
  readonly load: number;
  readonly good: Readonly<Record<string, number>>;
  readonly fixed: number;
  /** The default settings' replies over those of a fixed wait that was chosen without this round, median over the rounds. */
  readonly ofChosen: number;
  /** Of the round in which all servers were measured. */
  readonly together: Readonly<Record<string, number>>;
  /** Of the default settings over all rounds, since one has fewer than a hundred. Infinity: more than a hundredth left before. */
  readonly ttft99: number;
  readonly total99: number;
}

const OURS = 'ra-sidecar';

/** A row a case. */
export function rowsOf(done: readonly Done[]): Row[] {
  return casesOf(done).map(({ patienceMs, load, good, fixed, ofChosen, together, ttft99, total99 }) => ({
    patience: `${patienceMs / 1000} s`,
    load: `${load}x`,
    'ra-sidecar, good /s': good[OURS] ?? NaN,
    'best fixed': fixed,
    'of best fixed': (good[OURS] ?? NaN) / fixed,
    'of the best in other rounds': ofChosen,
    'p99 to a first token, ms': shownWait(ttft99),
    'p99 to a whole reply, ms': shownWait(total99),
    'first round: ra-sidecar': together[OURS] ?? NaN,
    'llama-server': together['llama-server'] ?? NaN,
    'nginx tuned': together['nginx tuned'] ?? NaN,
    nginx: together['nginx'] ?? NaN,
  }));
}

/** Whether the goals are reached. */
export function verdict(done: readonly Done[]): string {
  const cases = casesOf(done);
  const parts = cases.map(({ good, fixed }) => (good[OURS] ?? NaN) / fixed);
  const gap = ({ together }: Case): number => Math.sign((together[OURS] ?? NaN) - (together['nginx'] ?? NaN));
  const [ahead, equal] = [1, 0].map((sign) => cases.filter((one) => gap(one) === sign).length);
  const inTime = cases.filter(({ ttft99, patienceMs }) => ttft99 < patienceMs).length;
  return [
    `Good replies over those of the best fixed wait: median ${median(parts).toFixed(3)} (goal 0.97), worst ${Math.min(...parts).toFixed(3)} (goal 0.90).`,
    `The best of three waits that differ by chance looks better than it is: over the replies of the wait that was best in the other rounds, median ${median(cases.map(({ ofChosen }) => ofChosen)).toFixed(3)}.`,
    `With the same requests ahead of nginx left alone in ${ahead} of ${cases.length} cases, and equal in ${equal}; in ${inTime} fewer than a hundredth of the streams that were not refused left, or lost their connection, before their first token.`,
  ].join(' ');
}

function casesOf(done: readonly Done[]): Case[] {
  const keys = new Map<string, Done[]>();
  for (const one of done) {
    const key = `${one.patienceMs} ${one.load}`;
    keys.set(key, [...(keys.get(key) ?? []), one]);
  }
  return [...keys.values()].flatMap((all) => {
    const [first] = all;
    if (first === undefined) return [];
    const { patienceMs, load } = first;
    const names = [...new Set(all.map(({ server }) => server))];
    const of = (name: string, value: (one: Done) => number): number =>
      median(all.filter(({ server }) => server === name).map(value));
    const good = Object.fromEntries(names.map((name) => [name, of(name, (one) => one.good)]));
    const fixed = Math.max(...names.filter((name) => name.startsWith('fixed')).map((name) => good[name] ?? 0));
    const ours = all.filter(({ server }) => server === OURS);
    const ttft99 = slowest(ours.flatMap(({ firstTokens }) => firstTokens));
    const total99 = slowest(ours.flatMap(({ wholes }) => wholes));
    const peers = new Set(all.filter(({ server }) => server === 'nginx').map(({ round }) => round));
    const together = Object.fromEntries(
      all.filter(({ round }) => peers.has(round)).map((one) => [one.server, one.good]),
    );
    return [{ patienceMs, load, good, fixed, ofChosen: ofChosen(all), together, ttft99, total99 }];
  });
}

/** The p99; one that never came took infinitely long. */
function slowest(waits: readonly (number | null)[]): number {
  return quantile(
    waits.map((ms) => ms ?? Infinity),
    0.99,
  );
}

/** For the table, whose JSON has no infinity. */
function shownWait(ms: number): number | string {
  return ms === Infinity ? '1 % or more left or broke off' : ms;
}

/** See {@link Case}. NaN with one round. */
function ofChosen(all: readonly Done[]): number {
  const rounds = [...new Set(all.map(({ round }) => round))];
  const fixed = [...new Set(all.map(({ server }) => server))].filter((name) => name.startsWith('fixed'));
  const sum = (name: string, fits: (round: number) => boolean): number =>
    all.filter(({ server, round }) => server === name && fits(round)).reduce((good, one) => good + one.good, 0);
  if (rounds.length < 2) return NaN;
  return median(
    rounds.map((round) => {
      const elsewhere = (name: string): number => sum(name, (other) => other !== round);
      const [best = ''] = [...fixed].sort((a, b) => elsewhere(b) - elsewhere(a));
      return sum(OURS, (own) => own === round) / sum(best, (own) => own === round);
    }),
  );
}
