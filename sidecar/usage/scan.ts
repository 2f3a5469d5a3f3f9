/** Reads the lines of one file, skipping damage. */
import type { UsageRecord } from '../domain/usage-record.js';
import type { DiskFile } from './disk.js';
import { decodeAt, type Line, type Mark } from './record-line.js';

/** The findings, in order and without gaps. `after`: the offset after it, newline included. */
export type Finding =
  | { readonly kind: 'record'; readonly record: UsageRecord; readonly after: number }
  | { readonly kind: 'mark'; readonly mark: Mark; readonly after: number }
  /** Damaged bytes. The next finding is valid again. */
  | { readonly kind: 'damage'; readonly offset: number; readonly bytes: number }
  /** The last bytes: an incomplete line, from a crash or a current write. */
  | { readonly kind: 'torn'; readonly offset: number; readonly bytes: number };

/** Bytes per read: some 700 records. Room for one line is added for longer ones. */
const CHUNK_BYTES = 256 * 1024;
const NEWLINE = 0x0a;

/** The lines from `from`, where a line begins, up to `end`. Keeps little more than one chunk in memory. */
export async function* scan(file: DiskFile, from: number, end: number): AsyncGenerator<Finding> {
  const window = new Window(file, from, end);
  /** Start of the current damage. */
  let bad: number | undefined;
  let torn: number | undefined;

  for (;;) {
    const line = await window.line();
    const { offset } = window;
    if (line.kind === 'record' || line.kind === 'mark') {
      if (bad !== undefined) yield { kind: 'damage', offset: bad, bytes: offset - bad };
      const terminated = window.skip(line.bytes);
      // The byte that should be the newline is skipped, whatever it is; the next line begins after it.
      const after = window.offset;
      bad = undefined;
      yield line.kind === 'record'
        ? { kind: 'record', record: line.record, after }
        : { kind: 'mark', mark: line.mark, after };
      if (!terminated) yield { kind: 'damage', offset: after - 1, bytes: 1 };
      continue;
    }
    if (line.kind === 'end') break;
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

type Whole = Extract<Line, { readonly kind: 'record' | 'mark' }>;

/** The part of the file that is in memory, and the current offset in it. */
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

  /** The line at the current offset, with at least one byte after it. `end`: there is none. */
  async line(): Promise<Whole | { readonly kind: 'bad' | 'end' }> {
    for (;;) {
      const line = decodeAt(this.#buffer, this.#at);
      if (line.kind === 'bad') return line;
      if (line.kind !== 'short' && this.#at + line.bytes < this.#buffer.length) return line;
      if (!(await this.#fill())) return { kind: this.#at === this.#buffer.length ? 'end' : 'bad' };
    }
  }

  /** Skips a line and the byte after it. False: that byte was no newline. */
  skip(bytes: number): boolean {
    this.#at += bytes + 1;
    return this.#buffer[this.#at - 1] === NEWLINE;
  }

  /** Continues after the next newline; at the end, returning false, if there is none. */
  async skipLine(): Promise<boolean> {
    for (;;) {
      const newline = this.#buffer.indexOf(NEWLINE, this.#at);
      this.#at = newline < 0 ? this.#buffer.length : newline + 1;
      if (newline >= 0) return true;
      if (!(await this.#fill())) return false;
    }
  }

  /** Reads more and drops what was processed. False: there is no more. */
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
