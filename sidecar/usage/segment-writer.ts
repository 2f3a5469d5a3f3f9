import type { Disk, DiskFile } from './disk.js';
import { encodeMark, type Position } from './frame.js';
import { isWhole } from './intact.js';
import { putBack, type Removed } from './put-back.js';
import { listSegments, segmentPath } from './segments.js';

/** What a write came to. After `failed` nothing of it counts, and the next one goes to a new segment. */
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
 * The end of the spool: appends to the newest segment and begins the next. One call at a time, but for `prune`.
 *
 * A segment in which anything failed is never written again: after a failed sync the system may take pages for clean that
 * never reached the disk. The head of the next segment says up to where the one before it counts.
 *
 * The open segment is written again from its descriptor if its file was removed from outside. Until that has succeeded
 * nothing else is written: a reader that met later records would pass it by.
 */
export class SegmentWriter {
  readonly #disk: Disk;
  readonly #dir: string;
  readonly #segmentBytes: number;
  readonly #sizes: Map<number, number>;
  readonly #onRemoved: (removed: Removed) => void;
  #next: number;
  #current: Current | undefined;
  /** A segment that was open, is removed and could not be put back yet. */
  #detached: Current | undefined;
  #position: Position | undefined;
  /** The spool on disk ends with an `end` mark, or there is none. */
  #ended: boolean;

  /**
   * `sizes`: the segments there are, in bytes. `position`: where what counts of them ends; undefined: nowhere. `ended`:
   * they were closed in order. `onRemoved` is called for each segment that was removed, and again when a `pending` one is back.
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
    // A number is never used twice: readers remember positions.
    this.#next = Math.max(0, ...found.sizes.keys()) + 1;
  }

  /** Up to where everything is durable; undefined: nothing is. */
  get position(): Position | undefined {
    return this.#position;
  }

  /** What all segments hold. */
  get bytes(): number {
    let sum = 0;
    for (const size of this.#sizes.values()) sum += size;
    return sum;
  }

  /**
   * Makes lines durable, and the name of the segment that they are in. `lines` is called again after each sync: other lines
   * are written in the place of the first ones before any of them counts. That ends, since each record is revised once at
   * most. Never rejects.
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
      // Nothing is awaited from its last look at the lines on: a record that was revised then would be lost.
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
   * Compares the folder with what was written. A removed segment that is open is put back, a closed one is given up, one
   * that was cut in its place is written no more, and `onRemoved` is called for each. Rejects with the system's error, also when one cannot be put back.
   */
  async check(): Promise<void> {
    const names = new Set(await listSegments(this.#dir, this.#disk));
    const current = this.#current;
    for (const [segment, bytes] of this.#sizes) {
      // Those that are open have their descriptor to be compared.
      if (names.has(segment) || segment === current?.segment || segment === this.#detached?.segment) continue;
      this.#sizes.delete(segment);
      this.#onRemoved({ what: 'segment', segment, bytes, outcome: 'lost' });
    }
    await this.#attach();
    if (current && (await this.#isRemoved(current))) {
      this.#current = undefined;
      await this.#detach(current);
    } else if (current && !(await isWhole(current))) await this.leave();
  }

  /** Closes the open segment, if there is one. The next write begins another. */
  async leave(): Promise<void> {
    const current = this.#current;
    this.#current = undefined;
    if (!current) return;
    // After this its content could not be read any more.
    const removed = await this.#isRemoved(current).catch(() => false);
    if (removed) {
      await this.#detach(current).catch(() => undefined);
      return;
    }
    const { segment, size } = current;
    if (!(await isWhole(current).catch(() => true)))
      this.#onRemoved({ what: 'segment', segment, bytes: size, outcome: 'cut' });
    // What is durable stays so, whatever closing says.
    await current.file.close().catch(() => undefined);
  }

  /** Marks the end of the spool, unless it is marked. Nothing is written after it but by another writer. */
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
      // Before its file, so that `check` does not take it for removed from outside.
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

  /** Returns how many bytes are durable now. */
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

  /** Cuts what did not become durable, which the disk may be short of, and lets go of the segment. */
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

  /** One that nothing is durable in may be removed. */
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

  /** Puts back what is detached. Rejects when it cannot be. */
  async #attach(): Promise<void> {
    const detached = this.#detached;
    if (!detached) return;
    await putBack(this.#disk, this.#dir, detached);
    this.#detached = undefined;
    this.#onRemoved({ what: 'segment', segment: detached.segment, bytes: detached.size, outcome: 'restored' });
    await detached.file.close().catch(() => undefined);
  }
}
