import type { Backlog, Backlogged, CutReason } from './backlog.js';
import { SendBuffer } from './send-buffer.js';
import type { HttpResponse } from './uws.js';

export type WholeResponse = Pick<
  HttpResponse,
  'writeHeader' | 'tryEnd' | 'getWriteOffset' | 'endWithoutBody' | 'onWritable' | 'cork' | 'close'
>;

/** The functions of the exchange that a whole reply needs. */
export interface WholeOwner {
  /** Writes the status line and all fields except `Content-Length`, `Date` and `Connection`. */
  writeHead(): void;
  /** The reply is complete, except for at most one cork buffer, 16 KiB, in uWS. Called once. */
  ended(): void;
  /** Too much waits for all readers: the connection must be closed. */
  cut(reason: CutReason, bytes: number): void;
}

export interface WholeForm {
  /**
   * At least one byte; see `sendBodyless`. Text is memory of this reply only, and counts; bytes belong to the handler.
   */
  readonly body: string | Uint8Array;
  /** Of the body, in bytes. */
  readonly length: number;
  /** The answer to HEAD: the body's length without the body. */
  readonly headOnly: boolean;
  /** The connection is closed once the reply is sent. */
  readonly last: boolean;
}

/** Longer than any body, so that uWS does not consider the response complete. */
const ENDLESS = Number.MAX_SAFE_INTEGER;

const NOTHING = new Uint8Array(0);

/**
 * A reply of known length, passed to uWS no faster than the socket accepts it.
 *
 * `tryEnd(bytes, total)` accepts only what the socket has room for, and nothing while uWS still has bytes of an earlier
 * response. Until all bytes are accepted the response is open for uWS, which closes a connection that brings another
 * request meanwhile, and one whose socket has no room for 10 s. So a connection buffers at most this reply and one
 * cork.
 *
 * `Content-Length` is the `total` of the first call. A later call may pass another total, so that all bytes can be sent
 * while the response stays open: the connection is then closed when uWS has nothing left, or HEAD's answer ends.
 */
export class WholeReply implements Backlogged {
  readonly id: number;
  readonly asked = true;
  readonly whole = true;
  readonly #res: WholeResponse;
  readonly #owner: WholeOwner;
  readonly #backlog: Backlog;
  readonly #length: number;
  /** Bytes of memory that only this reply keeps. */
  readonly #owned: number;
  readonly #last: boolean;
  /** What was not handed over, unless it is held. */
  #rest: string | Uint8Array;
  /** The rest of a text of which a part has to wait: in the server's blocks, since many texts that wait are much garbage. */
  readonly #held: SendBuffer;
  readonly #total: number;
  #counted = 0;
  #over = false;

  /** `res` must be open until {@link WholeOwner.ended} or {@link abandon}. */
  constructor(res: WholeResponse, owner: WholeOwner, backlog: Backlog, { body, length, headOnly, last }: WholeForm) {
    this.#res = res;
    this.#owner = owner;
    this.#backlog = backlog;
    this.#length = length;
    this.#owned = typeof body === 'string' && !headOnly ? length : 0;
    this.#last = last;
    this.#rest = headOnly ? NOTHING : body;
    this.#total = headOnly || last ? ENDLESS : length;
    this.#held = new SendBuffer(backlog.blocks);
    this.id = backlog.newId();
  }

  get buffered(): number {
    return this.#counted;
  }

  /** Sends what the socket accepts now, and the rest as it accepts more. Call it once. */
  send(): void {
    this.#res.cork(() => {
      this.#owner.writeHead();
      if (this.#last) this.#res.writeHeader('Connection', 'close');
      if (this.#total === ENDLESS) this.#res.tryEnd(NOTHING, this.#length);
      this.#hand();
    });
    if (this.#ended()) return;
    this.#res.onWritable(() => {
      this.#goOn();
      return true;
    });
    // All of it, even if little is left, since the rest keeps the whole text in memory.
    this.#count(this.#owned);
  }

  ask(): void {
    // The backlog of a whole reply is always exact.
  }

  cut(reason: CutReason): void {
    if (this.#over) return;
    const bytes = this.buffered;
    this.abandon();
    this.#owner.cut(reason, bytes);
  }

  /** The caller disconnected: nothing is written any more. Idempotent. */
  abandon(): void {
    this.#over = true;
    this.#rest = NOTHING;
    this.#held.clear();
    this.#count(0);
  }

  #goOn(): void {
    if (this.#over) return;
    this.#res.cork(() => this.#hand());
    this.#ended();
  }

  /** Passes what the socket has room for. Must be corked. */
  #hand(): void {
    if (this.#rest.length > 0) this.#handRest(this.#rest);
    else this.#handHeld();
  }

  #handRest(rest: string | Uint8Array): void {
    const taken = this.#try(rest);
    this.#rest = taken === undefined || typeof rest === 'string' ? NOTHING : rest.subarray(taken);
    if (taken === undefined || typeof rest !== 'string') return;
    // Only now, since most bodies are taken whole and text costs uWS one copy less than bytes cost us.
    this.#held.push(rest);
    this.#shift(taken);
  }

  #handHeld(): void {
    for (let next = this.#held.first(); next !== undefined; next = this.#held.first()) {
      const taken = this.#try(next);
      this.#shift(taken ?? next.length);
      if (taken !== undefined) return;
    }
  }

  /** Returns how many bytes were taken, or undefined: all of them. */
  #try(bytes: string | Uint8Array): number | undefined {
    const before = this.#res.getWriteOffset();
    const [ok, done] = this.#res.tryEnd(bytes, this.#total);
    return ok || done ? undefined : this.#res.getWriteOffset() - before;
  }

  #shift(taken: number): void {
    for (let left = taken, next = this.#held.first(); left > 0 && next; next = this.#held.first()) {
      const part = Math.min(left, next.length);
      this.#held.shift(part);
      left -= part;
    }
  }

  /**
   * For a response that was kept open: whether uWS has sent all of it; HEAD's is then ended. Needs its own cork, since
   * bytes in an open one are not sent yet. (Within uWS's parser they may be those of an answer to HEAD, at most one
   * cork.)
   */
  #proveSent(): boolean {
    let sent = false;
    this.#res.cork(() => {
      const [empty] = this.#res.tryEnd(NOTHING, ENDLESS);
      if (empty && !this.#last) this.#res.endWithoutBody();
      sent = empty;
    });
    return sent;
  }

  /** Whether the reply is complete; its owner is then notified. */
  #ended(): boolean {
    if (this.#rest.length + this.#held.bytes > 0 || (this.#total === ENDLESS && !this.#proveSent())) return false;
    this.abandon();
    this.#owner.ended();
    return true;
  }

  #count(bytes: number): void {
    const delta = bytes - this.#counted;
    if (delta === 0) return;
    this.#counted = bytes;
    this.#backlog.changed(this, delta);
  }
}
