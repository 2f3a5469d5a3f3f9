/** The usage spool of one process, and its delivery to a sink or its retention for a while. */
import { join } from 'node:path';
import type { Config } from '../config/config.js';
import { systemClock } from '../lib/clock.js';
import type { Log } from '../telemetry/logger.js';
import type { Metrics } from '../telemetry/metrics.js';
import type { SpoolMetrics } from '../telemetry/usage-metrics.js';
import { Delivery } from '../usage/delivery/delivery.js';
import { buryIn, CursorFile } from '../usage/delivery/files.js';
import { Retention } from '../usage/delivery/retention.js';
import { openSink } from '../usage/delivery/sinks.js';
import type { Recovered } from '../usage/recovery.js';
import type { Removed } from '../usage/segment-writer.js';
import { comparePositions, segmentPath, START, type Position } from '../usage/spool-format.js';
import { Spool, type SpoolHooks } from '../usage/spool.js';
import { totalsDir } from '../usage/totals-files.js';
import { Totals } from '../usage/totals.js';
import { PART_MS, type Closers } from './closers.js';

/** Beyond every segment: only delivery reads the spool. */
const NO_READER: Position = { segment: Number.MAX_SAFE_INTEGER, offset: 0 };

/**
 * How much longer than `delivery.stopMs` delivery may take to save its cursor or delete a segment, ms: only a hung disk takes longer.
 * Interrupted events are sent again after the next start.
 */
export const HUNG_DISK_MS = 2000;

const DAY_MS = 86_400_000;

/** How long a close waits for the last snapshot of the totals, ms. Without it the next start reads more of the spool. */
const TOTALS_CLOSE_MS = 5000;

/**
 * Opens the spool and starts delivery. When they are closed, waiting events are sent and remaining records are written, each
 * within a time limit, and the spool is released. Rejects with one line if another sidecar writes the spool, or if it cannot be
 * read or written. `keepFrom`: the position from which others still read the spool, which is never pruned; undefined if there is none.
 */
export async function openUsage(
  config: Config,
  metrics: Pick<Metrics, 'spool' | 'delivery'>,
  log: Log,
  closers: Closers,
  keepFrom: () => Position | undefined,
) {
  const dir = spoolDir(config);
  const reading: { by?: Delivering } = {};
  const opened = await Spool.open(dir, config.usage, {
    clock: systemClock,
    hooks: hooks(dir, metrics.spool, log, () => reading.by),
  }).catch((error: unknown) => {
    const { code = 'unknown error' } = error as NodeJS.ErrnoException;
    throw new Error(`the usage spool ${dir} cannot be opened: ${code}`, { cause: error });
  });
  if (opened.kind === 'held') {
    const writer = opened.pid === 0 ? 'another process' : `process ${opened.pid}`;
    throw new Error(`the usage spool ${dir} is written by ${writer}: give each sidecar its own dataDir`);
  }
  const { spool, recovered } = opened;
  closers.add({
    name: 'usage spool',
    close: async () => {
      const lost = await spool.close();
      if (lost > 0) log.error('usage records lost', { count: lost });
    },
    withinMs: config.usage.closeWaitMs + PART_MS,
  });
  report(recovered, log);
  metrics.spool.state = () => spool.reading;
  const totals = startTotals(dir, spool, log, () => void reading.by?.prune());
  const needed = (): Position => earliest(keepFrom(), totals.keepFrom()) ?? NO_READER;
  const delivering = await startDelivery(config, spool, metrics.delivery, log, closers, needed);
  closers.add(totals.closer);
  reading.by = delivering;
  // Records that became durable meanwhile.
  delivering.notify();
  // `totals`: undefined while earlier usage is being read, or if it cannot be.
  return { spool, totals: totals.current, prune: delivering.prune };
}

/** Undefined if none is given. */
export function earliest(...positions: readonly (Position | undefined)[]): Position | undefined {
  const given = positions.filter((position) => position !== undefined);
  return given.sort(comparePositions)[0];
}

/** Begins to sum up the usage of each key. `saved`: records were written to a snapshot, and are not needed any more. */
function startTotals(dir: string, spool: Spool, log: Log, saved: () => void) {
  let totals: Totals | undefined;
  let needed = START;
  const opened = Totals.open({
    clock: systemClock,
    spool,
    dir: totalsDir(dir),
    listener: {
      saved,
      damaged: (bytes) => log.error('spool is damaged, the damaged records are not in the totals', { bytes }),
      unwritten: (fault) => log.error('usage totals cannot be written', { fault }),
      unreadable: (file) => log.error('usage totals are damaged, they are counted again', { file }),
      incomplete: (reason) => log.warn('usage totals are incomplete', { reason }),
    },
  })
    .then(async (made) => {
      // Quotas go on from them, also from what the requests used that a kill ended.
      const last = spool.estimated.at(-1);
      if (last) await spool.sync(last);
      await made.sums.readOn();
      totals = made;
      // Until now the whole spool was needed.
      saved();
    })
    .catch((fault: unknown) => {
      // Usage goes on without its totals, so the spool must not keep its records for them.
      needed = NO_READER;
      log.error('usage cannot be summed up', { fault });
    });
  return {
    current: () => totals,
    keepFrom: () => totals?.sums.keepFrom ?? needed,
    closer: {
      name: 'usage totals',
      withinMs: TOTALS_CLOSE_MS,
      close: async () => {
        await opened;
        await totals?.sums.close();
      },
      timedOut: () => log.error('usage totals not written in time'),
    },
  };
}

/** What reads the spool while it grows. */
interface Delivering {
  /** More of the spool is durable. */
  readonly notify: () => void;
  /** Deletes segments that are not needed. Never rejects. */
  readonly prune: () => Promise<void>;
}

/** Starts to deliver the records of `spool`, or to keep it within its retention if no sink is configured. */
async function startDelivery(
  config: Config,
  spool: Spool,
  metrics: Metrics['delivery'],
  log: Log,
  closers: Closers,
  keepFrom: () => Position,
): Promise<Delivering> {
  const { source: eventSource, deadLetterBytes, ...limits } = config.delivery;
  const dir = spoolDir(config);
  const clock = systemClock;
  const date = (): number => Date.now();
  // Closed before the spool, while this process may still prune it: replies have waited for their closes by then.
  const stopsWith = (stop: () => Promise<void>): void =>
    closers.add({
      name: 'usage delivery',
      withinMs: limits.stopMs + HUNG_DISK_MS,
      close: stop,
      timedOut: () => log.error('usage delivery not stopped in time'),
    });
  const sink = await openSink(config.delivery, { clock, date });
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
      clock,
      log,
    });
    stopsWith(() => retention.stop());
    return { notify: () => retention.notify(), prune: () => retention.prune() };
  }
  const delivery = new Delivery({
    clock,
    date,
    random: Math.random,
    spool,
    sink,
    cursor: new CursorFile(join(dir, 'cursor.json')),
    bury: buryIn(join(dir, 'dead-letters.jsonl'), deadLetterBytes),
    keepFrom,
    eventSource,
    limits,
    log,
    counts: metrics,
  });
  metrics.state = () => delivery;
  stopsWith(async () => {
    await delivery.stop();
    await sink.close();
  });
  await delivery.start();
  return { notify: () => delivery.notify(), prune: () => delivery.prune() };
}

/** The spool's folder in a data folder. */
export function spoolDir({ dataDir }: Pick<Config, 'dataDir'>): string {
  return join(dataDir, 'usage');
}

/** What the spool reports: to the metrics, to the log, and to what delivers or retains its records. */
function hooks(dir: string, metrics: SpoolMetrics, log: Log, reading: () => Delivering | undefined): SpoolHooks {
  return {
    recorded: (kind) => metrics.recorded(kind),
    durable: (ms) => {
      metrics.synced(ms);
      reading()?.notify();
    },
    failed: (fault) => {
      metrics.failed();
      log.error('usage spool failed', { fault });
    },
    health: (health) => {
      if (health.ok) log.info('usage spool healthy');
      else log.error('usage spool unhealthy', { reason: health.why });
    },
    full: () => void reading()?.prune(),
    removed: (removed, records) => {
      if (removed.what === 'lock' || !removed.known) metrics.removed();
      reportRemoved(removed, records, dir, log);
    },
    taken: (pid) => {
      const reason = 'another process writes this spool: stop one of them, since each sidecar needs its own dataDir';
      log.error('usage spool taken', { reason, file: dir, ...(pid > 0 && { pid }) });
    },
    overdue: ({ id, requestId }) => {
      metrics.closedLate();
      log.forRequest(requestId).error('usage not durable in time', { reason: id });
    },
    dropped: () => metrics.dropped(),
  };
}

/** Advice for the operator: only the sidecar may remove, rename or replace a file of its spool. */
const FIND_OUT = 'find out what changes files in this folder, and stop it';

const ADVICE: Readonly<Record<Extract<Removed, { what: 'segment' }>['outcome'], string>> = {
  restored: `restored from its open descriptor, nothing is lost: ${FIND_OUT}`,
  pending: `it cannot be restored yet, each probe tries again: repair the disk or make room, and do not stop the sidecar`,
  cut: `records behind the cut are lost unless they were delivered, and the next ones are in another segment: \`usage verify\` shows which, ${FIND_OUT}`,
  lost: `its records are lost unless they were delivered: restore the file from a backup, and ${FIND_OUT}`,
};

/** `records`: written since all files were last found in place. */
function reportRemoved(removed: Removed, records: number, dir: string, log: Log): void {
  if (removed.what === 'lock') {
    log.error('usage spool: its lock was removed', { file: join(dir, 'lock'), reason: `restored: ${FIND_OUT}` });
    return;
  }
  const { segment, bytes, outcome } = removed;
  log.error(`usage spool: a segment was ${outcome === 'cut' ? 'cut' : 'removed'}`, {
    file: segmentPath(dir, segment),
    bytes,
    outcome,
    ...(outcome !== 'lost' && { count: records }),
    reason: ADVICE[outcome],
  });
}

function report({ cutBytes, quarantined, closesLost, estimated }: Recovered, log: Log): void {
  if (cutBytes > 0) log.warn('usage spool: a torn line was cut', { bytes: cutBytes });
  for (const { segment, offset, bytes, file, known } of quarantined) {
    if (known) continue;
    const reason = `segment ${segment}, offset ${offset}`;
    log.error('usage spool: damage quarantined', { reason, bytes, ...(file !== undefined && { file }) });
  }
  if (closesLost > 0) log.error('usage spool: closes are damaged, none is estimated', { count: closesLost });
  if (estimated.length > 0) log.warn('usage spool: requests closed at an estimate', { count: estimated.length });
}
