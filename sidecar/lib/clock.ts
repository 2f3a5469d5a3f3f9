import type { Clock } from '../../engine/protocol/clock.js';

export type { Clock };

/** setTimeout overflows past 2^31-1 ms and would fire at once; 24 days is longer than any wait here. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** The sidecar's clock. A pending timer does not keep the process alive. */
export const systemClock: Clock = {
  now: () => performance.now(),
  after(ms, fn) {
    const timer = setTimeout(fn, Math.min(Math.max(ms, 0), MAX_TIMEOUT_MS));
    timer.unref();
    return () => clearTimeout(timer);
  },
};
