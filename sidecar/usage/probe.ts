import { join } from 'node:path';
import type { Clock } from '../lib/clock.js';
import type { Disk } from './disk.js';
import type { HealthProblem, SpoolHealth } from './health.js';
import type { Lock } from './lock.js';
import type { SpoolHooks, SpoolOptions } from './spool-options.js';

const PROBE = 'probe';
/** More than a file system stores in an inode, so that a block must be allocated. */
const PROBE_BYTES = Buffer.alloc(4096, '.');

/** The probe's view of the spool. */
export interface Probed {
  /** Bytes of all segments. */
  bytes(): number;
  /** A record has waited for the disk longer than allowed. */
  isLate(): boolean;
  /** Repeats a failed write. `none`: no write failed, or nothing is left to be written. */
  retry(): Promise<'written' | 'failed' | 'none'>;
  /** The disk accepts writes again. */
  mended(): void;
  /** The lock's file, or the spool's folder, was removed and is restored. */
  lockRestored(): void;
  /** Checks for removed segments. Rejects if one cannot be restored. */
  checkSegments(): Promise<void>;
  /** Whether a file of the spool was found to be removed since the last call. */
  takeRemoved(): boolean;
}

export interface ProbeParts {
  readonly clock: Clock;
  readonly disk: Disk;
  readonly lock: Lock;
  readonly options: SpoolOptions;
  readonly hooks: SpoolHooks;
  readonly health: SpoolHealth;
}

/** Probes a spool every `probeMs`, one probe at a time, and reports to the spool's health. */
export class SpoolProbe {
  readonly #spool: Probed;
  readonly #dir: string;
  readonly #parts: ProbeParts;
  #running: Promise<void> = Promise.resolve();
  #cancelTimer: () => void = () => undefined;
  #stopped = false;

  constructor(spool: Probed, dir: string, parts: ProbeParts) {
    this.#spool = spool;
    this.#dir = dir;
    this.#parts = parts;
  }

  /** Probes now, and every `probeMs` from then on. Resolves after the first probe. */
  async start(): Promise<void> {
    this.#later();
    await this.#once();
  }

  /** Resolves once no probe runs any more. Idempotent. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancelTimer();
    await this.#running;
  }

  #later(): void {
    const { clock, options } = this.#parts;
    this.#cancelTimer = clock.after(options.probeMs, () => {
      this.#running = this.#once().then(() => {
        if (!this.#stopped) this.#later();
      });
    });
  }

  async #once(): Promise<void> {
    const { health, hooks } = this.#parts;
    const problem = await this.#problem();
    if (problem === undefined) health.passed();
    else health.failed(problem);
    // No work is accepted now, so no other event would cause segments to be deleted.
    if (problem === 'backlog') hooks.full?.();
  }

  async #problem(): Promise<HealthProblem | undefined> {
    const { disk, options, health, hooks } = this.#parts;
    const spool = this.#spool;
    try {
      if (await this.#isTaken()) return 'taken';
      // Without a test write if records are written anyway.
      const retried = await spool.retry();
      if (retried === 'failed') return 'write';
      if (retried === 'none' && !health.state.ok) {
        await tryWriting(disk, this.#dir);
        spool.mended();
      }
      if (spool.isLate()) return 'late';
      await spool.checkSegments();
      if (spool.takeRemoved()) return 'removed';
      if ((await disk.free(this.#dir)) < options.minFreeBytes) return 'space';
      return spool.bytes() > options.maxBacklogBytes ? 'backlog' : undefined;
    } catch (error) {
      hooks.failed?.(error);
      return spool.takeRemoved() ? 'removed' : 'write';
    }
  }

  async #isTaken(): Promise<boolean> {
    const { disk, lock, hooks } = this.#parts;
    await disk.makeDir(this.#dir);
    const found = await lock.check();
    if (found.kind === 'restored') this.#spool.lockRestored();
    if (found.kind !== 'held') return false;
    hooks.taken?.(found.pid);
    return true;
  }
}

/** Writes a file beside the segments, syncs and removes it. Rejects if one of these fails. */
async function tryWriting(disk: Disk, dir: string): Promise<void> {
  const path = join(dir, PROBE);
  await disk.remove(path);
  const file = await disk.open(path, 'create');
  try {
    await file.write(PROBE_BYTES, 0);
    await file.sync();
  } finally {
    await file.close();
    await disk.remove(path);
  }
}
