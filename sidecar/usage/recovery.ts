/** Repairs what the last run left in the spool, before it is written again. */
import { join } from 'node:path';
import type { UsageRecord } from '../domain/usage-record.js';
import { copyToFile, type Disk, type DiskFile } from './disk.js';
import { endOf, listSegments, scan } from './reader.js';
import { QUARANTINE, segmentName, segmentPath, type Position } from './spool-format.js';

/** Damaged bytes that are searched for closes, at most; damage that is longer is of a lost disk. */
const MOST_SEARCHED = 1 << 20;

/** Bytes that are not a record. They stay in place, since positions count them, and readers skip them. */
export interface Quarantined {
  readonly segment: number;
  readonly offset: number;
  readonly bytes: number;
  /** The copy for inspection; undefined if it could not be written, or the bytes are missing. */
  readonly file: string | undefined;
  /** Found by an earlier start. */
  readonly known: boolean;
}

export type Recovered = Readonly<Awaited<ReturnType<typeof recover>>>;

/** A request without a close: its last record, and the segment of its first. */
interface Unclosed {
  readonly last: UsageRecord;
  readonly segment: number;
}

/**
 * Reads the whole spool: truncates an incomplete last line, copies damaged bytes to `quarantine`, finds the requests to be closed.
 * Repeating it has the same result. Rejects if the disk cannot be read or truncated.
 */
export async function recover(dir: string, disk: Disk) {
  const segments = await listSegments(dir, disk);
  const newest = await newestWithLines(dir, segments, disk);
  const unclosed = new Map<string, Unclosed>();
  const quarantined: Quarantined[] = [];
  const sizes = new Map<number, number>();
  let cutBytes = 0;
  let ended = true;
  let closesLost = 0;
  let position: Position | undefined;

  for (const segment of segments) {
    const isEnd = segment >= newest;
    const end = isEnd ? undefined : await endOf(dir, segments, segment, disk);
    const file = await disk.open(segmentPath(dir, segment), isEnd ? 'change' : 'read');
    try {
      let size = await file.size();
      ended = false;
      for await (const found of scan(file, 0, end)) {
        if (found.kind === 'record') note(unclosed, found.record, segment);
        else if (found.kind === 'mark') {
          ended = found.mark.kind === 'end';
          if (found.mark.kind === 'head') continue;
          closesLost += unclosed.size;
          unclosed.clear();
        } else if (found.kind === 'torn' && isEnd) {
          await file.truncate(found.offset);
          cutBytes += found.bytes;
          size = found.offset;
        } else {
          quarantined.push(await quarantine(dir, segment, found, file, disk));
          closesLost += await forgetClosed(unclosed, found, file);
        }
      }
      // A killed process leaves lines in the page cache that are not on disk yet.
      if (isEnd) await file.sync();
      sizes.set(segment, size);
      if (segment === newest) position = { segment, offset: size };
    } finally {
      await file.close();
    }
  }
  if (segments.length > 0) await disk.syncDir(dir);
  return {
    /** Bytes of an incomplete line at the end, which were truncated; no complete record was lost. */
    cutBytes,
    quarantined,
    /** Requests whose close is damaged. None is estimated for them, since the damaged one may have been delivered with other values. */
    closesLost,
    /** Closes to append for requests that have none. Their time is that of the request's last record. */
    estimated: [...unclosed.values()].map(({ last }) => estimate(last)),
    /** For each request to be closed, the segment in which it begins. */
    open: new Map([...unclosed].map(([id, { segment }]) => [id, segment])),
    /** The end of the valid part; undefined if there is none. */
    position,
    /** All segments and their bytes. */
    sizes,
    /** The last run closed its spool. */
    ended,
  };
}

/** The newest segment with a complete line; in later ones nothing was acknowledged. */
async function newestWithLines(dir: string, segments: readonly number[], disk: Disk): Promise<number> {
  for (const segment of [...segments].reverse()) {
    const file = await disk.open(segmentPath(dir, segment), 'read');
    try {
      for await (const found of scan(file, 0, undefined)) if (found.kind !== 'torn') return segment;
    } finally {
      await file.close();
    }
  }
  return 0;
}

/** Follows which requests have no close yet. */
function note(unclosed: Map<string, Unclosed>, record: UsageRecord, segment: number): void {
  if (record.kind === 'close') unclosed.delete(record.id);
  // A progress whose open is damaged is billed too.
  else unclosed.set(record.id, { last: record, segment: unclosed.get(record.id)?.segment ?? segment });
}

/**
 * Removes the requests of which a close is among damaged bytes, since it was counted, and perhaps delivered, before the damage: a second
 * one would bill them twice. Returns how many.
 */
async function forgetClosed(
  unclosed: Map<string, Unclosed>,
  { offset, bytes }: { readonly offset: number; readonly bytes: number },
  file: DiskFile,
): Promise<number> {
  if (unclosed.size === 0) return 0;
  const damaged = Buffer.alloc(Math.min(bytes, MOST_SEARCHED));
  const read = await file.read(damaged, offset);
  const closes = damaged
    .toString('latin1', 0, read)
    .split('\n')
    .filter((line) => line.includes('"kind":"close"'));
  const closed = [...unclosed.keys()].filter((id) => closes.some((line) => line.includes(`"${id}"`)));
  for (const id of closed) unclosed.delete(id);
  return closed.length;
}

function estimate(last: UsageRecord): UsageRecord {
  return { ...last, kind: 'close', outcome: 'failed', estimated: true };
}

async function quarantine(
  dir: string,
  segment: number,
  damage: { readonly offset: number; readonly bytes: number },
  from: DiskFile,
  disk: Disk,
): Promise<Quarantined> {
  const { offset, bytes } = damage;
  const found = { segment, offset, bytes };
  const present = Math.max(0, Math.min(bytes, (await from.size()) - offset));
  if (present === 0) return { ...found, file: undefined, known: false };
  const folder = join(dir, QUARANTINE);
  const path = join(folder, `${segmentName(segment)}-${offset}.bad`);
  if ((await disk.sizeOf(path)) === present) return { ...found, file: path, known: true };
  try {
    await disk.makeDir(folder);
    await copyToFile(disk, from, { offset, bytes: present }, path);
    await disk.syncDir(folder);
    return { ...found, file: path, known: false };
  } catch {
    // A full disk must not prevent the start: the bytes stay in place, and the next start tries again.
    return { ...found, file: undefined, known: false };
  }
}
