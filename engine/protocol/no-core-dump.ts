import { writeFileSync } from 'node:fs';

/**
 * Keeps the memory of this process, and of those that it starts, out of core dumps: prompts and keys are in memory. A
 * limit of 0 for core files (RLIMIT_CORE) cannot be set from JavaScript, and the kernel passes dumps to a program in
 * `kernel.core_pattern` whatever that limit is; this setting has effect in both cases. Returns whether the system
 * supports it: Linux alone does.
 */
export function leaveMemoryOutOfDumps(): boolean {
  try {
    writeFileSync('/proc/self/coredump_filter', '0');
    return true;
  } catch {
    return false;
  }
}
