/** How long a stop may take, for the files that say when what remains is killed. */
import { CLOSE_MS as BALANCES_MS } from '../../sidecar/app/billing.js';
import { HUNG_DISK_MS } from '../../sidecar/app/usage.js';
import { FLUSH_MS } from '../../sidecar/app/servers.js';
import type { Config } from '../../sidecar/config/config.js';
import { KILL_WAIT_MS } from '../../sidecar/lib/child-process.js';
import { CLOSE_MS as ENGINE_MS } from '../../sidecar/engine-client/restart-policy.js';
import { CLOSE_MS as LOG_MS } from '../../sidecar/telemetry/logger.js';
import { RELEASE_MS } from '../../sidecar/usage/spool.js';

/** What no setting changes: engines that do not end, a disk that hangs, a log whose reader has stopped. */
const FIXED_MS = 2 * FLUSH_MS + ENGINE_MS + KILL_WAIT_MS + BALANCES_MS + HUNG_DISK_MS + RELEASE_MS + LOG_MS;

/** The longest time from SIGTERM to the exit, ms, with traces and metrics exported too. */
export function longestStopMs({ drain, delivery, usage, telemetry }: Config): number {
  const { noticeMs, timeoutMs } = drain;
  return noticeMs + timeoutMs + delivery.stopMs + usage.closeWaitMs + telemetry.otlp.stopMs + FIXED_MS;
}
