/** What the metrics page says of prepaid credit. Amounts are not on it: its numbers are floating-point. */
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

  /** `insufficient`: the balance is smaller; `unavailable`: it was not known. */
  refused(reason: CreditLabel): void {
    this.#refusals.inc({ reason });
  }

  /** `reservations` is asked at each scrape, for as long as this object lives. */
  watch(reservations: () => number): void {
    this.#read = reservations;
  }

  /** Brings the gauge up to date, before a page is made. */
  read(): void {
    this.#reservations.set(this.#read?.() ?? 0);
  }
}
