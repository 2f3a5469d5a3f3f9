/** The thread of process-settings.ts; its data is the parent's process id. */
import { workerData } from 'node:worker_threads';

/** How long a child may outlive its parent, ms. */
const LOOK_MS = 200;

setInterval(() => {
  // A process whose parent has ended gets another parent.
  if (process.ppid !== workerData) process.kill(process.pid, 'SIGKILL');
}, LOOK_MS);
