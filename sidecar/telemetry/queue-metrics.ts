/**
 * Metrics of the seat queues. Accounts are the only label without a closed list: they are the operator's own names for
 * its customers, never text of a caller, and only the busiest of a model have their own series.
 */
import { SERVICE_CLASSES, type ServiceClass } from '../domain/service-class.js';
import {
  ACCOUNT_BUSY,
  ACCOUNT_SEAT_TIME,
  ACCOUNT_WAITING,
  FAIRNESS,
  LEFT_SEAT_TIME,
  PATIENCE,
  QUEUE_WAIT,
  REFUSALS,
  RETRY_TIMES,
  SEATS,
  SEATS_BUSY,
  STANDING,
  WAIT_ERROR,
  WAITING,
  WAITING_BYTES,
} from './definitions/queue.js';
import type { Counter, Gauge, Histogram, Instruments } from './instruments.js';

/** Why the seat queue refused, as in admission/seat-queue.ts. */
const REASONS = [
  'full',
  'bytes',
  'predicted',
  'standing',
  'patience',
  'named',
  'hopeless',
  'dropped',
  'wait',
  'deadline',
  'drain',
  'engine-lost',
  'no-engine',
] as const;
export type RefusalLabel = (typeof REASONS)[number];

/** The state of one model's queue at a scrape. */
export interface QueueReading {
  readonly seats: number;
  readonly busy: number;
  readonly waitingBy: Readonly<Record<ServiceClass, number>>;
  readonly waitingBytes: number;
  /** Jain's index of the last minute; null: fewer than two accounts. */
  readonly fairness: number | null;
  /** What the queue learned of overload. */
  readonly overload: OverloadReading;
  readonly accounts: readonly AccountReading[];
  /** All that are not in `accounts`. */
  readonly others: Omit<AccountReading, 'account'>;
}

/** Times in ms; null: not known. */
interface OverloadReading {
  readonly standing: boolean;
  readonly leftMs: number;
  readonly patience: Readonly<
    Record<
      'first-token' | 'end',
      { readonly p10: number | null; readonly p50: number | null; readonly p90: number | null }
    >
  >;
}

/** Where Retry-After came from. */
const RETRY_KINDS = ['predicted', 'reserved', 'none'] as const;
export type RetryLabel = (typeof RETRY_KINDS)[number];

interface AccountReading {
  readonly account: string;
  readonly waiting: number;
  readonly running: number;
  readonly seatMs: number;
}

/** A granted seat. */
export interface Seating {
  readonly waitedMs: number;
  /** The predicted wait; undefined: none was predicted. */
  readonly predictedMs?: number | undefined;
  readonly class: ServiceClass;
}

/** Accounts of a model with their own series. */
export const NAMED_ACCOUNTS = 20;

/**
 * Labels of the sum over all other accounts. No account can be confused with it, since only it has the label `rest`.
 */
const REST = { account: '', rest: 'true' };

export class QueueMetrics {
  readonly #queues = new Map<string, (named: number) => QueueReading>();
  readonly #waits: Histogram<'model' | 'class'>;
  readonly #errors: Histogram<'model'>;
  readonly #refusals: Counter<'model' | 'reason'>;
  readonly #retries: Counter<'model' | 'time'>;
  readonly #patience: Gauge<'model' | 'awaits' | 'quantile'>;
  readonly #gauges: Readonly<Record<'seats' | 'busy' | 'bytes' | 'fairness' | 'left' | 'standing', Gauge<'model'>>>;
  readonly #waiting: Gauge<'model' | 'class'>;
  readonly #accounts: Readonly<Record<'waiting' | 'running' | 'seatMs', Gauge<'model' | 'account' | 'rest'>>>;

  /** `models`: the configured ids. */
  constructor(instruments: Instruments, models: readonly string[]) {
    this.#waits = instruments.histogram(QUEUE_WAIT);
    this.#errors = instruments.histogram(WAIT_ERROR);
    this.#refusals = instruments.counter(REFUSALS);
    this.#retries = instruments.counter(RETRY_TIMES);
    this.#patience = instruments.gauge(PATIENCE);
    this.#waiting = instruments.gauge(WAITING);
    this.#gauges = {
      seats: instruments.gauge(SEATS),
      busy: instruments.gauge(SEATS_BUSY),
      bytes: instruments.gauge(WAITING_BYTES),
      fairness: instruments.gauge(FAIRNESS),
      left: instruments.gauge(LEFT_SEAT_TIME),
      standing: instruments.gauge(STANDING),
    };
    this.#accounts = {
      waiting: instruments.gauge(ACCOUNT_WAITING),
      running: instruments.gauge(ACCOUNT_BUSY),
      seatMs: instruments.gauge(ACCOUNT_SEAT_TIME),
    };
    for (const model of models) {
      for (const reason of REASONS) this.#refusals.inc({ model, reason }, 0);
      for (const time of RETRY_KINDS) this.#retries.inc({ model, time }, 0);
      for (const name of SERVICE_CLASSES) {
        this.#waiting.set({ model, class: name }, 0);
        // Starts the series at 0: otherwise a rate would miss its first values.
        this.#waits.zero({ model, class: name });
      }
    }
  }

  seated(model: string, { waitedMs, predictedMs, class: label }: Seating): void {
    this.#waits.observe({ model, class: label }, waitedMs / 1000);
    if (predictedMs === undefined || (waitedMs === 0 && predictedMs === 0)) return;
    this.#errors.observe({ model }, (waitedMs - predictedMs) / 1000);
  }

  refused(model: string, reason: RefusalLabel, time: RetryLabel | undefined): void {
    this.#refusals.inc({ model, reason });
    if (time !== undefined) this.#retries.inc({ model, time });
  }

  /** `read` is called at each scrape, with the number of accounts to name. */
  watch(model: string, read: (named: number) => QueueReading): void {
    this.#queues.set(model, read);
  }

  /** Updates the gauges. */
  read(): void {
    for (const gauge of Object.values(this.#accounts)) gauge.reset();
    this.#gauges.fairness.reset();
    this.#patience.reset();
    for (const [model, read] of this.#queues) {
      const { seats, busy, waitingBy, waitingBytes, fairness, overload, accounts, others } = read(NAMED_ACCOUNTS);
      this.#gauges.seats.set({ model }, seats);
      this.#gauges.busy.set({ model }, busy);
      for (const name of SERVICE_CLASSES) this.#waiting.set({ model, class: name }, waitingBy[name]);
      this.#gauges.bytes.set({ model }, waitingBytes);
      if (fairness !== null) this.#gauges.fairness.set({ model }, fairness);
      this.#overload(model, overload);
      for (const { account, ...held } of accounts) this.#account({ model, account: account, rest: 'false' }, held);
      this.#account({ model, ...REST }, others);
    }
  }

  #overload(model: string, { standing, leftMs, patience }: OverloadReading): void {
    this.#gauges.standing.set({ model }, standing ? 1 : 0);
    this.#gauges.left.set({ model }, leftMs / 1000);
    for (const awaits of ['first-token', 'end'] as const) {
      const { p10, p50, p90 } = patience[awaits];
      for (const [quantile, ms] of [
        ['0.1', p10],
        ['0.5', p50],
        ['0.9', p90],
      ] as const) {
        if (ms !== null) this.#patience.set({ model, awaits, quantile }, ms / 1000);
      }
    }
  }

  #account(
    labels: { readonly model: string; readonly account: string; readonly rest: string },
    { waiting, running, seatMs }: Omit<AccountReading, 'account'>,
  ): void {
    this.#accounts.waiting.set(labels, waiting);
    this.#accounts.running.set(labels, running);
    this.#accounts.seatMs.set(labels, seatMs / 1000);
  }
}
