/** Metrics of prepaid credit. Amounts are not exported, since Prometheus values are floating-point. */
import { CREDIT_REFUSALS, CREDIT_RESERVATIONS } from './definitions/access.js';
import type { Counter, Gauge, Instruments } from './instruments.js';

/** Why credit refused, as in access/credit.ts. */
const REASONS = ['insufficient', 'unavailable'] as const;
export type CreditLabel = (typeof REASONS)[number];

export class CreditMetrics {
  readonly #refusals: Counter<'reason'>;
  readonly #reservations: Gauge;
  #read: (() => number) | undefined;

  constructor(instruments: Instruments) {
    this.#refusals = instruments.counter(CREDIT_REFUSALS);
    this.#reservations = instruments.gauge(CREDIT_RESERVATIONS);
    for (const reason of REASONS) this.#refusals.inc({ reason }, 0);
  }

  /** `insufficient`: the balance is too small; `unavailable`: it is not known yet. */
  refused(reason: CreditLabel): void {
    this.#refusals.inc({ reason });
  }

  /** `reservations` is called at each scrape, for as long as this object lives. */
  watch(reservations: () => number): void {
    this.#read = reservations;
  }

  /** Updates the gauge before a page is made. */
  read(): void {
    this.#reservations.set(this.#read?.() ?? 0);
  }
}
