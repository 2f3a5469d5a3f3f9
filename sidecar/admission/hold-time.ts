/** Weight of the newest lease in the moving average (α in docs/admission.md#what-a-429-means). */
const ALPHA = 0.1;

const MIN_RETRY_MS = 1000;
const MAX_RETRY_MS = 59_000;

/** Retries are spread over up to this share more than the estimate, so that the refused do not come back together. */
const JITTER = 0.25;

/** A moving average of how long leases hold their seats. */
export class HoldTime {
  #meanMs: number | undefined;

  /** undefined: no lease has ended. */
  get meanMs(): number | undefined {
    return this.#meanMs;
  }

  /** Counts a lease that ended after `ms`. */
  observe(ms: number): void {
    this.#meanMs = this.#meanMs === undefined ? ms : this.#meanMs + ALPHA * (ms - this.#meanMs);
  }
}

/** When to come back after a wait of `waitMs`: whole ms from 1,000 to 59,000, spread by `random` (0 to 1). */
export function retryAfter(waitMs: number, random: number): number {
  return Math.ceil(Math.min(Math.max(waitMs, MIN_RETRY_MS) * (1 + JITTER * random), MAX_RETRY_MS));
}
