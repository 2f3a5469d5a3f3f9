/** The thread of parent-watch.ts; its data is the parent's process id. */
import { workerData } from 'node:worker_threads';

/** A child outlives its parent by so long at most, ms. */
const LOOK_MS = 200;

setInterval(() => {
  // A process that has lost its parent is given another one.
  if (process.ppid !== workerData) process.kill(process.pid, 'SIGKILL');
}, LOOK_MS);
