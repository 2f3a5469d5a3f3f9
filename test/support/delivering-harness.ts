import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';
import { loadConfig, type Config } from '../../sidecar/config/config.js';
import { Closers } from '../../sidecar/app/closers.js';
import { systemClock } from '../../sidecar/lib/clock.js';
import { openUsage } from '../../sidecar/app/usage.js';
import { Metrics } from '../../sidecar/telemetry/metrics.js';
import type { Position } from '../../sidecar/usage/spool-format.js';
import type { UsageRecorder } from '../../sidecar/usage/spool.js';
import type { Totals } from '../../sidecar/usage/totals.js';
import { RecordingLog } from './in-process.js';
import { usageRecord } from './usage-records.js';

/** A spool and its delivery as the sidecar has them. */
export interface DeliveringHarness {
  readonly dir: string;
  readonly log: RecordingLog;
  readonly spool: UsageRecorder;
  /** Undefined while earlier usage is read. */
  readonly totals: () => Totals | undefined;
  /** Makes closes durable, one after another. */
  bill(...ids: readonly string[]): Promise<void>;
  stop(): Promise<void>;
  /** One sample of the metrics. */
  metric(name: string): Promise<number>;
}

function configure(environment: Readonly<Record<string, string>>): Config {
  const loaded = loadConfig({
    RA_DELIVERY_MAX_AGE_MS: '0',
    RA_DELIVERY_BACKOFF_MIN_MS: '1',
    RA_DELIVERY_BACKOFF_MAX_MS: '8',
    RA_DELIVERY_STOP_MS: '60000',
    ...environment,
  });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  return loaded.config;
}

/** An empty folder. Teardowns run last in, first out, so its spool is closed before it is removed. */
export function folder(t: Test): string {
  const dir = mkdtempSync(join(tmpdir(), 'ra-delivering-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** The spool and its delivery as the sidecar has them, in `dir`. Closed with the test. */
export async function openHarness(
  t: Test,
  dir: string,
  environment: Readonly<Record<string, string>>,
  { keepFrom = () => undefined, probeMs }: { keepFrom?: () => Position | undefined; probeMs?: number } = {},
): Promise<DeliveringHarness> {
  // Timers alone do not keep a process alive; in the sidecar its listeners do.
  const alive = setInterval(() => undefined, 2 ** 30);
  t.teardown(() => clearInterval(alive));
  const log = new RecordingLog();
  const metrics = new Metrics([]);
  const closers = new Closers(systemClock, log);
  t.teardown(() => closers.close());
  const configured = configure({ RA_DATA_DIR: dir, ...environment });
  const config = { ...configured, usage: { ...configured.usage, ...(probeMs !== undefined && { probeMs }) } };
  const { spool, totals } = await openUsage(config, metrics, log, closers, keepFrom).catch(async (fault: unknown) => {
    await closers.close();
    throw fault;
  });
  return {
    dir: join(dir, 'usage'),
    log,
    spool,
    totals,
    bill: async (...ids) => {
      for (const id of ids) {
        spool.append(usageRecord(id, 'open'));
        const close = usageRecord(id, 'close');
        spool.append(close);
        await spool.sync(close);
      }
    },
    stop: () => closers.close(),
    metric: async (name) => {
      const { text } = await metrics.render();
      return Number(new RegExp(`^ra_sidecar_${name} (\\S+)$`, 'm').exec(text)?.[1]);
    },
  };
}
