import type { Clock } from './clock.js';

/**
 * Waits for `work`, but no longer than `ms`. False: it goes on by itself, and how it ends is nobody's any more. Rejects as
 * `work` does while that is waited for.
 */
export async function withTimeout(clock: Clock, ms: number, work: Promise<unknown>): Promise<boolean> {
  let cancel = (): void => undefined;
  const late = new Promise<false>((resolve) => {
    cancel = clock.after(ms, () => resolve(false));
  });
  try {
    // A rejection after that has a handler too, since the race had one.
    return await Promise.race([work.then(() => true), late]);
  } finally {
    cancel();
  }
}
