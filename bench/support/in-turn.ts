/**
 * Small differences between states of a sidecar, on a machine that is never idle: every state has its own process, all
 * run in turn repeatedly, and runs of the same round are compared. Two processes that do the same differ all the same
 * (compilers, heaps, placement of memory), so all of that is repeated in several lives, each with new ones, and one
 * state occurs twice: a difference must exceed that of these two.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { hasEnded, messageOf } from './children.js';
import { median, quantile } from './stats.js';
import type { TimedCaller } from './timed-caller.js';

/** The results of one run. */
export interface Run {
  readonly perSecond: number;
  readonly p50: number;
  readonly p99: number;
}

/** One state in one life. */
export interface Subject {
  /** So many requests. */
  run(): Promise<Run>;
  close(): Promise<void>;
}

export interface State {
  readonly name: string;
  readonly start: () => Promise<Subject>;
}

/** Runs of each state: by life, then by round. */
export type Runs = ReadonlyMap<string, readonly (readonly Run[])[]>;

/** `atEnd`: of the last life, before it is closed. */
export async function inTurn(
  states: readonly State[],
  { lives, rounds }: { readonly lives: number; readonly rounds: number },
  atEnd: () => Promise<void> = () => Promise.resolve(),
): Promise<Runs> {
  const runs = new Map<string, Run[][]>(states.map(({ name }) => [name, []]));
  for (let life = 0; life < lives; life += 1) {
    const subjects: [string, Subject][] = [];
    try {
      for (const { name, start } of states) subjects.push([name, await start()]);
      for (const all of runs.values()) all.push([]);
      for (let round = 0; round < rounds; round += 1) {
        // Each comes first as often as the others: other work of the machine affects all.
        const first = (life + round) % subjects.length;
        for (const [name, subject] of [...subjects.slice(first), ...subjects.slice(0, first)]) {
          runs.get(name)?.[life]?.push(await subject.run());
        }
      }
      if (life === lives - 1) await atEnd();
    } finally {
      for (const [, subject] of subjects) await subject.close();
    }
  }
  return runs;
}

/** Each caller its next request when its last was answered, `requests` in all. Closes the callers: a sidecar closes idle ones. */
export async function closedLoop(callers: readonly TimedCaller[], requests: number): Promise<Run> {
  const times: number[] = [];
  let sent = 0;
  const from = performance.now();
  const ask = async (caller: TimedCaller): Promise<void> => {
    while (sent < requests) {
      sent += 1;
      const at = performance.now();
      await caller.ask();
      times.push(performance.now() - at);
    }
  };
  try {
    await Promise.all(callers.map(ask));
  } finally {
    for (const caller of callers) caller.close();
  }
  return { perSecond: requests / ((performance.now() - from) / 1000), p50: median(times), p99: quantile(times, 0.99) };
}

/** Longer than any of these processes takes to end, ms. */
const END_MS = 15_000;

/** A process that sends one message once it is ready, and ends with its channel. Rejects if it ends before. */
export async function forked(
  module: string,
  args: readonly string[] = [],
): Promise<{ readonly child: ChildProcess; readonly reported: unknown }> {
  const child = fork(module, args);
  return { child, reported: await messageOf(child) };
}

/** Ends such a process, and waits for it. */
export async function end(child: ChildProcess): Promise<void> {
  if (hasEnded(child)) return;
  const exited = once(child, 'exit');
  const timer = setTimeout(() => child.kill('SIGKILL'), END_MS);
  if (child.connected) child.disconnect();
  await exited;
  clearTimeout(timer);
}

/** How one state compares with another: the median of pairs within a round, in each life. */
export interface Compared {
  /** The median of the lives’. */
  readonly ratio: number;
  /** The lives'. */
  readonly each: readonly number[];
}

export function compared(runs: Runs, name: string, base: string, of: (run: Run) => number): Compared {
  const each = (runs.get(name) ?? []).map((life, i) =>
    median(life.map((run, k) => of(run) / of(runs.get(base)?.[i]?.[k] ?? run))),
  );
  return { ratio: median(each), each };
}

/** The median of all runs of a state. */
export function typical(runs: Runs, name: string, of: (run: Run) => number): number {
  return median((runs.get(name) ?? []).flat().map(of));
}

/** A ratio as a change, with those of the lives: `-1.2 % (-3.0 to 0.4)`. */
export function change({ ratio, each }: Compared): string {
  const percent = (value: number): string => ((value - 1) * 100).toFixed(1);
  return `${percent(ratio)} % (${percent(Math.min(...each))} to ${percent(Math.max(...each))})`;
}

/** Whether a state is as good as its base: within `tolerated` of it; beyond that it cannot be distinguished if twins differ as much. */
export function verdict(
  changed: Compared,
  twins: Compared,
  tolerated: number,
): 'Held' | 'Missed' | 'Not distinguished' {
  const off = Math.abs(changed.ratio - 1);
  if (off <= tolerated) return 'Held';
  return off <= Math.max(...twins.each.map((each) => Math.abs(each - 1))) ? 'Not distinguished' : 'Missed';
}
