/** What the metrics page says of prepaid credit. Amounts are not on it: its numbers are floating-point. */
import { Counter, Gauge, type Registry } from 'prom-client';

/** Why credit refused, as in access/credit.ts. */
const REASONS = ['insufficient', 'unavailable'] as const;
export type CreditLabel = (typeof REASONS)[number];

export class CreditMetrics {
  readonly #refusals: Counter<'reason'>;
  readonly #reservations: Gauge;
  #read: (() => number) | undefined;

  /** Registers itself with `registry`. */
  constructor(registry: Registry, prefix: string) {
    const registers = [registry];
    this.#refusals = new Counter({
      name: `${prefix}credit_refusals_total`,
      help: 'Requests refused for want of credit, or because it was not known.',
      labelNames: ['reason'],
      registers,
    });
    this.#reservations = new Gauge({
      name: `${prefix}credit_reservations`,
      help: 'Requests that hold credit.',
      registers,
    });
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
