/** Composes the usage spool, and reports its state to the log and the metrics. */
import { join } from 'node:path';
import { systemClock } from '../lib/clock.js';
import type { Config } from '../config/config.js';
import type { Log } from '../telemetry/logger.js';
import type { SpoolMetrics } from '../telemetry/usage-metrics.js';
import type { Removed } from '../usage/segment-writer.js';
import { Spool, type SpoolHooks } from '../usage/spool.js';
import { segmentPath } from '../usage/spool-format.js';
import type { Recovered } from '../usage/recovery.js';

/** The spool's folder in a data folder. */
export function spoolDir({ dataDir }: Pick<Config, 'dataDir'>): string {
  return join(dataDir, 'usage');
}

/** Receives the spool's state. */
export interface SpoolObserver {
  /** More records are durable. */
  durable(): void;
  /** It is larger than allowed, and refuses work until there is room. Called at each probe. */
  full(): void;
}

const NO_OBSERVER: SpoolObserver = { durable: () => undefined, full: () => undefined };

/** Opens the spool. Rejects with one line if another sidecar writes it, or it cannot be read or written. */
export async function openSpool(
  config: Config,
  metrics: SpoolMetrics,
  log: Log,
  observer: SpoolObserver = NO_OBSERVER,
): Promise<{
  readonly spool: Spool;
  /** Writes the remaining records within a time limit, and releases the spool. Idempotent. */
  readonly closeSpool: () => Promise<void>;
}> {
  const dir = spoolDir(config);
  const opened = await Spool.open(dir, config.usage, {
    clock: systemClock,
    hooks: hooks(dir, metrics, log, observer),
  }).catch((error: unknown) => {
    const { code = 'unknown error' } = error as NodeJS.ErrnoException;
    throw new Error(`the usage spool ${dir} cannot be opened: ${code}`, { cause: error });
  });
  if (opened.kind === 'held') {
    const writer = opened.pid === 0 ? 'another process' : `process ${opened.pid}`;
    throw new Error(`the usage spool ${dir} is written by ${writer}: give each sidecar its own dataDir`);
  }
  report(opened.recovered, log);
  const { spool } = opened;
  metrics.state = () => spool.reading;
  return {
    spool,
    closeSpool: async () => {
      const lost = await spool.close();
      if (lost > 0) log.error('usage records lost', { count: lost });
    },
  };
}

function hooks(dir: string, metrics: SpoolMetrics, log: Log, observer: SpoolObserver): SpoolHooks {
  return {
    recorded: (kind) => metrics.recorded(kind),
    durable: (ms) => {
      metrics.synced(ms);
      observer.durable();
    },
    failed: (fault) => {
      metrics.failed();
      log.error('usage spool failed', { fault });
    },
    health: (health) => {
      if (health.ok) log.info('usage spool healthy');
      else log.error('usage spool unhealthy', { reason: health.why });
    },
    full: () => observer.full(),
    removed: (removed, records) => {
      if (removed.what === 'lock' || !removed.known) metrics.removed();
      reportRemoved(removed, records, dir, log);
    },
    taken: (pid) => {
      const reason = 'another process writes this spool: stop one of them, since each sidecar needs its own dataDir';
      log.error('usage spool taken', { reason, file: dir, ...(pid > 0 && { pid }) });
    },
    overdue: ({ id, requestId }) => {
      metrics.late();
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
