import { contractError, errorBody, type ContractError } from '../domain/errors.js';
import { AbortHandle, type Signal } from '../lib/abort.js';
import type { CutReason } from './backlog.js';
import { BodyReader, emptyBody } from './body.js';
import { bodylessFields, closeLater, isBodyless, mayLeaveHeadUnread, sendBodyless, sendHead } from './bodyless.js';
import type { Field } from './cors.js';
import type { FollowedExchange } from './ended-streams.js';
import type { ServerContext } from './server-context.js';
import type { BodyResult, EventStream, Exchange, Reply, RequestHead } from './exchange.js';
import { ExchangeRecord } from './exchange-record.js';
import { errorFields, responseFields, statusLine, streamHeaders } from './fields.js';
import type { Snapshot } from './head.js';
import { BodyWriter } from './body-writer.js';
import { abandonedStream, SseStream } from './sse.js';
import type { HttpResponse } from './uws.js';
import { LEAST_LAST_BYTES, WholeReply } from './whole-reply.js';

/**
 * An exchange over uWS. Made synchronously in uWS's handler; owns `res` until the reply is complete or the caller has
 * disconnected.
 */
export class UwsExchange implements Exchange {
  readonly head: RequestHead;
  readonly #res: HttpResponse;
  readonly #server: ServerContext;
  readonly #record: ExchangeRecord;
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
  #stream: SseStream | undefined;
  #writer: BodyWriter | undefined;
  /** Set while its connection may have unread bytes of earlier streams. */
  #followed: FollowedExchange | undefined;
  #disconnect: AbortHandle | undefined;

  constructor(res: HttpResponse, { head, bodyLength, refusal }: Snapshot, server: ServerContext) {
    this.head = head;
    this.#res = res;
    this.#server = server;
    this.#record = new ExchangeRecord(head, server);
    this.#refused = refusal !== undefined;
    this.#chunked = bodyLength === 'chunked';
    server.onExchange?.(head);
    this.#followed = server.endedStreams.follow(head.address, () => this.#writer?.unread());
    res.onAborted(() => this.#disconnected());
    if (bodyLength === 0) return;
    const declared = bodyLength === 'chunked' ? undefined : bodyLength;
    const reader = new BodyReader(res, declared, server.bodies, server.clock, server.bodyMs);
    this.#reader = reader;
    res.onData((chunk, last) => reader.push(chunk, last));
  }

  /** Made on first use, since most exchanges do not need it. */
  get gone(): Signal {
    if (this.#disconnect === undefined) {
      this.#disconnect = new AbortHandle();
      if (this.#state === 'gone') this.#disconnect.abort();
    }
    return this.#disconnect;
  }

  body(limitBytes: number): Promise<BodyResult> {
    if (this.#reader !== undefined) return this.#reader.read(limitBytes);
    if (this.#state === 'gone') return Promise.resolve({ kind: 'gone' });
    return Promise.resolve(emptyBody(this.#record.arrivedAt));
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
    const last = (this.#refused || (this.#mustClose && this.#reader?.complete !== false)) && length >= LEAST_LAST_BYTES;
    this.#reader?.close();
    if (headOnly || isBodyless(status, length)) {
      const whole = bodylessFields(status, fields, length);
      if (headOnly && !this.#mustClose && mayLeaveHeadUnread(this.#server.endedStreams, this.head.address, whole))
        this.#sendHead(status, whole);
      else this.#sendBodyless(status, whole);
      return;
    }
    const writeHead = (): void => {
      this.#writeHead(status, fields);
      if (this.#mustClose && !last) this.#res.writeHeader('Connection', 'close');
    };
    const ended = (waited: boolean): void => {
      this.#finish('complete', length);
      if (!last) this.#released = true;
      else if (waited) this.#cancelLinger = closeLater(this.#res, this.#server.clock);
      else this.#server.nextTurn.add(() => this.#close());
    };
    const owner = { writeHead, ended, cutOff: this.#cutOffReader.bind(this) };
    const { secure, backlog } = this.#server;
    this.#whole = new WholeReply(this.#res, owner, backlog, { body, length, secure, last });
    this.#whole.send();
  }

  /** Answers HEAD; the connection continues. */
  #sendHead(status: number, fields: readonly Field[]): void {
    sendHead(this.#res, () => this.#writeHead(status, fields));
    this.#released = true;
    this.#finish('complete', 0);
  }

  #sendBodyless(status: number, fields: readonly Field[]): void {
    const head = (): void => this.#writeHead(status, fields);
    this.#cancelLinger = sendBodyless(this.#res, this.#server.clock, head);
    this.#finish('complete', 0);
  }

  fail(error: ContractError, headers: Readonly<Record<string, string>> = {}): void {
    if (this.#state === 'open' && !this.#answered) this.#record.code = error.code;
    this.reply({ status: error.status, headers: { ...errorFields(error), ...headers }, body: errorBody(error) });
  }

  stream(headers: Readonly<Record<string, string>> = {}, errorFrame?: (error: ContractError) => string): EventStream {
    const fields = this.#fields(200, 'text/event-stream', streamHeaders(headers, this.#mustClose));
    if (this.#state !== 'open' || this.#answered) return abandonedStream();
    this.#reader?.closeUnread();
    if (this.head.method === 'HEAD') {
      this.#answered = true;
      this.#server.nextTurn.add(() => {
        if (this.#state === 'open') this.#sendBodyless(200, fields);
      });
      return abandonedStream();
    }
    const writer = new BodyWriter(
      this.#res,
      {
        writeHead: () => {
          this.#writeHead(200, fields);
          // uWS writes its own only at the end, inside this body's trailer.
          this.#res.writeHeader('Date', new Date().toUTCString());
        },
        // Connections are closed soon, and what is still in uWS would be lost.
        mayLeaveUnread: (bytes) =>
          !this.#server.closing && this.#server.endedStreams.mayLeaveUnread(this.head.address, bytes),
        allSent: () => this.#unfollow(),
        ended: () => {
          this.#released = true;
          this.#finish('complete', this.#stream?.bytes ?? 0);
        },
        cutOff: (reason, bytes) => this.#cutOffReader(reason, bytes),
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

  #fields(status: number, contentType: string | undefined, own: Readonly<Record<string, string>>): Field[] {
    const { fields, names } = responseFields(contentType, own, this.head.requestId);
    if (contentType === 'text/event-stream') names.add('server-timing');
    const report = this.#server.loadReport?.field(this.head, status);
    if (report !== undefined) fields.push(report);
    return [...fields, ...this.#server.cors.fields(this.head, names)];
  }

  #writeHead(status: number, fields: readonly Field[]): void {
    this.#record.status = status;
    this.#res.writeStatus(statusLine(status));
    for (const [name, value] of fields) this.#res.writeHeader(name, value);
  }

  /** The request ends as if its caller had disconnected. */
  #cutOffReader(reason: CutReason, bytes: number): void {
    this.#server.onReaderCut?.({ requestId: this.head.requestId, reason, bytes });
    this.#close();
  }

  #close(): void {
    if (!this.#released) this.#res.close();
  }

  #disconnected(): void {
    this.#released = true;
    this.#unfollow();
    this.#cancelLinger?.();
    if (this.#state === 'complete' || this.#state === 'gone') return;
    this.#stream?.abandon();
    this.#writer?.abandon();
    this.#whole?.abandon();
    this.#reader?.abandon();
    this.#finish('gone', this.#stream?.bytes ?? 0);
    this.#disconnect?.abort();
  }

  #unfollow(): void {
    this.#followed?.done();
    this.#followed = undefined;
  }

  #finish(outcome: 'complete' | 'gone', responseBytes: number): void {
    this.#state = outcome;
    // An answer without a body keeps its connection until that is closed.
    if (this.#cancelLinger === undefined) this.#unfollow();
    const requestBytes = this.#reader?.length ?? 0;
    this.#record.end(outcome, { requestBytes, responseBytes, failure: this.#stream?.failure });
  }
}
