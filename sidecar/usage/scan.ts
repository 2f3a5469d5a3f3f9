/** Goes through the frames of one file, past whatever is damaged in it. */
import type { UsageRecord } from '../domain/usage-record.js';
import type { DiskFile } from './disk.js';
import { decodeAt, type Frame, type Mark } from './frame.js';

/** What was met, in order and without gaps. `after`: the offset behind it, its newline included. */
export type Found =
  | { readonly kind: 'record'; readonly record: UsageRecord; readonly after: number }
  | { readonly kind: 'mark'; readonly mark: Mark; readonly after: number }
  /** No frame: damaged. What comes after it is whole again. */
  | { readonly kind: 'damage'; readonly offset: number; readonly bytes: number }
  /** The last bytes: the beginning of a line, which a crash left or which is being written. */
  | { readonly kind: 'torn'; readonly offset: number; readonly bytes: number };

/** Read at a time: some 700 records. Room for a whole frame is added where one is longer. */
const CHUNK_BYTES = 256 * 1024;
const NEWLINE = 0x0a;

/** The frames from `from`, which a frame begins at, up to `end`. Holds little more than one chunk in memory. */
export async function* scan(file: DiskFile, from: number, end: number): AsyncGenerator<Found> {
  const window = new Window(file, from, end);
  /** Where the damage under way began. */
  let bad: number | undefined;
  let torn: number | undefined;

  for (;;) {
    const frame = await window.frame();
    const { offset } = window;
    if (frame.kind === 'record' || frame.kind === 'mark') {
      if (bad !== undefined) yield { kind: 'damage', offset: bad, bytes: offset - bad };
      const terminated = window.skip(frame.bytes);
      // The byte that should end the line is passed by: the next frame begins behind it, whatever it is.
      bad = terminated ? undefined : window.offset - 1;
      const after = bad ?? window.offset;
      yield frame.kind === 'record'
        ? { kind: 'record', record: frame.record, after }
        : { kind: 'mark', mark: frame.mark, after };
      continue;
    }
    if (frame.kind === 'end') break;
    bad ??= offset;
    if (await window.skipLine()) continue;
    torn = offset;
    break;
  }

  const last = window.offset;
  const damaged = torn ?? last;
  if (bad !== undefined && damaged > bad) yield { kind: 'damage', offset: bad, bytes: damaged - bad };
  if (torn !== undefined) yield { kind: 'torn', offset: torn, bytes: last - torn };
}

type Whole = Extract<Frame, { readonly kind: 'record' | 'mark' }>;

/** The part of the file that is in memory, and the place in it that is looked at. */
class Window {
  readonly #file: DiskFile;
  readonly #end: number;
  #buffer = Buffer.alloc(0);
  /** Offset of the buffer's first byte. */
  #base: number;
  #at = 0;
  #atEnd = false;

  constructor(file: DiskFile, from: number, end: number) {
    this.#file = file;
    this.#base = from;
    this.#end = end;
  }

  /** The offset that is looked at. */
  get offset(): number {
    return this.#base + this.#at;
  }

  /** The frame that stands here, with at least one byte after it. `end`: nothing stands here. */
  async frame(): Promise<Whole | { readonly kind: 'bad' | 'end' }> {
    for (;;) {
      const frame = decodeAt(this.#buffer, this.#at);
      if (frame.kind === 'bad') return frame;
      if (frame.kind !== 'short' && this.#at + frame.bytes < this.#buffer.length) return frame;
      if (!(await this.#fill())) return { kind: this.#at === this.#buffer.length ? 'end' : 'bad' };
    }
  }

  /** Passes by a frame and the byte after it. False: that was no newline. */
  skip(bytes: number): boolean {
    this.#at += bytes + 1;
    return this.#buffer[this.#at - 1] === NEWLINE;
  }

  /** Goes on after the next newline; to the end when there is none, and false. */
  async skipLine(): Promise<boolean> {
    for (;;) {
      const newline = this.#buffer.indexOf(NEWLINE, this.#at);
      this.#at = newline < 0 ? this.#buffer.length : newline + 1;
      if (newline >= 0) return true;
      if (!(await this.#fill())) return false;
    }
  }

  /** Reads more and forgets what was passed by. False: there is no more. */
  async #fill(): Promise<boolean> {
    if (this.#atEnd) return false;
    const position = this.#base + this.#buffer.length;
    const chunk = Buffer.allocUnsafe(Math.max(0, Math.min(CHUNK_BYTES, this.#end - position)));
    const read = chunk.length === 0 ? 0 : await this.#file.read(chunk, position);
    this.#atEnd = read === 0;
    this.#buffer = Buffer.concat([this.#buffer.subarray(this.#at), chunk.subarray(0, read)]);
    this.#base += this.#at;
    this.#at = 0;
    return !this.#atEnd;
  }
}
