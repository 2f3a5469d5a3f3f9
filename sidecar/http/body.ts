import type { Clock } from '../lib/clock.js';
import { MUCH_BYTES, PART_BYTES, StreamedParts } from './streamed-parts.js';

const NO_BYTES = new Uint8Array(0);

/** The source of a body: a uWS response. */
export interface BodySource {
  /** Stops reading, except for chunks of the current read. */
  pause(): void;
  resume(): void;
  /** Closes the connection; the reader's `abandon` is called meanwhile. */
  close(): void;
}

/** Buffered before the caller is authenticated and its limit known; then its socket is paused. One read of uWS (512 KiB) may be added. */
const EARLY_BYTES = 64 * 1024;

/** Bodies up to this length are short: whole decision requests, and chats without images. */
const SHORT_BYTES = 1024 * 1024;

/**
 * A chunked body of which no byte arrives for so long is refused. uWS takes a chunk extension for a part of the size and then waits for
 * bytes that never come; it would close the connection without an answer after 8 to 12 s.
 */
const SILENT_CHUNKS_MS = 6000;

/** The longest time of a body that is read as it arrives, ms: 512 MiB at 1.2 Mbit/s. */
const STREAM_MS = 3_600_000;

/** The memory of all bodies. A part is reserved for short ones, so that a few long ones cannot exclude all others. */
export class BodyBudget {
  readonly #cap: number;
  readonly #capForLong: number;
  #held = 0;
  /** Bodies that may be freed, the one that may be for the longest time first, and the bytes of all of them. */
  readonly #spare = new Set<Spare>();
  #spareBytes = 0;

  /** `shortBytes`: the part of `capBytes` that only bodies of up to 1 MiB may use. */
  constructor(capBytes: number, shortBytes: number) {
    this.#cap = capBytes;
    this.#capForLong = capBytes - shortBytes;
  }

  get held(): number {
    return this.#held;
  }

  /** Reserves `bytes` more of a body of `whole` bytes, and frees spare bodies if need be. Without room returns false and frees none. */
  take(bytes: number, whole: number): boolean {
    const cap = whole > SHORT_BYTES ? this.#capForLong : this.#cap;
    if (this.#held - this.#spareBytes + bytes > cap) return false;
    this.#add(bytes, cap);
    return true;
  }

  /** Counts `bytes` that are in memory in any case; spare bodies are freed for them as far as there are some. */
  charge(bytes: number): void {
    this.#add(bytes, this.#cap);
  }

  release(bytes: number): void {
    this.#held -= bytes;
  }

  /** From now on this body is freed where another one needs its room. */
  addSpare(body: Spare): void {
    this.#spare.add(body);
    this.#spareBytes += body.capacity;
  }

  /** This body is freed by its owner alone. Does nothing if it is not spare. */
  removeSpare(body: Spare): void {
    if (this.#spare.delete(body)) this.#spareBytes -= body.capacity;
  }

  #add(bytes: number, cap: number): void {
    for (const body of this.#spare) {
      if (this.#held + bytes <= cap) break;
      body.freeBytes();
    }
    this.#held += bytes;
  }
}

/** A body as the budget knows it. */
interface Spare {
  /** What it takes of the budget. */
  readonly capacity: number;
  freeBytes(): void;
}

/**
 * One request's whole body, and what was made of it and is as large. It owns the bytes and their part of the budget, and frees both
 * together. Others refer to this object and keep no reference to its bytes, so nothing of a freed body stays in memory.
 *
 *     needed ──setSpare()──> spare ──freeBytes(), or the budget needs the room──> freed
 *        └──<──setNeeded()────┘
 */
export class Body {
  readonly kind = 'body';
  /** Clock reading when the last byte arrived. */
  readonly receivedAt: number;
  /** Bytes, also after the body was freed. */
  readonly length: number;
  readonly #budget: BodyBudget | undefined;
  #buffer: Uint8Array | undefined;
  /** Bytes that `countDerived` counted. */
  #derivedBytes = 0;
  #freed = false;

  /** `buffer`: its first `length` bytes are the body. `budget`: has reserved the whole buffer; absent: none has. */
  constructor(buffer: Uint8Array, length: number, receivedAt: number, budget?: BodyBudget) {
    this.#buffer = buffer;
    this.length = length;
    this.receivedAt = receivedAt;
    this.#budget = budget;
  }

  /** Undefined once they were freed. Read them for each use: a reference to them would keep them in memory. */
  get bytes(): Uint8Array | undefined {
    return this.#buffer?.subarray(0, this.length);
  }

  /** What the bytes take of the budget. */
  get capacity(): number {
    return this.#buffer?.length ?? 0;
  }

  /** The body was read and may be read again. It stays in memory, and counts, until another one needs its room. */
  setSpare(): void {
    if (this.#buffer !== undefined) this.#budget?.addSpare(this);
  }

  /** The body is read again: it stays until it is freed or spare. Returns false if it was freed. */
  setNeeded(): boolean {
    this.#budget?.removeSpare(this);
    return this.#buffer !== undefined;
  }

  /** Counts `bytes` that were made of the body, such as image files, in place of those counted before. `free` ends it. */
  countDerived(bytes: number): void {
    this.#budget?.release(this.#derivedBytes);
    this.#derivedBytes = this.#freed ? 0 : bytes;
    this.#budget?.charge(this.#derivedBytes);
  }

  /** Frees the bytes and their part of the budget. Idempotent. */
  freeBytes(): void {
    this.#budget?.removeSpare(this);
    this.#budget?.release(this.capacity);
    this.#buffer = undefined;
  }

  /** Frees the bytes and what `countDerived` counted. Idempotent; a whole reply and a caller that disconnects do it too. */
  free(): void {
    this.freeBytes();
    this.#freed = true;
    this.countDerived(0);
  }
}

/** All of a body that is read as it arrives. */
export interface WholeBody {
  readonly kind: 'complete';
}

export type BodyResult = Body | BodyEnd;

/** Why there is no body, or no more of one. */
export type BodyEnd =
  /** Longer than the limit; the rest is not kept. */
  | { readonly kind: 'too-large' }
  /** The memory bound of all bodies is reached. */
  | { readonly kind: 'no-room' }
  /** Chunked, and no byte of it arrived for some seconds. */
  | { readonly kind: 'silent' }
  /** The caller disconnected. */
  | { readonly kind: 'gone' };

/**
 * Collects one request's body. It starts before `read` is called, since uWS drops chunks without a handler.
 *
 * It uses one buffer that doubles rather than a list of chunks, which would cost a hundred times its bytes for a caller
 * that sends single bytes. The budget counts its capacity, not its length.
 *
 * uWS itself closes a connection that brings less than about 16 KiB/s over ten seconds; `maxMs` bounds the whole body.
 */
export class BodyReader {
  readonly #source: BodySource;
  readonly #declared: number | undefined;
  readonly #budget: BodyBudget;
  readonly #clock: Clock;
  readonly #maxMs: number;
  #buffer: Uint8Array = NO_BYTES;
  #length = 0;
  #limit: number | undefined;
  /** When the last byte arrived. */
  #receivedAt: number | undefined;
  /** Set once no more bytes are kept: the result of `read`. */
  #refusal: BodyEnd | undefined;
  /** The whole body, once `read` has returned it: from then on it owns the buffer. */
  #body: Body | undefined;
  #paused = false;
  #resolve: ((body: BodyResult) => void) | undefined;
  /** Of a body that is read as it arrives: what waits for `next`, bytes that were handed out, and who waits for more. */
  #pieces: StreamedParts | undefined;
  #taken = 0;
  #isBehind = false;
  #wakes: (() => void) | undefined;
  /** It is woken once more than so many bytes wait. */
  #wakesOver = 0;
  #cancelTimer: (() => void) | undefined;
  /** When the last chunk of a chunked body came, or `read` was called. */
  #lastChunkAt = 0;
  /** Set while a chunked body is read: ends the wait for its next byte. */
  #cancelSilence: (() => void) | undefined;
  /** What waits for the last byte. */
  readonly #afterwards: (() => void)[] = [];

  /** `declared`: Content-Length, undefined if chunked. `maxMs`: from the first chunk to the last. */
  constructor(source: BodySource, declared: number | undefined, budget: BodyBudget, clock: Clock, maxMs: number) {
    this.#source = source;
    this.#declared = declared;
    this.#budget = budget;
    this.#clock = clock;
    this.#maxMs = maxMs;
  }

  /** Whether the last byte has arrived, kept or not. */
  get complete(): boolean {
    return this.#receivedAt !== undefined;
  }

  /** Calls `then` once the last byte has arrived, kept or not: now or, unless the caller disconnects before, later. */
  whenComplete(then: () => void): void {
    if (this.complete) then();
    else this.#afterwards.push(then);
  }

  /** Bytes received so far. */
  get length(): number {
    return this.#taken + this.#length;
  }

  /** Adds uWS's chunk, which is copied, since its memory is only valid during this call; there it is overwritten. */
  push(chunk: ArrayBuffer, last: boolean): void {
    const bytes = new Uint8Array(chunk);
    if (this.#refusal === undefined) this.#keep(bytes);
    bytes.fill(0);
    if (this.#declared === undefined) this.#lastChunkAt = this.#clock.now();
    if (last) {
      this.#cancelTimer?.();
      this.#cancelSilence?.();
      this.#receivedAt = this.#clock.now();
      this.#unpause();
      this.#wake();
      if (this.#refusal === undefined && this.#resolve !== undefined) this.#settle(this.#handOut(this.#receivedAt));
      for (const then of this.#afterwards) then();
    } else if (this.#refusal === undefined) {
      this.#cancelTimer ??= this.#clock.after(this.#maxMs, () => this.#source.close());
      // Not at each chunk: a connection that goes on is given 10 s anew, and then no rate would be asked of a slow one.
      const most = this.#pieces ? PART_BYTES : this.#limit === undefined ? EARLY_BYTES : Infinity;
      if (this.#length > most) this.#pause();
      if (this.#length > this.#wakesOver) this.#wake();
    }
  }

  /**
   * What has arrived next, in place of `read`: for a body that is never whole in memory. Call it again once it has settled. While more
   * than {@link PART_BYTES} wait, the connection is paused. Each piece has a turn of the event loop of its own, after `after` has settled;
   * once more than {@link MUCH_BYTES} wait nevertheless (streamed-parts.ts says why), all of that is handed out at once. `limit`: bytes of
   * the whole body.
   */
  async next(limit: number, after?: Promise<unknown>): Promise<Uint8Array | WholeBody | BodyEnd> {
    if (this.#limit === undefined) this.#stream(limit);
    if (this.#length === 0) this.#isBehind = false;
    // uWS gives an empty chunk with a head that came alone.
    while (this.#refusal === undefined && this.#length === 0 && this.#receivedAt === undefined) {
      const more = this.#over(0);
      this.#lastChunkAt = this.#clock.now();
      this.#unpause();
      await more;
    }
    if (this.#refusal === undefined && this.#length > 0 && !this.#isBehind) {
      const turn = new Promise((resolve) => setImmediate(resolve));
      await Promise.race([this.#over(MUCH_BYTES), Promise.allSettled([turn, after])]);
      this.#isBehind = this.#length > MUCH_BYTES;
    }
    if (this.#refusal !== undefined) return this.#refusal;
    const piece = this.#pieces?.take();
    if (piece === undefined) return { kind: 'complete' };
    this.#taken += piece.length;
    this.#length -= piece.length;
    return piece;
  }

  #stream(limit: number): void {
    this.#limit = limit;
    if (this.#refusal === undefined && Math.max(this.#declared ?? 0, this.#length) > limit) this.#refuse('too-large');
    if (this.#refusal !== undefined) return;
    this.#pieces = new StreamedParts(this.#budget);
    const isKept = this.#pieces.add(this.#buffer.subarray(0, this.#length));
    this.#budget.release(this.#buffer.fill(0).length);
    this.#buffer = NO_BYTES;
    if (!isKept) this.#refuse('no-room');
    if (!isKept || this.complete) return;
    this.#cancelTimer?.();
    this.#cancelTimer = this.#clock.after(STREAM_MS, () => this.#source.close());
    if (this.#declared !== undefined) return;
    this.#lastChunkAt = this.#clock.now();
    this.#watchSilence();
  }

  /** Resolves once more than so many bytes wait, or no more come. */
  #over(bytes: number): Promise<void> {
    this.#wakesOver = bytes;
    return new Promise((resolve) => (this.#wakes = resolve));
  }

  #wake(): void {
    this.#wakes?.();
    this.#wakes = undefined;
  }

  /** The whole body. Call it once; settles as soon as the result is known. */
  read(limit: number): Promise<BodyResult> {
    this.#limit = limit;
    if (this.#refusal === undefined && Math.max(this.#declared ?? 0, this.#length) > limit) this.#refuse('too-large');
    if (this.#refusal !== undefined) return Promise.resolve(this.#refusal);
    if (this.#receivedAt !== undefined) return Promise.resolve(this.#handOut(this.#receivedAt));
    this.#unpause();
    if (this.#declared === undefined) {
      this.#lastChunkAt = this.#clock.now();
      this.#watchSilence();
    }
    return new Promise((resolve) => (this.#resolve = resolve));
  }

  /** The caller disconnected: like `close`, without using the source any more. */
  abandon(): void {
    this.#paused = false;
    this.close();
  }

  /** The body is not needed any more: releases memory and resumes the connection. Idempotent. */
  close(): void {
    if (this.#refusal === undefined) this.#refuse('gone');
    else this.#unpause();
  }

  /** The answer begins. A body that was read stays, and counts, until its reader frees it; any other is not needed any more. */
  closeUnread(): void {
    if (this.#body !== undefined) this.#unpause();
    else this.close();
  }

  /** A chunk sets no timer: the one that is set looks when the last chunk came. */
  #watchSilence(ms = SILENT_CHUNKS_MS): void {
    this.#cancelSilence = this.#clock.after(ms, () => {
      // While it is paused nothing can come.
      const leftMs = this.#paused ? SILENT_CHUNKS_MS : this.#lastChunkAt + SILENT_CHUNKS_MS - this.#clock.now();
      if (leftMs <= 0) this.#refuse('silent');
      else this.#watchSilence(leftMs);
    });
  }

  #keep(chunk: Uint8Array): void {
    const needed = this.#length + chunk.length;
    if (this.#limit !== undefined && this.#taken + needed > this.#limit) {
      this.#refuse('too-large');
    } else if (this.#pieces) {
      if (this.#pieces.add(chunk)) this.#length = needed;
      else this.#refuse('no-room');
    } else if (needed > this.#buffer.length && !this.#grow(needed)) {
      this.#refuse('no-room');
    } else {
      this.#buffer.set(chunk, this.#length);
      this.#length = needed;
    }
  }

  #grow(needed: number): boolean {
    const capacity = Math.max(needed, Math.min(this.#buffer.length * 2, this.#declared ?? Infinity));
    if (!this.#budget.take(capacity - this.#buffer.length, Math.max(needed, this.#declared ?? 0))) return false;
    // Not from Buffer's pool, since the body's memory may be transferred to a worker.
    const grown = Buffer.allocUnsafeSlow(capacity);
    grown.set(this.#buffer.subarray(0, this.#length));
    this.#buffer.fill(0);
    this.#buffer = grown;
    return true;
  }

  #handOut(receivedAt: number): Body {
    this.#body = new Body(this.#buffer, this.#length, receivedAt, this.#budget);
    this.#buffer = NO_BYTES;
    return this.#body;
  }

  #refuse(kind: 'too-large' | 'no-room' | 'silent' | 'gone'): void {
    const refusal = { kind };
    this.#refusal = refusal;
    this.#cancelTimer?.();
    this.#cancelSilence?.();
    this.#budget.release(this.#buffer.length);
    this.#buffer = NO_BYTES;
    this.#pieces?.free();
    this.#pieces = undefined;
    this.#body?.free();
    this.#unpause();
    this.#settle(refusal);
    this.#wake();
  }

  #settle(result: BodyResult): void {
    this.#resolve?.(result);
    this.#resolve = undefined;
  }

  #pause(): void {
    if (this.#paused) return;
    this.#paused = true;
    this.#source.pause();
  }

  #unpause(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.#source.resume();
  }
}

/** The body of a request without one. `receivedAt`: when its head arrived. */
export function emptyBody(receivedAt: number): Body {
  return new Body(NO_BYTES, 0, receivedAt);
}
