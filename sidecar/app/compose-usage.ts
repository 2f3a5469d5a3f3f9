/** What becomes of the usage spool as the configuration has it: delivered to a sink, or kept for a while. */
import { join } from 'node:path';
import { systemClock } from '../lib/clock.js';
import type { Config } from '../config/config.js';
import { openSpool, spoolDir } from './compose-spool.js';
import type { Log } from '../telemetry/logger.js';
import type { Metrics } from '../telemetry/metrics.js';
import { CursorFile } from '../usage/delivery/cursor.js';
import { DeadLetterFile } from '../usage/delivery/dead-letters.js';
import { Delivery } from '../usage/delivery/delivery.js';
import { Retention } from '../usage/delivery/retention.js';
import { openSink } from '../usage/delivery/sinks.js';
import { SpoolSource } from '../usage/delivery/source.js';
import type { DurableSpool } from '../usage/durable-spool.js';
import type { Position } from '../usage/segments.js';
import { withTimeout } from '../lib/timeout.js';

/** Beyond every segment: nobody but delivery reads the spool. */
const NOBODY: Position = { segment: Number.MAX_SAFE_INTEGER, offset: 0 };

/**
 * How long what is left of delivery may take past `delivery.stopMs`, ms: to save its cursor or delete a segment. Only a disk
 * that hangs takes longer. What is cut off is sent again after the next start.
 */
const HUNG_DISK_MS = 2000;

const DAY_MS = 86_400_000;

/**
 * Opens the spool and starts to deliver it. Rejects with one clear line when either cannot be done; then nothing is held.
 * `keepFrom`: from where others still read the spool, which is never pruned; undefined: nobody does.
 */
export async function openUsage(
  config: Config,
  { spool: spoolMetrics, delivery: metrics }: Pick<Metrics, 'spool' | 'delivery'>,
  log: Log,
  keepFrom: () => Position | undefined,
): Promise<{
  readonly spool: DurableSpool;
  /** Deletes what nobody needs, again: what `keepFrom` says has changed by itself. Never rejects. */
  readonly prune: () => Promise<void>;
  /** Sends what waits, writes what is left, each within its bound, and lets go of the spool. Idempotent. */
  readonly closeSpool: () => Promise<void>;
}> {
  let delivering: Delivering | undefined;
  const { spool, closeSpool } = await openSpool(config, spoolMetrics, log, {
    durable: () => delivering?.notify(),
    full: () => void delivering?.prune(),
  });
  try {
    const started = await startDelivery(config, spool, { metrics, log, keepFrom: () => keepFrom() ?? NOBODY });
    delivering = started;
    // What became durable meanwhile.
    started.notify();
    return {
      spool,
      prune: () => started.prune(),
      closeSpool: async () => {
        // First, while the spool is still this process's to prune: replies have waited for their closes by now.
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

/** Who is told that the spool grew. */
interface Delivering {
  /** More of the spool is durable. */
  notify(): void;
  /** What nobody needs any more may be deleted. Never rejects. */
  prune(): Promise<void>;
  /** Sends what waits, within a bound, and ends. Idempotent. */
  stop(): Promise<void>;
}

/** Starts to deliver what `spool` holds, or to keep it within its retention when no sink is configured. */
async function startDelivery(
  config: Config,
  spool: DurableSpool,
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
      // Room for the segment that is being written and for the next: kept usage must never make the spool unhealthy.
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
    source: await SpoolSource.open(dir, spool),
    sink,
    cursor: new CursorFile(join(dir, 'cursor.json')),
    deadLetters: new DeadLetterFile(join(dir, 'dead-letters.jsonl'), deadLetterBytes),
    keepFrom,
    eventSource,
    limits,
    log,
    events: metrics,
  });
  metrics.watch(() => delivery);
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
