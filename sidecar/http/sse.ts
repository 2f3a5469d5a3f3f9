import { chunk, endChunked, openChunked, writeChunk } from './chunked.js';
import type { Chunk, ChunkedResponse } from './chunked.js';
import type { EventStream } from './exchange.js';

/** What a stream needs of the response that it is the body of. */
export interface StreamTarget {
  /** Runs `write` so that all it writes leaves in one packet. */
  cork(write: (res: ChunkedResponse) => void): void;
  /** Writes the status line and all fields but Transfer-Encoding. */
  writeHead(): void;
  /** The last byte was handed to uWS. */
  ended(bytes: number): void;
}

const LINE_BREAK = /[\r\n]/;

/**
 * Server-sent events over {@link chunk}s. What is written in one tick, the head too, leaves in one packet: the frames
 * wait for the tick's end, so their number is bounded by what one engine message causes.
 */
export class SseStream implements EventStream {
  readonly #target: StreamTarget;
  #waiting: Chunk[] = [];
  #headWritten = false;
  #flushPlanned = false;
  #open = true;
  #bytes = 0;

  constructor(target: StreamTarget) {
    this.#target = target;
    this.#planFlush();
  }

  get bytes(): number {
    return this.#bytes;
  }

  event(text: string): void {
    this.#write('data', text);
  }

  comment(text: string): void {
    this.#write('', text);
  }

  end(serverTiming?: string): void {
    if (!this.#open) return;
    if (serverTiming !== undefined) forbidLineBreak(serverTiming);
    // Without a trailer the body's end travels with a last chunk; when all was sent already, that is an empty comment.
    else if (this.#waiting.length === 0) this.comment('');
    this.#open = false;
    this.#target.cork((res) => {
      this.#writeWaiting(res, serverTiming === undefined);
      endChunked(res, serverTiming === undefined ? undefined : ['Server-Timing', serverTiming]);
    });
    this.#target.ended(this.#bytes);
  }

  /** The caller left: nothing is written any more. */
  abandon(): void {
    this.#open = false;
    this.#waiting = [];
  }

  #write(name: 'data' | '', text: string): void {
    if (!this.#open) return;
    forbidLineBreak(text);
    const made = chunk(name, text);
    this.#bytes += made.bytes;
    this.#waiting.push(made);
    this.#planFlush();
  }

  #planFlush(): void {
    if (this.#flushPlanned) return;
    this.#flushPlanned = true;
    queueMicrotask(() => {
      this.#flushPlanned = false;
      if (this.#open) this.#target.cork((res) => this.#writeWaiting(res, false));
    });
  }

  #writeWaiting(res: ChunkedResponse, final: boolean): void {
    if (!this.#headWritten) {
      this.#headWritten = true;
      this.#target.writeHead();
      openChunked(res);
    }
    const chunks = this.#waiting;
    this.#waiting = [];
    chunks.forEach((made, i) => writeChunk(res, made, final && i === chunks.length - 1));
  }
}

/** A line break would end the frame early and forge the next one. */
function forbidLineBreak(text: string): void {
  if (LINE_BREAK.test(text)) throw new RangeError('a frame of an event stream is one line');
}
