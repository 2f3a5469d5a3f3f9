/**
 * Time as a dependency, in every process: whatever reads or waits for time is given a Clock, so that tests can drive millions of
 * events without waiting (shape: Kubernetes' eventclock). The sidecar's own is in sidecar/lib/clock.ts, the engine's in
 * engine/scheduler/clock.ts: they differ in whether a pending timer keeps the process alive.
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
