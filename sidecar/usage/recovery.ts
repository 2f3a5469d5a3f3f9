/** What the last run left behind, brought in order before the spool is written again. */
import { join } from 'node:path';
import type { UsageRecord } from '../domain/usage-record.js';
import { copyBytes, type Disk, type DiskFile } from './disk.js';
import type { Position } from './frame.js';
import { endOf, foundIn, headOf, isMissing, listSegments, QUARANTINE, segmentPath } from './segments.js';

/** Bytes that are no record. They stay where they are, since positions count them, and readers pass them by. */
export interface Quarantined {
  readonly segment: number;
  readonly offset: number;
  readonly bytes: number;
  /** The copy to look into; undefined: it could not be written, or the bytes are gone. */
  readonly file: string | undefined;
  /** An earlier start found it already. */
  readonly known: boolean;
}

export interface Recovered {
  /** Bytes of a line that was being written when the process ended: cut off, no record was whole. */
  readonly cutBytes: number;
  readonly quarantined: readonly Quarantined[];
  /** Closes for requests that have none, to be appended. Their time is that of the last record of the request. */
  readonly estimated: readonly UsageRecord[];
  /**
   * Requests that had a close which is damage now. None is made up for them: theirs may have been delivered and counted,
   * and may have said something else.
   */
  readonly closesLost: number;
  /** By the id of each of those requests that are to be closed, the segment that it begins in. */
  readonly open: ReadonlyMap<string, number>;
  /** Where what counts ends; undefined: nothing does. */
  readonly position: Position | undefined;
  /** All segments and their bytes. */
  readonly sizes: ReadonlyMap<number, number>;
  /** The last run closed its spool. */
  readonly ended: boolean;
}

/** A request without a close: its last record, and the segment of its first. */
interface Unclosed {
  readonly last: UsageRecord;
  readonly segment: number;
}

/**
 * Reads the whole spool. Cuts a torn line at its end, copies what is damaged to the folder `quarantine`, and works out
 * which requests are to be closed. Running it again finds the same. Rejects when the disk cannot be read, or cut.
 */
export async function recover(dir: string, disk: Disk): Promise<Recovered> {
  const segments = await listSegments(dir, disk);
  const last = await lastWithLines(dir, segments, disk);
  const unclosed = new Map<string, Unclosed>();
  const quarantined: Quarantined[] = [];
  const sizes = new Map<number, number>();
  let cutBytes = 0;
  let ended = true;
  let closesLost = 0;
  let position: Position | undefined;

  for (const [i, segment] of segments.entries()) {
    const isEnd = segment >= last;
    const limit = isEnd ? undefined : await endOf(dir, segments, i, disk);
    const file = await disk.open(segmentPath(dir, segment), isEnd ? 'change' : 'read');
    try {
      let size = await file.size();
      ended = false;
      for await (const found of foundIn(file, 0, limit)) {
        if (found.kind === 'record') take(unclosed, found.record, segment);
        else if (found.kind === 'mark') {
          ended = found.mark.kind === 'end';
          if (found.mark.kind === 'head') continue;
          closesLost += unclosed.size;
          unclosed.clear();
        } else if (found.kind === 'torn' && isEnd) {
          await file.truncate(found.offset);
          cutBytes += found.bytes;
          size = found.offset;
        } else quarantined.push(await quarantine(dir, segment, found, file, disk));
      }
      // A process that was killed leaves lines that the system holds and the disk does not yet.
      if (isEnd) await file.sync();
      sizes.set(segment, size);
      if (segment === last) position = { segment, offset: size };
    } finally {
      await file.close();
    }
  }
  if (segments.length > 0) await disk.syncDir(dir);
  return {
    cutBytes,
    quarantined,
    closesLost,
    estimated: [...unclosed.values()].map(({ last }) => estimate(last)),
    open: new Map([...unclosed].map(([id, { segment }]) => [id, segment])),
    position,
    sizes,
    ended,
  };
}

/** The newest segment that a line was finished in: those after it were begun and nothing in them was acknowledged. */
async function lastWithLines(dir: string, segments: readonly number[], disk: Disk): Promise<number> {
  for (const segment of [...segments].reverse()) {
    if (await headOf(dir, segment, disk)) return segment;
    const file = await disk.open(segmentPath(dir, segment), 'read');
    try {
      for await (const found of foundIn(file, 0, undefined)) if (found.kind !== 'torn') return segment;
    } finally {
      await file.close();
    }
  }
  return 0;
}

function take(unclosed: Map<string, Unclosed>, record: UsageRecord, segment: number): void {
  if (record.kind === 'close') unclosed.delete(record.id);
  // Also a progress whose open is lost to damage is billed.
  else unclosed.set(record.id, { last: record, segment: unclosed.get(record.id)?.segment ?? segment });
}

function estimate(last: UsageRecord): UsageRecord {
  return { ...last, kind: 'close', outcome: 'failed', estimated: true };
}

async function quarantine(
  dir: string,
  segment: number,
  { offset, bytes }: { readonly offset: number; readonly bytes: number },
  from: DiskFile,
  disk: Disk,
): Promise<Quarantined> {
  const place = { segment, offset, bytes };
  const left = Math.max(0, Math.min(bytes, (await from.size()) - offset));
  if (left === 0) return { ...place, file: undefined, known: false };
  const folder = join(dir, QUARANTINE);
  const path = join(folder, `${String(segment).padStart(20, '0')}-${offset}.bad`);
  if ((await sizeOf(path, disk)) === left) return { ...place, file: path, known: true };
  try {
    await disk.makeDir(folder);
    await disk.remove(path);
    const to = await disk.open(path, 'create');
    try {
      await copyBytes(from, offset, left, to);
      await to.sync();
    } finally {
      await to.close();
    }
    await disk.syncDir(folder);
    return { ...place, file: path, known: false };
  } catch {
    // A full disk is no reason not to start: the bytes are where they were, and the next start tries again.
    return { ...place, file: undefined, known: false };
  }
}

async function sizeOf(path: string, disk: Disk): Promise<number | undefined> {
  try {
    const file = await disk.open(path, 'read');
    try {
      return await file.size();
    } finally {
      await file.close();
    }
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}
