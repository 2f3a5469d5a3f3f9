import type { Disk, DiskFile } from './disk.js';
import { encodeMark, type Position } from './record-line.js';
import { isWhole } from './intact.js';
import { putBack, type Removed } from './put-back.js';
import { segmentPath } from './segments.js';

/** The result of a write. After `failed` none of it is valid, and the next write uses a new segment. */
export type Written =
  { readonly kind: 'written'; readonly segment: number } | { readonly kind: 'failed'; readonly error: unknown };

interface Current {
  readonly file: DiskFile;
  readonly segment: number;
  /** Bytes that are durable. */
  size: number;
  /** Of them, those that were there at the last look. */
  seen: number;
}

const END = encodeMark({ kind: 'end' });

/**
 * The end of the spool: appends to the newest segment and begins the next. One call at a time, except `prune`.
 *
 * A segment with a failed operation is never written again: after a failed sync the system may treat pages as clean
 * that never reached the disk. The head of the next segment has the position up to which the previous one is valid.
 *
 * If the file of the open segment is removed from outside, it is restored from its descriptor. Until that has succeeded
 * nothing else is written, since a reader of later records would skip it.
 */
export class SegmentWriter {
  readonly #disk: Disk;
  readonly #dir: string;
  readonly #segmentBytes: number;
  readonly #sizes: Map<number, number>;
  readonly #onRemoved: (removed: Removed) => void;
  #next: number;
  #current: Current | undefined;
  /** A removed segment that was open and could not be restored yet. */
  #detached: Current | undefined;
  #position: Position | undefined;
  /** The spool on disk ends with an `end` mark, or is empty. */
  #ended: boolean;

  /**
   * `sizes`: the existing segments, in bytes. `position`: the end of their valid part; undefined: none. `ended`: they
   * were closed in order. `onRemoved` is called for each removed segment, and again when a `pending` one is restored.
   */
  constructor(
    disk: Disk,
    dir: string,
    segmentBytes: number,
    found: {
      readonly sizes: ReadonlyMap<number, number>;
      readonly position: Position | undefined;
      readonly ended: boolean;
    },
    onRemoved: (removed: Removed) => void = () => undefined,
  ) {
    this.#disk = disk;
    this.#dir = dir;
    this.#segmentBytes = segmentBytes;
    this.#sizes = new Map(found.sizes);
    this.#position = found.position;
    this.#ended = found.ended;
    this.#onRemoved = onRemoved;
    // A number is never reused: readers store positions.
    this.#next = Math.max(0, ...found.sizes.keys()) + 1;
  }

  /** The position up to which everything is durable; undefined: nothing is. */
  get position(): Position | undefined {
    return this.#position;
  }

  /** Bytes of all segments. */
  get bytes(): number {
    let sum = 0;
    for (const size of this.#sizes.values()) sum += size;
    return sum;
  }

  /**
   * Makes lines durable, and the directory entry of their segment. `lines` is called again after each sync: if records
   * were revised, their new lines replace the first ones before any is acknowledged. This ends, since each record is
   * revised at most once. Never rejects.
   */
  async write(lines: () => Uint8Array): Promise<Written> {
    try {
      if (this.#current && this.#current.size >= this.#segmentBytes) await this.leave();
      await this.#attach();
    } catch (error) {
      return { kind: 'failed', error };
    }
    let current = this.#current;
    let began = false;
    try {
      if (!current) {
        current = this.#current = await this.#begin();
        began = true;
      }
      const head = began ? encodeMark({ kind: 'head', after: this.#position ?? null }) : Buffer.alloc(0);
      // There is no await after the last comparison of the lines, since a record revised then would be lost.
      current.size += await this.#writeUntilFinal(current, head, lines);
    } catch (error) {
      await this.#giveUp();
      return { kind: 'failed', error };
    }
    this.#ended = false;
    this.#sizes.set(current.segment, current.size);
    this.#position = { segment: current.segment, offset: current.size };
    return { kind: 'written', segment: current.segment };
  }

  /**
   * Compares the folder with what was written. A removed open segment is restored, a closed one is given up, an open one
   * that was truncated in place is closed, and `onRemoved` is called for each. Rejects also if one cannot be restored.
   */
  async check(): Promise<void> {
    const current = this.#current;
    for (const segment of [...this.#sizes.keys()]) {
      // Open ones are compared by their descriptor.
      if (segment !== current?.segment && segment !== this.#detached?.segment) await this.#checkClosed(segment);
    }
    await this.#attach();
    if (current && (await this.#isRemoved(current))) {
      this.#current = undefined;
      await this.#detach(current);
    } else if (current && !(await isWhole(current))) await this.leave();
  }

  async #checkClosed(segment: number): Promise<void> {
    const size = await this.#disk.sizeOf(segmentPath(this.#dir, segment));
    // Undefined: it was pruned meanwhile.
    const bytes = this.#sizes.get(segment);
    if (bytes === undefined || (size ?? -1) >= bytes) return;
    if (size === undefined) this.#sizes.delete(segment);
    else this.#sizes.set(segment, size);
    this.#onRemoved({ what: 'segment', segment, bytes, outcome: size === undefined ? 'lost' : 'cut' });
  }

  /** Closes the open segment, if any. The next write begins another. */
  async leave(): Promise<void> {
    const current = this.#current;
    this.#current = undefined;
    if (!current) return;
    // Afterwards its content could not be read any more.
    if (await this.#isRemoved(current).catch(() => false)) {
      await this.#detach(current).catch(() => undefined);
      return;
    }
    const { file, segment, size } = current;
    if (!(await isWhole(current).catch(() => true))) {
      this.#sizes.set(segment, Math.min(size, await file.size().catch(() => size)));
      this.#onRemoved({ what: 'segment', segment, bytes: size, outcome: 'cut' });
    }
    // Data is durable whatever the result of closing.
    await file.close().catch(() => undefined);
  }

  /** Writes the end mark, unless it is there. Only another writer may write after it. */
  async finish(): Promise<Written | undefined> {
    if (this.#ended) return undefined;
    const written = await this.write(() => END);
    this.#ended = written.kind === 'written';
    await this.leave();
    return written;
  }

  /** Removes segments below `segment`, but never the newest. Rejects with the system's error. */
  async prune(segment: number): Promise<void> {
    const newest = Math.max(...this.#sizes.keys());
    const old = [...this.#sizes.keys()].filter((number) => number < Math.min(segment, newest));
    for (const number of old) {
      const size = this.#sizes.get(number) ?? 0;
      // Updated before its file is removed, so that `check` does not report it as removed from outside.
      this.#sizes.delete(number);
      try {
        await this.#disk.remove(segmentPath(this.#dir, number));
      } catch (error) {
        this.#sizes.set(number, size);
        throw error;
      }
    }
    if (old.length > 0) await this.#disk.syncDir(this.#dir);
  }

  /** Returns the number of durable bytes. */
  async #writeUntilFinal({ file, size }: Current, head: Uint8Array, lines: () => Uint8Array): Promise<number> {
    let before = 0;
    for (let now = lines(); ;) {
      const bytes = Buffer.concat([head, now]);
      await file.write(bytes, size);
      // The rest of longer lines would be read as records.
      if (bytes.length < before) await file.truncate(size + bytes.length);
      await file.sync();
      if (size === 0 && before === 0) await this.#disk.syncDir(this.#dir);
      const next = lines();
      if (next === now) return bytes.length;
      before = bytes.length;
      now = next;
    }
  }

  async #begin(): Promise<Current> {
    const segment = this.#next++;
    const file = await this.#disk.open(segmentPath(this.#dir, segment), 'create');
    this.#sizes.set(segment, 0);
    return { file, segment, size: 0, seen: 0 };
  }

  /** Truncates what did not become durable, to free disk space, and closes the segment. */
  async #giveUp(): Promise<void> {
    const current = this.#current;
    if (!current) return;
    // Best effort: readers do not depend on it.
    await current.file.truncate(current.size).catch(() => undefined);
    await this.leave();
    if (current.size > 0) return;
    await this.#disk.remove(segmentPath(this.#dir, current.segment)).then(
      () => this.#sizes.delete(current.segment),
      () => undefined,
    );
  }

  /** A segment without durable records may be removed. */
  async #isRemoved({ file, segment, size }: Current): Promise<boolean> {
    return size > 0 && (await file.at(segmentPath(this.#dir, segment))) !== 'here';
  }

  async #detach(current: Current): Promise<void> {
    this.#detached = current;
    try {
      await this.#attach();
    } catch (error) {
      this.#onRemoved({ what: 'segment', segment: current.segment, bytes: current.size, outcome: 'pending' });
      throw error;
    }
  }

  /** Restores the detached segment. Rejects if that fails. */
  async #attach(): Promise<void> {
    const detached = this.#detached;
    if (!detached) return;
    await putBack(this.#disk, this.#dir, detached);
    this.#detached = undefined;
    this.#onRemoved({ what: 'segment', segment: detached.segment, bytes: detached.size, outcome: 'restored' });
    await detached.file.close().catch(() => undefined);
  }
}
