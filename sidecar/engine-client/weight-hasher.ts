/** A thread that reads one file of weights for weight-files.ts, and ends. A file that cannot be read ends it with an error. */
import { createHash, type Hash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { fileKey, partsOf } from '../../engine/protocol/file-key.js';
import type { FromHasher } from './weight-files.js';

/** Bytes that are read at a time. */
const CHUNK = 1 << 20;

/** Between two reports that something was read, ms: a small part of the time after which a file is given up. */
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

/** Of all files of the model, one after another. */
function hash(): string {
  const sum = createHash('sha256');
  for (const file of partsOf(path)) addTo(sum, file);
  return sum.digest('hex');
}

function addTo(sum: Hash, path: string): void {
  // Without O_NONBLOCK opening a FIFO would wait for a writer.
  const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    if (!fstatSync(file).isFile()) throw new Error('not a regular file');
    const chunk = Buffer.allocUnsafe(CHUNK);
    let reported = performance.now();
    for (;;) {
      const read = readSync(file, chunk, 0, CHUNK, null);
      if (read === 0) return;
      sum.update(chunk.subarray(0, read));
      if (performance.now() - reported < REPORT_MS) continue;
      reported = performance.now();
      report({ kind: 'read' });
    }
  } finally {
    closeSync(file);
  }
}
