/**
 * What the metrics page says of the seat queues. Accounts are the one label that is not closed: they are the operator's
 * own names for its customers, never text of a caller's, and only the busiest of a model have a line of their own.
 */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

/** Why the seat queue refused, as in admission/seat-queue.ts. */
const REASONS = ['full', 'bytes', 'predicted', 'dropped', 'wait', 'deadline', 'drain', 'engine-lost'] as const;
export type RefusalLabel = (typeof REASONS)[number];

export type ClassLabel = 'interactive' | 'standard' | 'batch';

/** One model's queue at the moment of a scrape. */
export interface QueueReading {
  readonly seats: number;
  readonly busy: number;
  readonly waiting: number;
  readonly waitingBytes: number;
  /** Jain's index of the last minute; null: nothing to compare. */
  readonly fairness: number | null;
  readonly tenants: readonly TenantReading[];
  /** All that are not in `tenants`. */
  readonly others: Omit<TenantReading, 'tenant'>;
}

interface TenantReading {
  readonly tenant: string;
  readonly waiting: number;
  readonly running: number;
  readonly seatMs: number;
}

/** A seat that was given out. */
export interface Seating {
  readonly waitedMs: number;
  /** What that was taken to be; undefined: nothing was foretold. */
  readonly predictedMs?: number | undefined;
  readonly class: ClassLabel;
}

/** Accounts of a model with a line of their own. */
export const NAMED_ACCOUNTS = 20;

/** Stands for all other accounts. It cannot be mistaken for one: nobody else's line bears the label `rest`. */
const REST = { account: '', rest: 'true' };

export const WAIT_SECONDS = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const ERROR_SECONDS = [-10, -5, -2.5, -1, -0.5, -0.1, 0, 0.1, 0.5, 1, 2.5, 5, 10];

export class QueueMetrics {
  readonly #queues = new Map<string, (named: number) => QueueReading>();
  readonly #waits: Histogram<'model' | 'class'>;
  readonly #errors: Histogram<'model'>;
  readonly #refusals: Counter<'model' | 'reason'>;
  readonly #gauges: Readonly<Record<'seats' | 'busy' | 'waiting' | 'bytes' | 'fairness', Gauge<'model'>>>;
  readonly #accounts: Readonly<Record<'waiting' | 'running' | 'seatMs', Gauge<'model' | 'account' | 'rest'>>>;

  /** Registers itself with `registry`. `models`: the configured ids. */
  constructor(registry: Registry, prefix: string, models: readonly string[]) {
    const registers = [registry];
    const gauge = (name: string, help: string): Gauge<'model'> =>
      new Gauge({ name: prefix + name, help, labelNames: ['model'], registers });
    const account = (name: string, help: string): Gauge<'model' | 'account' | 'rest'> =>
      new Gauge({ name: prefix + name, help, labelNames: ['model', 'account', 'rest'], registers });
    this.#waits = new Histogram({
      name: `${prefix}queue_wait_seconds`,
      help: 'Wait for a seat, seated requests.',
      buckets: WAIT_SECONDS,
      labelNames: ['model', 'class'],
      registers,
    });
    this.#errors = new Histogram({
      name: `${prefix}queue_wait_error_seconds`,
      help: 'The wait less what it was taken to be, for requests that either waited or were taken to.',
      buckets: ERROR_SECONDS,
      labelNames: ['model'],
      registers,
    });
    this.#refusals = new Counter({
      name: `${prefix}refusals_total`,
      help: 'Requests the seat queue refused.',
      labelNames: ['model', 'reason'],
      registers,
    });
    this.#gauges = {
      seats: gauge('seats', 'Seats of the engine.'),
      busy: gauge('seats_busy', 'Seats that requests hold.'),
      waiting: gauge('waiting_requests', 'Requests in the queue.'),
      bytes: gauge('waiting_bytes', 'Body bytes that waiting requests hold.'),
      fairness: gauge('fairness_index', 'Jain index of seat time in the last minute, accounts with a backlog.'),
    };
    this.#accounts = {
      waiting: account('account_waiting_requests', 'Requests in the queue, by account.'),
      running: account('account_seats_busy', 'Seats held, by account.'),
      seatMs: account('account_seat_seconds', 'Seat time held so far, by account.'),
    };
    for (const model of models) for (const reason of REASONS) this.#refusals.inc({ model, reason }, 0);
  }

  seated(model: string, { waitedMs, predictedMs, class: label }: Seating): void {
    this.#waits.observe({ model, class: label }, waitedMs / 1000);
    if (predictedMs === undefined || (waitedMs === 0 && predictedMs === 0)) return;
    this.#errors.observe({ model }, (waitedMs - predictedMs) / 1000);
  }

  refused(model: string, reason: RefusalLabel): void {
    this.#refusals.inc({ model, reason });
  }

  /** `read` is asked at each scrape, with how many accounts it is to name. */
  watch(model: string, read: (named: number) => QueueReading): void {
    this.#queues.set(model, read);
  }

  /** Brings the gauges up to date. */
  read(): void {
    for (const gauge of Object.values(this.#accounts)) gauge.reset();
    this.#gauges.fairness.reset();
    for (const [model, read] of this.#queues) {
      const { seats, busy, waiting, waitingBytes, fairness, tenants, others } = read(NAMED_ACCOUNTS);
      this.#gauges.seats.set({ model }, seats);
      this.#gauges.busy.set({ model }, busy);
      this.#gauges.waiting.set({ model }, waiting);
      this.#gauges.bytes.set({ model }, waitingBytes);
      if (fairness !== null) this.#gauges.fairness.set({ model }, fairness);
      for (const { tenant, ...held } of tenants) this.#account({ model, account: tenant, rest: 'false' }, held);
      this.#account({ model, ...REST }, others);
    }
  }

  #account(
    labels: { readonly model: string; readonly account: string; readonly rest: string },
    { waiting, running, seatMs }: Omit<TenantReading, 'tenant'>,
  ): void {
    this.#accounts.waiting.set(labels, waiting);
    this.#accounts.running.set(labels, running);
    this.#accounts.seatMs.set(labels, seatMs / 1000);
  }
}
