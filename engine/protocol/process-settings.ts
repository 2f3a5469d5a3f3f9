/** What each of our own processes sets for itself, and what ends a child process. */
import { writeFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';

/**
 * What the shell that becomes a child process does first: sets RLIMIT_CORE to 0, which JavaScript cannot, so that no core file is
 * written of it.
 */
export const NO_CORE_FILE = 'ulimit -c 0';

/** The last argument of a child process that the kernel ends with its parent. */
export const ENDS_WITH_PARENT = 'ends-with-parent';

/**
 * With what the shell becomes a child that the kernel ends with its parent (PR_SET_PDEATHSIG of prctl(2)), where util-linux has the
 * command for that. Elsewhere the child watches for it ({@link endWithParent}).
 */
export const END_WITH_PARENT = `setpriv --pdeathsig KILL true 2>/dev/null && exec setpriv --pdeathsig KILL "$0" "$@" ${ENDS_WITH_PARENT}`;

/** The thread that watches the parent holds one timer. MB. */
const LIMITS = { maxOldGenerationSizeMb: 8, maxYoungGenerationSizeMb: 1, codeRangeSizeMb: 4, stackSizeMb: 1 };

/**
 * Ends this process soon after its parent has ended, also while its main thread is busy in native code or JavaScript: that thread
 * notices the end of its link only when it is idle. Where the kernel does not end it, a separate thread checks whether the parent is
 * still the same; a pipe would cost the sidecar a descriptor per child. It costs 8 MB, 40 ms of processor time at the start and 0.7 ms
 * a second. The thread does not keep the process alive. Call this before anything that takes long.
 */
export function endWithParent(): void {
  if (process.argv.at(-1) === ENDS_WITH_PARENT) return;
  const watch = new Worker(new URL('./parent-watch-thread.js', import.meta.url), {
    workerData: process.ppid,
    resourceLimits: LIMITS,
    env: {},
    execArgv: [],
  });
  // Without it the process still ends with its link.
  watch.on('error', () => undefined);
  watch.unref();
}

/** Ends this process at once, without waiting for its threads as process.exit does: one may be stuck in a decode. */
export function endAtOnce(): void {
  process.kill(process.pid, 'SIGKILL');
}

/**
 * Keeps the memory of this process, and of those that it starts, out of core dumps: prompts and keys are in memory. The kernel passes
 * dumps to a program in `kernel.core_pattern` whatever the limit for core files is; this setting has effect then too. Returns
 * whether the system supports it: Linux alone does.
 */
export function leaveMemoryOutOfDumps(): boolean {
  try {
    writeFileSync('/proc/self/coredump_filter', '0');
    return true;
  } catch {
    return false;
  }
}

/**
 * Called by each process that serves requests, whose objects live as long as a request. V8 collects young objects on the main thread
 * alone, without helper threads: one collection has little work, and waking helpers costs more, especially while an engine computes on
 * every core. And V8 allocates no object in the old generation from the start: until the first full collection an old object that is dead
 * keeps the objects of later requests, from which V8 would learn that all such objects live long, and each young collection would then
 * copy ten kilobytes of every request that has ended. V8 reads both flags at each collection, so they take effect after the start too.
 */
export function collectForRequests(): void {
  setFlagsFromString('--no-parallel-scavenge');
  setFlagsFromString('--no-allocation-site-pretenuring');
}

/**
 * Called by a process that runs batches, which leave garbage without a pause for hours: V8 collects old objects when they have grown by a
 * quarter. It would let them grow to four times as much, which all is garbage. It reads the flag after each collection.
 */
export function keepHeapSmall(): void {
  setFlagsFromString('--heap-growing-percent=25');
}

/**
 * Collects garbage, and overwrites or unmaps its memory, where V8 would leave its texts until other objects get it. Nothing else runs
 * meanwhile: V8 moves all old objects that live. In several turns of the event loop some texts stay.
 */
export function overwriteGarbage(): void {
  const flags = ['compact-on-every-full-gc', 'clear-free-memory', 'expose-gc'];
  for (const flag of flags) setFlagsFromString(`--${flag}`);
  const collect = runInNewContext('gc') as (how?: { readonly flavor: 'last-resort' }) => void;
  // The first may end a marking that has begun, for which what died since then lives, and which moves nothing.
  collect();
  collect();
  // V8 11 clears here what young objects have left, later ones unmap pages that they kept for reuse.
  collect({ flavor: 'last-resort' });
  for (const flag of flags) setFlagsFromString(`--no-${flag}`);
}
