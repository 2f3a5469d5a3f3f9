/** What the metrics page says of usage on its way to its sink. */
import { BACKLOG, DEAD_LETTERS, DELIVERED, LAST_SUCCESS, OLDEST, RETRIES } from './definitions/usage.js';
import type { Counter, Gauge, Instruments } from './instruments.js';

/** Delivery at the moment of a scrape. */
export interface DeliveryReading {
  readonly backlogBytes: number;
  /** How long the oldest undelivered event has waited, ms. */
  readonly oldestMs: number;
}

export class DeliveryMetrics {
  readonly #delivered: Counter;
  readonly #refused: Counter;
  readonly #retries: Counter;
  readonly #backlog: Gauge;
  readonly #oldest: Gauge;
  readonly #success: Gauge;
  #read: (() => DeliveryReading) | undefined;

  constructor(instruments: Instruments) {
    this.#delivered = instruments.counter(DELIVERED);
    this.#refused = instruments.counter(DEAD_LETTERS);
    this.#retries = instruments.counter(RETRIES);
    this.#backlog = instruments.gauge(BACKLOG);
    this.#oldest = instruments.gauge(OLDEST);
    this.#success = instruments.gauge(LAST_SUCCESS);
  }

  /** The sink accepted so many events just now. */
  delivered(events: number): void {
    this.#delivered.inc(events);
    this.#success.setToCurrentTime();
  }

  /** So many events went to the dead letters. */
  refused(events: number): void {
    this.#refused.inc(events);
  }

  retried(): void {
    this.#retries.inc();
  }

  /** `read` is asked at each scrape. Never called: nothing is delivered, and the two gauges stay 0. */
  watch(read: () => DeliveryReading): void {
    this.#read = read;
  }

  /** Brings the gauges up to date. */
  read(): void {
    const now = this.#read?.();
    this.#backlog.set(now?.backlogBytes ?? 0);
    this.#oldest.set((now?.oldestMs ?? 0) / 1000);
  }
}
