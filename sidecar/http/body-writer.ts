import type { Backlog, Backlogged, CutReason } from './backlog.js';
import { beginAsking, chunk, endChunked, lastBytes, openChunked, tryChunks, wireText, writeChunk } from './chunked.js';
import type { AskedResponse, Chunk, ChunkedResponse } from './chunked.js';
import { SendBuffer } from './send-buffer.js';

export type BodyWriterResponse = ChunkedResponse & AskedResponse;

/** What an outlet needs of the exchange whose body goes out here. */
export interface BodyWriterOwner {
  /** Writes the status line and all fields but Transfer-Encoding. */
  writeHead(): void;
  /** Whether the stream may end while it is not known of so many bytes that they were read. Asked once. */
  mayLeave(bytes: number): boolean;
  /** The last byte was handed to uWS; the response must not be touched any more. */
  ended(): void;
  /** The reader is too far behind, by so many bytes: its connection must be closed. */
  cut(reason: CutReason, bytes: number): void;
}

/**
 * What one cork may hold of a raw body, in bytes. uWS's holds 16 KiB; of what is written past them it drops a piece when
 * the socket is full (upstream 6b7f354). The rest is for the head, which has no more than the 4 KiB that a request's may
 * have and fields of ours, and for a trailer.
 */
const RAW_BYTES = 8 * 1024;

/**
 * Where the chunks of one stream leave, and where they wait for a reader who is behind.
 *
 * It begins raw: whatever comes is handed to uWS, which says nothing, so all of it may be waiting. Once told to ask, or
 * once a chunk comes that is longer than {@link RAW_BYTES}, it hands over what uWS takes and holds the rest until the socket has room (chunked.ts has how that is done). uWS closes a
 * connection whose held bytes find no room for 10 s.
 */
export class BodyWriter implements Backlogged {
  readonly id: number;
  readonly #res: BodyWriterResponse;
  readonly #owner: BodyWriterOwner;
  readonly #backlog: Backlog;
  #headWritten = false;
  #asked = false;
  #over = false;
  /** Handed to uWS and not known to have left. */
  #unproven = 0;
  readonly #held: SendBuffer;
  /** The socket had no room; it will tell when it has. */
  #full = false;
  /** What is held ends the body. */
  #last = false;
  #counted = 0;

  constructor(res: BodyWriterResponse, owner: BodyWriterOwner, backlog: Backlog) {
    this.#res = res;
    this.#owner = owner;
    this.#backlog = backlog;
    this.#held = new SendBuffer(backlog.blocks);
    this.id = backlog.newId();
    // In raw mode too: without a handler uWS starts its clock of 10 s at every sign of room and never stops it, so that
    // a stream which was behind once and then has nothing to say is closed.
    res.onWritable(() => {
      this.#roomAgain();
      return true;
    });
  }

  get buffered(): number {
    return this.#unproven + this.#held.bytes;
  }

  get asked(): boolean {
    return this.#asked;
  }

  /** Writes, in one packet as long as all are short. */
  send(chunks: readonly Chunk[]): void {
    if (this.#over) return;
    this.#askForLong(chunks);
    if (this.#asked) this.#hold(chunks.map(wireText).join(''));
    else this.#sendRaw(chunks);
    this.#recount();
  }

  /**
   * The same, and the end of the body: at once, or once the reader took what is held. Without a trailer there must be a
   * chunk.
   */
  end(chunks: readonly Chunk[], trailer?: readonly [name: string, value: string]): void {
    if (this.#over || this.#last) return;
    this.#askForLong(chunks);
    if (!this.#asked && !this.#owner.mayLeave(this.#unproven + total(chunks))) {
      if (!this.#headWritten) this.#sendRaw([]);
      this.ask();
      // Asking may find the reader too far behind.
      if (this.#isOver()) return;
    }
    if (this.#asked) {
      this.#last = true;
      this.#hold(chunks.map(wireText).join('') + lastBytes(trailer));
      this.#recount();
      return;
    }
    const parts = corks(chunks);
    const last = parts.pop() ?? [];
    for (const part of parts) this.#res.cork(() => this.#writeRaw(part, false));
    this.#res.cork(() => {
      this.#writeRaw(last, trailer === undefined);
      endChunked(this.#res, trailer);
    });
    this.#finish();
  }

  /** What waits here for the reader. Asks, since otherwise all that was ever handed to uWS may be waiting. */
  unread(): number {
    // Before the head there is nothing to ask about.
    if (this.#headWritten) this.ask();
    return this.buffered;
  }

  ask(): void {
    if (this.#asked || this.#over) return;
    this.#asked = true;
    this.#res.cork(() => beginAsking(this.#res));
    // Any bytes will do to learn whether uWS still has some.
    this.#hold(wireText(chunk('', '')));
    this.#recount();
  }

  cut(reason: CutReason): void {
    if (this.#over) return;
    const bytes = this.buffered;
    this.abandon();
    this.#owner.cut(reason, bytes);
  }

  /** The caller left: what is held is dropped, and nothing is written any more. Idempotent. */
  abandon(): void {
    this.#over = true;
    this.#held.clear();
    this.#unproven = 0;
    this.#recount();
  }

  #isOver(): boolean {
    return this.#over;
  }

  #sendRaw(chunks: readonly Chunk[]): void {
    for (const part of corks(chunks)) this.#res.cork(() => this.#writeRaw(part, false));
    this.#unproven += total(chunks);
  }

  #writeRaw(chunks: readonly Chunk[], final: boolean): void {
    if (!this.#headWritten) {
      this.#headWritten = true;
      this.#owner.writeHead();
      openChunked(this.#res);
    }
    chunks.forEach((made, i) => writeChunk(this.#res, made, final && i === chunks.length - 1));
  }

  #askForLong(chunks: readonly Chunk[]): void {
    if (this.#asked || !chunks.some(({ bytes }) => bytes > RAW_BYTES)) return;
    if (!this.#headWritten) this.#sendRaw([]);
    this.ask();
  }

  #hold(text: string): void {
    if (text === '') return;
    this.#held.push(text);
    if (!this.#full) this.#release();
  }

  /** Hands over what uWS takes. */
  #release(): void {
    this.#res.cork(() => this.#handOver());
    if (this.#last && this.#held.bytes === 0) this.#finish();
  }

  #handOver(): void {
    for (let next = this.#held.first(); next !== undefined; next = this.#held.first()) {
      const { taken, full } = tryChunks(this.#res, next, this.#last && next.length === this.#held.bytes);
      this.#held.shift(taken);
      this.#full = full;
      if (full) return;
      // uWS takes new bytes only once it has got rid of all that it had. (Of these it may keep 16 KiB, its cork's size.)
      this.#unproven = 0;
    }
  }

  #roomAgain(): void {
    if (this.#over) return;
    this.#full = false;
    // With a handler of ours uWS leaves it to us to write what it still has: an empty cork does that.
    if (this.#held.bytes === 0) this.#res.cork(() => undefined);
    else this.#release();
    this.#recount();
  }

  #finish(): void {
    this.abandon();
    this.#owner.ended();
  }

  #recount(): void {
    const delta = this.buffered - this.#counted;
    if (delta === 0) return;
    this.#counted += delta;
    this.#backlog.changed(this, delta);
  }
}

function total(chunks: readonly Chunk[]): number {
  let sum = 0;
  for (const { bytes } of chunks) sum += bytes;
  return sum;
}

/** The chunks in order, as many together as one cork may hold; at least one part, which may be empty. */
function corks(chunks: readonly Chunk[]): (readonly Chunk[])[] {
  if (total(chunks) <= RAW_BYTES) return [chunks];
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
