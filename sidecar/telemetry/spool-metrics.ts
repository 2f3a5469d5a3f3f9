/** Metrics of the usage spool. */
import type { UsageRecord } from '../domain/usage-record.js';
import {
  FILES_REMOVED,
  LATE_CLOSES,
  OLDEST_UNSYNCED,
  PROGRESS_DROPPED,
  RECORDS,
  SPOOL_BYTES,
  SPOOL_ERRORS,
  SPOOL_HEALTHY,
  SYNCS,
  UNSYNCED,
} from './definitions/usage.js';
import type { Counter, Gauge, Histogram, Instruments } from './instruments.js';

/** The state of the spool at a scrape, as in usage/spool.ts. */
export interface SpoolState {
  readonly unsynced: number;
  readonly oldestMs: number;
  readonly bytes: number;
  readonly health: { readonly ok: boolean };
}

const KINDS: readonly UsageRecord['kind'][] = ['open', 'progress', 'close'];

export class SpoolMetrics {
  readonly #records: Counter<'kind'>;
  readonly #syncs: Histogram;
  readonly #counts: Readonly<Record<'errors' | 'late' | 'dropped' | 'removed', Counter>>;
  readonly #gauges: Readonly<Record<'unsynced' | 'oldest' | 'bytes' | 'healthy', Gauge>>;
  #read: (() => SpoolState) | undefined;

  constructor(instruments: Instruments) {
    this.#records = instruments.counter(RECORDS);
    this.#syncs = instruments.histogram(SYNCS);
    this.#counts = {
      errors: instruments.counter(SPOOL_ERRORS),
      late: instruments.counter(LATE_CLOSES),
      dropped: instruments.counter(PROGRESS_DROPPED),
      removed: instruments.counter(FILES_REMOVED),
    };
    this.#gauges = {
      unsynced: instruments.gauge(UNSYNCED),
      oldest: instruments.gauge(OLDEST_UNSYNCED),
      bytes: instruments.gauge(SPOOL_BYTES),
      healthy: instruments.gauge(SPOOL_HEALTHY),
    };
    for (const kind of KINDS) this.#records.inc({ kind }, 0);
    // No sample until the spool is open: while it is read at the start, 0 would mean unhealthy.
    for (const gauge of Object.values(this.#gauges)) gauge.remove();
  }

  recorded(kind: UsageRecord['kind']): void {
    this.#records.inc({ kind });
  }

  synced(ms: number): void {
    this.#syncs.observe(ms / 1000);
  }

  failed(): void {
    this.#counts.errors.inc();
  }

  late(): void {
    this.#counts.late.inc();
  }

  removed(): void {
    this.#counts.removed.inc();
  }

  dropped(): void {
    this.#counts.dropped.inc();
  }

  /** `read` is called at each scrape. */
  watch(read: () => SpoolState): void {
    this.#read = read;
  }

  /** Updates the gauges. */
  read(): void {
    const state = this.#read?.();
    if (!state) return;
    this.#gauges.unsynced.set(state.unsynced);
    this.#gauges.oldest.set(state.oldestMs / 1000);
    this.#gauges.bytes.set(state.bytes);
    this.#gauges.healthy.set(state.health.ok ? 1 : 0);
  }
}
