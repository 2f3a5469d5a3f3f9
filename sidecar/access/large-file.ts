/**
 * Reads a file of the operator that may have a million entries, without holding up requests: a thread reads, parses and
 * checks it, and hands over its content in parts, the next one when the last one has been added.
 *
 *     event loop        thread (large-file-thread.ts)
 *         │ ────next────>  read, parse, check
 *         │ <───part─────
 *         │ ────next────>
 *         │ <───end──────  ends
 *
 * Nothing of an invalid file is handed over.
 */
import { on } from 'node:events';
import { stat } from 'node:fs/promises';
import { setImmediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { FileProblem, readChecked, UnreadFile, type CheckResult, type FileFormat } from '../lib/checked-file.js';

/** Entries in one part: to add 500 keys takes some milliseconds. */
const PART = 500;

/** The format of a file that may have a million entries. */
export interface LargeFormat<T> extends FileFormat<T> {
  /** What a file says, in parts that each take little time to add to what is in force. */
  readonly parts: (value: T) => Iterable<T>;
}

/** The entries, {@link PART} at a time. */
export function* inParts<T>(entries: readonly T[]): Generator<readonly T[]> {
  for (let from = 0; from < entries.length; from += PART) yield entries.slice(from, from + PART);
}

/** A file of up to so many bytes is read on the event loop, within some 10 ms: to start a thread takes some 100 ms. */
const HERE_BYTES = 128 * 1024;

/** Whether a file of so many bytes is read in a thread. */
export function isLarge(bytes: number): boolean {
  return bytes > HERE_BYTES;
}

/** What the thread is started with. */
export interface ThreadFile {
  /** Of the file's format. */
  readonly what: string;
  readonly file: string;
}

/** What the thread answers to each request for more. After anything but a part it is done. */
export type FromThread<T> =
  | { readonly kind: 'part'; readonly part: T }
  | { readonly kind: 'end'; readonly sign: string }
  | { readonly kind: 'bad'; readonly sign: string; readonly problem: string };

/** What gathers the parts of a file. */
export interface Gathering<T> {
  add(part: T): void;
}

/** Reads and checks `file`. The value is `into`, to which its parts were added. */
export async function readLarge<T, V extends Gathering<T>>(
  file: string,
  format: LargeFormat<T>,
  into: V,
): Promise<CheckResult<V>> {
  const bytes = await stat(file).then(
    ({ size }) => size,
    () => 0,
  );
  if (isLarge(bytes)) return inThread(file, format, into);
  const found = await readChecked(file, format);
  if (found.kind === 'bad') return found;
  into.add(found.value);
  return { ...found, value: into };
}

async function inThread<T, V extends Gathering<T>>(
  file: string,
  { what }: LargeFormat<T>,
  into: V,
): Promise<CheckResult<V>> {
  let thread: Worker | undefined;
  try {
    thread = new Worker(new URL('./large-file-thread.js', import.meta.url), {
      workerData: { what, file } satisfies ThreadFile,
    });
    // Listens to its errors too, from now on.
    const messages = on(thread, 'message', { close: ['exit'] }) as AsyncIterable<[FromThread<T>]>;
    thread.postMessage('next');
    for await (const [message] of messages) {
      if (message.kind === 'bad') {
        const { sign, problem } = message;
        return { kind: 'bad', sign, problem: new FileProblem(what, problem, file) };
      }
      if (message.kind === 'end') return { kind: 'good', sign: message.sign, value: into };
      into.add(message.part);
      // Answers that come at once would be taken in one turn of the event loop, a thousand of them.
      await setImmediate();
      thread.postMessage('next');
    }
    throw new Error('the thread ended');
  } catch (error) {
    // The thread could not be started, or had not enough memory. Its message is not shown: it may quote the file.
    const problem = new UnreadFile(what, (error as NodeJS.ErrnoException).code ?? 'the thread failed', file);
    return { kind: 'bad', sign: problem.problem, problem };
  } finally {
    void thread?.terminate();
  }
}
