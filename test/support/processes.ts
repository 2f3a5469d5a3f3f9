/** Processes as the kernel shows them in /proc, for tests that kill some and count the others. Linux only. */
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';

/** Long enough for a loaded machine. */
const SEEN_MS = 60_000;
/** Between two polls of what has no event, ms: at first, and at most. */
const LOOK_MS = 10;
const MOST_LOOK_MS = 150;

export interface Running {
  readonly pid: number;
  /** Its arguments, with spaces between. */
  readonly command: string;
}

/** The processes of a process group; one that has ended and was not yet collected is none. */
export function groupMembers(group: number): Running[] {
  return running((status) => status.group === group);
}

/** Processes that `parent` started and that still run. */
export function childrenOf(parent: number): Running[] {
  return running((status) => status.parent === parent);
}

/** Processes that `pid` and those that it started have started, as long as their parents run. */
export function descendantsOf(pid: number): number[] {
  return childrenOf(pid).flatMap((child) => [child.pid, ...descendantsOf(child.pid)]);
}

/** Bytes of physical memory of a process. Throws if there is no such process. */
export function residentBytes(pid: number): number {
  const kib = /^VmRSS:\s+([0-9]+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  if (kib === undefined) throw new Error(`process ${pid} has no memory`);
  return Number(kib) * 1024;
}

/** Processor time that a process has used, ms; `ended`: and those that it has started and that have ended. Throws if there is no such process. */
export function usedCpuMs(pid: number, ended = false): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // After the name: user and system time are the 12th and 13th, in ticks of 10 ms on every Linux that Node runs on; then those of ended ones.
  const times = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .slice(11, ended ? 15 : 13);
  return times.reduce((sum, ticks) => sum + Number(ticks) * 10, 0);
}

/** How long the first thread of a process could run and had no core, ms. Throws if there is no such process. */
export function waitedForCoreMs(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[1]) / 1e6;
}

/** Signals every process of a group; does nothing if it has none. */
export function signalGroup(group: number, signal: NodeJS.Signals): void {
  signalProcess(-group, signal);
}

/** Signals a process; does nothing if it has ended. */
export function signalProcess(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

export function isRunning(pid: number): boolean {
  return statusOf(pid) !== undefined;
}

/** Where each thread of a process may run, as Linux writes it (`0-3,8`), the main one first. */
export function threadCores(pid: number): string[] {
  // Numbers begin again after the kernel's largest one, so the main thread need not have the smallest.
  const others = readdirSync(`/proc/${pid}/task`).filter((thread) => thread !== String(pid));
  return [String(pid), ...others].map((thread) => {
    const status = readFileSync(`/proc/${pid}/task/${thread}/status`, 'utf8');
    return /^Cpus_allowed_list:\s*(\S+)$/m.exec(status)?.[1] ?? '';
  });
}

/** Polls until `seen`, for what has no event. Rejects after {@link SEEN_MS}. */
export async function eventually(what: string, seen: () => boolean | Promise<boolean>): Promise<void> {
  const until = performance.now() + SEEN_MS;
  for (let looks = 0; !(await seen()); looks += 1) {
    if (performance.now() > until) throw new Error(`${what}: not seen`);
    await untilNextLook(looks);
  }
}

/**
 * Waits before the next poll; `looks`: how many there were. Longer each time: a poll may take as much processor time as
 * the wait, which the awaited process needs.
 */
export async function untilNextLook(looks: number): Promise<void> {
  await wait(Math.min(MOST_LOOK_MS, LOOK_MS * 1.2 ** looks));
}

interface Status {
  readonly parent: number;
  readonly group: number;
}

function running(wanted: (status: Status) => boolean): Running[] {
  return readdirSync('/proc')
    .filter((name) => /^[0-9]+$/.test(name))
    .map(Number)
    .filter((pid) => {
      const status = statusOf(pid);
      return status !== undefined && wanted(status);
    })
    .map((pid) => ({ pid, command: read(pid, 'cmdline')?.replaceAll('\0', ' ').trim() ?? '' }));
}

function statusOf(pid: number): Status | undefined {
  // After the name, which may contain anything: state, parent, group.
  const stat = read(pid, 'stat');
  const [state, parent, group] = stat?.slice(stat.lastIndexOf(')') + 2).split(' ') ?? [];
  if (state === undefined || state === 'Z' || state === 'X') return undefined;
  return { parent: Number(parent), group: Number(group) };
}

/** Undefined if the process has ended. */
function read(pid: number, file: string): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    return undefined;
  }
}
