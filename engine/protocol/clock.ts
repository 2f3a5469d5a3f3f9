/**
 * Time as a dependency, in every process: whatever reads or waits for time is given a Clock, so that tests can drive millions of
 * events without waiting (shape: Kubernetes' eventclock). The sidecar's own is in sidecar/lib/clock.ts; it differs from the engine's
 * below in whether a pending timer keeps the process alive.
 */
export interface Clock {
  /** Monotonic milliseconds with a fraction; the origin is arbitrary. */
  now(): number;
  /**
   * Calls `fn` once, `ms` milliseconds from now, never synchronously. Returns a function that cancels it; cancelling twice or
   * late does nothing.
   */
  after(ms: number, fn: () => void): () => void;
}

/** The engine's clock: a pending timer keeps the process alive, as what it waits for must be run. */
export const processClock: Clock = {
  now: () => performance.now(),
  after(ms, fn) {
    // setTimeout drops a fraction of a millisecond.
    const timer = setTimeout(fn, Math.ceil(ms));
    return () => clearTimeout(timer);
  },
};
