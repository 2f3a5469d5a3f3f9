/** Reads a whole spool and says what is wrong with it. Changes nothing. */
import { systemDisk, type Disk } from './disk.js';
import { endOf, foundIn, headOf, listSegments, openSegment } from './segments.js';

export type Finding =
  /** Bytes that are no record, or that are missing where the next segment says that they were. */
  | { readonly kind: 'damage'; readonly segment: number; readonly offset: number; readonly bytes: number }
  /** A segment that the next one follows is not there. */
  | { readonly kind: 'missing'; readonly segment: number }
  /**
   * The spool does not end as a sidecar ends it: one was killed and none was started since, or the end is cut off.
   * `bytes`: of a line that was begun.
   */
  | { readonly kind: 'unfinished'; readonly segment: number; readonly offset: number; readonly bytes: number };

export interface Verified {
  readonly segments: number;
  readonly records: number;
  readonly findings: readonly Finding[];
}

/** `live`: a sidecar writes it now, so that it has no end yet. Rejects when it cannot be read. */
export async function verify(dir: string, live: boolean, disk: Disk = systemDisk): Promise<Verified> {
  const segments = await listSegments(dir, disk);
  const findings: Finding[] = [];
  let records = 0;
  for (const [i, segment] of segments.entries()) {
    const next = segments[i + 1];
    const gap = await missingBefore(dir, segments[i - 1], segment, disk);
    if (gap !== undefined) findings.push({ kind: 'missing', segment: gap });
    const end = await endOf(dir, segments, i, disk);
    const file = await openSegment(dir, segment, disk);
    if (!file) continue;
    try {
      let ended = false;
      let torn: { offset: number; bytes: number } | undefined;
      for await (const found of foundIn(file, 0, end)) {
        if (found.kind === 'record') records++;
        else if (found.kind === 'mark') ended = found.mark.kind === 'end';
        else if (found.kind === 'torn' && end === undefined) torn = found;
        else findings.push({ kind: 'damage', segment, offset: found.offset, bytes: found.bytes });
      }
      if (next !== undefined ? torn !== undefined : !ended && !live) {
        const { offset, bytes } = torn ?? { offset: await file.size(), bytes: 0 };
        findings.push({ kind: 'unfinished', segment, offset, bytes });
      }
    } finally {
      await file.close();
    }
  }
  return { segments: segments.length, records, findings };
}

/** The segment that `segment` follows, if it is neither the one before nor older, which is one whose successors failed. */
async function missingBefore(
  dir: string,
  before: number | undefined,
  segment: number,
  disk: Disk,
): Promise<number | undefined> {
  if (before === undefined) return undefined;
  const after = (await headOf(dir, segment, disk))?.after;
  return after && after.segment > before ? after.segment : undefined;
}
