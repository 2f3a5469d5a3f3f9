/**
 * A thread that reports each time that a request is due, until it is ended. It sleeps by far less than a millisecond; a
 * timer of the event loop uses whole milliseconds, and at a thousand a second would often send two at once.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { seeded } from './load.js';

/** The thread’s options. */
export interface Ticks {
  readonly perSecond: number;
  /** Poisson arrivals with these numbers; absent: all gaps are equal. */
  readonly seed?: number | undefined;
}

const { perSecond, seed } = workerData as Ticks;
const meanMs = 1000 / perSecond;
const random = seed === undefined ? undefined : seeded(seed);
const sleep = new Int32Array(new SharedArrayBuffer(4));
for (let due = performance.now(); ; due += random ? -Math.log(1 - random()) * meanMs : meanMs) {
  for (let leftMs = due - performance.now(); leftMs > 0; leftMs = due - performance.now()) {
    Atomics.wait(sleep, 0, 0, leftMs);
  }
  parentPort?.postMessage(undefined);
}
