/** What the metrics page says of usage on its way to its sink. */
import { Counter, Gauge, type Registry } from 'prom-client';

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

  /** Registers itself with `registry`. */
  constructor(registry: Registry, prefix: string) {
    const registers = [registry];
    const counter = (name: string, help: string): Counter => new Counter({ name: prefix + name, help, registers });
    const gauge = (name: string, help: string): Gauge => new Gauge({ name: prefix + name, help, registers });
    this.#delivered = counter('usage_delivered_total', 'Usage events that the sink accepted.');
    this.#refused = counter('usage_dead_letters_total', 'Usage events that the sink refused for good.');
    this.#retries = counter('usage_delivery_retries_total', 'Batches that have to be sent again.');
    this.#backlog = gauge('usage_backlog_bytes', 'What the spool holds that is not delivered yet.');
    this.#oldest = gauge(
      'usage_oldest_seconds',
      'How long the oldest undelivered usage event has waited; 0: none waits.',
    );
    this.#success = gauge(
      'usage_delivery_last_success_timestamp_seconds',
      'When the sink last accepted usage, seconds since 1970; 0: not since the start.',
    );
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
