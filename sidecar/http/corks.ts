/**
 * What may be written to uWS at once. uWS collects what is written in a cork in one buffer of 16 KiB, and loses data that crosses
 * the buffer's end while the socket is full (upstream 6b7f354). Its parser handles all requests of one read within one open cork,
 * which several answers would share. So answers are written in the loop's next turn ({@link NextTurn}), or in the parser as far as
 * they certainly fit ({@link ParserCork}), and the chunks of a stream in parts that fit ({@link corks}).
 */
import type { Chunk } from './chunked.js';
import { headBytes, type Field } from './fields.js';

/** Size of uWS's cork buffer. */
const CORK_BYTES = 16 * 1024;

/** Runs tasks after the loop's current callbacks. Replies are written there, outside uWS's parser. At most one per exchange waits. */
export class NextTurn {
  #tasks: (() => void)[] = [];

  /** Runs `task` in this iteration of the loop, once its I/O callbacks have returned. A task must not throw. */
  add(task: () => void): void {
    if (this.#tasks.push(task) === 1) setImmediate(() => this.run());
  }

  /** Runs the waiting tasks now. */
  run(): void {
    const tasks = this.#tasks;
    this.#tasks = [];
    for (const task of tasks) task();
  }
}

/**
 * Decides whether an answer may be written inside uWS's parser, which continues with the next request of the same read
 * once one is answered; this is how pipelined requests are served. Only as much is written as certainly fits their common cork.
 *
 * uWS does not identify a request's connection. So bytes are counted for the last address in this turn of the loop:
 * never too few, and too many if several of its connections bring requests at once.
 */
export class ParserCork {
  readonly #nextTurn: NextTurn;
  #address: string | undefined;
  #bytes = 0;

  constructor(nextTurn: NextTurn) {
    this.#nextTurn = nextTurn;
  }

  /** Counts an answer with these fields and body bytes, if it may be written; it must then be written. */
  take(address: string, fields: readonly Field[], body: number): boolean {
    if (this.#address === undefined) this.#nextTurn.add(() => (this.#address = undefined));
    if (this.#address !== address) this.#bytes = 0;
    this.#address = address;
    const head = headBytes(fields);
    const long = body > CORK_BYTES;
    if (this.#bytes + head + (long ? 0 : body) > CORK_BYTES) return false;
    // A body longer than the cork bypasses it, which also ends the cork.
    this.#bytes = long ? 0 : this.#bytes + head + body;
    return true;
  }
}

/** Bytes of a raw body per cork. The rest is for the head, at most the 4 KiB of a request's head and our own fields, and for a trailer. */
export const RAW_BYTES = 8 * 1024;

export function totalBytes(chunks: readonly Chunk[]): number {
  let sum = 0;
  for (const { bytes } of chunks) sum += bytes;
  return sum;
}

/** The chunks in order, grouped by what one cork may contain; at least one group, which may be empty. */
export function corks(chunks: readonly Chunk[]): (readonly Chunk[])[] {
  if (totalBytes(chunks) <= RAW_BYTES) return [chunks];
  let part: Chunk[] = [];
  let bytes = 0;
  const parts = [part];
  for (const made of chunks) {
    if (bytes > 0 && bytes + made.bytes > RAW_BYTES) {
      parts.push((part = []));
      bytes = 0;
    }
    part.push(made);
    bytes += made.bytes;
  }
  return parts;
}
