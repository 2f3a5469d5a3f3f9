import { stat } from 'node:fs/promises';
import { comparePositions, listSegments, readFrom, segmentPath, type Position, type Read } from '../segments.js';

/** What delivery reads: the spool, as far as it is durable. */
export interface UsageSource {
  /** All before this is durable. Only moves on. */
  readonly end: Position;
  /** The records between two places, in order; what was pruned is passed by. Rejects when the disk fails. */
  read(from: Position, until: Position): AsyncIterable<Read>;
  /** What lies between `from` and the end, bytes. */
  bytesFrom(from: Position): number;
  /**
   * Nobody needs what is before `before` any more: segments that end there may be deleted. Resolves with the first one
   * that was not, an older one than was asked for where something else needs it.
   */
  prune(before: Position): Promise<number>;
}

/** What delivery needs of the spool that is being written. */
export interface PrunableSpool {
  /** All before this is durable. */
  readonly position: Position;
  /** See {@link UsageSource.prune}. */
  prune(before: Position): Promise<number>;
}

/** The spool in a folder while this process writes it. */
export class SpoolSource implements UsageSource {
  readonly #dir: string;
  readonly #spool: PrunableSpool;
  /** Bytes of each segment, as far as it was durable when last looked at. */
  readonly #sizes: Map<number, number>;

  private constructor(dir: string, spool: PrunableSpool, sizes: Map<number, number>) {
    this.#dir = dir;
    this.#spool = spool;
    this.#sizes = sizes;
  }

  /** Takes the sizes of the segments that are there. Rejects when the disk fails. */
  static async open(dir: string, spool: PrunableSpool): Promise<SpoolSource> {
    const sizes = new Map<number, number>();
    for (const segment of await listSegments(dir)) sizes.set(segment, (await stat(segmentPath(dir, segment))).size);
    return new SpoolSource(dir, spool, sizes);
  }

  get end(): Position {
    const { position } = this.#spool;
    // A segment that is not looked at again has its whole size here, for each sync asks for the end.
    this.#sizes.set(position.segment, position.offset);
    return position;
  }

  read(from: Position, until: Position): AsyncIterable<Read> {
    return readFrom(this.#dir, from, { until });
  }

  bytesFrom(from: Position): number {
    const { end } = this;
    if (comparePositions(from, end) >= 0) return 0;
    let bytes = -from.offset;
    for (const [segment, size] of this.#sizes) if (segment >= from.segment && segment <= end.segment) bytes += size;
    return Math.max(bytes, 0);
  }

  async prune(before: Position): Promise<number> {
    const kept = await this.#spool.prune(before);
    for (const segment of this.#sizes.keys()) if (segment < kept) this.#sizes.delete(segment);
    return kept;
  }
}
