/** Reads a whole spool and reports damage. Changes nothing. */
import { systemDisk, type Disk } from './disk.js';
import { endOf, foundIn, headOf, listSegments, openSegment } from './segments.js';

export type Finding =
  /** Bytes that are not a record, or that are missing according to the next segment. */
  | { readonly kind: 'damage'; readonly segment: number; readonly offset: number; readonly bytes: number }
  /** A missing segment, although a later one exists. */
  | { readonly kind: 'missing'; readonly segment: number }
  /**
   * The end mark is missing: a sidecar was killed and none was started since, or the end was lost. `bytes`: of an
   * incomplete line.
   */
  | { readonly kind: 'unfinished'; readonly segment: number; readonly offset: number; readonly bytes: number };

export interface Verified {
  readonly segments: number;
  readonly records: number;
  readonly findings: readonly Finding[];
}

/** `live`: a sidecar writes it now, so it has no end mark. Rejects if it cannot be read. */
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

/** The segment that `segment` follows, unless it exists or is an unused older one. */
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
