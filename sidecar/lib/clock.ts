/**
 * Time as a dependency. Code that reads or waits for time gets a Clock, so that tests can process millions of events
 * without waiting (shape: Kubernetes' eventclock).
 */
export interface Clock {
  /** Monotonic milliseconds with a fraction; the origin is arbitrary. */
  now(): number;
  /**
   * Calls `fn` once, `ms` milliseconds from now, never synchronously. Returns a function that cancels it;
   * cancelling twice or late does nothing. A pending timer does not keep the process alive.
   */
  after(ms: number, fn: () => void): () => void;
}

/** setTimeout overflows past 2^31-1 ms and would fire at once; 24 days is longer than any wait here. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** The process's own clock. */
export const systemClock: Clock = {
  now: () => performance.now(),
  after(ms, fn) {
    const timer = setTimeout(fn, Math.min(Math.max(ms, 0), MAX_TIMEOUT_MS));
    timer.unref();
    return () => clearTimeout(timer);
  },
};
