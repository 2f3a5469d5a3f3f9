/** Time as a dependency, so that tests can control it (like sidecar/lib/clock.ts, which an engine must not import). */
export interface Clock {
  /** Monotonic milliseconds. */
  now(): number;
  /** Calls `fn` once, `ms` milliseconds from now, never synchronously; returns a function that cancels it. */
  after(ms: number, fn: () => void): () => void;
}

/** The process's own. */
export const processClock: Clock = {
  now: () => performance.now(),
  after(ms, fn) {
    // setTimeout truncates fractions of a millisecond.
    const timer = setTimeout(fn, Math.ceil(ms));
    return () => clearTimeout(timer);
  },
};
