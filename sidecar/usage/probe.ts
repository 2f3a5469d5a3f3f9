import { join } from 'node:path';
import type { Disk } from './disk.js';

const PROBE = 'probe';
/** More than a file system keeps in its inodes, so that a block must be found for it. */
const PROBE_BYTES = Buffer.alloc(4096, '.');

/** Writes a file beside the segments, syncs and removes it. Rejects with what kept it from that. */
export async function tryWriting(disk: Disk, dir: string): Promise<void> {
  const path = join(dir, PROBE);
  await disk.remove(path);
  const file = await disk.open(path, 'create');
  try {
    await file.write(PROBE_BYTES, 0);
    await file.sync();
  } finally {
    await file.close();
    await disk.remove(path);
  }
}
