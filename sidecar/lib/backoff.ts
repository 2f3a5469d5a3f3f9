/**
 * Waits between attempts: doubling from `minMs` to `maxMs`, each drawn from the upper half of its step ("equal jitter",
 * M. Brooker, AWS Architecture Blog, 2015), so that clients that failed together do not retry at the same time.
 */
export class Backoff {
  readonly #minMs: number;
  readonly #maxMs: number;
  readonly #random: () => number;
  #attempt = 0;

  /** `random` returns numbers from 0 to 1. */
  constructor(minMs: number, maxMs: number, random: () => number) {
    this.#minMs = minMs;
    this.#maxMs = maxMs;
    this.#random = random;
  }

  /** The next wait in ms, never above `maxMs`. */
  next(): number {
    const step = Math.min(this.#minMs * 2 ** this.#attempt, this.#maxMs);
    if (step < this.#maxMs) this.#attempt += 1;
    return step / 2 + (step / 2) * this.#random();
  }

  /** Called after a success: the next wait is the shortest. */
  reset(): void {
    this.#attempt = 0;
  }
}
