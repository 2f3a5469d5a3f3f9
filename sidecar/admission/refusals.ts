import { retryAfter } from './hold-time.js';
import type { Refused, RefusalReason } from './seat-queue.js';

/** What a reason is called on the wire. A second lost engine is answered 502 by handlers, whatever this says. */
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

  /** `waitMs`: how long one who came now would wait. It says nothing of a process that drains: retry elsewhere, soon. */
  make(reason: RefusalReason, waitMs: number): Refused {
    this.#counts[reason] = (this.#counts[reason] ?? 0) + 1;
    const retryAfterMs = retryAfter(reason === 'drain' ? 0 : waitMs, this.#random());
    return { kind: 'refused', code: CODES[reason], reason, retryAfterMs };
  }
}
