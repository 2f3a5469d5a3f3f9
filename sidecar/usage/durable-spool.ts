/**
 * The durable spool: usage in append-only segments, one line per record (frame.ts), at least as long as the machine's disk
 * keeps its word.
 *
 *   append ──> unsynced ──(5 ms, 64 records, or one is waited for)──> write, fdatasync ──> durable: waiters go on,
 *                  ^                                                       │ error          `position` moves
 *                  └──── kept, written again ──────────────────────────────┘ this segment is given up, a new one begun
 *
 * One writer (lock.ts), one write or sync in flight: the next group is what comes meanwhile. So groups are as large as the
 * load makes them, and nobody's end waits for company; a lone caller has a sync to himself. What is acknowledged is in the
 * order in which it was appended.
 *
 * After a failed write or sync the segment is never touched again; what was not acknowledged is written again in the
 * next, whose head says up to where the one before counts. `readFrom` heeds that, so a reader meets each record once. A
 * reader that does its own reading, or that reads a live spool without `until`, can meet a record twice and must drop the
 * second by (id, kind); of progress records, whose counts are cumulative, the last is the one that counts.
 *
 * Recovery (recovery.ts) closes what has no close. No id is ever given two closes.
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

/** How long the lock may take to be removed, ms; the next start finds that its process is gone. */
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
  /** By the id of each request that has no durable close yet: the segment that its first record is in. */
  readonly #open: Map<string, number>;
  readonly #lock: Lock;
  /** Files that were removed from outside and have been noticed since the last probe. */
  #removed = 0;
  /** Records that were written since all files were found in their places. */
  #unchecked = 0;
  /** A probe wants the segments to be looked for, which waits for the write under way. */
  #checkDue = false;
  /** Of recovery's closes, those that are not durable; at 0 the mark behind them is due; undefined: there is nothing to mark. */
  #unrecovered: number | undefined;
  /** The write under way; undefined: none. */
  #writing: Promise<boolean> | undefined;
  /** The last write failed: the next is the next probe's. */
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
   * Opens the spool in `dir`, which is made when there is none, after recovery. Rejects with the system's error when the
   * folder cannot be read or written; then nothing is held.
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

  /** Everything before it is durable: how far a reader may read. */
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
   * Resolves once `record` is durable, or after `closeWaitMs`: a caller does not wait for ever for a disk that is gone.
   * Then the record is still written as soon as that is possible; if the process ends before, recovery bills the request
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
      // What ends in the same turn is one group.
      queueMicrotask(() => this.#writeSoon());
    });
  }

  /**
   * Deletes whole segments before a position that nobody reads again. Those that a request which still runs begins in
   * stay, since recovery needs them, and so does the newest. Resolves with the first segment that was not to go, which
   * can be an older one than was asked for. Rejects with the system's error.
   */
  async prune(before: Position): Promise<number> {
    let segment = before.segment;
    for (const needed of this.#open.values()) segment = Math.min(segment, needed);
    await this.#writer.prune(segment);
    return segment;
  }

  /**
   * Writes what is left, marks the spool's end and lets go of it. Takes `closeWaitMs` and {@link RELEASE_MS} at most. Resolves
   * with the records that could not be made durable. Idempotent.
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
      // A request without a close is recovery's, and none is looked for before an end.
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

  /** Writes when enough waits, the oldest has waited long enough or someone waits; after an error, the next probe does. */
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

  /** Writes the oldest records, a second time in a new segment if that fails. False: it failed. */
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
    // The mark is written with what comes first after the closes, and never before they are durable.
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

  /** What the probe sees of this spool. */
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
   * Between two writes, since a write may begin a segment or put one back. Not waited for while one is under way: the disk
   * may hang, and the probe is to look at other things.
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

  /** Looks for removed segments if that is due. Rejects when one cannot be put back. */
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

/** The lines of entries, the same buffer until one of them is revised. */
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
