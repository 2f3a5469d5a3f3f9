/** Time as a dependency, so that tests can drive it (as sidecar/lib/clock.ts, of which an engine process knows nothing). */
export interface Clock {
  /** Milliseconds that only go forward. */
  now(): number;
  /** Calls `fn` once, `ms` milliseconds from now, never synchronously; returns what takes that back. */
  after(ms: number, fn: () => void): () => void;
}

/** The process's own. */
export const processClock: Clock = {
  now: () => performance.now(),
  after(ms, fn) {
    // It cuts off what is less than a millisecond.
    const timer = setTimeout(fn, Math.ceil(ms));
    return () => clearTimeout(timer);
  },
};
