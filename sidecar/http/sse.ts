import { errorBody, type ContractError, type ErrorCode } from '../domain/errors.js';
import type { BodyWriter } from './body-writer.js';
import { chunk, type Chunk, type ChunkEnd } from './chunked.js';
import type { EventStream, FrameOptions } from './exchange.js';
import type { NextTurn } from './corks.js';

export interface StreamOptions extends FrameOptions {
  /** Whether it may end with a trailer. Default: true. */
  readonly trailers?: boolean;
}

const LINE_BREAK = /[\r\n]/;

/**
 * {@link LINE_BREAK}, and what Python's `str.splitlines` takes for one too: clients that use it on the stream would cut the line. One
 * expression for both, since most frames have none of them.
 */
const ANY_BREAK = /[\r\n\u0085\u2028\u2029]/;
const OTHER_BREAKS = /[\u0085\u2028\u2029]/g;

/**
 * What ends a comment that a blank line need not follow. By the standard a comment ends with its line, and openai-go up to 3.42 takes
 * a blank line after it for the end of an event without data, which is no JSON. But clients that split a stream at blank lines and
 * skip parts that begin with a colon, as Dify's provider does, then skip the frame after the comment too. So it is used where
 * no such client reads, before frames with names, and where they miss nothing: before the first frame, which has a role only.
 */
const LINE_END: ChunkEnd = '\n';

/**
 * Server-sent events over {@link chunk}s. The head is sent in the loop's next turn, with the frames written until then.
 * Frames written in one tick are sent together, so their number is bounded by what one engine message causes.
 */
export class SseStream implements EventStream {
  readonly #target: Pick<BodyWriter, 'send' | 'end' | 'unread'>;
  readonly #errorFrame: (error: ContractError) => string;
  readonly #named: boolean;
  readonly #errorName: string;
  readonly #trailers: boolean;
  #waiting: Chunk[] = [];
  /**
   * The previous array of {@link #waiting}, emptied. Two arrays are reused in turn: a new one per packet would be in the old generation by
   * the time it is filled, and a dead array there keeps its frames alive until the next full collection.
   */
  #spare: Chunk[] = [];
  #flushPlanned = false;
  /** Set if the stream ended before its head was sent. */
  #ending: ((chunks: readonly Chunk[]) => void) | undefined;
  #started = false;
  #open = true;
  #hasFrames = false;
  #bytes = 0;
  #failure: ErrorCode | undefined;

  constructor(
    target: Pick<BodyWriter, 'send' | 'end' | 'unread'>,
    nextTurn: Pick<NextTurn, 'add'>,
    { named = false, errorName = 'error', errorFrame = errorBody, trailers = true }: StreamOptions = {},
  ) {
    this.#target = target;
    this.#named = named;
    this.#errorName = errorName;
    this.#trailers = trailers;
    this.#errorFrame = errorFrame;
    nextTurn.add(() => this.#start());
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Of the error that it ended with, if it did. */
  get failure(): ErrorCode | undefined {
    return this.#failure;
  }

  unread(): number {
    return this.#open ? this.#target.unread() : 0;
  }

  event(text: string, name?: string): void {
    if (!this.#open) return;
    this.#hasFrames = true;
    const data = unbroken(text);
    this.#write(name === undefined ? chunk('data', data) : chunk('event', `${name}\ndata: ${data}`));
  }

  comment(text: string): void {
    if (!this.#open) return;
    forbidLineBreak(text);
    this.#write(chunk('', text, this.#named || !this.#hasFrames ? LINE_END : '\n\n'));
  }

  end(serverTiming?: string): void {
    if (!this.#open) return;
    if (serverTiming !== undefined) forbidLineBreak(serverTiming);
    this.#open = false;
    const trailer =
      serverTiming === undefined || !this.#trailers ? undefined : (['Server-Timing', serverTiming] as const);
    const end = (chunks: readonly Chunk[]): void => this.#target.end(chunks, trailer);
    if (this.#started) this.#passTo(end);
    else this.#ending = end;
  }

  fail(error: ContractError, serverTiming?: string): void {
    if (!this.#open) return;
    this.#failure = error.code;
    // For the clients of LINE_END: the frame must not be part of the comments before it.
    if (!this.#named && !this.#hasFrames && this.#bytes > 0) this.#write(chunk('', ''));
    this.event(this.#errorFrame(error), this.#named ? this.#errorName : undefined);
    this.end(serverTiming);
  }

  /** The caller disconnected: nothing is written any more. */
  abandon(): void {
    this.#open = false;
    this.#ending = undefined;
    this.#waiting.length = 0;
  }

  #start(): void {
    this.#started = true;
    if (this.#ending !== undefined) this.#passTo(this.#ending);
    else this.#flush();
  }

  #write(made: Chunk): void {
    this.#bytes += made.bytes;
    this.#waiting.push(made);
    this.#planFlush();
  }

  #planFlush(): void {
    if (this.#flushPlanned || !this.#started) return;
    this.#flushPlanned = true;
    queueMicrotask(() => {
      this.#flushPlanned = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#open) this.#passTo((chunks) => this.#target.send(chunks));
  }

  #passTo(to: (chunks: readonly Chunk[]) => void): void {
    const chunks = this.#waiting;
    this.#waiting = this.#spare;
    this.#spare = chunks;
    try {
      to(chunks);
    } finally {
      chunks.length = 0;
    }
  }
}

/** A stream without a caller. */
export const ABANDONED_STREAM: EventStream = {
  bytes: 0,
  event: () => undefined,
  comment: () => undefined,
  end: () => undefined,
  fail: () => undefined,
  unread: () => 0,
};

/** JSON without the characters that some clients take for a line break: escaped, which they can be, since JSON has them in strings only. */
function unbroken(json: string): string {
  if (!ANY_BREAK.test(json)) return json;
  forbidLineBreak(json);
  return json.replace(OTHER_BREAKS, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** A line break would end the frame early and start a forged one. */
function forbidLineBreak(text: string): void {
  if (LINE_BREAK.test(text)) throw new RangeError('a frame of an event stream is one line');
}
