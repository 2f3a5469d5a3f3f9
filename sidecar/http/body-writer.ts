import { type Backlog, type Backlogged, type ReaderOwner, SendBuffer } from './backlog.js';
import {
  beginBackpressure,
  chunk,
  endBare,
  endChunked,
  endOpen,
  lastBytes,
  openChunked,
  tryChunks,
  wireText,
  writeChunk,
} from './chunked.js';
import type { BackpressureResponse, Chunk, ChunkedResponse, ChunkEnd, Trailer } from './chunked.js';
import { corks, RAW_BYTES, totalBytes } from './corks.js';

export type BodyWriterResponse = ChunkedResponse & BackpressureResponse;

/** The functions of the exchange that a body writer needs. */
export interface BodyWriterOwner extends ReaderOwner {
  /** Whether the response stays open for uWS when all of it was sent, until its connection is closed. Called once, at its end. */
  mustStayOpen(): boolean;
  /** Writes the status line and all fields except Transfer-Encoding. */
  writeHead(): void;
  /** Whether the stream may end while up to `bytes` of it may still be unread. Called once. */
  mayLeaveUnread(bytes: number): boolean;
  /** uWS has sent everything that was written on the connection before. */
  allSent(): void;
  /** The last byte was handed to uWS; unless the response stays `open` it must not be touched any more. */
  ended(open: boolean): void;
}

/** What a connection that is closed 10 s later may leave unread, of one that accepts anything: less than most sockets hold. */
const OPEN_UNREAD_BYTES = 64 * 1024;

/**
 * Writes the chunks of one stream, and buffers them for a slow reader.
 *
 * It starts in raw mode: all chunks are passed to uWS, which reports no backpressure in this mode, so everything
 * written may still be buffered. After `useBackpressure`, or at a chunk longer than {@link RAW_BYTES}, it passes only what
 * uWS accepts and keeps the rest until the socket has room (chunked.ts describes how). uWS closes a connection whose socket
 * accepts nothing for 10 s. A reply whose length is known needs none of that: whole-reply.ts.
 */
export class BodyWriter implements Backlogged {
  readonly id: number;
  readonly #res: BodyWriterResponse;
  readonly owner: BodyWriterOwner;
  readonly #backlog: Backlog;
  readonly #commentEnd: ChunkEnd;
  #headWritten = false;
  #usesBackpressure = false;
  #over = false;
  /** Bytes passed to uWS that may not be sent yet. */
  #unproven = 0;
  readonly #buffer: SendBuffer;
  /** The socket is full; uWS calls back when it has room. */
  #full = false;
  /** The buffered data ends the body. */
  #last = false;
  #open = false;
  #counted = 0;

  /** `commentEnd`: what ends the comment with which it begins to use backpressure. */
  constructor(res: BodyWriterResponse, owner: BodyWriterOwner, backlog: Backlog, commentEnd: ChunkEnd = '\n\n') {
    this.#res = res;
    this.owner = owner;
    this.#backlog = backlog;
    this.#commentEnd = commentEnd;
    this.#buffer = new SendBuffer(backlog.blocks);
    this.id = backlog.newId();
    // Needed in raw mode too: without a handler, uWS starts its 10 s timer whenever the socket has room and never stops
    // it, so that a stream which was slow once and then pauses would be closed.
    res.onWritable(() => {
      this.#writable();
      return true;
    });
  }

  get buffered(): number {
    return this.#unproven + this.#buffer.bytes;
  }

  get usesBackpressure(): boolean {
    return this.#usesBackpressure;
  }

  /** Writes chunks, in one packet if all are short; keeps no reference to them. The first call, even without chunks, writes the head. */
  send(chunks: readonly Chunk[]): void {
    if (this.#over) return;
    this.#useBackpressureIfLong(chunks);
    if (this.#usesBackpressure) this.#append(chunks.map(wireText).join(''));
    else this.#sendRaw(chunks);
    this.#recount();
  }

  /** Writes chunks and ends the body, now or once the reader has read the buffered data. */
  end(chunks: readonly Chunk[], trailer?: Trailer): void {
    if (this.#over || this.#last) return;
    this.#useBackpressureIfLong(chunks);
    this.#open = this.owner.mustStayOpen();
    if (!this.#usesBackpressure && !this.#mayLeaveUnread(this.#unproven + totalBytes(chunks))) {
      if (!this.#headWritten) this.#sendRaw([]);
      this.useBackpressure();
      // That may show that the reader is too slow, and close its connection.
      if (this.#isOver()) return;
    }
    if (this.#usesBackpressure) {
      this.#last = true;
      this.#append(chunks.map(wireText).join('') + lastBytes(trailer));
      this.#recount();
      return;
    }
    const parts = corks(chunks);
    const last = parts.pop() ?? [];
    for (const part of parts) this.#res.cork(() => this.#writeRaw(part, false));
    let waiting = '';
    this.#res.cork(() => {
      if (trailer === undefined && this.#open) {
        this.#writeRaw(last.length > 0 ? last : [chunk('', '', this.#commentEnd)], true);
        return;
      }
      this.#writeRaw(last, false);
      if (trailer === undefined) waiting = endBare(this.#res);
      else if (this.#open) endOpen(this.#res, trailer);
      else endChunked(this.#res, trailer);
    });
    if (waiting === '') this.#finish();
    else this.#endLater(waiting);
  }

  /** Bytes that wait for the reader. Switches to writing with backpressure, since otherwise only an upper bound is known. */
  unread(): number {
    // Before the head nothing was written.
    if (this.#headWritten) this.useBackpressure();
    return this.buffered;
  }

  useBackpressure(): void {
    if (this.#usesBackpressure || this.#over) return;
    this.#usesBackpressure = true;
    this.#res.cork(() => beginBackpressure(this.#res));
    // uWS accepts these bytes only if it has no unsent data left.
    this.#append(wireText(chunk('', '', this.#commentEnd)));
    this.#recount();
  }

  /** The caller disconnected: buffered data is dropped, and nothing is written any more. Idempotent. */
  abandon(): void {
    this.#over = true;
    this.#buffer.clear();
    this.#unproven = 0;
    this.#recount();
  }

  /** The last bytes of a body found no room. */
  #endLater(bytes: string): void {
    this.#usesBackpressure = true;
    this.#last = true;
    this.#full = true;
    this.#buffer.push(bytes);
    this.#recount();
  }

  #isOver(): boolean {
    return this.#over;
  }

  #sendRaw(chunks: readonly Chunk[]): void {
    for (const part of corks(chunks)) this.#res.cork(() => this.#writeRaw(part, false));
    this.#unproven += totalBytes(chunks);
  }

  #writeRaw(chunks: readonly Chunk[], final: boolean): void {
    if (!this.#headWritten) {
      this.#headWritten = true;
      this.owner.writeHead();
      openChunked(this.#res);
    }
    chunks.forEach((made, i) => writeChunk(this.#res, made, final && i === chunks.length - 1));
  }

  #useBackpressureIfLong(chunks: readonly Chunk[]): void {
    if (this.#usesBackpressure || !chunks.some(({ bytes }) => bytes > RAW_BYTES)) return;
    if (!this.#headWritten) this.#sendRaw([]);
    this.useBackpressure();
  }

  #append(text: string): void {
    // Over: it was cut off when the same write asked the reader.
    if (text === '' || this.#over) return;
    this.#buffer.push(text);
    if (!this.#full) this.#flush();
  }

  /** Passes to uWS what it accepts. */
  #flush(): void {
    this.#res.cork(() => this.#passBuffered());
    if (this.#last && this.#buffer.bytes === 0) this.#finish();
  }

  #passBuffered(): void {
    for (let next = this.#buffer.first(); next !== undefined; next = this.#buffer.first()) {
      const { taken, full } = tryChunks(this.#res, next, this.#endsWith(next));
      this.#buffer.shift(taken);
      this.#full = full;
      if (full) return;
      // uWS accepts new bytes only once it has sent all earlier ones (except up to 16 KiB in its cork buffer).
      this.#unproven = 0;
      this.owner.allSent();
    }
  }

  /** Whether the body may end while up to `bytes` of it may still be unread. A connection that stays open is closed soon after. */
  #mayLeaveUnread(bytes: number): boolean {
    return (!this.#open || bytes <= OPEN_UNREAD_BYTES) && this.owner.mayLeaveUnread(bytes);
  }

  #endsWith(bytes: Uint8Array): boolean {
    return this.#last && !this.#open && bytes.length === this.#buffer.bytes;
  }

  #writable(): void {
    if (this.#over) return;
    this.#full = false;
    // With our handler, uWS does not write its own buffered data by itself; an empty cork does that.
    if (this.#buffer.bytes === 0) this.#res.cork(() => undefined);
    else this.#flush();
    this.#recount();
  }

  #finish(): void {
    this.abandon();
    this.owner.ended(this.#open);
  }

  #recount(): void {
    const delta = this.buffered - this.#counted;
    if (delta === 0) return;
    this.#counted += delta;
    this.#backlog.changed(this, delta);
  }
}
