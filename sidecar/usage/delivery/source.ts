import { stat } from 'node:fs/promises';
import { comparePositions, listSegments, readFrom, segmentPath, type Position, type Read } from '../segments.js';

/** The input of delivery: the durable part of the spool. */
export interface UsageSource {
  /** All records before it are durable. It never decreases. */
  readonly end: Position;
  /** The records between two positions, in order, without pruned ones. Rejects if the disk fails. */
  read(from: Position, until: Position): AsyncIterable<Read>;
  /** Bytes between `from` and the end. */
  bytesFrom(from: Position): number;
  /**
   * Records before `before` are not needed by the caller: segments that end there may be deleted. Resolves with the
   * first segment that was not deleted, which may be older if it is needed elsewhere.
   */
  prune(before: Position): Promise<number>;
}

/** The functions of the spool that delivery uses. */
export interface PrunableSpool {
  /** All records before it are durable. */
  readonly position: Position;
  /** See {@link UsageSource.prune}. */
  prune(before: Position): Promise<number>;
}

/** The spool in a folder while this process writes it. */
export class SpoolSource implements UsageSource {
  readonly #dir: string;
  readonly #spool: PrunableSpool;
  /** Bytes of each segment, as far as it was durable at the last check. */
  readonly #sizes: Map<number, number>;

  private constructor(dir: string, spool: PrunableSpool, sizes: Map<number, number>) {
    this.#dir = dir;
    this.#spool = spool;
    this.#sizes = sizes;
  }

  /** Reads the sizes of the existing segments. Rejects if the disk fails. */
  static async open(dir: string, spool: PrunableSpool): Promise<SpoolSource> {
    const sizes = new Map<number, number>();
    for (const segment of await listSegments(dir)) sizes.set(segment, (await stat(segmentPath(dir, segment))).size);
    return new SpoolSource(dir, spool, sizes);
  }

  get end(): Position {
    const { position } = this.#spool;
    // A finished segment has its final size here, since the end is read at each sync.
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
