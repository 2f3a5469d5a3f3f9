import { BoundedReply, type Backlog, type ReaderOwner } from './backlog.js';
import type { HttpResponse } from './uws.js';
import { RECORD_BYTES } from './whole-reply.js';

export type FileResponse = Pick<HttpResponse, 'tryEnd' | 'getWriteOffset' | 'onWritable' | 'cork' | 'close'>;

/** The functions of the exchange that a reply in pieces needs. */
export interface PiecesOwner extends ReaderOwner {
  /** Writes the status line and all fields except `Date` and those of the length. */
  writeHead(): void;
  /** uWS has the whole reply of `bytes`, which must not be touched any more. */
  ended(bytes: number): void;
}

/**
 * A reply of known length that is read piece by piece while it is sent: the next piece is asked for once the socket has accepted the one
 * before, so that one piece is in memory. uWS closes a connection whose socket accepts nothing for 10 s.
 */
export class FileReply extends BoundedReply<PiecesOwner> {
  readonly #res: FileResponse;
  readonly #length: number;
  readonly #callBytes: number;
  #headWritten = false;
  #over = false;
  #wake: () => void = () => undefined;

  /** `length`: of the whole body, at least 1. `secure`: the connection uses TLS. */
  constructor(
    res: FileResponse,
    owner: PiecesOwner,
    backlog: Backlog,
    { length, secure }: { length: number; secure: boolean },
  ) {
    super(owner, backlog);
    this.#res = res;
    this.#length = length;
    this.#callBytes = secure ? RECORD_BYTES : Infinity;
    res.onWritable(() => {
      // With a handler uWS does not send by itself what it has; an empty cork makes it.
      if (!this.#over) this.#res.cork(() => undefined);
      this.#wake();
      return true;
    });
  }

  /**
   * Sends the pieces, which together have the reply's length. Resolves once uWS has all, or the caller has disconnected. Rejects, after
   * closing the connection, if a piece cannot be read.
   */
  async send(pieces: AsyncIterable<Uint8Array>): Promise<void> {
    try {
      for await (const piece of pieces) {
        if (this.#isOver()) return;
        this.count(piece.length);
        await this.#pass(piece);
        this.count(0);
        if (this.#isOver()) return;
      }
      throw new Error('a file is shorter than its reply');
    } finally {
      this.count(0);
      if (!this.#isOver()) this.#res.close();
    }
  }

  /** The caller disconnected: nothing is written any more. Idempotent. */
  abandon(): void {
    this.#over = true;
    this.count(0);
    this.#wake();
  }

  #isOver(): boolean {
    return this.#over;
  }

  async #pass(piece: Uint8Array): Promise<void> {
    let rest = piece;
    while (rest.length > 0 && !this.#over) {
      const writable = new Promise<void>((resolve) => (this.#wake = resolve));
      const { taken, full, done } = this.#try(rest.subarray(0, Math.min(rest.length, this.#callBytes)));
      rest = rest.subarray(taken);
      if (done) {
        this.abandon();
        this.owner.ended(this.#length);
      } else if (full) await writable;
    }
  }

  #try(bytes: Uint8Array): { readonly taken: number; readonly full: boolean; readonly done: boolean } {
    let result = { taken: 0, full: true, done: false };
    this.#res.cork(() => {
      if (!this.#headWritten) this.owner.writeHead();
      this.#headWritten = true;
      const before = this.#res.getWriteOffset();
      const [ok, done] = this.#res.tryEnd(bytes, this.#length);
      result = { taken: ok || done ? bytes.length : this.#res.getWriteOffset() - before, full: !ok, done };
    });
    return result;
  }
}
