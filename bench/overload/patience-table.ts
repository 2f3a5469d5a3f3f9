/** The measurements of patience.bench.ts as a table, and the conclusions. */
import type { Row } from '../support/results.js';
import { median } from '../support/stats.js';

/** One point of one server. */
export interface Done {
  readonly round: number;
  readonly patienceMs: number;
  readonly load: number;
  readonly awaits: 'end' | 'first-token';
  readonly server: string;
  readonly capacity: number;
  /** Good replies a second. */
  readonly good: number;
  readonly ttft99: number;
  readonly total99: number;
  readonly refused: number;
  readonly gone: number;
}

/** A patience, a load and what callers wait for, with each server’s results, medians over rounds. */
interface Case {
  readonly patienceMs: number;
  readonly load: number;
  readonly awaits: Done['awaits'];
  readonly good: Readonly<Record<string, number>>;
  readonly fixed: number;
  /** The slowest hundredth of the requests that the default settings served, ms. */
  readonly slowest: number;
}

const OURS = 'ra-sidecar';

/** A row a case. */
export function rowsOf(done: readonly Done[]): Row[] {
  return casesOf(done).map(({ patienceMs, load, awaits, good, fixed, slowest }) => ({
    patience: `${patienceMs / 1000} s`,
    load: `${load}x`,
    'waits for': awaits === 'end' ? 'whole reply' : 'first token',
    'ra-sidecar, good /s': good[OURS] ?? NaN,
    'best fixed': fixed,
    'of best fixed': (good[OURS] ?? NaN) / fixed,
    'p99 of the served, ms': slowest,
    'llama-server': good['llama-server'] ?? NaN,
    'nginx tuned': good['nginx tuned'] ?? NaN,
    nginx: good['nginx'] ?? NaN,
  }));
}

/** Whether the goals are reached. */
export function verdict(done: readonly Done[]): string {
  const cases = casesOf(done);
  const parts = cases.map(({ good, fixed }) => (good[OURS] ?? NaN) / fixed);
  const ahead = cases.filter(({ good }) => (good[OURS] ?? 0) > (good['nginx'] ?? 0)).length;
  const inTime = cases.filter(({ slowest, patienceMs }) => slowest < patienceMs).length;
  return [
    `Good replies over those of the best fixed wait: median ${median(parts).toFixed(3)} (goal 0.97), worst ${Math.min(...parts).toFixed(3)} (goal 0.90).`,
    `Ahead of nginx left alone in ${ahead} of ${cases.length} cases; p99 of the served below the patience in ${inTime}.`,
  ].join(' ');
}

function casesOf(done: readonly Done[]): Case[] {
  const keys = new Map<string, Done[]>();
  for (const one of done) {
    const key = `${one.patienceMs} ${one.load} ${one.awaits}`;
    keys.set(key, [...(keys.get(key) ?? []), one]);
  }
  return [...keys.values()].flatMap((all) => {
    const [first] = all;
    if (first === undefined) return [];
    const { patienceMs, load, awaits } = first;
    const names = [...new Set(all.map(({ server }) => server))];
    const of = (name: string, value: (one: Done) => number): number =>
      median(all.filter(({ server }) => server === name).map(value));
    const good = Object.fromEntries(names.map((name) => [name, of(name, (one) => one.good)]));
    const fixed = Math.max(...names.filter((name) => name.startsWith('fixed')).map((name) => good[name] ?? 0));
    const slowest = of(OURS, (one) => (awaits === 'end' ? one.total99 : one.ttft99));
    return [{ patienceMs, load, awaits, good, fixed, slowest }];
  });
}
