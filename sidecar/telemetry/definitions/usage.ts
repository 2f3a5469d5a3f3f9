/** The usage spool, and the delivery of usage to its sink. */
import { PREFIX, type CounterDefinition, type GaugeDefinition, type HistogramDefinition } from '../instruments.js';
import type { Unit } from '../units.js';

const SYNC_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10] as const;

const counter = (name: string, unit: Unit, help: string, advice: string): CounterDefinition => ({
  name: PREFIX + name,
  type: 'counter',
  unit,
  labels: [],
  help,
  advice,
});

const gauge = (name: string, unit: Unit, help: string, advice: string): GaugeDefinition => ({
  name: PREFIX + name,
  type: 'gauge',
  unit,
  labels: [],
  help,
  advice,
});

export const RECORDS: CounterDefinition<'kind'> = {
  name: `${PREFIX}usage_records_total`,
  type: 'counter',
  unit: 'records',
  labels: ['kind'],
  help: 'Usage records, by kind.',
  advice:
    'No action. The start adds a `close` for each request that an unclean stop interrupted; for running requests see `ra_sidecar_seats_busy`.',
};

export const SYNCS: HistogramDefinition = {
  name: `${PREFIX}spool_sync_seconds`,
  type: 'histogram',
  unit: 'seconds',
  labels: [],
  help: 'Write and sync of one group of records.',
  advice: 'Every reply waits for one: put `dataDir` on a faster disk, or on a separate one.',
  buckets: SYNC_SECONDS,
};

export const SPOOL_ERRORS = counter(
  'spool_errors_total',
  'errors',
  'Writes and syncs of the spool that failed.',
  'The log line `usage spool failed` has the operating system’s error.',
);

export const FILES_REMOVED = counter(
  'spool_files_removed_total',
  'files',
  'Files of the spool, including its lock, that another process removed, renamed, replaced or truncated.',
  'The log lines `usage spool: a segment was removed`, `usage spool: a segment was cut` and `usage spool: its lock was removed` have the file and the outcome.',
);

export const LATE_CLOSES = counter(
  'spool_late_closes_total',
  'replies',
  'Replies that were sent before their usage was durable.',
  'A crash now may lose their usage: see `ra_sidecar_spool_sync_seconds`.',
);

export const PROGRESS_DROPPED = counter(
  'spool_progress_dropped_total',
  'records',
  'Progress records dropped because too many waited.',
  'The disk is too slow; a crash may lose more usage.',
);

export const UNSYNCED = gauge(
  'spool_unsynced_records',
  'records',
  'Records that are not durable yet.',
  'As `ra_sidecar_spool_sync_seconds`.',
);

export const OLDEST_UNSYNCED = gauge(
  'spool_oldest_unsynced_seconds',
  'seconds',
  'Age of the oldest record that is not durable.',
  'Above a second: the disk hangs. Past `usage.maxUnsyncedMs` new work is refused with `spool_unhealthy`.',
);

export const SPOOL_BYTES = gauge(
  'spool_bytes',
  'bytes',
  'Bytes of the spool’s segments.',
  'At `usage.maxBacklogBytes` new work is refused: deliver it, or make room.',
);

export const SPOOL_HEALTHY = gauge(
  'spool_healthy',
  '0 or 1',
  '1: new billable work is accepted; 0: refused.',
  '0: `/readyz` on the operators’ listener and the log line `usage spool unhealthy` have the reason.',
);

export const DELIVERED = counter(
  'usage_delivered_total',
  'events',
  'Usage events that the sink accepted.',
  'No action; repeated events are counted too.',
);

export const DEAD_LETTERS = counter(
  'usage_dead_letters_total',
  'events',
  'Usage events that the sink rejected permanently.',
  'Should stay 0: they are in `dead-letters.jsonl` beside the spool.',
);

export const RETRIES = counter(
  'usage_delivery_retries_total',
  'batches',
  'Batches that are sent again because the sink did not take them, or because there was no room for dead letters.',
  'The log line `usage delivery waits` has the reason. Faults of the disk are not counted: `usage delivery failed`.',
);

export const BACKLOG = gauge(
  'usage_backlog_bytes',
  'bytes',
  'Bytes of the spool that are not delivered yet.',
  'If it grows for long, the sink is down or slower than the load.',
);

export const OLDEST = gauge(
  'usage_oldest_seconds',
  'seconds',
  'Age of the oldest undelivered usage event; 0: none waits.',
  'The lag of delivery: as for `ra_sidecar_usage_backlog_bytes`.',
);

export const LAST_SUCCESS = gauge(
  'usage_delivery_last_success_timestamp_seconds',
  'seconds since 1970',
  'Time when the sink last accepted usage, in seconds since 1970; 0: not since the start.',
  'If it is long ago and there is a backlog, the sink does not answer.',
);

export const USAGE_METRICS = [
  RECORDS,
  SYNCS,
  SPOOL_ERRORS,
  FILES_REMOVED,
  LATE_CLOSES,
  PROGRESS_DROPPED,
  UNSYNCED,
  OLDEST_UNSYNCED,
  SPOOL_BYTES,
  SPOOL_HEALTHY,
  DELIVERED,
  DEAD_LETTERS,
  RETRIES,
  BACKLOG,
  OLDEST,
  LAST_SUCCESS,
] as const;
