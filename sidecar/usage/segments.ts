/** The spool's files, and reading their records in order. */
import { join } from 'node:path';
import type { UsageRecord } from '../domain/usage-record.js';
import { isMissing, systemDisk, type Disk, type DiskFile } from './disk.js';
import { MAX_HEADER_BYTES, MAX_JSON_BYTES, type Mark, type Position } from './record-line.js';
import { scan, type Finding } from './scan.js';

export type { Position } from './record-line.js';

/** The position of a reader that has read nothing. */
export const START: Position = { segment: 1, offset: 0 };

/** The folder for damaged bytes and foreign files, kept for inspection. */
export const QUARANTINE = 'quarantine';

export type Read =
  /** `after`: the position to continue at. */
  | { readonly kind: 'record'; readonly record: UsageRecord; readonly after: Position }
  /** Damaged or missing bytes. */
  | { readonly kind: 'damage'; readonly segment: number; readonly offset: number; readonly bytes: number };

export interface ReadOptions {
  /**
   * Reads up to this position: for a spool that is being written, its `position`. Without it: up to the last complete
   * line.
   */
  readonly until?: Position;
  readonly disk?: Disk;
}

/** The path of a segment. */
export function segmentPath(dir: string, segment: number): string {
  return join(dir, `${String(segment).padStart(20, '0')}.seg`);
}

/** The numbers of the segments in a folder, lowest first. None when there is no such folder. */
export async function listSegments(dir: string, disk: Disk = systemDisk): Promise<number[]> {
  const names = await disk.list(dir).catch((error: unknown) => {
    if (isMissing(error)) return [];
    throw error;
  });
  return names
    .flatMap((name) => /^(\d{20})\.seg$/.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b);
}

/** Below 0: `a` comes before `b`. */
export function comparePositions(a: Position, b: Position): number {
  return a.segment - b.segment || a.offset - b.offset;
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
  const segments = await listSegments(dir, disk);
  const last = until && until.offset > 0 && comparePositions(position, until) < 0 ? until.segment : undefined;
  if (last !== undefined && !segments.includes(last)) throw away(last);
  for (const [i, segment] of segments.entries()) {
    if (segment < position.segment) continue;
    if (until && segment > until.segment) return;
    const from = segment === position.segment ? position.offset : 0;
    const end = until?.segment === segment ? until.offset : await endOf(dir, segments, i, disk);
    const file = await openSegment(dir, segment, disk);
    if (file) yield* readSegment(file, segment, from, end);
    else if (segment === last) throw away(segment);
  }
}

function away(segment: number): Error {
  return new Error(`the file of segment ${segment} was removed`);
}

/** Closes the file. */
async function* readSegment(
  file: DiskFile,
  segment: number,
  from: number,
  end: number | undefined,
): AsyncGenerator<Read> {
  try {
    for await (const found of foundIn(file, from, end)) {
      if (found.kind === 'record') {
        yield { kind: 'record', record: found.record, after: { segment, offset: found.after } };
      } else if (found.kind === 'damage' || (found.kind === 'torn' && end !== undefined)) {
        yield { kind: 'damage', segment, offset: found.offset, bytes: found.bytes };
      }
    }
  } finally {
    await file.close();
  }
}

/** The lines of a segment with or without a known end. Missing bytes before a known end are an incomplete line. */
export async function* foundIn(file: DiskFile, from: number, end: number | undefined): AsyncGenerator<Finding> {
  const size = await file.size();
  if (end === undefined || end <= size) {
    yield* scan(file, from, end ?? size);
    return;
  }
  for await (const found of scan(file, from, size)) {
    if (found.kind !== 'torn') yield found;
    else {
      yield { ...found, bytes: end - found.offset };
      return;
    }
  }
  const offset = Math.max(from, size);
  if (end > offset) yield { kind: 'torn', offset, bytes: end - offset };
}

/** Opens a segment for reading; undefined if it was pruned. The caller closes it. */
export async function openSegment(dir: string, segment: number, disk: Disk): Promise<DiskFile | undefined> {
  try {
    return await disk.open(segmentPath(dir, segment), 'read');
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/**
 * The end of the segment at `index`, from the next valid head: segments without one were never used, or are damaged.
 * Undefined if it is unknown.
 */
export async function endOf(
  dir: string,
  segments: readonly number[],
  index: number,
  disk: Disk,
): Promise<number | undefined> {
  const segment = segments[index] ?? 0;
  for (const later of segments.slice(index + 1)) {
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
export async function headOf(
  dir: string,
  segment: number,
  disk: Disk,
): Promise<Extract<Mark, { readonly kind: 'head' }> | undefined> {
  const file = await openSegment(dir, segment, disk);
  if (!file) return undefined;
  try {
    const size = Math.min(await file.size(), MAX_HEADER_BYTES + MAX_JSON_BYTES);
    for await (const found of scan(file, 0, size)) {
      return found.kind === 'mark' && found.mark.kind === 'head' ? found.mark : undefined;
    }
    return undefined;
  } finally {
    await file.close();
  }
}
