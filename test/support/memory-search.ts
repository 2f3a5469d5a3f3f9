/** Searches the memory of another process of this user (Linux). */
import { closeSync, openSync, readFileSync, readSync } from 'node:fs';

const PIECE = 1 << 20;

/**
 * How often any of the needles is in the memory of a process, without memory that is mapped from files. All have one
 * length.
 */
export function countInMemory(pid: number, needles: readonly Uint8Array[]): number {
  const regions = readFileSync(`/proc/${pid}/maps`, 'utf8')
    .split('\n')
    .map(
      (line) =>
        /^([0-9a-f]+)-([0-9a-f]+) rw\S* \S+ \S+ 0/.exec(line) ??
        /^([0-9a-f]+)-([0-9a-f]+) rw.*(?:shm|memfd)/.exec(line),
    )
    .filter((found) => found !== null)
    .map(([, from = '', to = '']) => [Number.parseInt(from, 16), Number.parseInt(to, 16)] as const);
  const overlap = (needles[0]?.length ?? 1) - 1;
  const memory = openSync(`/proc/${pid}/mem`, 'r');
  let count = 0;
  try {
    const buffer = Buffer.alloc(PIECE + overlap);
    for (const [from, to] of regions) {
      for (let at = from; at < to; at += PIECE) {
        const bytes = readSomeSync(memory, buffer, Math.min(buffer.length, to - at), at);
        const seen = buffer.subarray(0, bytes);
        for (const needle of needles) {
          for (let found = seen.indexOf(needle); found >= 0 && found < PIECE; found = seen.indexOf(needle, found + 1))
            count += 1;
        }
      }
    }
  } finally {
    closeSync(memory);
  }
  return count;
}

/** 0 for memory that cannot be read: it was freed meanwhile. */
function readSomeSync(file: number, buffer: Buffer, bytes: number, at: number): number {
  try {
    return readSync(file, buffer, 0, bytes, at);
  } catch {
    return 0;
  }
}
