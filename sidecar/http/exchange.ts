import type { ContractError } from '../domain/errors.js';
import type { LimitsLeft } from '../domain/limit-left.js';
import type { Signal } from '../lib/abort.js';
import type { BodyEnd, BodyResult, WholeBody } from './body.js';

/** The head of one request, copied from uWS before the first await. Header values may be secrets: never logged. */
export interface RequestHead {
  /** Upper case. */
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  /** What follows `?` in the target of a GET, undecoded; empty without one, and for other methods, whose routes read none. */
  readonly query: string;
  /** The path of its route in the route table, which has no text of the caller; undefined if nothing is served at `path`. */
  readonly route: string | undefined;
  /** The caller's x-request-id if it is valid, else a new UUID. */
  readonly requestId: string;
  /** `https`: this process terminated TLS. A proxy in front that does makes it `http`. */
  readonly scheme: 'http' | 'https';
  /** The address of the connection, as text; empty on a Unix socket. */
  readonly address: string;
  /** A header by its lower-case name. */
  header(name: string): string | undefined;
}

export interface Reply {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * Absent: no body. JSON unless `headers` has another type. Bytes are not copied: they must not change any more, and they do not count as
   * memory of this reply, so use them only for data that is kept anyway.
   */
  readonly body?: string | Uint8Array;
}

/**
 * One request and its reply. It hides uWS's rules (read before the first await, cork every write, register the abort first). Exactly one of
 * reply, fail, stream, file and pieces is called; after the caller disconnected they do nothing.
 */
export interface Exchange {
  readonly head: RequestHead;
  /** Absent: its answers are like those of most routes. */
  readonly answerForm?: AnswerForm | undefined;
  /** Aborted if the caller disconnects before the reply is complete. */
  readonly gone: Signal;
  /** The whole body, with the limit of its route. Call it once. The body is the caller's to free. */
  body(limitBytes: number): Promise<BodyResult>;
  /**
   * The next piece of the body, in place of `body`: for bodies that are never whole in memory. The connection is paused while more
   * than half a mebibyte waits for the caller. Call it again once it has settled, until it has not resolved with bytes. `after`: until
   * it settles the next piece is not asked for, unless so much waits that memory would fill: then the sender is faster than what reads.
   */
  receive(limitBytes: number, after?: Promise<unknown>): Promise<Uint8Array | WholeBody | BodyEnd>;
  /** Answers with a whole body. CORS and x-request-id are added. */
  reply(reply: Reply): void;
  /** Answers with an error of the catalogue and its headers. `headers` adds to them. */
  fail(error: ContractError, headers?: Readonly<Record<string, string>>): void;
  /** Answers 200 with server-sent events. `Trailer: Server-Timing` is announced if the stream may end with it. */
  stream(headers?: Readonly<Record<string, string>>, frames?: FrameOptions): EventStream;
  /** Answers 200 with a file, which is read as the caller takes it. Resolves once that has ended; rejects if it cannot be read. */
  file(file: FileBody): Promise<void>;
  /** Answers 200 with JSON whose length is not known yet. */
  pieces(headers?: Readonly<Record<string, string>>): BodyPieces;
}

/** A body of known length, which is read while it is sent. */
export interface FileBody {
  readonly headers: Readonly<Record<string, string>>;
  readonly type: string;
  /** Bytes of all pieces together, at least 1. */
  readonly length: number;
  readonly pieces: AsyncIterable<Uint8Array>;
}

/** A JSON body that is written as it is made. After the caller disconnected, all methods do nothing. */
export interface BodyPieces {
  /** The next part of the text. A space may be written after any part, so parts end where JSON may have one. */
  write(text: string): void;
  /** Settles once the caller has read what was written; undefined if nothing waits for it. The sender waits for it. Never rejects. */
  drained(): Promise<void> | undefined;
  /** The last part. */
  end(text: string): void;
  /** Closes the connection, so that the caller sees that the body is not complete. */
  abort(): void;
}

/** How the answers of a route differ from those of all others: fields of their own, and how an error is written. */
export interface AnswerForm {
  /** The header fields that tell what is left of the key's limits, at this wall-clock time. */
  limitFields(left: LimitsLeft, now: Date): Readonly<Record<string, string>>;
  /** Header fields of each answer. */
  fields(requestId: string): Readonly<Record<string, string>>;
  statusOf(error: ContractError): number;
  /** Its body, and the data of the frame with which an error ends a stream. */
  errorText(error: ContractError, requestId: string): string;
}

/** What the frames of one event stream are like. */
export interface FrameOptions {
  /** Each frame has a line `event: <name>` before its data. Default: none has. */
  readonly named?: boolean;
  /** With `named`: the name of the frame that ends the stream early. Default: `error`. */
  readonly errorName?: string;
  /** The data of the frame with the error that ended the stream early. Default: as the exchange's answer form has it, else the error object. */
  readonly errorFrame?: (error: ContractError) => string;
}

/** An open stream of server-sent events. After the caller disconnected, all methods do nothing. */
export interface EventStream {
  /** `data: <text>` and a blank line; the text is JSON in one line. `name`: the line before, with {@link FrameOptions.named}. */
  event(text: string, name?: string): void;
  /** `: <text>`. A blank line follows it between frames without names. */
  comment(text: string): void;
  /** Ends the body; `serverTiming` becomes the Server-Timing trailer, if the request takes one. Idempotent. */
  end(serverTiming?: string): void;
  /** Sends a last frame with the error, and ends like `end`. After the end it does nothing. */
  fail(error: ContractError, serverTiming?: string): void;
  /** Bytes written so far, framing included. */
  readonly bytes: number;
  /**
   * Bytes that wait for the reader: 0 means that everything written so far is sent. For senders that drop data rather than let it wait. The
   * first call switches the stream to writing with backpressure.
   */
  unread(): number;
}
