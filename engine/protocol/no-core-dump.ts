import { writeFileSync } from 'node:fs';

/**
 * A core dump of this process, and of those that it starts, has no memory in it: prompts and keys are in memory. A limit of 0 for
 * core files (RLIMIT_CORE) cannot be set from JavaScript, and the kernel passes dumps to a program in `kernel.core_pattern` whatever
 * that limit is; this it obeys in both cases. Returns whether the system takes it: Linux alone does.
 */
export function leaveMemoryOutOfDumps(): boolean {
  try {
    writeFileSync('/proc/self/coredump_filter', '0');
    return true;
  } catch {
    return false;
  }
}
