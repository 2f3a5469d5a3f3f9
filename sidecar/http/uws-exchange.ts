import { contractError, errorBody, type ContractError, type ErrorCode } from '../domain/errors.js';
import { AbortHandle, type Signal } from '../lib/abort.js';
import type { Clock } from '../lib/clock.js';
import type { AnsweredRequest } from '../telemetry/http-metrics.js';
import type { Backlog, CutReason } from './backlog.js';
import { BodyReader, emptyBody, type BodyBudget, type BodyEnd, type BodyResult, type WholeBody } from './body.js';
import { BodyWriter } from './body-writer.js';
import type { NextTurn, ParserCork } from './corks.js';
import type { EndedStreams, FollowedExchange } from './ended-streams.js';
import type {
  AnswerForm,
  BodyPieces,
  EventStream,
  Exchange,
  FileBody,
  FrameOptions,
  Reply,
  RequestHead,
} from './exchange.js';
import {
  asksForTrailers,
  errorFields,
  headBytes,
  KEEP_ALIVE,
  responseFields,
  statusLine,
  streamHeaders,
  type Cors,
  type Field,
} from './fields.js';
import { FileReply, type PiecesOwner } from './file-reply.js';
import type { Snapshot } from './head.js';
import type { LoadReport } from './load-report.js';
import { PieceWriter } from './piece-writer.js';
import { ABANDONED_STREAM, SseStream } from './sse.js';
import type { HttpResponse } from './uws.js';
import { endReply, LEAST_OPEN_BYTES, WholeReply } from './whole-reply.js';

/** The end of one exchange, for logs and metrics. Contains no content. */
export interface ExchangeEnd extends AnsweredRequest {
  readonly requestId: string;
  readonly requestBytes: number;
  /** Of the body, framing included. */
  readonly responseBytes: number;
}

/** A connection that was closed because too much waited for its reader. */
export interface ReaderCut {
  readonly requestId: string;
  readonly reason: CutReason;
  /** What waited for it. */
  readonly bytes: number;
}

/** Which streams may end with a trailer: those of requests with `TE: trailers`, or all. */
export type Trailers = 'asked' | 'always';

/** State shared by all exchanges of one server. */
export interface ServerContext {
  /** The port uses TLS. */
  readonly secure: boolean;
  /** Which streams may end with a trailer. */
  readonly trailers: Trailers;
  readonly cors: Cors;
  readonly clock: Clock;
  readonly bodies: BodyBudget;
  /** The longest that one body may take. */
  readonly bodyMs: number;
  readonly backlog: Backlog;
  readonly endedStreams: EndedStreams;
  /** When replies are written, but for those that {@link parserCork} has room for. */
  readonly nextTurn: NextTurn;
  readonly parserCork: ParserCork;
  /** Each answer has `Connection: close`, and its connection ends after a whole reply. */
  readonly closing: boolean;
  readonly loadReport: LoadReport | undefined;
  readonly answerForm: ((head: RequestHead) => AnswerForm | undefined) | undefined;
  readonly onExchange: ((head: RequestHead) => void) | undefined;
  readonly onExchangeEnd: ((end: ExchangeEnd) => void) | undefined;
  readonly onReaderCut: ((cut: ReaderCut) => void) | undefined;
}

/** An exchange over uWS. Made synchronously in uWS's handler; owns `res` until the reply is complete or the caller has disconnected. */
export class UwsExchange implements Exchange {
  readonly head: RequestHead;
  readonly answerForm: AnswerForm | undefined;
  readonly #res: HttpResponse;
  readonly #server: ServerContext;
  readonly #arrivedAt: number;
  readonly #reader: BodyReader | undefined;
  /** The connection must not be reused: another parser could see the next request begin elsewhere. */
  readonly #refused: boolean;
  /** uWS misreads chunk extensions and trailers, so after a chunked body the start of the next request is not trusted. */
  readonly #chunked: boolean;
  #state: 'open' | 'streaming' | 'complete' | 'gone' = 'open';
  /** Of the answer; 499 until there is one. */
  #status = 499;
  /** Of an error that was answered as a whole. */
  #code: ErrorCode | undefined;
  /** A whole reply was given; it may not be completely passed to uWS yet. */
  #answered = false;
  #whole: WholeReply | undefined;
  #pieces: PieceWriter | undefined;
  #file: FileReply | undefined;
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
    this.answerForm = server.answerForm?.(head);
    this.#res = res;
    this.#server = server;
    this.#arrivedAt = server.clock.now();
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
    return Promise.resolve(emptyBody(this.#arrivedAt));
  }

  receive(limitBytes: number, after?: Promise<unknown>): Promise<Uint8Array | WholeBody | BodyEnd> {
    if (this.#reader !== undefined) return this.#reader.next(limitBytes, after);
    return Promise.resolve({ kind: this.#state === 'gone' ? 'gone' : 'complete' });
  }

  reply({ status, headers = {}, body = '' }: Reply): void {
    if (this.#state !== 'open' || this.#answered) return;
    const type = body.length > 0 ? 'application/json' : undefined;
    const fields = answerFields(this.#server, this.head, { status, type, own: this.#ownFields(headers) });
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

  /**
   * Answers without a body (204, 304, to HEAD). uWS has no call for such an answer that shows whether the socket took it, so on a
   * kept connection any number of them could wait for a caller who does not read. So the response stays open for uWS, which closes
   * the connection if another request comes. Otherwise the caller closes it, or the sidecar after {@link LINGER_MS}.
   *
   * `kept`: the connection continues after an answer to HEAD, if that may wait unread; its bytes are then counted with those that
   * finished streams of this address left.
   */
  #sendBodyless(status: number, fields: readonly Field[], kept: boolean): void {
    const { clock, endedStreams } = this.#server;
    this.#released =
      kept && this.head.method === 'HEAD' && endedStreams.mayLeaveUnread(this.head.address, headBytes(fields));
    this.#res.cork(() => {
      this.#writeHead(status, fields);
      if (this.#released) {
        this.#res.endWithoutBody();
        return;
      }
      this.#res.writeHeader('Connection', 'close');
      // Its second line break ends the head.
      this.#res.writeHeader('Date', `${new Date().toUTCString()}\r\n`);
    });
    if (!this.#released) this.#cancelLinger = closeLater(this.#res, clock);
    this.#finish('complete', 0);
  }

  fail(error: ContractError, headers: Readonly<Record<string, string>> = {}): void {
    if (this.#state === 'open' && !this.#answered) this.#code = error.code;
    const form = this.answerForm;
    const status = form?.statusOf(error) ?? error.status;
    const body = form?.errorText(error, this.head.requestId) ?? errorBody(error);
    this.reply({ status, headers: Object.assign({}, errorFields(error), headers), body });
  }

  #ownFields(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
    return this.answerForm ? Object.assign({}, this.answerForm.fields(this.head.requestId), headers) : headers;
  }

  stream(headers: Readonly<Record<string, string>> = {}, frames?: FrameOptions): EventStream {
    const closes = this.#mustClose;
    const trailers = this.#server.trailers === 'always' || asksForTrailers(this.head);
    const own = streamHeaders(this.#ownFields(headers), { closes, trailers });
    const fields = answerFields(this.#server, this.head, { status: 200, type: EVENT_STREAM, own });
    if (this.#state !== 'open' || this.#answered) return ABANDONED_STREAM;
    this.#reader?.closeUnread();
    if (this.head.method === 'HEAD') {
      this.#answered = true;
      this.#server.nextTurn.add(() => {
        if (this.#state === 'open') this.#sendBodyless(200, fields, false);
      });
      return ABANDONED_STREAM;
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
    const form = this.answerForm;
    const errorFrame = form && ((error: ContractError) => form.errorText(error, this.head.requestId));
    const options = { trailers, ...(errorFrame && { errorFrame }), ...frames };
    this.#stream = new SseStream(writer, this.#server.nextTurn, options);
    return this.#stream;
  }

  pieces(headers: Readonly<Record<string, string>> = {}): BodyPieces {
    const own = this.#ownFields(headers);
    const fields = answerFields(this.#server, this.head, { status: 200, type: 'application/json', own });
    if (this.#state !== 'open' || this.#answered) return ABANDONED_PIECES;
    const closes = this.#mustClose;
    this.#reader?.close();
    this.#state = 'streaming';
    const { backlog, clock } = this.#server;
    this.#pieces = new PieceWriter(this.#res, this.#piecesOwner(fields, closes), backlog, clock, closes);
    return this.#pieces;
  }

  async file({ headers, type, length, pieces }: FileBody): Promise<void> {
    const fields = answerFields(this.#server, this.head, { status: 200, type, own: this.#ownFields(headers) });
    if (this.#state !== 'open' || this.#answered) return;
    const closes = this.#mustClose;
    this.#answered = true;
    this.#reader?.close();
    if (this.head.method === 'HEAD') {
      this.#sendBodyless(200, bodylessFields(200, fields, length), !closes);
      return;
    }
    this.#state = 'streaming';
    const { secure, backlog } = this.#server;
    this.#file = new FileReply(this.#res, this.#piecesOwner(fields, closes), backlog, { length, secure });
    await this.#file.send(pieces);
  }

  #piecesOwner(fields: readonly Field[], closes: boolean): PiecesOwner {
    return {
      writeHead: () => {
        this.#writeHead(200, fields);
        if (closes) this.#res.writeHeader('Connection', 'close');
        else this.#res.writeHeader('Keep-Alive', KEEP_ALIVE);
      },
      ended: (bytes) => {
        this.#released = true;
        this.#finish('complete', bytes);
      },
      cutOff: this.#cutOffReader.bind(this),
    };
  }

  /** A handler failed: answers 500, or ends an open stream with one error frame. After the end it does nothing. */
  crash(): void {
    const error = contractError('internal', 'The server failed on this request.');
    if (this.#state !== 'streaming') this.fail(error);
    else if (this.#stream) this.#stream.fail(error);
    else if (this.#pieces) this.#pieces.abort();
    else this.#close();
  }

  get #mustClose(): boolean {
    return this.#refused || this.#chunked || this.#server.closing;
  }

  /** When it arrives uWS stops the timer of an idle connection, if by then the response is complete for it. */
  get #bodyIsLate(): boolean {
    return this.#reader?.complete === false;
  }

  #writeHead(status: number, fields: readonly Field[]): void {
    this.#status = status;
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
    this.#pieces?.abandon();
    this.#file?.abandon();
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
    const { requestId, method, scheme, route } = this.head;
    const code = this.#stream?.failure ?? this.#code;
    this.#server.onExchangeEnd?.({
      requestId,
      method,
      scheme,
      route,
      status: this.#status,
      requestBytes: this.#reader?.length ?? 0,
      responseBytes,
      durationMs: this.#server.clock.now() - this.#arrivedAt,
      outcome,
      ...(code !== undefined && { code }),
    });
  }
}

/** Of an exchange without a caller. */
const ABANDONED_PIECES: BodyPieces = {
  write: () => undefined,
  drained: () => undefined,
  end: () => undefined,
  abort: () => undefined,
};

/** How long a caller has to close its connection after `Connection: close`, ms; as long as uWS lets one idle. */
const LINGER_MS = 10_000;

export function isBodyless(status: number, length: number): boolean {
  return status === 204 || status === 304 || length === 0;
}

/**
 * Closes the connection of a response that stays open for uWS after {@link LINGER_MS}, if the caller has not. Returns what cancels that.
 */
export function closeLater(res: Pick<HttpResponse, 'close'>, clock: Clock): () => void {
  return clock.after(LINGER_MS, () => res.close());
}

/** The fields of an answer that is sent without its body; 204 and 304 have no length. */
export function bodylessFields(status: number, fields: readonly Field[], length: number): readonly Field[] {
  return status === 204 || status === 304 ? fields : [...fields, ['Content-Length', `${length}`]];
}

/** With its charset, since without one Python's requests decodes the text as ISO-8859-1. */
export const EVENT_STREAM = 'text/event-stream; charset=utf-8';

/** An answer's status, the type of its body, and the handler's own fields. */
export interface Answer {
  readonly status: number;
  readonly type: string | undefined;
  readonly own: Readonly<Record<string, string>>;
}

/** The fields of an answer: the handler's own, and those of every answer of this server. */
export function answerFields(
  { loadReport, cors }: Pick<ServerContext, 'loadReport' | 'cors'>,
  head: RequestHead,
  { status, type, own }: Answer,
): readonly Field[] {
  const { fields, names } = responseFields(type, own, head.requestId);
  if (names.has('trailer')) names.add('server-timing');
  const report = loadReport?.field(head, status);
  return [...fields, ...(report === undefined ? [] : [report]), ...cors.fields(head, names)];
}
