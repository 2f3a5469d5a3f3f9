import { openBilling, type Billing } from './compose-billing.js';
import { modelFiles } from './compose-models.js';
import { replicasOf } from './compose-replicas.js';
import { openOtlpExport, type OtlpExport } from './compose-otlp.js';
import { openUsage } from './compose-usage.js';
import type { ReplicaPlan } from './replica-plans.js';
import type { Config } from '../config/config.js';
import { systemClock } from '../lib/clock.js';
import type { Log } from '../telemetry/logger.js';
import type { Metrics } from '../telemetry/metrics.js';
import type { Spool } from '../usage/spool.js';

/** Opens the files that a start needs, and finds the devices. Rejects if one cannot be used; then none is left open. */
export async function openFiles(
  config: Config,
  metrics: Metrics,
  log: Log,
  spoolStandIn: Spool | undefined,
): Promise<{
  readonly files: ReadonlyMap<string, string>;
  /** The replicas of each model, by id. */
  readonly plans: ReadonlyMap<string, readonly ReplicaPlan[]>;
  readonly billing: Billing;
  readonly spool: Spool;
  /** As returned by `openUsage`. */
  readonly prune: () => Promise<void>;
  readonly closeSpool: () => Promise<void>;
  readonly otlp: OtlpExport;
}> {
  const files = modelFiles(config);
  const plans = await replicasOf(config, files);
  const billing = await openBilling({ config, clock: systemClock, metrics: metrics.credit, log });
  const { spool, prune, closeSpool } = spoolStandIn
    ? { spool: spoolStandIn, prune: () => Promise.resolve(), closeSpool: () => Promise.resolve() }
    : await openUsage(config, metrics, log, () => billing.keepFrom()).catch(async (error: unknown) => {
        await billing.close();
        throw error;
      });
  const otlp = await openOtlpExport(config, metrics, log).catch(async (error: unknown) => {
    await closeSpool();
    await billing.close();
    throw error;
  });
  return { files, plans, billing, spool, prune, closeSpool, otlp };
}
