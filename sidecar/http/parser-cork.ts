import type { Field } from './cors.js';
import type { NextTurn } from './next-turn.js';

/** What uWS's cork holds. */
const CORK_BYTES = 16 * 1024;

/** The status line, `Content-Length` and `Date`. */
const FIXED_BYTES = 200;

/**
 * Whether an answer may be written inside uWS's parser, which goes on to the next request of the same read once one is
 * answered: that is how pipelined requests are served. All of those answers share one cork, and uWS drops a piece of a head
 * that meets the cork's end while the socket is full (upstream 6b7f354). So no more is written than fits for sure.
 *
 * uWS does not say which connection a request is of. What is counted is therefore of the last address in this turn of the
 * loop: never too little, and too much when several of its connections bring requests at once.
 */
export class ParserCork {
  readonly #nextTurn: NextTurn;
  #address: string | undefined;
  #bytes = 0;

  constructor(nextTurn: NextTurn) {
    this.#nextTurn = nextTurn;
  }

  /** Counts an answer with these fields and so many bytes of body, if it may be written; it must be, then. */
  take(address: string, fields: readonly Field[], body: number): boolean {
    if (this.#address === undefined) this.#nextTurn.add(() => (this.#address = undefined));
    if (this.#address !== address) this.#bytes = 0;
    this.#address = address;
    const head = fields.reduce((sum, [name, value]) => sum + name.length + Buffer.byteLength(value) + 4, FIXED_BYTES);
    const long = body > CORK_BYTES;
    if (this.#bytes + head + (long ? 0 : body) > CORK_BYTES) return false;
    // A body longer than the cork goes past it, and the cork ends with that.
    this.#bytes = long ? 0 : this.#bytes + head + body;
    return true;
  }
}
