/** Composes the handling of the usage spool: delivery to a sink, or retention for a while. */
import { join } from 'node:path';
import { systemClock, withTimeout } from '../lib/clock.js';
import type { Config } from '../config/config.js';
import { openSpool, spoolDir } from './compose-spool.js';
import type { Log } from '../telemetry/logger.js';
import type { Metrics } from '../telemetry/metrics.js';
import { CursorFile, DeadLetterFile } from '../usage/delivery/files.js';
import { Delivery } from '../usage/delivery/delivery.js';
import { Retention } from '../usage/delivery/retention.js';
import { openSink } from '../usage/delivery/sinks.js';
import type { Spool } from '../usage/spool.js';
import type { Position } from '../usage/spool-format.js';

/** Beyond every segment: only delivery reads the spool. */
const NO_READER: Position = { segment: Number.MAX_SAFE_INTEGER, offset: 0 };

/**
 * How much longer than `delivery.stopMs` delivery may take to end, ms: to save its cursor or delete a segment. Only a
 * hung disk takes longer. Interrupted events are sent again after the next start.
 */
export const HUNG_DISK_MS = 2000;

const DAY_MS = 86_400_000;

/**
 * Opens the spool and starts delivery. Rejects with one line if either fails; then nothing is left open. `keepFrom`:
 * the position from which others still read the spool, which is never pruned; undefined: none.
 */
export async function openUsage(
  config: Config,
  { spool: spoolMetrics, delivery: metrics }: Pick<Metrics, 'spool' | 'delivery'>,
  log: Log,
  keepFrom: () => Position | undefined,
): Promise<{
  readonly spool: Spool;
  /** Deletes segments that are not needed, after `keepFrom` has changed. Never rejects. */
  readonly prune: () => Promise<void>;
  /**
   * Sends waiting events and writes remaining records, each within a time limit, and releases the spool. Idempotent.
   */
  readonly closeSpool: () => Promise<void>;
}> {
  let delivering: Delivering | undefined;
  const { spool, closeSpool } = await openSpool(config, spoolMetrics, log, {
    durable: () => delivering?.notify(),
    full: () => void delivering?.prune(),
  });
  try {
    const started = await startDelivery(config, spool, { metrics, log, keepFrom: () => keepFrom() ?? NO_READER });
    delivering = started;
    // Records that became durable meanwhile.
    started.notify();
    return {
      spool,
      prune: () => started.prune(),
      closeSpool: async () => {
        // Delivery stops first, while this process may still prune the spool: replies have waited for their closes by
        // now.
        const stopMs = config.delivery.stopMs + HUNG_DISK_MS;
        if (!(await withTimeout(systemClock, stopMs, started.stop()))) log.error('usage delivery not stopped in time');
        await closeSpool();
      },
    };
  } catch (error) {
    await closeSpool();
    throw error;
  }
}

/** Notified when the spool has grown. */
interface Delivering {
  /** More of the spool is durable. */
  notify(): void;
  /** Deletes segments that are not needed. Never rejects. */
  prune(): Promise<void>;
  /** Sends waiting events within a time limit, and ends. Idempotent. */
  stop(): Promise<void>;
}

/** Starts to deliver the records of `spool`, or to keep it within its retention if no sink is configured. */
async function startDelivery(
  config: Config,
  spool: Spool,
  { metrics, log, keepFrom }: { metrics: Metrics['delivery']; log: Log; keepFrom: () => Position },
): Promise<Delivering> {
  const { source: eventSource, deadLetterBytes, ...limits } = config.delivery;
  const dir = spoolDir(config);
  const date = (): number => Date.now();
  const sink = await openSink(config.delivery, { clock: systemClock, date });
  if (!sink) {
    const { segmentBytes, maxBacklogBytes } = config.usage;
    const retention = new Retention({
      dir,
      spool,
      keepFrom,
      keepMs: limits.retentionDays === 0 ? Infinity : limits.retentionDays * DAY_MS,
      // Leaves room for the current segment and the next, so that retained usage never makes the spool unhealthy.
      keepBytes: Math.min(limits.retentionBytes, maxBacklogBytes - 2 * segmentBytes),
      date,
      clock: systemClock,
      log,
    });
    return retention;
  }
  const delivery = new Delivery({
    clock: systemClock,
    date,
    random: Math.random,
    spool,
    sink,
    cursor: new CursorFile(join(dir, 'cursor.json')),
    deadLetters: new DeadLetterFile(join(dir, 'dead-letters.jsonl'), deadLetterBytes),
    keepFrom,
    eventSource,
    limits,
    log,
    counts: metrics,
  });
  metrics.state = () => delivery;
  await delivery.start();
  return {
    notify: () => delivery.notify(),
    prune: () => delivery.prune(),
    stop: async () => {
      await delivery.stop();
      await sink.close();
    },
  };
}
