import type { Clock } from '../lib/clock.js';
import type { UsageRecord } from '../domain/usage-record.js';
import type { Disk } from './disk.js';
import type { SpoolHealth } from './health.js';
import { encodeMark } from './record-line.js';
import type { Removed } from './put-back.js';
import type { Recovered } from './recovery.js';
import { SegmentWriter } from './segment-writer.js';
import { START, type Position } from './segments.js';
import type { SpoolHooks, SpoolOptions } from './spool-options.js';
import { Unsynced, type Entry } from './unsynced.js';

export interface GroupWriterParts {
  readonly clock: Clock;
  readonly disk: Disk;
  readonly options: SpoolOptions;
  readonly hooks: SpoolHooks;
  readonly health: SpoolHealth;
}

/** Writes a spool's records in groups, one write or sync at a time, and checks its segments between two writes. */
export class GroupWriter {
  readonly #clock: Clock;
  readonly #options: SpoolOptions;
  readonly #hooks: SpoolHooks;
  readonly #health: SpoolHealth;
  readonly #segments: SegmentWriter;
  readonly #unsynced = new Unsynced();
  /** For each request without a durable close: the segment of its first record. */
  readonly #open: Map<string, number>;
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
  #stopped = false;
  #cancelGroup: (() => void) | undefined;

  /** `dir`: the spool's folder, whose lock the caller has. */
  constructor(dir: string, recovered: Recovered, { clock, disk, options, hooks, health }: GroupWriterParts) {
    this.#clock = clock;
    this.#options = options;
    this.#hooks = hooks;
    this.#health = health;
    this.#open = new Map(recovered.open);
    this.#segments = new SegmentWriter(disk, dir, options.segmentBytes, recovered, (removed) => this.noticed(removed));
    this.#unrecovered = recovered.ended ? undefined : recovered.estimated.length;
  }

  /** All records before it are durable. */
  get position(): Position {
    return this.#segments.position ?? START;
  }

  /** Bytes of all segments. */
  get bytes(): number {
    return this.#segments.bytes;
  }

  /** Records that are not durable yet. */
  get unsynced(): number {
    return this.#unsynced.count;
  }

  /** The age of the oldest of them, ms. */
  get oldestMs(): number {
    const { oldest } = this.#unsynced;
    return oldest ? this.#clock.now() - oldest.at : 0;
  }

  /** False: it was dropped. */
  add(record: UsageRecord): boolean {
    const added = this.#unsynced.add(record, this.#clock.now());
    if (added) this.#writeSoon();
    return added;
  }

  /** As {@link Unsynced.revise}. */
  revise(record: UsageRecord, revised: UsageRecord): boolean {
    return this.#unsynced.revise(record, revised);
  }

  /** As {@link Unsynced.whenDurable}; the record's group is written without waiting for more. */
  whenDurable(record: UsageRecord, fn: () => void): (() => void) | undefined {
    const forget = this.#unsynced.whenDurable(record, fn);
    // Records of the same turn of the event loop form one group.
    if (forget) queueMicrotask(() => this.#writeSoon());
    return forget;
  }

  /** As {@link DurableSpool.prune}. */
  async prune(before: Position): Promise<number> {
    let segment = before.segment;
    for (const needed of this.#open.values()) segment = Math.min(segment, needed);
    await this.#segments.prune(segment);
    return segment;
  }

  /** Repeats a failed write. `none`: no write failed, or nothing is left to be written. */
  async retry(): Promise<'written' | 'failed' | 'none'> {
    if (!this.#broken || this.#unsynced.count === 0) return 'none';
    return (await this.#write()) ? 'written' : 'failed';
  }

  /** The disk accepts writes again. */
  mended(): void {
    this.#broken = false;
  }

  /** A file of the spool was removed from outside, and is restored. */
  noticed(removed: Removed): void {
    this.#removed += 1;
    this.#health.failed('removed');
    this.#hooks.removed?.(removed, this.#unchecked);
  }

  /** Whether a file of the spool was found to be removed since the last call. */
  takeRemoved(): boolean {
    const any = this.#removed > 0;
    this.#removed = 0;
    return any;
  }

  /** From now on only {@link finish} writes. */
  stop(): void {
    this.#stopped = true;
    this.#cancelGroup?.();
  }

  /** Writes what is left and ends the last segment, but begins nothing more once `over` returns true. After {@link stop}. */
  async finish(over: () => boolean): Promise<void> {
    await this.#writing;
    while (!over() && this.#unsynced.count > 0) if (!(await this.#write())) return;
    // Recovery must find requests without a close, and does not look for them before an end mark.
    if (!over() && this.#open.size === 0) await this.#segments.finish();
    else if (!over()) await this.#segments.leave();
  }

  /**
   * Runs between two writes, since a write may begin or restore a segment. It is not awaited during a write: the disk
   * may hang, and the probe has other checks.
   */
  async checkSegments(): Promise<void> {
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
    await this.#segments.check();
    if (this.#removed === 0) this.#unchecked = 0;
  }

  /**
   * Writes if enough records wait, the oldest has waited long enough or a reply waits; after an error, the next probe
   * does.
   */
  #writeSoon(): void {
    const { oldest, count } = this.#unsynced;
    if (!oldest || this.#writing || this.#broken || this.#stopped) return;
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
    const written = await this.#segments.write(linesOf(entries, mark));
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
