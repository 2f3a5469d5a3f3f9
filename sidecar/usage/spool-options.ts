/** Options and callbacks of a durable spool. */
import type { Config } from '../config/types.js';
import type { Clock } from '../lib/clock.js';
import type { UsageRecord } from '../domain/usage-record.js';
import type { Disk } from './disk.js';
import type { Health } from './health.js';
import type { Locked } from './lock.js';
import type { Removed } from './put-back.js';

/** Times in ms. docs/config.md describes each. */
export type SpoolOptions = Config['usage'];

/** Callbacks for metrics and the log. None may throw. */
export interface SpoolHooks {
  recorded?(kind: UsageRecord['kind']): void;
  /** A group became durable: time of write and sync, and number of records. */
  synced?(ms: number, records: number): void;
  /** A write or a sync failed, of records or of a probe. */
  failed?(error: unknown): void;
  health?(health: Health): void;
  /** A probe found the spool larger than its limit; called at each probe until there is room. */
  full?(): void;
  /**
   * A file of the spool was removed from outside. `records`: written since the last check that found all files in
   * place, and possibly missing since.
   */
  removed?(removed: Removed, records: number): void;
  /** Another process took the spool's folder; its id, or 0 if unknown. Called at each probe that finds it. */
  taken?(pid: number): void;
  /** A close was not durable in time; its reply is sent anyway. */
  late?(record: UsageRecord): void;
  /** A progress record was dropped: too many wait for the disk. */
  dropped?(): void;
}

export interface SpoolParts {
  readonly clock: Clock;
  readonly disk?: Disk;
  readonly lock?: (dir: string) => Promise<Locked>;
  readonly hooks?: SpoolHooks;
}

/** The current state of a spool. */
export interface SpoolReading {
  /** Records that are not durable yet, and the age of the oldest, ms. */
  readonly unsynced: number;
  readonly oldestMs: number;
  /** Bytes of all segments. */
  readonly bytes: number;
  readonly health: Health;
}
