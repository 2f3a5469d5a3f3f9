/** Metrics of usage delivery. */
import { BACKLOG, DEAD_LETTERS, DELIVERED, LAST_SUCCESS, OLDEST, RETRIES } from './definitions/usage.js';
import type { Counter, Gauge, Instruments } from './instruments.js';

/** The state of delivery at a scrape. */
export interface DeliveryReading {
  readonly backlogBytes: number;
  /** Age of the oldest undelivered event, ms. */
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

  /** Counts events that the sink accepted. */
  delivered(events: number): void {
    this.#delivered.inc(events);
    this.#success.setToCurrentTime();
  }

  /** Counts events that became dead letters. */
  refused(events: number): void {
    this.#refused.inc(events);
  }

  retried(): void {
    this.#retries.inc();
  }

  /** `read` is called at each scrape. If watch is never called, nothing is delivered, and the two gauges stay 0. */
  watch(read: () => DeliveryReading): void {
    this.#read = read;
  }

  /** Updates the gauges. */
  read(): void {
    const now = this.#read?.();
    this.#backlog.set(now?.backlogBytes ?? 0);
    this.#oldest.set((now?.oldestMs ?? 0) / 1000);
  }
}
