/** What the metrics page says of the usage spool. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { UsageRecord } from '../ledger.js';

/** The spool at the moment of a scrape, as in usage/durable-spool.ts. */
export interface SpoolState {
  readonly unsynced: number;
  readonly oldestMs: number;
  readonly bytes: number;
  readonly health: { readonly ok: boolean };
}

const KINDS: readonly UsageRecord['kind'][] = ['open', 'progress', 'close'];
const SYNC_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

export class SpoolMetrics {
  readonly #records: Counter<'kind'>;
  readonly #syncs: Histogram;
  readonly #counts: Readonly<Record<'errors' | 'late' | 'dropped', Counter>>;
  readonly #gauges: Readonly<Record<'unsynced' | 'oldest' | 'bytes' | 'healthy', Gauge>>;
  #read: (() => SpoolState) | undefined;

  /** Registers itself with `registry`. */
  constructor(registry: Registry, prefix: string) {
    const registers = [registry];
    const counter = (name: string, help: string): Counter => new Counter({ name: prefix + name, help, registers });
    const gauge = (name: string, help: string): Gauge => new Gauge({ name: prefix + name, help, registers });
    this.#records = new Counter({
      name: `${prefix}usage_records_total`,
      help: 'Usage records, by kind.',
      labelNames: ['kind'],
      registers,
    });
    this.#syncs = new Histogram({
      name: `${prefix}spool_sync_seconds`,
      help: 'Write and sync of one group of records.',
      buckets: SYNC_SECONDS,
      registers,
    });
    this.#counts = {
      errors: counter('spool_errors_total', 'Writes and syncs of the spool that failed.'),
      late: counter('spool_late_closes_total', 'Replies that went out before their usage was durable.'),
      dropped: counter('spool_progress_dropped_total', 'Progress records left out because too many waited.'),
    };
    this.#gauges = {
      unsynced: gauge('spool_unsynced_records', 'Records that are not durable yet.'),
      oldest: gauge('spool_oldest_unsynced_seconds', 'Age of the oldest record that is not durable.'),
      bytes: gauge('spool_bytes', 'What the segments of the spool hold.'),
      healthy: gauge('spool_healthy', '1: new billable work is taken; 0: refused.'),
    };
    for (const kind of KINDS) this.#records.inc({ kind }, 0);
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

  dropped(): void {
    this.#counts.dropped.inc();
  }

  /** `read` is asked at each scrape. */
  watch(read: () => SpoolState): void {
    this.#read = read;
  }

  /** Brings the gauges up to date. */
  read(): void {
    const state = this.#read?.();
    if (!state) return;
    this.#gauges.unsynced.set(state.unsynced);
    this.#gauges.oldest.set(state.oldestMs / 1000);
    this.#gauges.bytes.set(state.bytes);
    this.#gauges.healthy.set(state.health.ok ? 1 : 0);
  }
}
