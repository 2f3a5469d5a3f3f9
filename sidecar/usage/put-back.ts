import { basename, join } from 'node:path';
import { copyBytes, type Disk, type DiskFile } from './disk.js';
import { QUARANTINE, segmentPath } from './segments.js';

/** A file of the spool that another process removed, renamed, replaced or truncated. */
export type Removed =
  | { readonly what: 'lock' }
  | {
      readonly what: 'segment';
      readonly segment: number;
      /** Durable bytes in it. */
      readonly bytes: number;
      /**
       * `pending`: it could not be restored yet, and each probe tries again. `lost`: it was not open. `cut`: the file is in its
       * place and was truncated.
       */
      readonly outcome: 'restored' | 'pending' | 'lost' | 'cut';
    };

/**
 * Restores a segment from its open descriptor, which survives the removal of the name. Offsets stay the same, so
 * readers continue where they were. A file that took the name is moved to `quarantine`. Rejects with the system's
 * error; then at most that move has happened.
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
