import type { Clock } from '../lib/clock.js';
import type { BodyResult } from './exchange.js';

const NO_BYTES = new Uint8Array(0);

/** The source of a body: a uWS response. */
export interface BodySource {
  /** Stops reading, except for chunks of the current read. */
  pause(): void;
  resume(): void;
  /** Closes the connection; the reader's `abandon` is called meanwhile. */
  close(): void;
}

/**
 * Buffered before the caller is authenticated and its limit is known; then its socket is paused. One read of uWS (512
 * KiB) may be added.
 */
const EARLY_BYTES = 64 * 1024;

/** Bodies up to this length are short: whole decision requests, and chats without images. */
const SHORT_BYTES = 1024 * 1024;

/** The memory of all bodies. A part is reserved for short ones, so that a few long ones cannot exclude all others. */
export class BodyBudget {
  readonly #cap: number;
  readonly #capForLong: number;
  #held = 0;

  /** `shortBytes`: the part of `capBytes` that only bodies of up to 1 MiB may use. */
  constructor(capBytes: number, shortBytes: number) {
    this.#cap = capBytes;
    this.#capForLong = capBytes - shortBytes;
  }

  get held(): number {
    return this.#held;
  }

  /** Reserves `bytes` more for a body that will have `whole` bytes, as far as known; false if there is no room. */
  take(bytes: number, whole: number): boolean {
    if (this.#held + bytes > (whole > SHORT_BYTES ? this.#capForLong : this.#cap)) return false;
    this.#held += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#held -= bytes;
  }
}

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
  #refusal: BodyResult | undefined;
  /** Its reader has the whole body. */
  #handedOut = false;
  #paused = false;
  #resolve: ((body: BodyResult) => void) | undefined;
  #cancelTimer: (() => void) | undefined;
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
    return this.#length;
  }

  /** Adds uWS's chunk, which is copied, since its memory is only valid during this call. */
  push(chunk: ArrayBuffer, last: boolean): void {
    if (this.#refusal === undefined) this.#keep(new Uint8Array(chunk));
    if (last) {
      this.#cancelTimer?.();
      this.#receivedAt = this.#clock.now();
      this.#unpause();
      if (this.#refusal === undefined) this.#resolve?.(this.#body(this.#receivedAt));
      for (const then of this.#afterwards) then();
    } else if (this.#refusal === undefined) {
      this.#cancelTimer ??= this.#clock.after(this.#maxMs, () => this.#source.close());
      if (this.#limit === undefined && this.#length > EARLY_BYTES) this.#pause();
    }
  }

  /** The whole body. Call it once; settles as soon as the result is known. */
  read(limit: number): Promise<BodyResult> {
    this.#limit = limit;
    if (this.#refusal === undefined && Math.max(this.#declared ?? 0, this.#length) > limit) this.#refuse('too-large');
    if (this.#refusal !== undefined) return Promise.resolve(this.#refusal);
    if (this.#receivedAt !== undefined) return Promise.resolve(this.#body(this.#receivedAt));
    this.#unpause();
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

  /** The answer begins. A body that was read stays, and counts, until its reader releases it; any other is not needed any more. */
  closeUnread(): void {
    if (this.#handedOut) this.#unpause();
    else this.close();
  }

  #keep(chunk: Uint8Array): void {
    const needed = this.#length + chunk.length;
    if (this.#limit !== undefined && needed > this.#limit) {
      this.#refuse('too-large');
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
    this.#buffer = grown;
    return true;
  }

  #body(receivedAt: number): BodyResult {
    const bytes = this.#buffer.subarray(0, this.#length);
    this.#handedOut = true;
    return { kind: 'body', bytes, receivedAt, release: () => this.#free() };
  }

  #refuse(kind: 'too-large' | 'no-room' | 'gone'): void {
    const refusal = { kind };
    this.#refusal = refusal;
    this.#cancelTimer?.();
    this.#free();
    this.#unpause();
    this.#resolve?.(refusal);
  }

  #free(): void {
    this.#budget.release(this.#buffer.length);
    this.#buffer = NO_BYTES;
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
export function emptyBody(receivedAt: number): BodyResult {
  return { kind: 'body', bytes: NO_BYTES, receivedAt, release: () => undefined };
}
