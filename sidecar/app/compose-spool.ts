/** The usage spool as the configuration has it, with what it tells brought to the log and the metrics. */
import { join } from 'node:path';
import { systemClock } from '../lib/clock.js';
import type { Config } from '../config/config.js';
import type { Log } from '../telemetry/logger.js';
import type { SpoolMetrics } from '../telemetry/spool-metrics.js';
import type { SpoolReader } from '../usage/balances.js';
import { systemDisk } from '../usage/disk.js';
import { DurableSpool } from '../usage/durable-spool.js';
import type { Removed } from '../usage/put-back.js';
import type { Recovered } from '../usage/recovery.js';
import { headOf, listSegments, readFrom, segmentPath, START } from '../usage/segments.js';
import type { SpoolHooks } from '../usage/spool-options.js';

/** Where the spool of a data folder lies. */
export function spoolDir({ dataDir }: Pick<Config, 'dataDir'>): string {
  return join(dataDir, 'usage');
}

/** Who is told how the spool is. */
export interface SpoolListener {
  /** More of it is durable. */
  durable(): void;
  /** It holds more than it may, and refuses work until there is room. Told with each probe. */
  full(): void;
}

const NOBODY: SpoolListener = { durable: () => undefined, full: () => undefined };

/**
 * Opens the spool. Rejects with one clear line when another sidecar writes it, or it cannot be read or written.
 */
export async function openSpool(
  config: Config,
  metrics: SpoolMetrics,
  log: Log,
  listener: SpoolListener = NOBODY,
): Promise<{
  readonly spool: DurableSpool;
  /** Writes what is left, within its bound, and lets go of the spool. Idempotent. */
  readonly closeSpool: () => Promise<void>;
}> {
  const dir = spoolDir(config);
  const opened = await DurableSpool.open(dir, config.usage, {
    clock: systemClock,
    hooks: hooks(dir, metrics, log, listener),
  }).catch((error: unknown) => {
    const { code = 'unknown error' } = error as NodeJS.ErrnoException;
    throw new Error(`the usage spool ${dir} cannot be opened: ${code}`, { cause: error });
  });
  if (opened.kind === 'held') {
    const writer = opened.pid === 0 ? 'another process' : `process ${opened.pid}`;
    throw new Error(`the usage spool ${dir} is written by ${writer}: give each sidecar a dataDir of its own`);
  }
  report(opened.recovered, log);
  const { spool } = opened;
  metrics.watch(() => spool.reading);
  return {
    spool,
    closeSpool: async () => {
      const lost = await spool.close();
      if (lost > 0) log.error('usage records lost', { count: lost });
    },
  };
}

/** The records of an open spool, for whoever adds them up. */
export function spoolReader(
  config: Pick<Config, 'dataDir'>,
  spool: Pick<DurableSpool, 'position' | 'estimated'>,
): SpoolReader {
  const dir = spoolDir(config);
  return {
    get position() {
      return spool.position;
    },
    estimated: spool.estimated,
    oldest: async () => {
      const [segment] = await listSegments(dir);
      // Those before it were begun, came to nothing and hold nothing: a first write that failed leaves such a one.
      const first = segment === undefined || (await headOf(dir, segment, systemDisk))?.after === null;
      return first ? START : { segment, offset: 0 };
    },
    read: (from, until) => readFrom(dir, from, { until }),
  };
}

function hooks(dir: string, metrics: SpoolMetrics, log: Log, listener: SpoolListener): SpoolHooks {
  return {
    recorded: (kind) => metrics.recorded(kind),
    synced: (ms) => {
      metrics.synced(ms);
      listener.durable();
    },
    failed: (fault) => {
      metrics.failed();
      log.error('usage spool failed', { fault });
    },
    health: (health) => {
      if (health.ok) log.info('usage spool healthy');
      else log.error('usage spool unhealthy', { reason: health.why });
    },
    full: () => listener.full(),
    removed: (removed, records) => {
      metrics.removed();
      reportRemoved(removed, records, dir, log);
    },
    taken: (pid) => {
      const reason = 'another process writes this spool: stop one of them, each sidecar needs a dataDir of its own';
      log.error('usage spool taken', { reason, file: dir, ...(pid > 0 && { pid }) });
    },
    late: ({ id, requestId }) => {
      metrics.late();
      log.forRequest(requestId).error('usage not durable in time', { reason: id });
    },
    dropped: () => metrics.dropped(),
  };
}

/** What the operator should look for: nothing but its sidecar may remove, rename or replace a file of a spool. */
const FIND_OUT = 'find out what changes files in this folder, and keep it out';

const ADVICE: Readonly<Record<Extract<Removed, { what: 'segment' }>['outcome'], string>> = {
  restored: `written again from its open descriptor, nothing is lost: ${FIND_OUT}`,
  pending: `it cannot be written again yet, which each probe tries: mend or empty the disk, and do not stop the sidecar`,
  lost: `its records are gone from this spool unless they were delivered: put the file back from a copy, and ${FIND_OUT}`,
};

/** `records`: written since all files were last seen in their places. */
function reportRemoved(removed: Removed, records: number, dir: string, log: Log): void {
  if (removed.what === 'lock') {
    log.error('usage spool: its lock was removed', { file: join(dir, 'lock'), reason: `written again: ${FIND_OUT}` });
    return;
  }
  const { segment, bytes, outcome } = removed;
  log.error('usage spool: a segment was removed', {
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
