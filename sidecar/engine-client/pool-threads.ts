/** libuv's own default. */
const MIN_POOL_THREADS = 4;

/** More threads would only wait: a step samples at most one token per seat, and they share the memory bandwidth. */
const MAX_POOL_THREADS = 64;

/**
 * Threads of the engine's libuv pool, on which a step's tokens are sampled in parallel: one per core, within bounds.
 */
export function poolThreads(cores: number): number {
  return Math.min(MAX_POOL_THREADS, Math.max(MIN_POOL_THREADS, cores));
}
