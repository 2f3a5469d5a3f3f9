/** The usage spool, and the delivery of usage to its sink. */
import type { UsageRecord } from '../domain/usage-record.js';
import type { Instruments } from './instruments.js';

const SYNC_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10] as const;

const KINDS = ['open', 'progress', 'close'] as const satisfies readonly UsageRecord['kind'][];

/** The state of the spool at a scrape, as in usage/spool.ts. */
interface SpoolState {
  readonly unsynced: number;
  readonly oldestMs: number;
  readonly bytes: number;
  readonly health: { readonly ok: boolean };
}

interface DeliveryState {
  readonly backlogBytes: number;
  /** Age of the oldest undelivered event, ms. */
  readonly oldestMs: number;
}

export type SpoolMetrics = ReturnType<typeof spoolMetrics>;

export function spoolMetrics(instruments: Instruments) {
  const records = instruments.counter('ra_sidecar_usage_records_total', 'records', {
    labels: { kind: KINDS },
    help: 'Usage records, by kind.',
    advice: 'No action.',
  });
  const syncs = instruments.histogram('ra_sidecar_spool_sync_seconds', 'seconds', {
    help: 'Write and sync of one group of records.',
    advice: 'Every reply waits for one: put `dataDir` on a faster disk.',
    buckets: SYNC_SECONDS,
  });
  const errors = instruments.counter('ra_sidecar_spool_errors_total', 'errors', {
    help: 'Writes and syncs of the spool that failed.',
    advice: 'The log’s `usage spool failed` has the error.',
  });
  const filesRemoved = instruments.counter('ra_sidecar_spool_files_removed_total', 'files', {
    help: 'Files of the spool, or its lock, that another process changed.',
    advice: 'See docs/usage.md#when-its-files-are-removed.',
  });
  const lateCloses = instruments.counter('ra_sidecar_spool_late_closes_total', 'replies', {
    help: 'Replies that were sent before their usage was durable.',
    advice: 'A crash may lose their usage: see `ra_sidecar_spool_sync_seconds`.',
  });
  const progressDropped = instruments.counter('ra_sidecar_spool_progress_dropped_total', 'records', {
    help: 'Progress records dropped because too many waited.',
    advice: 'The disk is too slow; a crash may lose more usage.',
  });
  /** No sample until the spool is open: while it is read at the start, 0 would mean unhealthy. */
  const ofState = (value: (state: SpoolState) => number) => (): number | undefined => {
    const state = spool.state();
    return state && value(state);
  };
  instruments.gauge('ra_sidecar_spool_unsynced_records', 'records', {
    help: 'Records that are not durable yet.',
    advice: 'As `ra_sidecar_spool_sync_seconds`.',
    collect: ofState(({ unsynced }) => unsynced),
  });
  instruments.gauge('ra_sidecar_spool_oldest_unsynced_seconds', 'seconds', {
    help: 'Age of the oldest record that is not durable.',
    advice: 'Above a second: the disk hangs. Past `usage.maxUnsyncedMs` new work is refused.',
    collect: ofState(({ oldestMs }) => oldestMs / 1000),
  });
  instruments.gauge('ra_sidecar_spool_bytes', 'bytes', {
    help: 'Bytes of the spool’s segments.',
    advice: 'At `usage.maxBacklogBytes` new work is refused: deliver it, or make room.',
    collect: ofState(({ bytes }) => bytes),
  });
  instruments.gauge('ra_sidecar_spool_healthy', '0 or 1', {
    help: '1: new billable work is accepted; 0: refused.',
    advice: '0: the log’s `usage spool unhealthy` has the reason.',
    collect: ofState(({ health }) => (health.ok ? 1 : 0)),
  });
  const spool = {
    /** Read at each scrape; undefined if the spool is not open yet. */
    state: (): SpoolState | undefined => undefined,
    recorded: (kind: UsageRecord['kind']): void => records.inc({ kind }),
    synced: (ms: number): void => syncs.observe(ms / 1000),
    failed: (): void => errors.inc(),
    closedLate: (): void => lateCloses.inc(),
    removed: (): void => filesRemoved.inc(),
    dropped: (): void => progressDropped.inc(),
  };
  return spool;
}

export function deliveryMetrics(instruments: Instruments) {
  const events = instruments.counter('ra_sidecar_usage_delivered_total', 'events', {
    help: 'Usage events that the sink accepted.',
    advice: 'No action; repeats count too.',
  });
  const deadLetters = instruments.counter('ra_sidecar_usage_dead_letters_total', 'events', {
    help: 'Usage events that the sink rejected permanently.',
    advice: 'Above 0: docs/usage.md#dead-letters.',
  });
  const retries = instruments.counter('ra_sidecar_usage_delivery_retries_total', 'batches', {
    help: 'Batches that are sent again.',
    advice: 'The log’s `usage delivery waits` has the reason.',
  });
  instruments.gauge('ra_sidecar_usage_backlog_bytes', 'bytes', {
    help: 'Bytes of the spool that are not delivered yet.',
    advice: 'Growing for long: the sink is down or slower than the load.',
    collect: () => delivery.state().backlogBytes,
  });
  instruments.gauge('ra_sidecar_usage_oldest_seconds', 'seconds', {
    help: 'Age of the oldest undelivered usage event; 0: none waits.',
    advice: 'As `ra_sidecar_usage_backlog_bytes`.',
    collect: () => delivery.state().oldestMs / 1000,
  });
  const lastSuccess = instruments.gauge(
    'ra_sidecar_usage_delivery_last_success_timestamp_seconds',
    'seconds since 1970',
    {
      help: 'When the sink last accepted usage; 0: not since the start.',
      advice: 'Long ago, with a backlog: the sink does not answer.',
    },
  );
  const delivery = {
    /** Read at each scrape. Without a sink nothing waits for it. */
    state: (): DeliveryState => ({ backlogBytes: 0, oldestMs: 0 }),
    /** Counts events that the sink accepted. */
    delivered(count: number): void {
      events.inc(count);
      lastSuccess.setToCurrentTime();
    },
    /** Counts events that became dead letters. */
    refused: (count: number): void => deadLetters.inc(count),
    retried: (): void => retries.inc(),
  };
  return delivery;
}
