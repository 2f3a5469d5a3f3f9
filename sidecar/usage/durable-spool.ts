/**
 * The durable spool: usage in append-only segments, one line per record (record-line.ts).
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
import { withTimeout, type Clock } from '../lib/clock.js';
import type { UsageRecord } from '../domain/usage-record.js';
import { systemDisk } from './disk.js';
import { GroupWriter } from './group-writer.js';
import { SpoolHealth, type Health } from './health.js';
import { lockDir, type Lock } from './lock.js';
import { SpoolProbe, type Probed } from './probe.js';
import { recover, type Recovered } from './recovery.js';
import type { Position } from './segments.js';
import type { Spool } from './spool.js';
import type { SpoolHooks, SpoolOptions, SpoolParts, SpoolReading } from './spool-options.js';

/** The longest time for removing the lock, ms; the next start detects that the process has ended. */
export const RELEASE_MS = 1000;

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
  readonly #groups: GroupWriter;
  readonly #health: SpoolHealth;
  readonly #probe: SpoolProbe;
  readonly #lock: Lock;
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
    this.#health = new SpoolHealth((health) => hooks.health?.(health));
    const parts = { clock, disk, options, hooks, health: this.#health };
    this.#groups = new GroupWriter(dir, recovered, parts);
    this.#probe = new SpoolProbe(this.#probed(), dir, { ...parts, lock });
    this.estimated = recovered.estimated;
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
    // A spool that is unhealthy for another reason is often late as well: the reason stays.
    if (this.#health.state.ok && this.#isLate()) this.#health.failed('late');
    return this.#health.state;
  }

  /** All records before it are durable: the end for readers. */
  get position(): Position {
    return this.#groups.position;
  }

  get reading(): SpoolReading {
    return {
      unsynced: this.#groups.unsynced,
      oldestMs: this.#groups.oldestMs,
      bytes: this.#groups.bytes,
      health: this.health,
    };
  }

  append(record: UsageRecord): void {
    if (this.#groups.add(record)) this.#hooks.recorded?.(record.kind);
    else this.#hooks.dropped?.();
  }

  revise(record: UsageRecord, revised: UsageRecord): boolean {
    return this.#groups.revise(record, revised);
  }

  /**
   * Resolves once `record` is durable, or after `closeWaitMs`, so that a caller does not wait forever for a failed
   * disk. The record is then still written as soon as possible; if the process ends before, recovery bills the request
   * at its last durable progress.
   */
  sync(record: UsageRecord): Promise<void> {
    return new Promise((resolve) => {
      const forget = this.#groups.whenDurable(record, () => {
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
    });
  }

  /**
   * Deletes whole segments before a position that is not read again. Segments in which a running request begins stay,
   * since recovery needs them, and so does the newest. Resolves with the first segment that was not deleted, which may
   * be older than requested. Rejects with the system's error.
   */
  prune(before: Position): Promise<number> {
    return this.#groups.prune(before);
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
    this.#groups.stop();
    let over = false;
    const finish = async (): Promise<void> => {
      await probed;
      await this.#groups.finish(() => over);
    };
    await new Promise<void>((resolve, reject) => {
      const cancel = this.#clock.after(this.#options.closeWaitMs, resolve);
      finish().finally(cancel).then(resolve, reject);
    });
    over = true;
    await withTimeout(this.#clock, RELEASE_MS, this.#lock.release());
    return this.#groups.unsynced;
  }

  #isLate(): boolean {
    return this.#groups.oldestMs > this.#options.maxUnsyncedMs;
  }

  /** The probe's view of this spool. */
  #probed(): Probed {
    const groups = this.#groups;
    return {
      bytes: () => groups.bytes,
      isLate: () => this.#isLate(),
      retry: () => groups.retry(),
      mended: () => groups.mended(),
      lockRestored: () => groups.noticed({ what: 'lock' }),
      checkSegments: () => groups.checkSegments(),
      takeRemoved: () => groups.takeRemoved(),
    };
  }
}
