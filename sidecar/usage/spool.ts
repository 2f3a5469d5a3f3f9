/**
 * The spool: usage in append-only segments, one line per record (spool-format.ts).
 *
 *   append ──> unsynced ──(5 ms, 64 records, or a reply waits)──> write (O_DSYNC) ──> durable: waiters continue,
 *                  ^                                                   │ error          `position` moves
 *                  └──── kept, written again ──────────────────────────┘ the segment is abandoned, a new one begins
 *
 * There is one writer (lock.ts), and one write in flight; records that arrive meanwhile form the next group. So groups grow with the load,
 * and no reply waits for a group to fill. Records are acknowledged in the order in which they were appended.
 *
 * After a failed write or sync the segment is never written again; unsynced records are written to the next one, whose
 * head has the position up to which the previous one is valid. `readFrom` applies that, so a reader gets each
 * record once. A reader that parses segments itself, or that reads a live spool without `until`, can get a record twice
 * and must drop the second by (id, kind). Of progress records, whose counts are cumulative, the last one counts.
 *
 * A record is unsynced until the write and the sync of its group have succeeded, and durable from then on. A segment is
 * intact while its file has all of its durable bytes.
 *
 * Recovery (recovery.ts) adds missing closes. No id ever gets two closes.
 *
 * While the spool is unhealthy no new billable work is accepted, so a bounded number of requests is recorded. A probe finds
 * out every `PACE.probeMs` whether it is healthy.
 */
import type { Config } from '../config/schema.js';
import type { UsageRecord } from '../domain/usage-record.js';
import { type Clock, withTimeout } from '../lib/clock.js';
import { systemDisk, tryWriting, type Disk } from './disk.js';
import { lockDir, type Lock, type Locked } from './lock.js';
import { oldestPosition, readFrom, type Read } from './reader.js';
import { recover, type Recovered } from './recovery.js';
import { SegmentWriter, type Removed } from './segment-writer.js';
import { encode, START, type Mark, type Position } from './spool-format.js';

/** When the spool works by itself, ms; tests have other values. */
const PACE = {
  /** Records that no reply waits for are synced together after this long: a crash loses few, and there are at most 200 syncs a second. */
  groupMs: 5,
  /** Number of waiting records at which they are written at once: more do not make a sync cheaper for each. */
  groupRecords: 64,
  /** Three probes make an unhealthy spool healthy again: requests are accepted some seconds after a disk is repaired. */
  probeMs: 1000,
};

/** Times in ms. docs/config-accounts.md describes the settings. */
export type SpoolOptions = Config['usage'] & Partial<typeof PACE>;

/**
 * Why no new usage is accepted: a write or a sync failed, one takes too long, the disk is full, the spool is too large, a file of the spool
 * was removed from outside, or another process writes the spool.
 */
export type HealthProblem = 'write' | 'late' | 'space' | 'backlog' | 'removed' | 'taken';

export type Health = { readonly ok: true } | { readonly ok: false; readonly why: HealthProblem };

/** Receives what the metrics and the log report. No method may throw. */
export interface SpoolHooks {
  recorded?(kind: UsageRecord['kind']): void;
  /** A group became durable: time of write and sync, and number of records. */
  durable?(ms: number, records: number): void;
  /** A write or a sync failed, of records or of a probe. */
  failed?(error: unknown): void;
  /** Called for each change of `ok`. */
  health?(health: Health): void;
  /** A probe found the spool larger than its limit; called at each probe until there is room. */
  full?(): void;
  /** A file was removed from outside. `records`: written since all files were last found in place, and possibly missing. */
  removed?(removed: Removed, records: number): void;
  /** Another process took the spool's folder; its id, or 0 if unknown. Called at each probe that finds it. */
  taken?(pid: number): void;
  /** A close was not durable in time; its reply is sent anyway. */
  overdue?(record: UsageRecord): void;
  /** A progress record was dropped: too many wait for the disk. */
  dropped?(): void;
}

export interface SpoolParts {
  readonly clock: Clock;
  readonly disk?: Disk;
  readonly lock?: (dir: string) => Promise<Locked>;
  readonly hooks?: SpoolHooks;
}

/** What requests use of the spool. */
export type UsageRecorder = Pick<Spool, 'append' | 'sync' | 'revise' | 'health'>;

export type Opened =
  | { readonly kind: 'open'; readonly spool: Spool; readonly recovered: Recovered }
  /** Another process writes this spool. */
  | { readonly kind: 'held'; readonly pid: number };

/** A record that is not durable yet. */
interface Unsynced {
  record: UsageRecord;
  line: Buffer;
  /** Clock reading when it was appended. */
  readonly at: number;
  /** Called once it is durable. */
  readonly waiters: Set<() => void>;
}

/**
 * Number of unsynced records past which progress is dropped: the next one and the close are cumulative. Opens and closes
 * are always kept; they are bounded by the number of running requests, since none starts while the spool is unhealthy.
 */
export const MAX_UNSYNCED_WITH_PROGRESS = 10_000;

/** Bytes of one write; the rest is written next, so that a long backlog is not duplicated in memory. */
const MAX_WRITE_BYTES = 1024 * 1024;

/** Successful probes in a row that make an unhealthy spool healthy; a single one could be chance on an unreliable disk. */
const GOOD_PROBES = 3;

/** The longest time for removing the lock, ms; the next start detects that the process has ended. */
export const RELEASE_MS = 1000;

const WELL: Health = { ok: true };

/** The spool of this process, from open() to close(). */
export class Spool {
  /** The closes that recovery appended. They may not be durable yet. */
  readonly estimated: readonly UsageRecord[];
  readonly #dir: string;
  readonly #clock: Clock;
  readonly #disk: Disk;
  readonly #options: Required<SpoolOptions>;
  readonly #hooks: SpoolHooks;
  readonly #lock: Lock;
  readonly #segments: SegmentWriter;
  /** Oldest first. */
  readonly #unsynced: Unsynced[] = [];
  /** For each request without a durable close: the segment of its first record. */
  readonly #firstSegments: Map<string, number>;
  /** Recovery's closes that are not durable yet; at 0 the mark after them is due; undefined if no mark is needed. */
  #unrecovered: number | undefined;
  #health: Health = WELL;
  #goodProbes = 0;
  /** The write or check of segments in flight, or undefined; false: a write failed. */
  #busy: Promise<boolean> | undefined;
  /** The last write failed: the next probe makes the next attempt. */
  #broken = false;
  /** A probe has requested a check of the segments, which waits for the current write. */
  #checkDue = false;
  /** Whether a file was found to be removed from outside since the last probe. */
  #removedSinceProbe = false;
  /** Records written since all files were last found in place. */
  #unchecked = 0;
  #probing: Promise<void> = Promise.resolve();
  #cancelProbe = (): void => undefined;
  #cancelGroup: (() => void) | undefined;
  /** From the beginning of close() only #writeRemaining writes, and no probe begins. */
  #closing = false;
  #closed: Promise<number> | undefined;

  private constructor(dir: string, options: SpoolOptions, parts: SpoolParts, recovered: Recovered, lock: Lock) {
    this.#dir = dir;
    this.#options = { ...PACE, ...options };
    this.#clock = parts.clock;
    this.#disk = parts.disk ?? systemDisk;
    this.#hooks = parts.hooks ?? {};
    this.#lock = lock;
    this.#firstSegments = new Map(recovered.open);
    const onRemoved = (removed: Removed): void => this.#fileRemoved(removed);
    this.#segments = new SegmentWriter(this.#disk, dir, options.segmentBytes, recovered, onRemoved);
    this.#unrecovered = recovered.ended ? undefined : recovered.estimated.length;
    this.estimated = recovered.estimated;
    for (const record of this.estimated) this.append(record);
  }

  /** Opens and recovers the spool in `dir`, which it creates. Rejects with the system's error, and then leaves nothing open. */
  static async open(dir: string, options: SpoolOptions, parts: SpoolParts): Promise<Opened> {
    const { disk = systemDisk, lock = lockDir } = parts;
    await disk.makeDir(dir);
    const locked = await lock(dir);
    if (locked.kind === 'held') return locked;
    try {
      const recovered = await recover(dir, disk);
      const spool = new Spool(dir, options, parts, recovered, locked);
      spool.#probeLater();
      await spool.#probe();
      return { kind: 'open', spool, recovered };
    } catch (error) {
      await locked.release();
      throw error;
    }
  }

  /** While not ok, new billable work is refused with `spool_unhealthy`; running streams finish. */
  get health(): Health {
    // A spool that is unhealthy for another reason is often late as well: the reason stays.
    if (this.#health.ok && this.#isLate()) this.#failed('late');
    return this.#health;
  }

  /** All records before it are durable: the end for readers. It never decreases. */
  get position(): Position {
    return this.#segments.position ?? START;
  }

  get reading(): {
    /** Records that are not durable yet, and the age of the oldest, ms. */
    readonly unsynced: number;
    readonly oldestMs: number;
    readonly bytes: number;
    readonly health: Health;
  } {
    const { health } = this;
    const bytes = this.#segments.bytesFrom(START.segment);
    return { unsynced: this.#unsynced.length, oldestMs: this.#oldestMs, bytes, health };
  }

  /** Appends a record. Never throws and never blocks. `open` is appended before dispatch; only a `close` is awaited. */
  append(record: UsageRecord): void {
    if (record.kind === 'progress' && this.#unsynced.length >= MAX_UNSYNCED_WITH_PROGRESS) {
      this.#hooks.dropped?.();
      return;
    }
    this.#unsynced.push({ record, line: encode(record), at: this.#clock.now(), waiters: new Set() });
    this.#writeSoon();
    this.#hooks.recorded?.(record.kind);
  }

  /** Replaces an appended record. False: it is already durable and stays unchanged. The other must be of the same request and kind. */
  revise(record: UsageRecord, revised: UsageRecord): boolean {
    const unsynced = this.#find(record);
    if (!unsynced) return false;
    unsynced.record = revised;
    unsynced.line = encode(revised);
    return true;
  }

  /**
   * Resolves with true once `record`, appended before, is durable, or with false after `closeWaitMs`, so that a caller does not wait
   * forever for a failed disk. The record is then still written as soon as possible; if the process ends before, recovery bills
   * the request at its last durable progress.
   */
  sync(record: UsageRecord): Promise<boolean> {
    const unsynced = this.#find(record);
    if (!unsynced) return Promise.resolve(true);
    // Records of the same turn of the event loop form one group.
    queueMicrotask(() => this.#writeSoon());
    return new Promise((resolve) => {
      const durable = (): void => {
        cancel();
        resolve(true);
      };
      const cancel = this.#clock.after(this.#options.closeWaitMs, () => {
        unsynced.waiters.delete(durable);
        this.#hooks.overdue?.(record);
        resolve(false);
      });
      unsynced.waiters.add(durable);
    });
  }

  /** The records between two positions, in order, as {@link readFrom}. `until`: at most `position`. */
  read(from: Position, until: Position): AsyncIterable<Read> {
    return readFrom(this.#dir, from, { until, disk: this.#disk });
  }

  /** The position of the oldest record that was not pruned; START if none ever was. Rejects if the disk fails. */
  oldest(): Promise<Position> {
    return oldestPosition(this.#dir, this.#disk);
  }

  /** Bytes of durable lines from a position on. */
  bytesFrom({ segment, offset }: Position): number {
    return Math.max(this.#segments.bytesFrom(segment) - offset, 0);
  }

  /**
   * Deletes whole segments before a position that is not read again. Segments in which a running request begins stay,
   * since recovery needs them, and so does the newest. Resolves with the first segment that was not deleted, which may
   * be older than requested. Rejects with the system's error.
   */
  async prune(before: Position): Promise<number> {
    let { segment } = before;
    for (const needed of this.#firstSegments.values()) segment = Math.min(segment, needed);
    await this.#segments.prune(segment);
    return segment;
  }

  /**
   * Writes the remaining records, marks the spool's end and releases the lock, in at most `closeWaitMs` and {@link RELEASE_MS}. Resolves
   * with the number of records that could not be made durable. Idempotent.
   */
  close(): Promise<number> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<number> {
    this.#closing = true;
    this.#cancelProbe();
    this.#cancelGroup?.();
    const overdue = new AbortController();
    await withTimeout(this.#clock, this.#options.closeWaitMs, this.#writeRemaining(overdue.signal));
    overdue.abort();
    await withTimeout(this.#clock, RELEASE_MS, this.#lock.release());
    return this.#unsynced.length;
  }

  /** Writes what is left and ends the last segment, but begins nothing more once `signal` is aborted. */
  async #writeRemaining(signal: AbortSignal): Promise<void> {
    await this.#probing;
    await this.#busy;
    while (!signal.aborted && this.#unsynced.length > 0) if (!(await this.#write())) return;
    if (signal.aborted) return;
    // Recovery must find requests without a close, and does not look for them before an end mark.
    await (this.#firstSegments.size === 0 ? this.#segments.end() : this.#segments.closeOpen());
  }

  get #oldestMs(): number {
    const [oldest] = this.#unsynced;
    return oldest ? this.#clock.now() - oldest.at : 0;
  }

  #isLate(): boolean {
    return this.#oldestMs > this.#options.maxUnsyncedMs;
  }

  #find(record: UsageRecord): Unsynced | undefined {
    // It was usually just appended, so it is near the end.
    return this.#unsynced.findLast((unsynced) => unsynced.record === record);
  }

  /** Writes if enough records wait, the oldest has waited long enough or a reply waits; after an error the next probe does. */
  #writeSoon(): void {
    const [oldest] = this.#unsynced;
    if (!oldest || this.#busy || this.#broken || this.#closing) return;
    const { groupMs, groupRecords } = this.#options;
    const waitMs = oldest.at + groupMs - this.#clock.now();
    const isDue = this.#unsynced.length >= groupRecords || waitMs <= 0;
    if (isDue || this.#unsynced.some(({ waiters }) => waiters.size > 0)) {
      this.#cancelGroup?.();
      this.#cancelGroup = undefined;
      void this.#write();
    } else {
      this.#cancelGroup ??= this.#clock.after(waitMs, () => {
        this.#cancelGroup = undefined;
        this.#writeSoon();
      });
    }
  }

  /** Writes the oldest records, a second time to a new segment if that fails. False: it failed. */
  #write(): Promise<boolean> {
    this.#busy ??= this.#tryTwice().then(async (written) => {
      await this.#checkIfDue().catch((error: unknown) => this.#writeFailed(error));
      this.#broken = !written;
      this.#idle();
      return written;
    });
    return this.#busy;
  }

  #idle(): void {
    this.#busy = undefined;
    this.#writeSoon();
  }

  async #tryTwice(): Promise<boolean> {
    return (await this.#writeGroup()) || (await this.#writeGroup());
  }

  async #writeGroup(): Promise<boolean> {
    const unrecovered = this.#unrecovered;
    // The mark is written with the first records after the closes, and never before they are durable.
    const mark: Mark | undefined = unrecovered === 0 ? { kind: 'recovered' } : undefined;
    const group = this.#nextGroup(unrecovered === 0 ? Infinity : (unrecovered ?? Infinity));
    const from = this.#clock.now();
    const written = await this.#segments.write(group, mark);
    if (written.kind === 'failed') {
      this.#writeFailed(written.error);
      return false;
    }
    if (unrecovered !== undefined) this.#unrecovered = unrecovered === 0 ? undefined : unrecovered - group.length;
    for (const { record } of group) {
      if (record.kind === 'close') this.#firstSegments.delete(record.id);
      else if (!this.#firstSegments.has(record.id)) this.#firstSegments.set(record.id, written.segment);
    }
    this.#hooks.durable?.(this.#clock.now() - from, group.length);
    this.#unchecked += group.length;
    for (const { waiters } of this.#unsynced.splice(0, group.length)) for (const durable of waiters) durable();
    return true;
  }

  /** The oldest unsynced records, as many as one write takes and at most `max`. */
  #nextGroup(max: number): Unsynced[] {
    let bytes = 0;
    const end = this.#unsynced.findIndex(({ line }) => (bytes += line.length) > MAX_WRITE_BYTES);
    return this.#unsynced.slice(0, Math.min(max, end < 0 ? this.#unsynced.length : Math.max(1, end)));
  }

  #writeFailed(error: unknown): void {
    this.#failed('write');
    this.#hooks.failed?.(error);
  }

  #failed(why: HealthProblem): void {
    const was = this.#health;
    this.#health = { ok: false, why };
    this.#goodProbes = 0;
    if (was.ok) this.#hooks.health?.(this.#health);
  }

  /** A file of the spool was removed from outside, and is restored if that is possible. */
  #fileRemoved(removed: Removed): void {
    this.#removedSinceProbe = true;
    this.#failed('removed');
    this.#hooks.removed?.(removed, this.#unchecked);
  }

  #probeLater(): void {
    this.#cancelProbe = this.#clock.after(this.#options.probeMs, () => {
      this.#probing = this.#probe().then(() => {
        if (!this.#closing) this.#probeLater();
      });
    });
  }

  async #probe(): Promise<void> {
    const problem = await this.#findProblem();
    if (problem !== undefined) this.#failed(problem);
    else if (!this.#health.ok && ++this.#goodProbes >= GOOD_PROBES) {
      this.#health = WELL;
      this.#hooks.health?.(WELL);
    }
    // No work is accepted now, so no other event would cause segments to be deleted.
    if (problem === 'backlog') this.#hooks.full?.();
  }

  async #findProblem(): Promise<HealthProblem | undefined> {
    const { minFreeBytes, maxBacklogBytes } = this.#options;
    try {
      if (await this.#isTaken()) return 'taken';
      if (this.#broken && this.#unsynced.length > 0) {
        if (!(await this.#write())) return 'write';
      } else if (!this.#health.ok) {
        // Without a test write if records are written anyway.
        await tryWriting(this.#disk, this.#dir);
        this.#broken = false;
      }
      if (this.#isLate()) return 'late';
      await this.#checkSegments();
      if (this.#takeRemoved()) return 'removed';
      if ((await this.#disk.free(this.#dir)) < minFreeBytes) return 'space';
      return this.#segments.bytesFrom(START.segment) > maxBacklogBytes ? 'backlog' : undefined;
    } catch (error) {
      this.#hooks.failed?.(error);
      return this.#takeRemoved() ? 'removed' : 'write';
    }
  }

  async #isTaken(): Promise<boolean> {
    await this.#disk.makeDir(this.#dir);
    const found = await this.#lock.check();
    if (found.kind === 'restored') this.#fileRemoved({ what: 'lock' });
    if (found.kind !== 'held') return false;
    this.#hooks.taken?.(found.pid);
    return true;
  }

  /**
   * Checks for removed segments between two writes, since a write may begin or restore one. During a write it is only
   * noted as due and not awaited: the disk may hang, and the probe has other checks. Rejects if one cannot be restored.
   */
  async #checkSegments(): Promise<void> {
    this.#checkDue = true;
    if (this.#busy) return;
    const checked = this.#checkIfDue();
    const over = (): boolean => {
      this.#idle();
      return true;
    };
    this.#busy = checked.then(over, over);
    await checked;
  }

  async #checkIfDue(): Promise<void> {
    if (!this.#checkDue) return;
    this.#checkDue = false;
    await this.#segments.check();
    if (!this.#removedSinceProbe) this.#unchecked = 0;
  }

  #takeRemoved(): boolean {
    const removed = this.#removedSinceProbe;
    this.#removedSinceProbe = false;
    return removed;
  }
}
