import type { Retry } from './retry-reservations.js';
import type { Refused, RefusalReason } from './seat-queue.js';

const MIN_RETRY_MS = 1000;
const MAX_RETRY_MS = 59_000;

/** Retries are spread over up to this share more than the estimate, so that the refused do not come back together. */
const JITTER = 0.25;

/** The error code of each reason. For `engine-lost` the routes answer 502 instead of this code, for `no-engine` 503 `cold`. */
const CODES = {
  full: 'capacity_exceeded',
  predicted: 'capacity_exceeded',
  standing: 'capacity_exceeded',
  patience: 'capacity_exceeded',
  named: 'capacity_exceeded',
  hopeless: 'capacity_exceeded',
  dropped: 'capacity_exceeded',
  bytes: 'capacity_exceeded',
  wait: 'capacity_exceeded',
  deadline: 'timeout',
  drain: 'draining',
  'engine-lost': 'capacity_exceeded',
  'no-engine': 'capacity_exceeded',
} as const satisfies Record<RefusalReason, Refused['code']>;

/** Makes refusals and counts them by reason. */
export class Refusals {
  readonly #random: () => number;
  readonly #counts: Partial<Record<RefusalReason, number>> = {};

  constructor(random: () => number) {
    this.#random = random;
  }

  get counts(): Readonly<Partial<Record<RefusalReason, number>>> {
    return { ...this.#counts };
  }

  /** `afterMs`: after which a retry is likely to be admitted, as predicted. */
  estimated(reason: RefusalReason, afterMs: number): Refused {
    return { ...this.#make(reason, retryAfter(afterMs, this.#random())), retry: 'predicted' };
  }

  /** During a drain, or after a lost engine, no wait is predicted: retry elsewhere, soon. */
  soon(reason: RefusalReason): Refused {
    return this.#make(reason, retryAfter(0, this.#random()));
  }

  /** With a reserved time to retry at, or with a long one if none could be reserved. */
  reserved(reason: RefusalReason, retry: Retry): Refused {
    return { ...this.#make(reason, retry.ms), retry: retry.kind };
  }

  #make(reason: RefusalReason, retryAfterMs: number): Refused {
    this.#counts[reason] = (this.#counts[reason] ?? 0) + 1;
    return { kind: 'refused', code: CODES[reason], reason, retryAfterMs };
  }
}

/** When to retry, if not before `afterMs`: whole ms from 1,000 to 59,000, spread by `random` (0 to 1). */
export function retryAfter(afterMs: number, random: number): number {
  return Math.ceil(Math.min(Math.max(afterMs, MIN_RETRY_MS) * (1 + JITTER * random), MAX_RETRY_MS));
}
