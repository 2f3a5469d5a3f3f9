import { contractError, errorBody, type ContractError } from '../domain/errors.js';
import { AbortHandle, type Signal } from '../lib/abort.js';
import { answerFields, EVENT_STREAM } from './answer-fields.js';
import type { CutReason } from './backlog.js';
import { BodyReader, emptyBody, type BodyResult } from './body.js';
import { bodylessFields, closeLater, isBodyless, mayLeaveHeadUnread, sendBodyless, sendHead } from './bodyless.js';
import type { Field } from './cors.js';
import type { FollowedExchange } from './ended-streams.js';
import type { ServerContext } from './server-context.js';
import type { EventStream, Exchange, FrameOptions, Reply, RequestHead } from './exchange.js';
import { ExchangeRecord } from './exchange-record.js';
import { asksForTrailers, errorFields, KEEP_ALIVE, statusLine, streamHeaders } from './fields.js';
import type { Snapshot } from './head.js';
import { BodyWriter } from './body-writer.js';
import { abandonedStream, SseStream } from './sse.js';
import type { HttpResponse } from './uws.js';
import { endReply, LEAST_OPEN_BYTES, WholeReply } from './whole-reply.js';

/** An exchange over uWS. Made synchronously in uWS's handler; owns `res` until the reply is complete or the caller has disconnected. */
export class UwsExchange implements Exchange {
  readonly head: RequestHead;
  readonly #res: HttpResponse;
  readonly #server: ServerContext;
  readonly #record: ExchangeRecord;
  readonly #reader: BodyReader | undefined;
  /** The connection must not be reused: another parser could see the next request begin elsewhere. */
  readonly #refused: boolean;
  /** uWS misreads chunk extensions and trailers, so after a chunked body the start of the next request is not trusted. */
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
    const type = body.length > 0 ? 'application/json' : undefined;
    const fields = answerFields(this.#server, this.head, { status, type, own: headers });
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
    const closes = this.#mustClose;
    const kept = !closes && !this.#bodyIsLate;
    const open = !kept && length >= LEAST_OPEN_BYTES;
    this.#reader?.close();
    if (this.head.method === 'HEAD' || isBodyless(status, length)) {
      this.#sendBodyless(status, bodylessFields(status, fields, length), kept);
      return;
    }
    const writeHead = (): void => {
      this.#writeHead(status, fields);
      if (closes) this.#res.writeHeader('Connection', 'close');
      else if (kept) this.#res.writeHeader('Keep-Alive', KEEP_ALIVE);
    };
    const ended = (waited: boolean): void => {
      this.#finish('complete', length);
      const end = (): void => this.#endOpen(closes, waited);
      if (!open) this.#released = true;
      // A caller that is still sending would lose a reply whose connection is closed.
      else if (this.#reader !== undefined) this.#reader.whenComplete(end);
      else end();
    };
    const owner = { writeHead, ended, cutOff: this.#cutOffReader.bind(this) };
    const { secure, backlog } = this.#server;
    const whole = new WholeReply(this.#res, owner, backlog, { body, length, secure, open });
    this.#whole = whole;
    whole.send();
    if (this.#bodyIsLate) this.#reader?.whenComplete(() => whole.again());
  }

  /** All of a reply that stayed open was sent, and the request's body has arrived. */
  #endOpen(closes: boolean, waited: boolean): void {
    this.#released = !closes;
    if (!closes) endReply(this.#res);
    else if (waited) this.#cancelLinger = closeLater(this.#res, this.#server.clock);
    else this.#server.nextTurn.add(() => this.#close());
  }

  /** `kept`: the connection continues after an answer to HEAD, if that may wait unread. */
  #sendBodyless(status: number, fields: readonly Field[], kept: boolean): void {
    const head = (): void => this.#writeHead(status, fields);
    const { clock, endedStreams } = this.#server;
    this.#released = kept && this.head.method === 'HEAD' && mayLeaveHeadUnread(endedStreams, this.head.address, fields);
    if (this.#released) sendHead(this.#res, head);
    else this.#cancelLinger = sendBodyless(this.#res, clock, head);
    this.#finish('complete', 0);
  }

  fail(error: ContractError, headers: Readonly<Record<string, string>> = {}): void {
    if (this.#state === 'open' && !this.#answered) this.#record.code = error.code;
    this.reply({ status: error.status, headers: { ...errorFields(error), ...headers }, body: errorBody(error) });
  }

  stream(headers: Readonly<Record<string, string>> = {}, frames?: FrameOptions): EventStream {
    const closes = this.#mustClose;
    const trailers = this.#server.trailers === 'always' || asksForTrailers(this.head);
    const own = streamHeaders(headers, { closes, trailers });
    const fields = answerFields(this.#server, this.head, { status: 200, type: EVENT_STREAM, own });
    if (this.#state !== 'open' || this.#answered) return abandonedStream();
    this.#reader?.closeUnread();
    if (this.head.method === 'HEAD') {
      this.#answered = true;
      this.#server.nextTurn.add(() => {
        if (this.#state === 'open') this.#sendBodyless(200, fields, false);
      });
      return abandonedStream();
    }
    const writer = new BodyWriter(
      this.#res,
      {
        writeHead: () => {
          this.#writeHead(200, fields);
          if (!closes) this.#res.writeHeader('Keep-Alive', KEEP_ALIVE);
          // uWS writes its own only at the end, inside this body's trailer.
          this.#res.writeHeader('Date', new Date().toUTCString());
        },
        // Connections are closed soon, and what is still in uWS would be lost.
        mayLeaveUnread: (bytes) =>
          !this.#server.closing && this.#server.endedStreams.mayLeaveUnread(this.head.address, bytes),
        allSent: () => this.#unfollow(),
        mustStayOpen: () => closes || this.#bodyIsLate,
        ended: (open) => {
          if (open) this.#cancelLinger = closeLater(this.#res, this.#server.clock);
          else this.#released = true;
          this.#finish('complete', this.#stream?.bytes ?? 0);
        },
        cutOff: (reason, bytes) => this.#cutOffReader(reason, bytes),
      },
      this.#server.backlog,
      frames?.named === true ? '\n' : '\n\n',
    );
    this.#state = 'streaming';
    this.#writer = writer;
    this.#stream = new SseStream(writer, this.#server.nextTurn, { trailers, ...frames });
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

  /** When it arrives uWS stops the timer of an idle connection, if by then the response is complete for it. */
  get #bodyIsLate(): boolean {
    return this.#reader?.complete === false;
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
