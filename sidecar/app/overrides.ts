import type { KeysInForce } from '../access/key-file-watch.js';
import type { Scrapers } from '../api/operators.js';
import type { openPrompts } from '../prompts/lanes.js';
import type { Metrics } from '../telemetry/metrics.js';
import type { UsageRecorder } from '../usage/spool.js';

/** Parts that a caller replaces. */
export interface Overrides {
  /** Metrics that parts created earlier use too. Absent: new ones. */
  readonly metrics?: Metrics;
  /** A test's spool in place of the real one. */
  readonly spool?: UsageRecorder;
  /** Who may read all metrics on the public listener. Absent: no caller. */
  readonly scrapers?: Scrapers;
  /** Which content of the keys file is in force. Absent: no keys file is used. */
  readonly keysInForce?: () => Promise<KeysInForce>;
  /** Path of the module that engines are forked from. */
  readonly engineEntry?: string;
  /** Path of the module that vision processes are forked from. */
  readonly visionEntry?: string;
  /** Starts the prompt hosts; tests pass one that shares hosts among sidecars. */
  readonly makePrompts?: typeof openPrompts;
}
