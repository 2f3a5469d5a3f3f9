import { join } from 'node:path';
import type { Clock } from '../lib/clock.js';
import type { Disk } from './disk.js';
import type { HealthProblem, SpoolHealth } from './health.js';
import type { Lock } from './lock.js';
import type { SpoolHooks, SpoolOptions } from './spool-options.js';

const PROBE = 'probe';
/** More than a file system keeps in its inodes, so that a block must be found for it. */
const PROBE_BYTES = Buffer.alloc(4096, '.');

/** The spool as its probe sees it. */
export interface Probed {
  /** Bytes of all segments. */
  bytes(): number;
  /** A record has waited for the disk for longer than it may. */
  isLate(): boolean;
  /** Tries a write that failed again. `none`: no write failed, or nothing is left to be written. */
  retry(): Promise<'written' | 'failed' | 'none'>;
  /** The disk takes writes again. */
  mended(): void;
  /** The lock's file, or the spool's folder, was gone and is there again. */
  lockRestored(): void;
  /** Looks for segments that were removed. Rejects when one cannot be put back. */
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

/** Looks after a spool every `probeMs`, one probe at a time, and brings what it finds to the spool's health. */
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
    // No work is taken now, so nothing else that happens would ever make room.
    if (problem === 'backlog') hooks.full?.();
  }

  async #problem(): Promise<HealthProblem | undefined> {
    const { disk, options, health, hooks } = this.#parts;
    const spool = this.#spool;
    try {
      if (await this.#isTaken()) return 'taken';
      // Nothing is written to see whether it can be while records are written anyway.
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

/** Writes a file beside the segments, syncs and removes it. Rejects with what kept it from that. */
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
