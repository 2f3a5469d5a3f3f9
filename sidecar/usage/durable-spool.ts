/**
 * The durable spool: usage in append-only segments, one line per record (frame.ts).
 *
 *   append ──> unsynced ──(5 ms, 64 records, or a reply waits)──> write, fdatasync ──> durable: waiters continue,
 *                  ^                                                    │ error          `position` moves
 *                  └──── kept, written again ───────────────────────────┘ the segment is abandoned, a new one begins
 *
 * There is one writer (lock.ts), and one write or sync in flight; records that arrive meanwhile form the next group. So
 * groups grow with the load, and no reply waits for a group to fill. Records are acknowledged in the order in which
 * they were appended.
 *
 * After a failed write or sync the segment is never written again; unacknowledged records are written to the next one,
 * whose head has the position up to which the previous one is valid. `readFrom` applies that, so a reader gets each
 * record once. A reader that parses segments itself, or that reads a live spool without `until`, can get a record twice
 * and must drop the second by (id, kind). Of progress records, whose counts are cumulative, the last one counts.
 *
 * Recovery (recovery.ts) adds missing closes. No id ever gets two closes.
 */
import type { Clock } from '../lib/clock.js';
import type { UsageRecord } from '../domain/usage-record.js';
import { withTimeout } from '../lib/timeout.js';
import { systemDisk } from './disk.js';
import { SpoolHealth, type Health } from './health.js';
import { encodeMark } from './frame.js';
import { lockDir, type Lock } from './lock.js';
import { SpoolProbe, type Probed } from './probe.js';
import type { Removed } from './put-back.js';
import { recover, type Recovered } from './recovery.js';
import { SegmentWriter } from './segment-writer.js';
import { START, type Position } from './segments.js';
import type { Spool } from './spool.js';
import type { SpoolHooks, SpoolOptions, SpoolParts, SpoolReading } from './spool-options.js';
import { Unsynced, type Entry } from './unsynced.js';

/** The longest time for removing the lock, ms; the next start detects that the process has ended. */
const RELEASE_MS = 1000;

export type Opened =
  | { readonly kind: 'open'; readonly spool: DurableSpool; readonly recovered: Recovered }
  /** Another process writes this spool. */
  | { readonly kind: 'held'; readonly pid: number };

export class DurableSpool implements Spool {
  /** The closes that recovery appended. They may not be durable yet. */
  readonly estimated: readonly UsageRecord[];
  readonly #clock: Clock;
  readonly #options: SpoolOptions;
  readonly #hooks: SpoolHooks;
  readonly #writer: SegmentWriter;
  readonly #health: SpoolHealth;
  readonly #probe: SpoolProbe;
  readonly #unsynced = new Unsynced();
  /** For each request without a durable close: the segment of its first record. */
  readonly #open: Map<string, number>;
  readonly #lock: Lock;
  /** Files removed from outside that were noticed since the last probe. */
  #removed = 0;
  /** Records written since all files were last found in place. */
  #unchecked = 0;
  /** A probe has requested a check of the segments, which waits for the current write. */
  #checkDue = false;
  /** Recovery's closes that are not durable yet; at 0 the mark after them is due; undefined: no mark is needed. */
  #unrecovered: number | undefined;
  /** The write in flight, or undefined. */
  #writing: Promise<boolean> | undefined;
  /** The last write failed: the next probe makes the next attempt. */
  #broken = false;
  #cancelGroup: (() => void) | undefined;
  #closed: Promise<number> | undefined;

  private constructor(
    dir: string,
    options: SpoolOptions,
    { clock, disk = systemDisk, hooks = {} }: SpoolParts,
    recovered: Recovered,
    lock: Lock,
  ) {
    this.#options = options;
    this.#clock = clock;
    this.#hooks = hooks;
    this.#lock = lock;
    this.#open = new Map(recovered.open);
    this.#writer = new SegmentWriter(disk, dir, options.segmentBytes, recovered, (removed) => this.#noticed(removed));
    this.#health = new SpoolHealth((health) => hooks.health?.(health));
    this.#probe = new SpoolProbe(this.#probed(), dir, { clock, disk, lock, options, hooks, health: this.#health });
    this.estimated = recovered.estimated;
    this.#unrecovered = recovered.ended ? undefined : this.estimated.length;
    for (const record of this.estimated) this.append(record);
  }

  /**
   * Opens the spool in `dir`, which is created if needed, and recovers it. Rejects with the system's error if the
   * folder cannot be read or written; then nothing is left open.
   */
  static async open(dir: string, options: SpoolOptions, parts: SpoolParts): Promise<Opened> {
    const { disk = systemDisk, lock = lockDir } = parts;
    await disk.makeDir(dir);
    const locked = await lock(dir);
    if (locked.kind === 'held') return locked;
    try {
      const recovered = await recover(dir, disk);
      const spool = new DurableSpool(dir, options, parts, recovered, locked);
      await spool.#probe.start();
      return { kind: 'open', spool, recovered };
    } catch (error) {
      await locked.release();
      throw error;
    }
  }

  get health(): Health {
    if (this.#isLate()) this.#health.failed('late');
    return this.#health.state;
  }

  /** All records before it are durable: the end for readers. */
  get position(): Position {
    return this.#writer.position ?? START;
  }

  get reading(): SpoolReading {
    return {
      unsynced: this.#unsynced.count,
      oldestMs: this.#oldestMs(),
      bytes: this.#writer.bytes,
      health: this.health,
    };
  }

  append(record: UsageRecord): void {
    if (!this.#unsynced.add(record, this.#clock.now())) {
      this.#hooks.dropped?.();
      return;
    }
    this.#hooks.recorded?.(record.kind);
    this.#writeSoon();
  }

  revise(record: UsageRecord, revised: UsageRecord): boolean {
    return this.#unsynced.revise(record, revised);
  }

  /**
   * Resolves once `record` is durable, or after `closeWaitMs`, so that a caller does not wait forever for a failed
   * disk. The record is then still written as soon as possible; if the process ends before, recovery bills the request
   * at its last durable progress.
   */
  sync(record: UsageRecord): Promise<void> {
    return new Promise((resolve) => {
      const forget = this.#unsynced.whenDurable(record, () => {
        cancel();
        resolve();
      });
      if (!forget) {
        resolve();
        return;
      }
      const cancel = this.#clock.after(this.#options.closeWaitMs, () => {
        forget();
        this.#hooks.late?.(record);
        resolve();
      });
      // Records of the same turn of the event loop form one group.
      queueMicrotask(() => this.#writeSoon());
    });
  }

  /**
   * Deletes whole segments before a position that is not read again. Segments in which a running request begins stay,
   * since recovery needs them, and so does the newest. Resolves with the first segment that was not deleted, which may
   * be older than requested. Rejects with the system's error.
   */
  async prune(before: Position): Promise<number> {
    let segment = before.segment;
    for (const needed of this.#open.values()) segment = Math.min(segment, needed);
    await this.#writer.prune(segment);
    return segment;
  }

  /**
   * Writes the remaining records, marks the spool's end and releases the lock. Takes at most `closeWaitMs` and {@link
   * RELEASE_MS}. Resolves with the number of records that could not be made durable. Idempotent.
   */
  close(): Promise<number> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<number> {
    const probed = this.#probe.stop();
    this.#cancelGroup?.();
    let over = false;
    const finish = async (): Promise<void> => {
      await Promise.all([probed, this.#writing]);
      while (!over && this.#unsynced.count > 0) if (!(await this.#write())) return;
      // Recovery must find requests without a close, and does not look for them before an end mark.
      if (!over && this.#open.size === 0) await this.#writer.finish();
      else if (!over) await this.#writer.leave();
    };
    await new Promise<void>((resolve, reject) => {
      const cancel = this.#clock.after(this.#options.closeWaitMs, resolve);
      finish().finally(cancel).then(resolve, reject);
    });
    over = true;
    await withTimeout(this.#clock, RELEASE_MS, this.#lock.release());
    return this.#unsynced.count;
  }

  #oldestMs(): number {
    const { oldest } = this.#unsynced;
    return oldest ? this.#clock.now() - oldest.at : 0;
  }

  #isLate(): boolean {
    return this.#oldestMs() > this.#options.maxUnsyncedMs;
  }

  /**
   * Writes if enough records wait, the oldest has waited long enough or a reply waits; after an error, the next probe
   * does.
   */
  #writeSoon(): void {
    const { oldest, count } = this.#unsynced;
    if (!oldest || this.#writing || this.#broken || this.#closed) return;
    const { groupMs, groupRecords } = this.#options;
    const waitMs = oldest.at + groupMs - this.#clock.now();
    if (count >= groupRecords || waitMs <= 0 || this.#unsynced.awaited) {
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
    this.#writing ??= this.#tryTwice().then(async (written) => {
      await this.#check().catch((error: unknown) => this.#failed(error));
      this.#writing = undefined;
      this.#broken = !written;
      this.#writeSoon();
      return written;
    });
    return this.#writing;
  }

  async #tryTwice(): Promise<boolean> {
    return (await this.#writeOnce()) || (await this.#writeOnce());
  }

  async #writeOnce(): Promise<boolean> {
    const unrecovered = this.#unrecovered;
    // The mark is written with the first records after the closes, and never before they are durable.
    const entries = this.#unsynced.next().slice(0, unrecovered === 0 ? undefined : unrecovered);
    const mark = unrecovered === 0 ? [encodeMark({ kind: 'recovered' })] : [];
    const from = this.#clock.now();
    const written = await this.#writer.write(linesOf(entries, mark));
    if (written.kind === 'failed') {
      this.#failed(written.error);
      return false;
    }
    if (unrecovered !== undefined) this.#unrecovered = unrecovered === 0 ? undefined : unrecovered - entries.length;
    for (const { record } of entries) {
      if (record.kind === 'close') this.#open.delete(record.id);
      else if (!this.#open.has(record.id)) this.#open.set(record.id, written.segment);
    }
    this.#hooks.synced?.(this.#clock.now() - from, entries.length);
    this.#unchecked += entries.length;
    this.#unsynced.settle(entries.length);
    return true;
  }

  #failed(error: unknown): void {
    this.#health.failed('write');
    this.#hooks.failed?.(error);
  }

  /** The probe's view of this spool. */
  #probed(): Probed {
    return {
      bytes: () => this.#writer.bytes,
      isLate: () => this.#isLate(),
      retry: async () => {
        if (!this.#broken || this.#unsynced.count === 0) return 'none';
        return (await this.#write()) ? 'written' : 'failed';
      },
      mended: () => (this.#broken = false),
      lockRestored: () => this.#noticed({ what: 'lock' }),
      checkSegments: () => this.#checkSegments(),
      takeRemoved: () => {
        const any = this.#removed > 0;
        this.#removed = 0;
        return any;
      },
    };
  }

  /**
   * Runs between two writes, since a write may begin or restore a segment. It is not awaited during a write: the disk
   * may hang, and the probe has other checks.
   */
  async #checkSegments(): Promise<void> {
    this.#checkDue = true;
    if (this.#writing) return;
    const checked = this.#check();
    const over = (): boolean => {
      this.#writing = undefined;
      this.#writeSoon();
      return true;
    };
    this.#writing = checked.then(over, over);
    await checked;
  }

  /** Checks for removed segments if that is due. Rejects if one cannot be restored. */
  async #check(): Promise<void> {
    if (!this.#checkDue) return;
    this.#checkDue = false;
    await this.#writer.check();
    if (this.#removed === 0) this.#unchecked = 0;
  }

  #noticed(removed: Removed): void {
    this.#removed += 1;
    this.#health.failed('removed');
    this.#hooks.removed?.(removed, this.#unchecked);
  }
}

/** The lines of entries; the same buffer until one of them is revised. */
function linesOf(entries: readonly Entry[], before: readonly Buffer[]): () => Buffer {
  let lines: readonly Buffer[] | undefined;
  let whole = Buffer.alloc(0);
  return () => {
    if (lines && entries.every(({ line }, i) => line === lines?.[i])) return whole;
    lines = entries.map(({ line }) => line);
    whole = Buffer.concat([...before, ...lines]);
    return whole;
  };
}
