import type { Clock } from '../protocol/clock.js';

/** The engine's clock: a pending timer keeps the process alive, as what it waits for must be run. */
export const processClock: Clock = {
  now: () => performance.now(),
  after(ms, fn) {
    // setTimeout drops a fraction of a millisecond.
    const timer = setTimeout(fn, Math.ceil(ms));
    return () => clearTimeout(timer);
  },
};
