import { contractError, errorBody, type ContractError, type ErrorCode } from '../domain/errors.js';
import { AbortHandle, type Signal } from '../lib/abort.js';
import type { CutReason } from './backlog.js';
import { BodyReader } from './body.js';
import { isBodyless, sendBodyless } from './bodyless.js';
import type { Field } from './cors.js';
import type { EndingStream } from './ended-streams.js';
import type { ServerContext } from './server-context.js';
import type { Body, EventStream, Exchange, Reply, RequestHead } from './exchange.js';
import { errorFields, responseFields, statusLine } from './fields.js';
import type { Snapshot } from './head.js';
import { BodyWriter } from './body-writer.js';
import { abandonedStream, SseStream } from './sse.js';
import type { HttpResponse } from './uws.js';
import { WholeReply } from './whole-reply.js';

const NO_BYTES = new Uint8Array(0);

/**
 * An exchange over uWS. Made synchronously in uWS's handler; owns `res` until the reply is complete or the caller has
 * disconnected.
 */
export class UwsExchange implements Exchange {
  readonly head: RequestHead;
  readonly #res: HttpResponse;
  readonly #route: string | undefined;
  readonly #server: ServerContext;
  readonly #arrivedAt: number;
  readonly #reader: BodyReader | undefined;
  /** The connection must not be reused: another parser could see the next request begin elsewhere. */
  readonly #refused: boolean;
  /**
   * uWS misreads chunk extensions and trailers, so after a chunked body the start of the next request is not trusted.
   */
  readonly #chunked: boolean;
  #state: 'open' | 'streaming' | 'complete' | 'gone' = 'open';
  /** A whole reply was given; it may not be completely passed to uWS yet. */
  #answered = false;
  #whole: WholeReply | undefined;
  /** uWS's handler has not returned. */
  #parsing = true;
  /** The connection has ended, or uWS has the whole response: `#res` must not be used. */
  #released = false;
  #cancelLinger: (() => void) | undefined;
  #status = 499;
  #code: ErrorCode | undefined;
  #stream: SseStream | undefined;
  #writer: BodyWriter | undefined;
  #ending: EndingStream | undefined;
  #leaving: AbortHandle | undefined;

  constructor(
    res: HttpResponse,
    { head, bodyLength, refusal }: Snapshot,
    route: string | undefined,
    server: ServerContext,
  ) {
    this.head = head;
    this.#res = res;
    this.#route = route;
    this.#server = server;
    this.#arrivedAt = server.clock.now();
    this.#refused = refusal !== undefined;
    this.#chunked = bodyLength === 'chunked';
    server.onExchange?.(head);
    res.onAborted(() => this.#callerLeft());
    if (bodyLength === 0) return;
    const declared = bodyLength === 'chunked' ? undefined : bodyLength;
    const reader = new BodyReader(res, declared, server.bodies, server.clock, server.bodyMs);
    this.#reader = reader;
    res.onData((chunk, last) => reader.push(chunk, last));
  }

  /** Made on first use, since most exchanges do not need it. */
  get gone(): Signal {
    if (this.#leaving === undefined) {
      this.#leaving = new AbortHandle();
      if (this.#state === 'gone') this.#leaving.abort();
    }
    return this.#leaving;
  }

  body(limitBytes: number): Promise<Body> {
    if (this.#reader !== undefined) return this.#reader.read(limitBytes);
    if (this.#state === 'gone') return Promise.resolve({ kind: 'gone' });
    return Promise.resolve({ kind: 'body', bytes: NO_BYTES, receivedAt: this.#arrivedAt, release: () => undefined });
  }

  reply({ status, headers = {}, body = '' }: Reply): void {
    if (this.#state !== 'open' || this.#answered) return;
    const fields = this.#fields(status, body.length > 0 ? 'application/json' : undefined, headers);
    this.#answered = true;
    const length = Buffer.byteLength(body);
    const send = (): void => this.#send(status, fields, body, length);
    if (this.#mayAnswerInParser(status, fields, length)) send();
    else this.#server.nextTurn.add(send);
  }

  /** uWS's handler has returned. */
  parsed(): void {
    this.#parsing = false;
  }

  #mayAnswerInParser(status: number, fields: readonly Field[], length: number): boolean {
    if (!this.#parsing || this.#mustClose || this.#reader !== undefined || isBodyless(status, length)) return false;
    return this.#server.parserCork.take(this.head.address, fields, this.head.method === 'HEAD' ? 0 : length);
  }

  #send(status: number, fields: readonly Field[], body: string | Uint8Array, length: number): void {
    if (this.#state !== 'open') return;
    const headOnly = this.head.method === 'HEAD';
    // A caller that is still sending would lose the reply, so the connection is closed only when all was read.
    const last = this.#refused || (this.#mustClose && this.#allRead);
    this.#reader?.close();
    if (isBodyless(status, length)) {
      this.#sendBodyless(status, status === 204 || status === 304 ? fields : [...fields, ['Content-Length', '0']]);
      return;
    }
    const writeHead = (): void => {
      this.#writeHead(status, fields);
      if (this.#mustClose && !last) this.#res.writeHeader('Connection', 'close');
    };
    const ended = (): void => {
      this.#finish('complete', headOnly ? 0 : length);
      if (last) this.#server.nextTurn.add(() => this.#close());
      else this.#released = true;
    };
    const owner = { writeHead, ended, cut: this.#cutReader.bind(this) };
    this.#whole = new WholeReply(this.#res, owner, this.#server.backlog, { body, length, headOnly, last });
    this.#whole.send();
  }

  #sendBodyless(status: number, fields: readonly Field[]): void {
    const head = (): void => this.#writeHead(status, fields);
    this.#cancelLinger = sendBodyless(this.#res, this.#server.clock, head);
    this.#finish('complete', 0);
  }

  fail(error: ContractError, headers: Readonly<Record<string, string>> = {}): void {
    if (this.#state === 'open' && !this.#answered) this.#code = error.code;
    this.reply({ status: error.status, headers: { ...errorFields(error), ...headers }, body: errorBody(error) });
  }

  stream(headers: Readonly<Record<string, string>> = {}, errorFrame?: (error: ContractError) => string): EventStream {
    const fields = this.#fields(200, 'text/event-stream', {
      'Cache-Control': 'no-cache',
      'X-Accel-Buffering': 'no',
      ...headers,
      Trailer: 'Server-Timing',
      ...(this.#mustClose ? { Connection: 'close' } : {}),
    });
    if (this.#state !== 'open' || this.#answered) return abandonedStream();
    // The prompt was read long ago; a stream may go on for minutes.
    this.#reader?.close();
    if (this.head.method === 'HEAD') {
      this.#answered = true;
      this.#server.nextTurn.add(() => {
        if (this.#state === 'open') this.#sendBodyless(200, fields);
      });
      return abandonedStream();
    }
    const ending = this.#server.endedStreams.open(this.head.address);
    this.#ending = ending;
    const writer = new BodyWriter(
      this.#res,
      {
        writeHead: () => {
          this.#writeHead(200, fields);
          // uWS writes its own only at the end, inside this body's trailer.
          this.#res.writeHeader('Date', new Date().toUTCString());
        },
        mayLeave: (bytes) => ending.mayLeave(bytes),
        ended: () => {
          this.#released = true;
          this.#finish('complete', this.#stream?.bytes ?? 0);
        },
        cut: (reason, bytes) => this.#cutReader(reason, bytes),
      },
      this.#server.backlog,
    );
    this.#state = 'streaming';
    this.#writer = writer;
    this.#stream = new SseStream(writer, this.#server.nextTurn, errorFrame);
    return this.#stream;
  }

  /** A handler failed: answers 500, or ends an open stream with one error frame. After the end it does nothing. */
  crash(): void {
    const error = contractError('internal', 'The server failed on this request.');
    if (this.#state === 'streaming') this.#stream?.fail(error);
    else this.fail(error);
  }

  get #mustClose(): boolean {
    return this.#refused || this.#chunked || this.#server.closing;
  }

  get #allRead(): boolean {
    return this.#reader === undefined || this.#reader.complete;
  }

  #fields(status: number, contentType: string | undefined, own: Readonly<Record<string, string>>): Field[] {
    const { fields, names } = responseFields(contentType, own, this.head.requestId);
    if (contentType === 'text/event-stream') names.add('server-timing');
    const report = this.#server.loadReport?.field(this.head, status);
    if (report !== undefined) fields.push(report);
    return [...fields, ...this.#server.cors.fields(this.head, names)];
  }

  #writeHead(status: number, fields: readonly Field[]): void {
    this.#status = status;
    this.#res.writeStatus(statusLine(status));
    for (const [name, value] of fields) this.#res.writeHeader(name, value);
  }

  /** For the request this is a disconnect of the caller. */
  #cutReader(reason: CutReason, bytes: number): void {
    this.#server.onReaderCut?.({ requestId: this.head.requestId, reason, bytes });
    this.#close();
  }

  #close(): void {
    if (!this.#released) this.#res.close();
  }

  #callerLeft(): void {
    this.#released = true;
    this.#cancelLinger?.();
    if (this.#state === 'complete' || this.#state === 'gone') return;
    this.#stream?.abandon();
    this.#writer?.abandon();
    this.#whole?.abandon();
    this.#reader?.abandon();
    this.#finish('gone', this.#stream?.bytes ?? 0);
    this.#leaving?.abort();
  }

  #finish(outcome: 'complete' | 'gone', responseBytes: number): void {
    this.#state = outcome;
    this.#ending?.close();
    const code = this.#stream?.failure ?? this.#code;
    this.#server.onExchangeEnd?.({
      requestId: this.head.requestId,
      method: this.head.method,
      route: this.#route,
      status: this.#status,
      requestBytes: this.#reader?.length ?? 0,
      responseBytes,
      durationMs: this.#server.clock.now() - this.#arrivedAt,
      outcome,
      ...(code !== undefined && { code }),
    });
  }
}
