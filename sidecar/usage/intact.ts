import type { DiskFile } from './disk.js';

/** Read at once. */
const CHUNK_BYTES = 64 * 1024;

/**
 * Whether the end of a file is as it was written: `size` bytes, of which `seen` were there at the last look, which is moved.
 * A file that was truncated in between and written on has zeros from there to the next write, and lines have none. Rejects with
 * the system's error.
 */
export async function isWhole(written: {
  readonly file: DiskFile;
  readonly size: number;
  seen: number;
}): Promise<boolean> {
  const { file, size, seen } = written;
  if ((await file.size()) < size) return false;
  const chunk = new Uint8Array(Math.min(CHUNK_BYTES, size));
  // With the last byte that was there: a truncation before it left a zero in its place.
  for (let at = Math.max(0, seen - 1); at < size;) {
    const read = await file.read(chunk, at);
    if (read === 0 || chunk.subarray(0, Math.min(read, size - at)).includes(0)) return false;
    at += read;
  }
  written.seen = size;
  return true;
}
