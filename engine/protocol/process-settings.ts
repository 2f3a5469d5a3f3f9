/** What each of our own processes sets for itself. */
import { writeFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';

/**
 * What the shell that becomes a child process does first: sets RLIMIT_CORE to 0, which JavaScript cannot, so that no core file is
 * written of it.
 */
export const NO_CORE_FILE = 'ulimit -c 0';

/** The last argument of a child process that the kernel ends with its parent. */
export const ENDS_WITH_PARENT = 'ends-with-parent';

/**
 * With what the shell becomes a child that the kernel ends with its parent (PR_SET_PDEATHSIG of prctl(2)), where util-linux has the
 * command for that. Elsewhere the child watches for it (parent-watch.ts).
 */
export const END_WITH_PARENT = `setpriv --pdeathsig KILL true 2>/dev/null && exec setpriv --pdeathsig KILL "$0" "$@" ${ENDS_WITH_PARENT}`;

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
