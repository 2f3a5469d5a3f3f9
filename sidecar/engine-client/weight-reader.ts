/**
 * Reads a file of weights in a thread of its own, since gigabytes are read, perhaps from a network share that does not answer: a
 * read cannot be interrupted, and the thread is then left to itself. The end of the process waits for such a thread.
 */
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import type { Clock } from '../lib/clock.js';

const ENTRY = fileURLToPath(new URL('./weight-hasher.js', import.meta.url));

/** What the thread reports. `key`: of fileKey. */
export type FromHasher =
  | { readonly kind: 'found'; readonly key: string | undefined }
  /** Something was read. */
  | { readonly kind: 'read' }
  | { readonly kind: 'hashed'; readonly version: string; readonly key: string | undefined };

export interface Content {
  /** SHA-256, hex. */
  readonly version: string;
  /** The file's key once all of it was read. */
  readonly key: string | undefined;
}

/** One file that is read. Its owner closes it. */
export interface WeightReader {
  /** The file's key; undefined: there is no such file. Rejects with one line if nothing is known for too long. */
  readonly found: Promise<string | undefined>;
  /** Settles when the thread has ended, long after `close` if it cannot be interrupted. */
  readonly ended: Promise<void>;
  /** Reads all of it. Rejects with one line if it cannot be read, or if nothing could be read for too long. Call it once. */
  content(): Promise<Content>;
  close(): void;
}

/** `silenceMs`: without a byte for so long it is given up. `entry`: another thread, for tests. */
export function readWeights(file: string, clock: Clock, silenceMs: number, entry: string | URL = ENTRY): WeightReader {
  const worker = new Worker(entry, { workerData: file });
  let received: (message: FromHasher) => void = () => undefined;
  let failed: (error: Error) => void = () => undefined;
  /** Rejects after `silenceMs` without a message. */
  const next = <T>(take: (message: FromHasher) => T | undefined): Promise<T> =>
    new Promise((resolve, reject) => {
      const silent = (): void =>
        failed(
          new Error(`nothing of it could be read for ${silenceMs / 1000} s, as if its file system did not answer`),
        );
      let cancel = clock.after(silenceMs, silent);
      failed = (error) => {
        cancel();
        reject(error);
      };
      received = (message) => {
        cancel();
        const taken = take(message);
        if (taken === undefined) cancel = clock.after(silenceMs, silent);
        else resolve(taken);
      };
    });
  worker.on('message', (message: FromHasher) => received(message));
  worker.once('error', (error) => failed(error));
  const ended = new Promise<void>((resolve) => {
    worker.once('exit', () => {
      // After a message or an error this does nothing.
      failed(new Error('the thread that reads it ended'));
      resolve();
    });
  });
  const found = next((message) => (message.kind === 'found' ? message : undefined)).then(({ key }) => key);
  found.catch(() => undefined);
  return {
    found,
    ended,
    content: () => {
      const content = next((message) => (message.kind === 'hashed' ? message : undefined));
      worker.postMessage('read');
      return content;
    },
    close: () => {
      worker.unref();
      void worker.terminate();
    },
  };
}
