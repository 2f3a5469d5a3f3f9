/** The thread of key-tasks.ts: does one task, and ends. */
import { parentPort, workerData } from 'node:worker_threads';
import { doHere, type OperatorsTask } from './key-tasks.js';

parentPort?.postMessage(await doHere(workerData as OperatorsTask));
