import type { Clock } from '../lib/clock.js';
import type { Body } from './exchange.js';

/** What a body is read from; a uWS response. */
export interface BodySource {
  /** No more chunks, save those of the read under way. */
  pause(): void;
  resume(): void;
  /** Ends the connection; the reader's `abandon` is called on the way. */
  close(): void;
}

/**
 * Held for a caller whose limit is not known yet, because it is still being asked who that is; then its socket is
 * paused. A read of uWS's (512 KiB) may come on top.
 */
const UNASKED_BYTES = 64 * 1024;

const NOTHING = new Uint8Array(0);

/** Bodies up to this are short: whole decision requests, and a chat without images. */
const SHORT_BYTES = 1024 * 1024;

/** The memory of all bodies at once. Its last part is for short ones alone: a few long ones must not shut out all others. */
export class BodyBudget {
  readonly #cap: number;
  readonly #capForLong: number;
  #held = 0;

  /** `shortBytes`: of `capBytes`, the part that only bodies of up to 1 MiB may use. */
  constructor(capBytes: number, shortBytes: number) {
    this.#cap = capBytes;
    this.#capForLong = capBytes - shortBytes;
  }

  get held(): number {
    return this.#held;
  }

  /** Whether there is room for `bytes` more of a body that will have `whole` bytes, as far as that is known; then they are taken. */
  take(bytes: number, whole: number): boolean {
    if (this.#held + bytes > (whole > SHORT_BYTES ? this.#capForLong : this.#cap)) return false;
    this.#held += bytes;
    return true;
  }

  give(bytes: number): void {
    this.#held -= bytes;
  }
}

/**
 * Collects one request's body. It starts before anyone asks, since uWS drops chunks that nobody takes.
 *
 * One buffer that doubles, and not a list of chunks: a caller that sends a byte a chunk would make a list cost a
 * hundred times its bytes. Its capacity, not its length, is charged to the budget.
 *
 * uWS itself cuts a body that brings less than about 16 KiB/s over ten seconds; `maxMs` bounds the whole.
 */
export class BodyReader {
  readonly #source: BodySource;
  readonly #declared: number | undefined;
  readonly #budget: BodyBudget;
  readonly #clock: Clock;
  readonly #maxMs: number;
  #buffer: Uint8Array = NOTHING;
  #length = 0;
  #limit: number | undefined;
  /** When the last byte came; the connection then holds no more of this request. */
  #receivedAt: number | undefined;
  /** Set once no bytes are kept any more: what `read` then answers. */
  #refusal: Body | undefined;
  #paused = false;
  #answer: ((body: Body) => void) | undefined;
  #cancelTimer: (() => void) | undefined;

  /** `declared`: Content-Length, undefined when chunked. `maxMs`: from the first chunk to the last. */
  constructor(source: BodySource, declared: number | undefined, budget: BodyBudget, clock: Clock, maxMs: number) {
    this.#source = source;
    this.#declared = declared;
    this.#budget = budget;
    this.#clock = clock;
    this.#maxMs = maxMs;
  }

  /** Whether the last byte came, kept or not. */
  get complete(): boolean {
    return this.#receivedAt !== undefined;
  }

  /** Bytes taken so far. */
  get length(): number {
    return this.#length;
  }

  /** Takes uWS's chunk; it is copied, for its memory is only ours during this call. */
  push(chunk: ArrayBuffer, last: boolean): void {
    if (this.#refusal === undefined) this.#keep(new Uint8Array(chunk));
    if (last) {
      this.#cancelTimer?.();
      this.#receivedAt = this.#clock.now();
      this.#unpause();
      if (this.#refusal === undefined) this.#answer?.(this.#body(this.#receivedAt));
    } else if (this.#refusal === undefined) {
      this.#cancelTimer ??= this.#clock.after(this.#maxMs, () => this.#source.close());
      if (this.#limit === undefined && this.#length > UNASKED_BYTES) this.#pause();
    }
  }

  /** The whole body. Call once; settles as soon as the answer is known. */
  read(limit: number): Promise<Body> {
    this.#limit = limit;
    if (this.#refusal === undefined && Math.max(this.#declared ?? 0, this.#length) > limit) this.#refuse('too-large');
    if (this.#refusal !== undefined) return Promise.resolve(this.#refusal);
    if (this.#receivedAt !== undefined) return Promise.resolve(this.#body(this.#receivedAt));
    this.#unpause();
    return new Promise((resolve) => (this.#answer = resolve));
  }

  /** The caller left: as `close`, but the source is not touched any more. */
  abandon(): void {
    this.#paused = false;
    this.close();
  }

  /** The exchange is over: gives the memory back and lets the connection flow. Idempotent. */
  close(): void {
    if (this.#refusal === undefined) this.#refuse('gone');
    else this.#unpause();
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
    // Not from Buffer's pool: whoever takes the body may transfer its memory to a worker.
    const grown = Buffer.allocUnsafeSlow(capacity);
    grown.set(this.#buffer.subarray(0, this.#length));
    this.#buffer = grown;
    return true;
  }

  #body(receivedAt: number): Body {
    const bytes = this.#buffer.subarray(0, this.#length);
    return { kind: 'body', bytes, receivedAt, release: () => this.#free() };
  }

  #refuse(kind: 'too-large' | 'no-room' | 'gone'): void {
    const refusal = { kind };
    this.#refusal = refusal;
    this.#cancelTimer?.();
    this.#free();
    this.#unpause();
    this.#answer?.(refusal);
  }

  #free(): void {
    this.#budget.give(this.#buffer.length);
    this.#buffer = NOTHING;
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
