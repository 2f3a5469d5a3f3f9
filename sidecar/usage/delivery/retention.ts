import { stat } from 'node:fs/promises';
import type { Clock } from '../../lib/clock.js';
import type { Log } from '../../telemetry/logger.js';
import { isMissing, listSegments, segmentPath, type Position } from '../segments.js';
import type { PrunableSpool } from './source.js';

export interface RetentionOptions {
  readonly dir: string;
  readonly spool: PrunableSpool;
  /** What others still read of the spool: nothing from here on is pruned. */
  readonly keepFrom: () => Position;
  /** A segment that was last written longer ago goes, ms; Infinity: none does. */
  readonly keepMs: number;
  /** While all segments together hold more, the oldest goes. */
  readonly keepBytes: number;
  /** Milliseconds since 1970. */
  readonly date: () => number;
  readonly clock: Pick<Clock, 'now'>;
  readonly log: Log;
}

/**
 * Keeps a spool that nobody delivers within its bounds. Segments are looked at when a new one begins, for only then can
 * there be one too many, and whenever someone says that what kept one may be over; the newest always stays.
 */
export class Retention {
  readonly #options: RetentionOptions;
  /** Of both clocks when this was made. */
  readonly #began: { readonly date: number; readonly now: number };
  #seen = 0;
  #running: Promise<void> | undefined;
  #stopped = false;

  constructor(options: RetentionOptions) {
    this.#options = options;
    this.#began = { date: options.date(), now: options.clock.now() };
  }

  /** More of the spool is durable. Cheap: may be called at each sync. */
  notify(): void {
    const { segment } = this.#options.spool.position;
    if (segment === this.#seen || this.#running || this.#stopped) return;
    void this.prune();
  }

  /** Looks at the segments now, a new one or not. Never rejects. */
  prune(): Promise<void> {
    if (this.#stopped) return this.#running ?? Promise.resolve();
    this.#seen = this.#options.spool.position.segment;
    this.#running ??= this.#prune().then(() => {
      this.#running = undefined;
      // A segment that began meanwhile.
      this.notify();
    });
    return this.#running;
  }

  /** Settles when nothing is being deleted any more, nor will be. */
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
      // Nothing is lost but room; the next segment tries again.
      log.warn('usage spool not pruned', { fault });
    }
  }

  /**
   * The date, but no later than the time that has passed since the beginning explains: a wall clock that jumps ahead must
   * not make all usage that nobody has exported yet look old.
   */
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
      const found = await stat(segmentPath(dir, segment)).catch((error: unknown) => {
        if (isMissing(error)) return undefined;
        throw error;
      });
      if (!found) continue;
      bytes += found.size;
      if (bytes > keepBytes || found.mtimeMs < oldest) return segment + 1;
    }
    return 0;
  }
}
