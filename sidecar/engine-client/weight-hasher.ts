/** A thread that reads one file of weights for weight-reader.ts, and ends. A file that cannot be read ends it with an error. */
import { createHash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { fileKey } from '../../engine/protocol/file-key.js';
import type { FromHasher } from './weight-reader.js';

/** Bytes that are read at a time. */
const CHUNK = 1 << 20;

/** Between two reports that something was read, ms: a small part of the least `engine.fileSilenceMs`. */
const REPORT_MS = 1000;

const path = workerData as string;

parentPort?.once('message', () => {
  const version = hash();
  report({ kind: 'hashed', version, key: fileKey(path) });
});
report({ kind: 'found', key: fileKey(path) });

function report(message: FromHasher): void {
  parentPort?.postMessage(message);
}

function hash(): string {
  // Without O_NONBLOCK opening a FIFO would wait for a writer.
  const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    if (!fstatSync(file).isFile()) throw new Error('not a regular file');
    const sum = createHash('sha256');
    const chunk = Buffer.allocUnsafe(CHUNK);
    let reported = performance.now();
    for (;;) {
      const read = readSync(file, chunk, 0, CHUNK, null);
      if (read === 0) return sum.digest('hex');
      sum.update(chunk.subarray(0, read));
      if (performance.now() - reported < REPORT_MS) continue;
      reported = performance.now();
      report({ kind: 'read' });
    }
  } finally {
    closeSync(file);
  }
}
