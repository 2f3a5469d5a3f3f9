/** What a durable spool is made with, and what it tells. */
import type { Clock } from '../lib/clock.js';
import type { UsageRecord } from '../domain/usage-record.js';
import type { Disk } from './disk.js';
import type { Health } from './health.js';
import type { Locked } from './lock.js';
import type { Removed } from './put-back.js';

/** Times in ms. docs/config.md says what each is for. */
export interface SpoolOptions {
  readonly segmentBytes: number;
  readonly groupMs: number;
  readonly groupRecords: number;
  readonly maxUnsyncedMs: number;
  readonly minFreeBytes: number;
  readonly maxBacklogBytes: number;
  readonly probeMs: number;
  readonly closeWaitMs: number;
}

/** What happens in a spool, for metrics and the log. None of it may throw. */
export interface SpoolHooks {
  recorded?(kind: UsageRecord['kind']): void;
  /** A group became durable: how long write and sync took, and its records. */
  synced?(ms: number, records: number): void;
  /** A write or a sync failed, of records or of a probe. */
  failed?(error: unknown): void;
  health?(health: Health): void;
  /** A probe found more in the spool than its backlog may be, again with each until there is room. */
  full?(): void;
  /**
   * A file of the spool was removed from outside. `records`: those written since the last look at which all was in its
   * place, all of which may have been missing for that long.
   */
  removed?(removed: Removed, records: number): void;
  /** Another process took the spool's folder over; its id, 0 where that is unknown. Called with each probe that finds it. */
  taken?(pid: number): void;
  /** A close could not be made durable in time; its reply goes out all the same. */
  late?(record: UsageRecord): void;
  /** A progress record was left out: too much waits for the disk. */
  dropped?(): void;
}

export interface SpoolParts {
  readonly clock: Clock;
  readonly disk?: Disk;
  readonly lock?: (dir: string) => Promise<Locked>;
  readonly hooks?: SpoolHooks;
}

/** What a spool holds at the moment. */
export interface SpoolReading {
  /** Records that are not durable yet, and how old the oldest is, ms. */
  readonly unsynced: number;
  readonly oldestMs: number;
  /** Of all segments. */
  readonly bytes: number;
  readonly health: Health;
}
