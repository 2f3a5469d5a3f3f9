/**
 * What decides when a child process ends. Each child process imports this file, also for its effect: it ignores the signals that
 * Ctrl-C, a closed terminal, a reload and some service managers send to the whole process group. The parent decides what such a
 * signal means, and ends its children when it is done.
 */
import { Worker } from 'node:worker_threads';
import { ENDS_WITH_PARENT } from './process-settings.js';

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => undefined);

/** It holds one timer. MB. */
const LIMITS = { maxOldGenerationSizeMb: 8, maxYoungGenerationSizeMb: 1, codeRangeSizeMb: 4, stackSizeMb: 1 };

/**
 * Ends this process soon after its parent has ended, also while its main thread is busy in native code or JavaScript: that thread
 * notices the end of its link only when it is idle. Where the kernel does not end it (process-settings.ts), a separate thread checks
 * whether the parent is still the same; a pipe would cost the sidecar a descriptor per child. It costs 8 MB, 40 ms of processor time
 * at the start and 0.7 ms a second. The thread does not keep the process alive. Call this before anything that takes long.
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
