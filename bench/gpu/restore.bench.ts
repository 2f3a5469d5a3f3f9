/**
 * What saving and restoring a sequence's whole state take on a GPU: the arguments are those of case.ts.
 *
 *     node dist/bench/gpu/restore.bench.js 8b cuda
 */
import { restoreRow, RUNS, TOKENS } from '../support/restore-row.js';
import { gpuCase } from './case.js';

const { model, file, gpu, threads, keep } = await gpuCase();
const CHUNK = 1024;

const rows = [];
for (const pinned of [true, false]) rows.push(await restoreRow({ model, file, threads, gpu, chunk: CHUNK, pinned }));
await keep(
  'restore',
  'What saving and restoring a whole state takes',
  `A sequence of ${TOKENS} tokens, evaluated in chunks of ${CHUNK}; its state saved to host memory, pinned by the backend or files in /dev/shm, and restored into another sequence, medians of ${RUNS}. [restore](restore.md) is the same on a CPU.`,
  rows,
);
