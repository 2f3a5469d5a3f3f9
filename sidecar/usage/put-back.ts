import { basename, join } from 'node:path';
import { copyBytes, type Disk, type DiskFile } from './disk.js';
import { QUARANTINE, segmentPath } from './segments.js';

/** A file of the spool that was removed, renamed, replaced or cut by something other than this sidecar. */
export type Removed =
  | { readonly what: 'lock' }
  | {
      readonly what: 'segment';
      readonly segment: number;
      /** Durable bytes in it. */
      readonly bytes: number;
      /**
       * `pending`: it could not be written again yet, and is tried with each probe. `lost`: no descriptor of it was open.
       * `cut`: the file is in its place, and a part of what was written is not in it any more.
       */
      readonly outcome: 'restored' | 'pending' | 'lost' | 'cut';
    };

/**
 * Writes a segment again from its open descriptor, which outlives the name. Offsets stay the same, so that readers go on
 * where they were. A file that took the name is kept in `quarantine`. Rejects with the system's error; then nothing has
 * changed but perhaps that.
 */
export async function putBack(
  disk: Disk,
  dir: string,
  { file, segment, size }: { readonly file: DiskFile; readonly segment: number; readonly size: number },
): Promise<void> {
  const path = segmentPath(dir, segment);
  const draft = `${path}.restored`;
  await disk.makeDir(dir);
  await disk.remove(draft);
  const copy = await disk.open(draft, 'create');
  try {
    await copyBytes(file, 0, size, copy);
    await copy.sync();
  } finally {
    await copy.close();
  }
  if ((await file.at(path)) === 'other') {
    const folder = join(dir, QUARANTINE);
    await disk.makeDir(folder);
    await disk.rename(path, join(folder, `${basename(path)}.replaced`));
  }
  await disk.rename(draft, path);
  await disk.syncDir(dir);
}
