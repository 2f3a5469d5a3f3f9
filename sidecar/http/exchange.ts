import type { ContractError } from '../domain/errors.js';
import type { Signal } from '../lib/abort.js';

/** The head of one request, copied out of uWS before the first await. Header values may be secrets: never logged. */
export interface RequestHead {
  /** Upper case. */
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  /** The caller's x-request-id when it is well-formed, else a fresh UUID. */
  readonly requestId: string;
  /** The address that the connection comes from, as text; empty on a Unix socket. */
  readonly address: string;
  /** A header by its lower-case name. */
  header(name: string): string | undefined;
}

export type Body =
  | {
      readonly kind: 'body';
      readonly bytes: Uint8Array;
      /** Clock reading when the last byte arrived. */
      readonly receivedAt: number;
      /**
       * Says that the bytes are no longer held, which makes room for other bodies: one that was tokenized must not keep
       * its share of the cap while its request waits. Idempotent; a reply or the start of a stream does it too.
       */
      release(): void;
    }
  /** Longer than the limit; the rest is not kept. */
  | { readonly kind: 'too-large' }
  /** All bodies together are at their cap. */
  | { readonly kind: 'no-room' }
  /** The caller left. */
  | { readonly kind: 'gone' };

export interface Reply {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * Absent: no body. JSON unless `headers` says otherwise. Bytes are not copied: they must not change any more, and they
   * do not count as memory of this reply, so they are for what the handler keeps anyway.
   */
  readonly body?: string | Uint8Array;
}

/**
 * One request and its reply, with uWS's rules kept inside (read before the first await, cork every write, abort known
 * first). Exactly one of reply, fail and stream is called; after the caller left they do nothing.
 */
export interface Exchange {
  readonly head: RequestHead;
  /** Fires when the caller left before the reply was complete. */
  readonly gone: Signal;
  /** The whole body, read with the limit of its route. Call once. */
  body(limitBytes: number): Promise<Body>;
  /** Answers with a whole body. CORS and x-request-id are added. */
  reply(reply: Reply): void;
  /** Answers with an error of the catalogue and the headers it calls for. `headers` adds to them. */
  fail(error: ContractError, headers?: Readonly<Record<string, string>>): void;
  /** Answers 200 with server-sent events, and `Trailer: Server-Timing` announced. */
  stream(headers?: Readonly<Record<string, string>>): EventStream;
}

/** An open stream of server-sent events. After the caller left, everything here does nothing. */
export interface EventStream {
  /** `data: <text>` and a blank line; the text has no line break. */
  event(text: string): void;
  /** `: <text>` and a blank line. */
  comment(text: string): void;
  /** The end of the body; `serverTiming` becomes the Server-Timing trailer. Idempotent. */
  end(serverTiming?: string): void;
  /** One last frame that holds the error, and the end as `end` has it. After the end it does nothing. */
  fail(error: ContractError, serverTiming?: string): void;
  /** Bytes written so far, framing included. */
  readonly bytes: number;
  /**
   * Bytes that the reader's socket has no room for now: 0 says that all written so far is on its way. For a sender that
   * would rather leave something out than let it wait. Makes the stream ask its socket from the first call on.
   */
  unread(): number;
}
