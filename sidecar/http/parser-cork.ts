import type { Field } from './cors.js';
import { headBytes } from './fields.js';
import type { NextTurn } from './next-turn.js';

/** Size of uWS's cork buffer. */
const CORK_BYTES = 16 * 1024;

/**
 * Decides whether an answer may be written inside uWS's parser, which continues with the next request of the same read
 * once one is answered; this is how pipelined requests are served. All those answers share one cork, and uWS loses data
 * of a head that crosses the cork's end while the socket is full (upstream 6b7f354). So only as much is written as
 * certainly fits.
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
