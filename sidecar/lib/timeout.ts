import type { Clock } from './clock.js';

/**
 * Waits for `work` for at most `ms`. Returns false on a timeout; the work then continues, and its result is ignored.
 * Rejects if `work` rejects in time.
 */
export async function withTimeout(clock: Clock, ms: number, work: Promise<unknown>): Promise<boolean> {
  let cancel = (): void => undefined;
  const late = new Promise<false>((resolve) => {
    cancel = clock.after(ms, () => resolve(false));
  });
  try {
    // The race also handles a later rejection.
    return await Promise.race([work.then(() => true), late]);
  } finally {
    cancel();
  }
}
