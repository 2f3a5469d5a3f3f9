import type { Clock } from '../clock.js';
import { contractError, errorBody, type ContractError, type ErrorCode } from '../errors.js';
import { Aborter, type Signal } from '../signal.js';
import type { Backlog, CutReason } from './backlog.js';
import { BodyReader, type BodyBudget } from './body.js';
import type { Cors, Field } from './cors.js';
import type { Body, EventStream, Exchange, Reply, RequestHead } from './exchange.js';
import { errorFields, responseFields, statusLine } from './fields.js';
import type { Snapshot } from './head.js';
import type { LoadReport } from './load-report.js';
import { Outlet } from './outlet.js';
import { SseStream, type StreamTarget } from './sse.js';
import type { HttpResponse } from './uws.js';

/** How one exchange ended, for logs and metrics. Holds no content. */
export interface ExchangeEnd {
  readonly requestId: string;
  readonly method: string;
  /** The path of the route table that matched; undefined for an unknown path, whose text is the caller's. */
  readonly route: string | undefined;
  /** What was answered; 499 when the caller left before anything was. */
  readonly status: number;
  readonly requestBytes: number;
  /** Of the body, framing included. */
  readonly responseBytes: number;
  readonly durationMs: number;
  readonly outcome: 'complete' | 'gone';
  /** Of the error that was answered, or that ended its stream; absent: none. */
  readonly code?: ErrorCode;
}

/** A reader who was so far behind that its connection was closed. */
export interface ReaderCut {
  readonly requestId: string;
  readonly reason: CutReason;
  /** What waited for it. */
  readonly bytes: number;
}

/** What all exchanges of one server share. */
export interface Edge {
  readonly cors: Cors;
  readonly clock: Clock;
  readonly bodies: BodyBudget;
  /** The longest that one body may take. */
  readonly bodyMs: number;
  readonly backlog: Backlog;
  /** No new connections are taken, and responses ask callers to leave. */
  readonly closing: boolean;
  readonly loadReport?: LoadReport;
  readonly onExchange?: (head: RequestHead) => void;
  readonly onExchangeEnd?: (end: ExchangeEnd) => void;
  readonly onReaderCut?: (cut: ReaderCut) => void;
}

const NO_BYTES = new Uint8Array(0);

/** For streams that nobody reads. */
const NOWHERE: StreamTarget = { send: () => undefined, end: () => undefined, unread: () => 0 };

/** An exchange over uWS. Made synchronously in uWS's handler; owns `res` until the reply is complete or the caller left. */
export class UwsExchange implements Exchange {
  readonly head: RequestHead;
  readonly #res: HttpResponse;
  readonly #route: string | undefined;
  readonly #edge: Edge;
  readonly #arrivedAt: number;
  readonly #reader: BodyReader | undefined;
  /** The connection must not carry another request: the next one might begin where nobody else sees a beginning. */
  readonly #refused: boolean;
  /** uWS misreads chunk extensions and trailers, so after a chunked body its idea of the next request is not trusted. */
  readonly #chunked: boolean;
  #state: 'open' | 'streaming' | 'complete' | 'gone' = 'open';
  /** A whole reply was given; it may still be on its way to uWS. */
  #answered = false;
  #status = 499;
  #code: ErrorCode | undefined;
  #stream: SseStream | undefined;
  #outlet: Outlet | undefined;
  #leaving: Aborter | undefined;

  constructor(res: HttpResponse, { head, bodyLength, refusal }: Snapshot, route: string | undefined, edge: Edge) {
    this.head = head;
    this.#res = res;
    this.#route = route;
    this.#edge = edge;
    this.#arrivedAt = edge.clock.now();
    this.#refused = refusal !== undefined;
    this.#chunked = bodyLength === 'chunked';
    edge.onExchange?.(head);
    res.onAborted(() => this.#callerLeft());
    if (bodyLength === 0) return;
    const declared = bodyLength === 'chunked' ? undefined : bodyLength;
    const reader = new BodyReader(res, declared, edge.bodies, edge.clock, edge.bodyMs);
    this.#reader = reader;
    res.onData((chunk, last) => reader.push(chunk, last));
  }

  /** Made when asked for: most exchanges end without anybody waiting for it. */
  get gone(): Signal {
    if (this.#leaving === undefined) {
      this.#leaving = new Aborter();
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
    if (!this.#chunked) this.#send(status, fields, body);
    // Later, not now: uWS goes on to a next request in the same packet once this one is answered, `Connection: close` or
    // not, and after a chunked body it may see one where there is none. While this one is unanswered it cuts instead.
    else setImmediate(() => this.#send(status, fields, body));
  }

  #send(status: number, fields: readonly Field[], body: string | Uint8Array): void {
    if (this.#state !== 'open') return;
    const bodyless = status === 204 || status === 304;
    const length = typeof body === 'string' ? Buffer.byteLength(body) : body.byteLength;
    const headOnly = this.head.method === 'HEAD';
    // uWS cuts at once, and a caller that is still sending would lose the reply: only when all was read.
    const cut = this.#refused || (this.#mustClose && !headOnly && !bodyless && this.#allRead);
    this.#reader?.close();
    this.#res.cork(() => {
      this.#writeHead(status, fields);
      if (cut) {
        this.#res.end(headOnly ? '' : body, true);
        return;
      }
      if (this.#mustClose) this.#res.writeHeader('Connection', 'close');
      if (bodyless) this.#res.endWithoutBody();
      // Not endWithoutBody(length): uWS would wait for the body and drop the connection's next request.
      else if (headOnly) this.#res.writeHeader('Content-Length', String(length)).endWithoutBody();
      else this.#res.end(body);
    });
    this.#finish('complete', headOnly || bodyless ? 0 : length);
  }

  fail(error: ContractError, headers: Readonly<Record<string, string>> = {}): void {
    if (this.#state === 'open' && !this.#answered) this.#code = error.code;
    this.reply({ status: error.status, headers: { ...errorFields(error), ...headers }, body: errorBody(error) });
  }

  stream(headers: Readonly<Record<string, string>> = {}): EventStream {
    const fields = this.#fields(200, 'text/event-stream', {
      'Cache-Control': 'no-cache',
      'X-Accel-Buffering': 'no',
      ...headers,
      Trailer: 'Server-Timing',
      ...(this.#mustClose ? { Connection: 'close' } : {}),
    });
    if (this.#state !== 'open' || this.#answered) {
      const none = new SseStream(NOWHERE);
      none.abandon();
      return none;
    }
    // The prompt was read long ago; a stream may go on for minutes.
    this.#reader?.close();
    if (this.head.method === 'HEAD') {
      this.#res.cork(() => {
        this.#writeHead(200, fields);
        this.#res.endWithoutBody();
      });
      this.#finish('complete', 0);
      const none = new SseStream(NOWHERE);
      none.abandon();
      return none;
    }
    const outlet = new Outlet(
      this.#res,
      {
        writeHead: () => {
          this.#writeHead(200, fields);
          // uWS writes its own only at the end, where this body's trailer is.
          this.#res.writeHeader('Date', new Date().toUTCString());
        },
        ended: () => this.#finish('complete', this.#stream?.bytes ?? 0),
        cut: (reason, bytes) => this.#cutReader(reason, bytes),
      },
      this.#edge.backlog,
    );
    this.#state = 'streaming';
    this.#outlet = outlet;
    this.#stream = new SseStream(outlet);
    return this.#stream;
  }

  /** A handler failed: answers 500, or ends an open stream with one error frame. After the end it does nothing. */
  crash(): void {
    const error = contractError('internal', 'The server failed on this request.');
    if (this.#state === 'streaming') this.#stream?.fail(error);
    else this.fail(error);
  }

  get #mustClose(): boolean {
    return this.#refused || this.#chunked || this.#edge.closing;
  }

  get #allRead(): boolean {
    return this.#reader === undefined || this.#reader.complete;
  }

  #fields(status: number, contentType: string | undefined, own: Readonly<Record<string, string>>): Field[] {
    const { fields, names } = responseFields(contentType, own, this.head.requestId);
    if (contentType === 'text/event-stream') names.add('server-timing');
    const report = this.#edge.loadReport?.field(this.head, status);
    if (report !== undefined) fields.push(report);
    return [...fields, ...this.#edge.cors.fields(this.head, names)];
  }

  #writeHead(status: number, fields: readonly Field[]): void {
    this.#status = status;
    this.#res.writeStatus(statusLine(status));
    for (const [name, value] of fields) this.#res.writeHeader(name, value);
  }

  /** For the request it is as if the caller had left. */
  #cutReader(reason: CutReason, bytes: number): void {
    this.#edge.onReaderCut?.({ requestId: this.head.requestId, reason, bytes });
    this.#res.close();
  }

  #callerLeft(): void {
    if (this.#state === 'complete' || this.#state === 'gone') return;
    this.#stream?.abandon();
    this.#outlet?.abandon();
    this.#reader?.abandon();
    this.#finish('gone', this.#stream?.bytes ?? 0);
    this.#leaving?.abort();
  }

  #finish(outcome: 'complete' | 'gone', responseBytes: number): void {
    this.#state = outcome;
    const code = this.#stream?.failure ?? this.#code;
    this.#edge.onExchangeEnd?.({
      requestId: this.head.requestId,
      method: this.head.method,
      route: this.#route,
      status: this.#status,
      requestBytes: this.#reader?.length ?? 0,
      responseBytes,
      durationMs: this.#edge.clock.now() - this.#arrivedAt,
      outcome,
      ...(code !== undefined && { code }),
    });
  }
}
