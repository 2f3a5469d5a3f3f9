/**
 * Reads a spool, also while a sidecar writes it: its lines, its records from a position on, and a report of its damage.
 *
 * Which bytes of a segment count is in the head of the next one: after a failed write or sync the writer repeats in a new
 * segment what it has not acknowledged, and the new head names the end of the valid part before it. Only the newest
 * segment has no such end; it is read up to its last complete line, or to the position that its writer names.
 */
import type { UsageRecord } from '../domain/usage-record.js';
import { ifPresent } from '../lib/missing.js';
import { systemDisk, type Disk, type DiskFile } from './disk.js';
import {
  comparePositions,
  decodeAt,
  MAX_HEADER_BYTES,
  MAX_JSON_BYTES,
  segmentOf,
  segmentPath,
  START,
  type Line,
  type Mark,
  type Position,
} from './spool-format.js';

export type Read =
  /** `after`: the position to continue at. */
  | { readonly kind: 'record'; readonly record: UsageRecord; readonly after: Position }
  /** Damaged or missing bytes. */
  | { readonly kind: 'damage'; readonly segment: number; readonly offset: number; readonly bytes: number };

export interface ReadOptions {
  /** Reads up to this position: for a spool that is being written, its `position`. Without it: up to the last complete line. */
  readonly until?: Position;
  readonly disk?: Disk;
}

/**
 * The records from a position on, which is START or the `after` of an earlier record; pruned records are skipped. Each
 * record is returned once, even if the spool wrote it again after a failed sync, provided that a reader of a spool that
 * is being written passes `until`. Rejects if a file cannot be read, and while the segment of `until` is away: the writer puts it
 * back, and a reader that went on would never read it.
 */
export async function* readFrom(
  dir: string,
  position: Position,
  { until, disk = systemDisk }: ReadOptions = {},
): AsyncGenerator<Read> {
  const all = await listSegments(dir, disk);
  const segments = until ? all.filter((segment) => segment <= until.segment) : all;
  const last = until && until.offset > 0 && comparePositions(position, until) < 0 ? until.segment : undefined;
  if (last !== undefined && segments.at(-1) !== last) throw away(last);
  let reached: number | undefined;
  for await (const { segment, file, end } of openSegments(dir, segments, position.segment, disk)) {
    reached = segment;
    const from = segment === position.segment ? position.offset : 0;
    for await (const line of scan(file, from, segment === until?.segment ? until.offset : end)) {
      if (line.kind === 'record') {
        yield { kind: 'record', record: line.record, after: { segment, offset: line.after } };
      } else if (line.kind === 'damage') {
        yield { kind: 'damage', segment, offset: line.offset, bytes: line.bytes };
      }
    }
  }
  if (last !== undefined && reached !== last) throw away(last);
}

function away(segment: number): Error {
  return new Error(`the file of segment ${segment} was removed`);
}

/** The position of the oldest record that is left in a folder; START if none was ever pruned. */
export async function oldestPosition(dir: string, disk: Disk = systemDisk): Promise<Position> {
  const [segment] = await listSegments(dir, disk);
  // Segments before it were created but never used, after a first write that failed.
  const first = segment === undefined || (await headOf(dir, segment, disk))?.after === null;
  return first ? START : { segment, offset: 0 };
}

export type SpoolFault =
  /** Bytes that are not a record, or that are missing according to the next segment. */
  | { readonly kind: 'damage'; readonly segment: number; readonly offset: number; readonly bytes: number }
  /** A missing segment, although a later one exists. */
  | { readonly kind: 'missing'; readonly segment: number }
  /** The end mark is missing: a sidecar was killed and none was started since, or the end was lost. `bytes`: of an incomplete line. */
  | { readonly kind: 'unfinished'; readonly segment: number; readonly offset: number; readonly bytes: number };

/** Reads a whole spool, reports damage, changes nothing. `live`: a sidecar writes it, so it has no end. Rejects if unreadable. */
export async function verify(dir: string, live: boolean, disk: Disk = systemDisk) {
  const segments = await listSegments(dir, disk);
  const findings: SpoolFault[] = [];
  let records = 0;
  let before: number | undefined;
  for await (const { segment, file, end } of openSegments(dir, segments, 0, disk)) {
    // The segment that this one follows, unless it exists or is an unused older one.
    const after = (await headOf(dir, segment, disk))?.after;
    if (after && before !== undefined && after.segment > before) {
      findings.push({ kind: 'missing', segment: after.segment });
    }
    before = segment;
    let ended = false;
    let torn: { offset: number; bytes: number } | undefined;
    for await (const line of scan(file, 0, end)) {
      if (line.kind === 'record') records++;
      else if (line.kind === 'mark') ended = line.mark.kind === 'end';
      else if (line.kind === 'torn') torn = line;
      else findings.push({ kind: 'damage', segment, offset: line.offset, bytes: line.bytes });
    }
    if (segment === segments.at(-1) ? !ended && !live : torn !== undefined) {
      const { offset, bytes } = torn ?? { offset: await file.size(), bytes: 0 };
      findings.push({ kind: 'unfinished', segment, offset, bytes });
    }
  }
  return { segments: segments.length, records, findings };
}

/** The numbers of the segments in a folder, lowest first. None when there is no such folder. */
export async function listSegments(dir: string, disk: Disk = systemDisk): Promise<number[]> {
  const names = (await ifPresent(disk.list(dir))) ?? [];
  return names.flatMap((name) => segmentOf(name) ?? []).sort((a, b) => a - b);
}

/**
 * Each of `segments` from a number on, open for reading until the next one is requested, without those that were pruned
 * meanwhile. `end`: where its valid part ends, from the heads of later ones; undefined if it is not known.
 */
async function* openSegments(
  dir: string,
  segments: readonly number[],
  from: number,
  disk: Disk,
): AsyncGenerator<{ readonly segment: number; readonly file: DiskFile; readonly end: number | undefined }> {
  for (const segment of segments) {
    if (segment < from) continue;
    const end = await endOf(dir, segments, segment, disk);
    const file = await ifPresent(disk.open(segmentPath(dir, segment), 'read'));
    if (!file) continue;
    try {
      yield { segment, file, end };
    } finally {
      await file.close();
    }
  }
}

/** The end of a segment's valid part, from the next valid head: those without were never used, or are damaged. Undefined: unknown. */
export async function endOf(
  dir: string,
  segments: readonly number[],
  segment: number,
  disk: Disk,
): Promise<number | undefined> {
  for (const later of segments) {
    if (later <= segment) continue;
    const head = await headOf(dir, later, disk);
    if (!head) continue;
    const after = head.after ?? { segment: 0, offset: 0 };
    if (after.segment > segment) return undefined;
    // It refers to an older segment: nothing in this one was acknowledged, and all of it was written again.
    return after.segment === segment ? after.offset : 0;
  }
  return undefined;
}

/** The first line of a segment. Undefined if it is missing or damaged. */
async function headOf(
  dir: string,
  segment: number,
  disk: Disk,
): Promise<Extract<Mark, { readonly kind: 'head' }> | undefined> {
  const file = await ifPresent(disk.open(segmentPath(dir, segment), 'read'));
  if (!file) return undefined;
  try {
    const size = Math.min(await file.size(), MAX_HEADER_BYTES + MAX_JSON_BYTES);
    for await (const line of scan(file, 0, size)) {
      return line.kind === 'mark' && line.mark.kind === 'head' ? line.mark : undefined;
    }
    return undefined;
  } finally {
    await file.close();
  }
}

/** What a file has, in order and without gaps. `after`: the offset after it, newline included. */
export type Scanned =
  | { readonly kind: 'record'; readonly record: UsageRecord; readonly after: number }
  | { readonly kind: 'mark'; readonly mark: Mark; readonly after: number }
  /** Damaged bytes, after which a line is valid again, or missing ones before a known end. */
  | { readonly kind: 'damage'; readonly offset: number; readonly bytes: number }
  /** The last bytes of a file without a known end: an incomplete line, from a crash or a current write. */
  | { readonly kind: 'torn'; readonly offset: number; readonly bytes: number };

/** Bytes per read: some 700 records. Room for one line is added for longer ones. */
const CHUNK_BYTES = 256 * 1024;
const NEWLINE = 0x0a;

/** The lines from `from`, where one begins, up to `end`, or the file's present end. Keeps little more than a chunk in memory. */
export async function* scan(file: DiskFile, from: number, end: number | undefined): AsyncGenerator<Scanned> {
  const window = new Window(file, from, Math.min(await file.size(), end ?? Infinity));
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

  const offset = torn ?? window.offset;
  if (bad !== undefined && offset > bad) yield { kind: 'damage', offset: bad, bytes: offset - bad };
  const bytes = (end ?? window.offset) - offset;
  if (bytes > 0) yield { kind: end === undefined ? 'torn' : 'damage', offset, bytes };
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
