import type { Clock } from '../lib/clock.js';
import { BoundedReply, type Backlog } from './backlog.js';
import type { BodyPieces } from './exchange.js';
import type { PiecesOwner } from './file-reply.js';
import type { HttpResponse } from './uws.js';

export type PieceResponse = Pick<HttpResponse, 'write' | 'end' | 'onWritable' | 'cork' | 'close'>;

/** White space between the parts of a JSON text. */
const SPACE = ' ';

/**
 * Bytes of one cork: its buffer of 16 KiB with room for a chunk's framing. Of a longer write a part could be lost (corks.ts), and outside
 * of a cork uWS prints a warning.
 */
const CORK_BYTES = 16_000;

/** uWS closes a connection 10 s after the last write: while nothing is to be written a space is, so often, ms. */
const KEEP_OPEN_MS = 4000;

/**
 * Writes a JSON body whose length is not known when it begins, in chunks of uWS's own: no trailer follows, so that nothing of chunked.ts is
 * needed. uWS takes whatever it is given and buffers what the socket does not take. So the sender stops while {@link drained} is pending;
 * what waits is then what was written in one go at most, and it is counted as that of other readers (backlog.ts).
 *
 * uWS does not tell when its buffer is empty, only when the socket has room. A space, written then, is taken at once only if nothing was
 * buffered before it. The response stays open for uWS until then, also at its end: a connection whose caller does not read brings no
 * further request, and what waits for it stays counted.
 */
export class PieceWriter extends BoundedReply<PiecesOwner> implements BodyPieces {
  readonly #res: PieceResponse;
  readonly #clock: Clock;
  readonly #closes: boolean;
  /** Written so far, without their framing. */
  #bytes = 0;
  #over = false;
  /** All of the body was written. */
  #isWhole = false;
  #waiting: Promise<void> | undefined;
  #settle: () => void = () => undefined;
  #cancelTimer: () => void = () => undefined;

  /** `closes`: the connection ends after the body. */
  constructor(res: PieceResponse, owner: PiecesOwner, backlog: Backlog, clock: Clock, closes: boolean) {
    super(owner, backlog);
    this.#res = res;
    this.#clock = clock;
    this.#closes = closes;
    res.onWritable(() => {
      this.#writable();
      return true;
    });
    res.cork(() => owner.writeHead());
    this.#keepOpen();
  }

  write(text: string): void {
    if (this.#over || this.#isWhole || text === '') return;
    const bytes = Buffer.from(text);
    this.#bytes += bytes.length;
    for (let at = 0; at < bytes.length; at += CORK_BYTES)
      this.#res.cork(() => void this.#res.write(bytes.subarray(at, at + CORK_BYTES)));
    if (!this.#isTaken()) {
      this.#waiting ??= new Promise((resolve) => (this.#settle = resolve));
      this.count(this.buffered + bytes.length);
    }
    this.#keepOpen();
  }

  drained(): Promise<void> | undefined {
    return this.#waiting;
  }

  end(text: string): void {
    this.write(text);
    if (this.#over || this.#isWhole) return;
    this.#isWhole = true;
    if (this.#waiting === undefined) this.#finish();
  }

  #finish(): void {
    this.abandon();
    this.#res.cork(() => void this.#res.end(undefined, this.#closes));
    this.owner.ended(this.#bytes);
  }

  abort(): void {
    if (this.#over || this.#isWhole) return;
    this.abandon();
    this.#res.close();
  }

  /** The caller disconnected: nothing is written any more. Idempotent. */
  abandon(): void {
    this.#over = true;
    this.#cancelTimer();
    this.count(0);
    this.#settle();
  }

  /** Whether the socket has everything that was written before. */
  #isTaken(): boolean {
    let taken = false;
    this.#res.cork(() => (taken = this.#res.write(SPACE)));
    return taken;
  }

  #writable(): void {
    if (this.#over) return;
    // With our handler, uWS does not write its own buffered data by itself; an empty cork does that.
    this.#res.cork(() => undefined);
    if (this.#waiting === undefined || !this.#isTaken()) return;
    this.#waiting = undefined;
    this.count(0);
    this.#settle();
    if (this.#isWhole) this.#finish();
  }

  #keepOpen(): void {
    this.#cancelTimer();
    if (this.#over) return;
    this.#cancelTimer = this.#clock.after(KEEP_OPEN_MS, () => {
      if (this.#waiting === undefined) this.write(SPACE);
      else this.#keepOpen();
    });
  }
}
