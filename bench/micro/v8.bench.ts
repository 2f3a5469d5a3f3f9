/**
 * Whether what was written around V8 of Node 20 still pays on newer versions: maps of requests, abort signals, literals that begin
 * with a spread, and young collections on one thread. `node dist/bench/micro/v8.bench.js`, part of `make bench`; it takes Node 24 and
 * 26 from npm's package of Node. Each way runs in a process of its own, after a full collection, as a sidecar that has run for a while.
 */
import { execFileSync } from 'node:child_process';
import { constants, PerformanceObserver, type PerformanceEntry } from 'node:perf_hooks';
import { setTimeout as later } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { AbortHandle, type Signal } from '../../sidecar/lib/abort.js';
import { IdMap } from '../../sidecar/lib/id-map.js';
import { nodeBinary } from '../../test/e2e/npm-packages.js';
import { keep, medians, type Row } from '../support/results.js';

const NODES = ['24.21.0', '26.10.0'];
const ROUNDS = 3;
const REQUESTS = 200_000;
/** Requests at a time, as a busy sidecar has them. */
const OPEN = 64;
/** Requests between two turns of the event loop. */
const TURN = 500;

/** What a request leaves in memory. */
type Held = readonly number[];
const held = (i: number): Held => new Array<number>(50).fill(i);

/** One request begins, and the one that began OPEN before it ends. */
type Way = (i: number) => void;

function mapped(table: { set(key: number, value: Held): unknown; delete(key: number): boolean }): Way {
  return (i) => {
    table.set(i, held(i));
    table.delete(i - OPEN);
  };
}

function aborted(make: () => { readonly signal: Signal }): Way {
  const open: { readonly signal: Signal; readonly listener: () => number }[] = [];
  return (i) => {
    const data = held(i);
    const listener = (): number => data.length;
    const { signal } = make();
    signal.addEventListener('abort', listener);
    const before = open[i % OPEN];
    before?.signal.removeEventListener('abort', before.listener);
    open[i % OPEN] = { signal, listener };
  };
}

interface Head {
  readonly id: number;
  readonly model: string;
  readonly seed: number;
}

interface Job extends Head {
  readonly held: Held;
}

function literals(of: (head: Head, data: Held) => Job): Way {
  const open: Job[] = [];
  const head: Head = { id: 1, model: 'm', seed: 2 };
  return (i) => void (open[i % OPEN] = of(head, held(i)));
}

const WAYS: Readonly<Record<string, () => Way>> = {
  'table of requests: Map': () => mapped(new Map()),
  'table of requests: IdMap': () => mapped(new IdMap()),
  'abort: AbortController': () => aborted(() => new AbortController()),
  'abort: AbortHandle': () =>
    aborted(() => {
      return { signal: new AbortHandle() };
    }),
  'literal: spread first': () => literals((head, data) => ({ ...head, held: data })),
  'literal: names first': () => literals((head, data) => ({ held: data, ...head })),
  'young collections: with helper threads': () => mapped(new IdMap()),
  'young collections: on one thread': () => {
    setFlagsFromString('--no-parallel-scavenge');
    return mapped(new IdMap());
  },
};

if (process.argv[2] === 'way') process.stdout.write(JSON.stringify(await measured(process.argv[3] ?? '')));
else await compare();

async function measured(name: string): Promise<Row> {
  const way = WAYS[name]?.();
  if (way === undefined) throw new Error(name);
  const through = async (from: number, to: number): Promise<void> => {
    for (let i = from; i < to; i += 1) {
      way(i);
      if (i % TURN !== 0) continue;
      most = Math.max(most, oldBytes());
      await later(0);
    }
  };
  let pauses = 0;
  let most = 0;
  const observer = new PerformanceObserver((list) => {
    for (const { duration, detail } of list.getEntries() as (PerformanceEntry & { detail: { kind: number } })[])
      if (detail.kind === constants.NODE_PERFORMANCE_GC_MINOR) pauses += duration;
  });
  await through(0, REQUESTS / 10);
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  const old = oldBytes();
  most = old;
  observer.observe({ entryTypes: ['gc'] });
  const cpu = process.cpuUsage();
  await through(REQUESTS / 10, REQUESTS / 10 + REQUESTS);
  const { user, system } = process.cpuUsage(cpu);
  await later(0);
  return {
    'CPU a request, µs': (user + system) / REQUESTS,
    'young pauses a request, µs': (pauses * 1000) / REQUESTS,
    'grown old at most, MiB': (most - old) / 2 ** 20,
  };
}

function oldBytes(): number {
  return getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space')?.space_used_size ?? NaN;
}

async function compare(): Promise<void> {
  const binaries = [process.execPath, ...NODES.map((version) => nodeBinary(version))];
  const rows = binaries.flatMap((binary) => {
    const node = execFileSync(binary, ['--version'], { encoding: 'utf8' }).trim();
    const rounds = Array.from({ length: ROUNDS }, () => Object.keys(WAYS).map((name) => alone(binary, name)));
    return Object.keys(WAYS).map((name, at): Row => {
      const figures = medians(rounds.map((round) => round[at] ?? {}));
      const rounded = Object.entries(figures).map(([column, value]) => [column, Number(Number(value).toPrecision(3))]);
      return { node, way: name, ...(Object.fromEntries(rounded) as Row) };
    });
  });
  await keep('v8', {
    title: 'What was written around V8, on newer versions of Node',
    about: [
      `${REQUESTS} requests, ${OPEN} at a time, each with 50 numbers; medians of ${ROUNDS} processes each, by processor time of all threads. Grown old: how much the old generation grew at most, by requests that were long over.`,
    ],
    rows,
  });
}

function alone(binary: string, name: string): Row {
  const output = execFileSync(binary, [fileURLToPath(import.meta.url), 'way', name], { encoding: 'utf8' });
  return JSON.parse(output) as Row;
}
