import { stat } from 'node:fs/promises';
import type { Clock } from '../../lib/clock.js';
import { ifPresent } from '../../lib/missing.js';
import type { Log } from '../../telemetry/logger.js';
import { listSegments } from '../reader.js';
import { segmentPath, type Position } from '../spool-format.js';
import type { Spool } from '../spool.js';

export interface RetentionOptions {
  readonly dir: string;
  readonly spool: Pick<Spool, 'position' | 'prune'>;
  /** The position from which others still read the spool: nothing after it is pruned. */
  readonly keepFrom: () => Position;
  /** Segments that were last written longer ago are deleted, ms; Infinity: none. */
  readonly keepMs: number;
  /** While all segments together are larger, the oldest is deleted. */
  readonly keepBytes: number;
  /** Milliseconds since 1970. */
  readonly date: () => number;
  readonly clock: Pick<Clock, 'now'>;
  readonly log: Log;
}

/** Bounds a spool without a sink. Segments are checked when one begins, and by prune(); the newest always stays. */
export class Retention {
  readonly #options: RetentionOptions;
  /** Readings of both clocks when this was made. */
  readonly #began: { readonly date: number; readonly now: number };
  #seen = 0;
  #running: Promise<void> | undefined;
  #stopped = false;

  constructor(options: RetentionOptions) {
    this.#options = options;
    this.#began = { date: options.date(), now: options.clock.now() };
  }

  /** More records are durable. Cheap: may be called at each sync. */
  notify(): void {
    const { segment } = this.#options.spool.position;
    if (segment === this.#seen || this.#running || this.#stopped) return;
    void this.prune();
  }

  /** Checks the segments now. Never rejects. */
  prune(): Promise<void> {
    if (this.#stopped) return this.#running ?? Promise.resolve();
    this.#seen = this.#options.spool.position.segment;
    this.#running ??= this.#prune().then(() => {
      this.#running = undefined;
      // A segment may have begun meanwhile.
      this.notify();
    });
    return this.#running;
  }

  /** Settles when nothing is being deleted any more. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
  }

  async #prune(): Promise<void> {
    const { spool, keepFrom, log } = this.#options;
    try {
      const segment = Math.min(await this.#firstToKeep(), keepFrom().segment);
      if (segment > 1) await spool.prune({ segment, offset: 0 });
    } catch (fault) {
      // Only disk space is affected; the next segment causes another attempt.
      log.warn('usage spool not pruned', { fault });
    }
  }

  /** The date, limited to the start plus the elapsed time: a wall clock that jumps ahead must not age usage that was not exported yet. */
  #date(): number {
    const { date, clock } = this.#options;
    return Math.min(date(), this.#began.date + (clock.now() - this.#began.now));
  }

  async #firstToKeep(): Promise<number> {
    const { dir, keepMs, keepBytes } = this.#options;
    const oldest = this.#date() - keepMs;
    let bytes = 0;
    const segments = await listSegments(dir);
    for (const segment of segments.reverse()) {
      const found = await ifPresent(stat(segmentPath(dir, segment)));
      if (!found) continue;
      bytes += found.size;
      if (bytes > keepBytes || found.mtimeMs < oldest) return segment + 1;
    }
    return 0;
  }
}
