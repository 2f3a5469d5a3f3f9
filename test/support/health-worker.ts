/**
 * A worker thread that requests a server’s health (`workerData` is its port on 127.0.0.1) until it gets a message, one
 * request after another. It posts once when it begins, after {@link WARM} answers, and then the time of each answer, in
 * ms. It is a separate thread so that the test’s other work is not measured.
 */
import { parentPort, workerData } from 'node:worker_threads';

/** The first answers take longer, since this thread’s own code is loaded for them. */
const WARM = 20;

const state = { over: false };
parentPort?.once('message', () => (state.over = true));
const times: number[] = [];
for (let answers = 0; !state.over; answers++) {
  if (answers === WARM) {
    times.length = 0;
    parentPort?.postMessage('begun');
  }
  const from = performance.now();
  const { status } = await fetch(`http://127.0.0.1:${String(workerData)}/healthz`);
  if (status !== 200) throw new Error('another caller was not served');
  times.push(performance.now() - from);
}
parentPort?.postMessage(times);
