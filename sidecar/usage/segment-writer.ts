import { basename, join } from 'node:path';
import { copyToFile, type Disk, type DiskFile } from './disk.js';
import { encodeMark, QUARANTINE, segmentPath, type Mark, type Position } from './spool-format.js';

/** The result of a write. After `failed` none of it is valid, and the next write uses a new segment. */
export type Written =
  { readonly kind: 'written'; readonly segment: number } | { readonly kind: 'failed'; readonly error: unknown };

/** A file of the spool that another process removed, renamed, replaced or truncated. */
export type Removed =
  | { readonly what: 'lock' }
  | {
      readonly what: 'segment';
      readonly segment: number;
      /** Durable bytes in it. */
      readonly bytes: number;
      /**
       * `pending`: it could not be restored yet, and each probe tries again. `lost`: it was not open. `cut`: the file is in its place and
       * was truncated.
       */
      readonly outcome: 'restored' | 'pending' | 'lost' | 'cut';
      /** It was reported as `pending` before. */
      readonly known: boolean;
    };

interface OpenSegment {
  readonly file: DiskFile;
  readonly segment: number;
  /** Bytes that are durable. */
  size: number;
  /** Of them, those that the last check found in the file. */
  checked: number;
  /** Its removal was reported as `pending`. */
  known: boolean;
}

/** Bytes that a check reads at once. */
const CHECK_BYTES = 64 * 1024;

/**
 * The segments of a spool that this process writes: appends to the newest, begins the next, deletes old ones. One call at a
 * time, except `prune`.
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
  /** Bytes of each segment: those of the open one that are durable, all of the others. */
  readonly #sizes: Map<number, number>;
  readonly #onRemoved: (removed: Removed) => void;
  #next: number;
  #open: OpenSegment | undefined;
  /** A segment that was open when it was removed, and could not be restored yet. */
  #detached: OpenSegment | undefined;
  #position: Position | undefined;
  /** The spool on disk ends with an `end` mark, or is empty. */
  #ended: boolean;

  /**
   * `sizes`: the existing segments, in bytes. `position`: the end of their valid part; undefined if there is none. `ended`: they
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
    onRemoved: (removed: Removed) => void,
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

  /** The position up to which everything is durable; undefined if nothing is. */
  get position(): Position | undefined {
    return this.#position;
  }

  /** Bytes of the segments from a number on. */
  bytesFrom(first: number): number {
    let sum = 0;
    for (const [segment, size] of this.#sizes) if (segment >= first) sum += size;
    return sum;
  }

  /**
   * Makes a mark, if any, and then the lines of records durable, and the directory entry of their segment. A record may get another
   * line until then: after each sync the lines are compared, and written again if one has changed. This ends, since
   * each record is revised at most once. Never rejects.
   */
  async write(records: readonly { readonly line: Buffer }[], mark?: Mark): Promise<Written> {
    try {
      if (this.#open && this.#open.size >= this.#segmentBytes) await this.closeOpen();
      await this.#restore();
    } catch (error) {
      return { kind: 'failed', error };
    }
    try {
      const began = !this.#open;
      const open = (this.#open ??= await this.#begin());
      const marks = began ? [encodeMark({ kind: 'head', after: this.#position ?? null })] : [];
      if (mark) marks.push(encodeMark(mark));
      // There is no await after the last comparison of the lines, since a record revised then would be lost.
      open.size += await this.#writeUntilFinal(open, marks, records);
      this.#ended = false;
      this.#sizes.set(open.segment, open.size);
      this.#position = { segment: open.segment, offset: open.size };
      return { kind: 'written', segment: open.segment };
    } catch (error) {
      await this.#giveUp();
      return { kind: 'failed', error };
    }
  }

  /**
   * Compares the folder with what was written. A removed open segment is restored, a closed one is given up, an open one
   * that was truncated in place is closed, and `onRemoved` is called for each. Rejects also if one cannot be restored.
   */
  async check(): Promise<void> {
    const open = this.#open;
    for (const segment of [...this.#sizes.keys()]) {
      // Open ones are compared by their descriptor.
      if (segment !== open?.segment && segment !== this.#detached?.segment) await this.#checkClosed(segment);
    }
    await this.#restore();
    if (open && (await this.#isRemoved(open))) {
      this.#open = undefined;
      await this.#detach(open);
    } else if (open && !(await isIntact(open))) await this.closeOpen();
  }

  /** Closes the open segment, if any. The next write begins another. */
  async closeOpen(): Promise<void> {
    const open = this.#open;
    this.#open = undefined;
    if (!open) return;
    // Afterwards its content could not be read any more.
    if (await this.#isRemoved(open).catch(() => false)) {
      await this.#detach(open).catch(() => undefined);
      return;
    }
    const { file, segment, size } = open;
    if (!(await isIntact(open).catch(() => true))) {
      this.#sizes.set(segment, Math.min(size, await file.size().catch(() => size)));
      this.#onRemoved({ what: 'segment', segment, bytes: size, outcome: 'cut', known: false });
    }
    // Data is durable whatever the result of closing.
    await file.close().catch(() => undefined);
  }

  /** Writes the end mark, unless it is there, and closes the segment. Only another writer may write after it. */
  async end(): Promise<void> {
    if (this.#ended) return;
    const written = await this.write([], { kind: 'end' });
    this.#ended = written.kind === 'written';
    await this.closeOpen();
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

  /** Returns the number of bytes that have become durable. */
  async #writeUntilFinal(
    { file, size }: OpenSegment,
    marks: readonly Buffer[],
    records: readonly { readonly line: Buffer }[],
  ): Promise<number> {
    for (let before = 0; ;) {
      const lines = records.map(({ line }) => line);
      const bytes = Buffer.concat([...marks, ...lines]);
      // The rest of longer lines would be read as records.
      if (bytes.length < before) await file.truncate(size + bytes.length);
      await file.write(bytes, size);
      if (size === 0 && before === 0) await this.#disk.syncDir(this.#dir);
      if (records.every(({ line }, i) => line === lines[i])) return bytes.length;
      before = bytes.length;
    }
  }

  async #begin(): Promise<OpenSegment> {
    const segment = this.#next++;
    const file = await this.#disk.open(segmentPath(this.#dir, segment), 'create');
    this.#sizes.set(segment, 0);
    return { file, segment, size: 0, checked: 0, known: false };
  }

  /** Truncates what did not become durable, to free disk space, and closes the segment. */
  async #giveUp(): Promise<void> {
    const open = this.#open;
    if (!open) return;
    // Best effort: readers do not depend on it.
    await open.file.truncate(open.size).catch(() => undefined);
    await this.closeOpen();
    if (open.size > 0) return;
    await this.#disk.remove(segmentPath(this.#dir, open.segment)).then(
      () => this.#sizes.delete(open.segment),
      () => undefined,
    );
  }

  async #checkClosed(segment: number): Promise<void> {
    const size = await this.#disk.sizeOf(segmentPath(this.#dir, segment));
    // Undefined if it was pruned meanwhile.
    const bytes = this.#sizes.get(segment);
    if (bytes === undefined || (size ?? -1) >= bytes) return;
    if (size === undefined) this.#sizes.delete(segment);
    else this.#sizes.set(segment, size);
    this.#onRemoved({ what: 'segment', segment, bytes, outcome: size === undefined ? 'lost' : 'cut', known: false });
  }

  /** A segment without durable records may be removed. */
  async #isRemoved({ file, segment, size }: OpenSegment): Promise<boolean> {
    return size > 0 && (await file.at(segmentPath(this.#dir, segment))) !== 'here';
  }

  async #detach(open: OpenSegment): Promise<void> {
    this.#detached = open;
    try {
      await this.#restore();
    } catch (error) {
      this.#onRemoved({ what: 'segment', segment: open.segment, bytes: open.size, outcome: 'pending', known: false });
      open.known = true;
      throw error;
    }
  }

  /**
   * Restores the detached segment, if any, from its open descriptor, which survives the removal of the name. Offsets stay
   * the same, so readers continue where they were. A file that took the name is moved to `quarantine`. Rejects with the
   * system's error; then at most that move has happened.
   */
  async #restore(): Promise<void> {
    const detached = this.#detached;
    if (!detached) return;
    const { file, segment, size, known } = detached;
    const path = segmentPath(this.#dir, segment);
    const draft = `${path}.restored`;
    await this.#disk.makeDir(this.#dir);
    await copyToFile(this.#disk, file, { offset: 0, bytes: size }, draft);
    if ((await file.at(path)) === 'other') {
      const folder = join(this.#dir, QUARANTINE);
      await this.#disk.makeDir(folder);
      await this.#disk.rename(path, join(folder, `${basename(path)}.replaced`));
    }
    await this.#disk.rename(draft, path);
    await this.#disk.syncDir(this.#dir);
    this.#detached = undefined;
    this.#onRemoved({ what: 'segment', segment, bytes: size, outcome: 'restored', known });
    await file.close().catch(() => undefined);
  }
}

/**
 * Whether the end of an open segment is as it was written: all its bytes, of which `checked` were there at the last check,
 * which is moved. A file that was truncated in between and written on has zeros from there to the next write, and lines
 * have none. Rejects with the system's error.
 */
async function isIntact(open: OpenSegment): Promise<boolean> {
  const { file, size, checked } = open;
  if ((await file.size()) < size) return false;
  const chunk = new Uint8Array(Math.min(CHECK_BYTES, size));
  // With the last byte that was there: a truncation before it left a zero in its place.
  for (let at = Math.max(0, checked - 1); at < size;) {
    const read = await file.read(chunk, at);
    if (read === 0 || chunk.subarray(0, Math.min(read, size - at)).includes(0)) return false;
    at += read;
  }
  open.checked = size;
  return true;
}
