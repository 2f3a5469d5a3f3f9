import { BoundedReply, SendBuffer, type Backlog, type ReaderOwner } from './backlog.js';
import type { HttpResponse } from './uws.js';

export type WholeResponse = Pick<HttpResponse, 'writeHeader' | 'tryEnd' | 'getWriteOffset' | 'onWritable' | 'cork'>;

/** The functions of the exchange that a whole reply needs. */
export interface WholeOwner extends ReaderOwner {
  /** Writes the status line and all fields except `Content-Length` and `Date`. */
  writeHead(): void;
  /**
   * The reply is complete, except for at most one cork buffer, 16 KiB, in uWS; of one that stays open, except for at most one byte.
   * `waited`: the socket was full meanwhile. Otherwise that byte is sent too, unless the caller has left replies unread for
   * so long that the others filled the socket to the last byte. Called once.
   */
  ended(waited: boolean): void;
}

export interface WholeForm {
  /**
   * At least one byte: uws-exchange.ts sends answers without a body. Text is memory of this reply only, and counts; bytes belong to the
   * handler.
   */
  readonly body: string | Uint8Array;
  /** Of the body, in bytes. */
  readonly length: number;
  /** The connection uses TLS. */
  readonly secure: boolean;
  /** The response stays open for uWS when all of it was sent, until {@link endReply} or its connection is closed. */
  readonly open: boolean;
}

/** Longer than any body, so that uWS does not consider the response complete. */
const ENDLESS = Number.MAX_SAFE_INTEGER;

/**
 * The most bytes that go to uWS in one call with TLS: one record. Of a longer call that finds the socket full, uWS sends a part
 * and reports none of it, and the next call must begin with all of it again.
 */
export const RECORD_BYTES = 16 * 1024;

/** The fewest bytes that can be sent while the response stays open. */
export const LEAST_OPEN_BYTES = 2;

const NOTHING = new Uint8Array(0);

/**
 * A reply of known length, passed to uWS no faster than the socket accepts it. It shares {@link SendBuffer} and the backlog
 * with body-writer.ts and nothing else: a stream has no length, so uWS has no backpressure for it until it is switched on.
 *
 * `tryEnd(bytes, total)` accepts only what the socket has room for, and nothing while uWS still has bytes of an earlier
 * response. Until all bytes are accepted the response is open for uWS, which closes a connection that brings another
 * request meanwhile, and one whose socket has no room for 10 s. So a connection buffers at most this reply and one
 * cork.
 *
 * `Content-Length` is the `total` of the first call. A later call may pass another total, so that all bytes of a reply
 * can be sent while the response stays open. Its last byte is passed in a call of its own: uWS accepts it only when the
 * system has all earlier ones, so when the reply has ended at most this byte waits in uWS.
 */
export class WholeReply extends BoundedReply<WholeOwner> {
  readonly #res: WholeResponse;
  readonly #length: number;
  /** Bytes of memory that only this reply keeps. */
  readonly #owned: number;
  readonly #callBytes: number;
  /** What was not passed to uWS yet, unless it is in the buffer. */
  #unsent: string | Uint8Array;
  /** The last byte of a reply that stays open, until uWS accepts it. */
  #tail: Uint8Array = NOTHING;
  /** The rest of a text of which a part has to wait: copied into the server's blocks, since many waiting texts would be much garbage. */
  readonly #buffer: SendBuffer;
  #over = false;

  /** `res` must be open until {@link WholeOwner.ended} or {@link abandon}. */
  constructor(res: WholeResponse, owner: WholeOwner, backlog: Backlog, { body, length, secure, open }: WholeForm) {
    super(owner, backlog);
    this.#res = res;
    this.#length = length;
    this.#owned = typeof body === 'string' ? length : 0;
    this.#callBytes = secure ? RECORD_BYTES : Infinity;
    this.#unsent = secure ? bytesOf(body) : body;
    if (open) {
      const bytes = bytesOf(body);
      this.#unsent = bytes.subarray(0, -1);
      this.#tail = bytes.subarray(-1);
    }
    this.#buffer = new SendBuffer(backlog.blocks);
  }

  /** Sends what the socket accepts now, and the rest as it accepts more. Call it once. */
  send(): void {
    this.#res.cork(() => {
      this.owner.writeHead();
      this.#pass();
    });
    if (this.#ended(false)) return;
    this.#res.onWritable(() => {
      this.#resume();
      return true;
    });
    // All of it, even if little is left, since the rest keeps the whole text in memory.
    this.count(this.#owned);
  }

  /**
   * The request's body has ended, at which uWS stops the timer of a socket without room: another try starts it again. Does nothing once the
   * reply is complete.
   */
  again(): void {
    if (!this.#over) this.#resume();
  }

  /** The caller disconnected: nothing is written any more. Idempotent. */
  abandon(): void {
    this.#over = true;
    this.#unsent = NOTHING;
    this.#tail = NOTHING;
    this.#buffer.clear();
    this.count(0);
  }

  #resume(): void {
    if (this.#over) {
      // The last byte of one that stays open: with a handler uWS does not send by itself what it has; an empty cork makes it.
      this.#res.cork(() => undefined);
      return;
    }
    this.#res.cork(() => this.#pass());
    this.#ended(true);
  }

  /** Passes what the socket has room for. Must be corked. */
  #pass(): void {
    if (this.#unsent.length > 0) this.#passUnsent(this.#unsent);
    else this.#passBuffered();
  }

  #passUnsent(rest: string | Uint8Array): void {
    if (typeof rest !== 'string') {
      this.#passBytes(rest);
      return;
    }
    const taken = this.#try(rest);
    this.#unsent = NOTHING;
    if (taken === undefined) return;
    // Only now, since most bodies are taken whole and text costs uWS one copy less than bytes cost us.
    this.#buffer.push(rest);
    this.#shift(taken);
  }

  #passBytes(bytes: Uint8Array): void {
    let rest = bytes;
    let full = false;
    while (rest.length > 0 && !full) {
      const piece = rest.subarray(0, Math.min(rest.length, this.#callBytes));
      const taken = this.#try(piece);
      rest = rest.subarray(taken ?? piece.length);
      full = taken !== undefined;
    }
    this.#unsent = rest;
  }

  #passBuffered(): void {
    for (let next = this.#buffer.first(); next !== undefined; next = this.#buffer.first()) {
      const taken = this.#try(next);
      this.#shift(taken ?? next.length);
      if (taken !== undefined) return;
    }
  }

  /** Returns how many bytes were taken, or undefined if all were. */
  #try(bytes: string | Uint8Array, total = this.#length): number | undefined {
    const before = this.#res.getWriteOffset();
    const [ok, done] = this.#res.tryEnd(bytes, total);
    return ok || done ? undefined : this.#res.getWriteOffset() - before;
  }

  #shift(taken: number): void {
    for (let left = taken, next = this.#buffer.first(); left > 0 && next; next = this.#buffer.first()) {
      const part = Math.min(left, next.length);
      this.#buffer.shift(part);
      left -= part;
    }
  }

  /** Passes the last byte of a reply that stays open, in a cork of its own, since bytes in an open one are not sent yet. */
  #passTail(): void {
    this.#res.cork(() => {
      if (this.#try(this.#tail, ENDLESS) === undefined) this.#tail = NOTHING;
    });
  }

  /** Whether the reply is complete; its owner is then notified. */
  #ended(waited: boolean): boolean {
    if (this.#unsent.length + this.#buffer.bytes > 0) return false;
    if (this.#tail.length > 0) this.#passTail();
    if (this.#tail.length > 0) return false;
    this.abandon();
    this.owner.ended(waited);
    return true;
  }
}

/** Completes a reply that stayed open, so that its connection may bring the next request. */
export function endReply(res: WholeResponse): void {
  res.cork(() => res.tryEnd(NOTHING, res.getWriteOffset()));
}

/** Bytes are the handler's, which many replies share: a copy of them would be memory of this reply that is not counted. */
function bytesOf(body: string | Uint8Array): Uint8Array {
  return typeof body === 'string' ? Buffer.from(body) : body;
}
