/** A thread that hashes one file and ends. A file that cannot be read ends it with an error. */
import { createHash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';

/** Bytes that are read at a time. */
const CHUNK = 1 << 20;

parentPort?.postMessage(hash(workerData as string));

function hash(path: string): string {
  // Without O_NONBLOCK opening a FIFO would wait for a writer.
  const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    if (!fstatSync(file).isFile()) throw new Error('not a regular file');
    const sum = createHash('sha256');
    const chunk = Buffer.allocUnsafe(CHUNK);
    for (;;) {
      const read = readSync(file, chunk, 0, CHUNK, null);
      if (read === 0) return sum.digest('hex');
      sum.update(chunk.subarray(0, read));
    }
  } finally {
    closeSync(file);
  }
}
