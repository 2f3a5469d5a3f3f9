/** Pins an engine's compute threads to some of the machine's cores. Linux only. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import type { EngineSetup } from '../protocol/setup.js';
import { coresIn, usableCores } from '../protocol/usable-cores.js';
import { LoadFailure } from './load-failure.js';

type CoresSetup = Pick<EngineSetup, 'threads' | 'cores'>;

/** Setting what is set already takes some ms; no request waits longer for it. */
const TASKSET_MS = 10_000;

/**
 * Compute threads for a setup: one for each configured core, or all that the process may use but one. With every core
 * computing, the loop that feeds them starves (docs/engine.md#speed).
 */
export function computeThreads({ threads, cores }: CoresSetup): number {
  if (threads > 0) return threads;
  return cores === undefined ? Math.max(1, usableCores().cores - 1) : coresIn(cores).length;
}

/** Why the configured cores cannot be used, in a line for an operator, or undefined. */
export function coresProblem({ threads, cores }: CoresSetup): string | undefined {
  if (cores === undefined) return undefined;
  if (process.platform !== 'linux') return 'only Linux keeps threads on cores: leave cores out';
  const named = coresIn(cores);
  if (named.length === 0) return `cores ${cores} are none`;
  const may = allowed();
  const none = named.filter((core) => !coresIn(may).includes(core));
  if (none.length > 0) return `cores ${none.join(',')} cannot be used here, ${may} can`;
  if (threads <= named.length) return undefined;
  return `on cores ${cores} ${threads} compute threads would wait for each other: threads 0 is one for each`;
}

/**
 * Pins all threads that the process has by now, and those that they start, to these cores: moving a computing thread
 * loses its cache. The main thread, which reads and writes messages, may run on any core, since it would delay the
 * others. Call it once all compute threads have started. Throws a {@link LoadFailure} on failure.
 */
export function keepOnCores(cores: string): void {
  const before = allowed();
  taskset('-acp', cores);
  taskset('-cp', before);
}

/** Where the main thread may run. */
function allowed(): string {
  const [, list = ''] = /^Cpus_allowed_list:\s*(\S+)$/m.exec(readFileSync('/proc/self/status', 'utf8')) ?? [];
  return list;
}

/** Node has no call for it. */
function taskset(how: string, cores: string): void {
  try {
    execFileSync('taskset', [how, cores, String(process.pid)], { stdio: 'ignore', timeout: TASKSET_MS });
  } catch (error) {
    const missing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    const why = missing ? 'there is no taskset, which util-linux brings' : 'taskset failed';
    throw new LoadFailure(`the engine cannot be kept on cores ${cores}: ${why}`);
  }
}
