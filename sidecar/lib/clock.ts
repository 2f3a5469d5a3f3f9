/** The time: the clock that the sidecar's parts are given, a limit of time, waits between attempts, and dates as text. */
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

/** Waits for `work` at most `ms`. False: timeout; the work continues, its result is ignored. Rejects if it rejects in time. */
export async function withTimeout(clock: Clock, ms: number, work: Promise<unknown>): Promise<boolean> {
  let cancel = (): void => undefined;
  const timedOut = new Promise<false>((resolve) => {
    cancel = clock.after(ms, () => resolve(false));
  });
  try {
    // The race also handles a later rejection.
    return await Promise.race([work.then(() => true), timedOut]);
  } finally {
    cancel();
  }
}

/** Calls `fn` each `ms` until the function that it returns is called. */
export function every(clock: Clock, ms: number, fn: () => unknown): () => void {
  let cancel = (): void => undefined;
  const again = (): void => {
    cancel = clock.after(ms, () => {
      again();
      fn();
    });
  };
  again();
  return () => cancel();
}

/**
 * Waits between attempts: doubling from `minMs` to `maxMs`, each drawn from the upper half of its step, so that clients that failed
 * together do not retry together ("equal jitter", M. Brooker, AWS Architecture Blog, 2015).
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

/** The length of `2026-06-30`. */
const DAY = 10;

/** Epoch ms of a day or time, as `Date.parse` reads it, but NaN for a day that does not exist: `Date.parse` takes 31 June for 1 July. */
export function exactTime(text: string): number {
  const day = text.slice(0, DAY);
  const midnight = Date.parse(`${day}T00:00:00Z`);
  if (Number.isNaN(midnight) || new Date(midnight).toISOString().slice(0, DAY) !== day) return NaN;
  return Date.parse(text);
}
