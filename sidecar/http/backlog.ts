/** Bytes that wait for slow readers: counts of each stream and of all ({@link Backlog}), and their memory ({@link SendBuffer}). */
import { IdMap } from '../lib/id-map.js';

/** Why a reader was cut off, its connection closed: the bound of its own stream, or that of all streams, was exceeded. */
export type CutReason = 'stream' | 'total';

/** Bounds of the bytes that wait for readers, as on the wire. */
export interface BacklogLimits {
  readonly streamBytes: number;
  /** Of all streams together. */
  readonly totalBytes: number;
}

export interface ReaderOwner {
  /** Too many bytes wait for the reader, or for all of them: its connection must be closed. */
  cutOff(reason: CutReason, bytes: number): void;
}

/** A stream whose backlog is counted. */
export interface Backlogged {
  /** From {@link Backlog.newId}. */
  readonly id: number;
  /** Upper bound of the bytes that wait for the reader; exact only while {@link usesBackpressure} is true. */
  readonly buffered: number;
  /** From {@link useBackpressure} on `buffered` is exact. */
  readonly usesBackpressure: boolean;
  /** A reply whose length its handler bounds: only the total applies to it. */
  readonly whole?: boolean;
  readonly owner: ReaderOwner;
  /** Absent: it uses backpressure from the start. */
  useBackpressure?(): void;
  /** Drops the stream's data: nothing is written any more. Idempotent. */
  abandon(): void;
}

/**
 * Counts what all streams of a server buffer for slow readers. No connection is closed on an upper bound: a stream whose backlog is not
 * known exactly first switches to writing with backpressure, which usually shows that nothing waits.
 */
export class Backlog {
  /** The memory for waiting data. */
  readonly blocks = new Blocks();
  readonly #limits: BacklogLimits;
  readonly #streams = new IdMap<Backlogged>();
  #lastId = 0;
  #bytes = 0;

  constructor(limits: BacklogLimits) {
    this.#limits = limits;
  }

  /** Of all streams together, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** A number that identifies a stream here. */
  newId(): number {
    return ++this.#lastId;
  }

  /** `stream.buffered` changed by `delta`. May begin backpressure or cut streams off, also this one. Must not be called inside a cork. */
  changed(stream: Backlogged, delta: number): void {
    this.#bytes += delta;
    if (stream.buffered === 0) this.#streams.delete(stream.id);
    else this.#streams.set(stream.id, stream);
    if (delta <= 0) return;
    const { streamBytes, totalBytes } = this.#limits;
    // At half of the bound, so that the other half remains for data that arrives meanwhile.
    if (!stream.usesBackpressure && stream.buffered > streamBytes / 2) stream.useBackpressure?.();
    if (stream.usesBackpressure && stream.whole !== true && stream.buffered > streamBytes) cutOff(stream, 'stream');
    while (this.#bytes > totalBytes) {
      const worst = this.#worst();
      if (worst === undefined) return;
      if (worst.usesBackpressure) cutOff(worst, 'total');
      else worst.useBackpressure?.();
    }
  }

  #worst(): Backlogged | undefined {
    let worst: Backlogged | undefined;
    for (const stream of this.#streams.values())
      if (worst === undefined || stream.buffered > worst.buffered) worst = stream;
    return worst;
  }
}

function cutOff(stream: Backlogged, reason: CutReason): void {
  const bytes = stream.buffered;
  stream.abandon();
  stream.owner.cutOff(reason, bytes);
}

/** A reply whose length its handler bounds: it uses backpressure from the start. */
export abstract class BoundedReply<Owner extends ReaderOwner> implements Backlogged {
  readonly id: number;
  readonly usesBackpressure = true;
  readonly whole = true;
  readonly owner: Owner;
  readonly #backlog: Backlog;
  #buffered = 0;

  constructor(owner: Owner, backlog: Backlog) {
    this.owner = owner;
    this.#backlog = backlog;
    this.id = backlog.newId();
  }

  get buffered(): number {
    return this.#buffered;
  }

  /** Bytes that wait for the reader from now on. That may cut the reader off. */
  protected count(bytes: number): void {
    const delta = bytes - this.#buffered;
    this.#buffered = bytes;
    if (delta !== 0) this.#backlog.changed(this, delta);
  }

  abstract abandon(): void;
}

/** Bytes of a block: the size of uWS's write buffer. A slow reader wastes up to two blocks. */
export const BLOCK_BYTES = 16 * 1024;

/**
 * Blocks kept for the next reader who is behind, 32 MiB of them, half of what all may hold by default; more are left to the
 * collector. It is late: callers who leave long replies unread and come again then cost their memory several times over.
 */
const SPARE_BLOCKS = 2048;

/** The most bytes of a character in UTF-8. */
const CHARACTER_BYTES = 4;

const encoder = new TextEncoder();

/**
 * Memory blocks for the unread data of one server's readers, lent and returned. Separate buffers for each piece of text would double the
 * memory by their objects, and would be collected late.
 */
export class Blocks {
  readonly #spare: Uint8Array[] = [];

  /** A block of {@link BLOCK_BYTES} of zeros. It belongs to the reader's buffer until {@link release}. */
  acquire(): Uint8Array {
    return this.#spare.pop() ?? new Uint8Array(BLOCK_BYTES);
  }

  /** What was in it is overwritten: a spare block may stay for as long as the process runs. */
  release(block: Uint8Array): void {
    if (this.#spare.length < SPARE_BLOCKS) this.#spare.push(block.fill(0));
  }
}

interface Piece {
  readonly block: Uint8Array;
  /** Start of the unread bytes. */
  start: number;
  /** End of the written bytes. */
  end: number;
}

/** The unread data of one reader, first in, first out, in blocks of the server. */
export class SendBuffer {
  readonly #blocks: Blocks;
  readonly #parts: Piece[] = [];
  #bytes = 0;

  constructor(blocks: Blocks) {
    this.#blocks = blocks;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Appends `text` in UTF-8. */
  push(text: string): void {
    for (let from = 0; from < text.length;) {
      const part = this.#open();
      const { read, written } = encoder.encodeInto(from === 0 ? text : text.slice(from), part.block.subarray(part.end));
      part.end += written;
      this.#bytes += written;
      from += read;
    }
  }

  /** The first waiting bytes that are contiguous; undefined if there is none. Valid until the next call of another method. */
  first(): Uint8Array | undefined {
    const part = this.#parts[0];
    return part?.block.subarray(part.start, part.end);
  }

  /** The first `bytes` of {@link first} were sent. */
  shift(bytes: number): void {
    const part = this.#parts[0];
    if (part === undefined) return;
    part.start += bytes;
    this.#bytes -= bytes;
    if (part.start === part.end) {
      this.#parts.shift();
      this.#blocks.release(part.block);
    }
  }

  /** Drops all waiting data. */
  clear(): void {
    for (const { block } of this.#parts) this.#blocks.release(block);
    this.#parts.length = 0;
    this.#bytes = 0;
  }

  /** The last part, with room for any character. */
  #open(): Piece {
    const last = this.#parts.at(-1);
    if (last !== undefined && last.end + CHARACTER_BYTES <= BLOCK_BYTES) return last;
    const part = { block: this.#blocks.acquire(), start: 0, end: 0 };
    this.#parts.push(part);
    return part;
  }
}
