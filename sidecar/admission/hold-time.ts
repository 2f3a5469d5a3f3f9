/** Weight of the newest lease in the moving average (α in docs/admission.md#what-a-429-means). */
const ALPHA = 0.1;

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
