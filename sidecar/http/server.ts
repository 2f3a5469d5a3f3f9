import type { Clock } from '../lib/clock.js';
import { contractError, type ContractError } from '../domain/errors.js';
import { Backlog, type BacklogLimits } from './backlog.js';
import { BodyBudget } from './body.js';
import { Connections } from './connections.js';
import { EndedStreams } from './ended-streams.js';
import { Cors } from './cors.js';
import type { ServerContext, ExchangeEnd, ReaderCut } from './server-context.js';
import type { Exchange, RequestHead } from './exchange.js';
import type { LoadReport } from './load-report.js';
import { NextTurn } from './next-turn.js';
import { ParserCork } from './parser-cork.js';
import { snapshot } from './head.js';
import { bindSocketFile, clearSocketPath, type SocketFile } from './socket-file.js';
import { App, EXCLUSIVE_PORT, us_listen_socket_close, us_socket_local_port } from './uws.js';
import type { HttpRequest, HttpResponse, us_listen_socket } from './uws.js';
import { UwsExchange } from './uws-exchange.js';

/**
 * Handles one exchange, now or later. If it throws or rejects, the caller gets a 500 or, within a stream, one error
 * frame.
 */
export type Handler = (exchange: Exchange) => void | Promise<void>;

/** HEAD is answered by GET's handler without its body, OPTIONS by the server. */
export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/** Exact path -> method -> handler. A path that ends in `{…}` stands for all that begin as it does and go on. */
export type Routes = Readonly<Record<string, Readonly<Partial<Record<Method, Handler>>>>>;

export interface ServerOptions {
  readonly routes: Routes;
  /** Origins of web pages that may send requests; `*` for all. */
  readonly origins: readonly string[];
  readonly clock: Clock;
  readonly limits: {
    /** Memory of all request bodies at once. */
    readonly totalBytes: number;
    /** Of that, the part that only bodies of up to 1 MiB may use. Default 0. */
    readonly shortBytes?: number;
    /** From a body's first chunk to its last; then its connection is closed. Default {@link BODY_MS}. */
    readonly bodyMs?: number;
    /** Bounds of the data that waits for slow readers. Default {@link BACKLOG}. */
    readonly backlog?: BacklogLimits;
    /** Bound of open connections; further ones are closed at once, as all are while `refusing` returns true. Default: no bound. */
    readonly connections?: number;
    readonly refusing?: () => boolean;
  };
  /** Wraps each exchange before it is handled. A handler's fault is answered on the unwrapped exchange. */
  readonly wrap?: (exchange: Exchange) => Exchange;
  /** What a path that is not served is answered with. */
  readonly absent?: (path: string) => ContractError;
  /** Adds its field to responses. */
  readonly loadReport?: LoadReport;
  /** Called with what a handler threw. */
  readonly onFault: (fault: unknown, requestId: string) => void;
  /** Called once for each exchange, when its head has arrived. */
  readonly onExchange?: (head: RequestHead) => void;
  /** Called once for each exchange, when it has ended: answered, or its caller disconnected. */
  readonly onExchangeEnd?: (end: ExchangeEnd) => void;
  /** Called once for each connection that was closed because too much waited for its reader. */
  readonly onReaderCut?: (cut: ReaderCut) => void;
  /** Called for each connection closed because of the bound. */
  readonly onConnectionRefused?: () => void;
}

export interface Server {
  /** Port 0 picks a free one. Rejects if the address cannot be used. At most once. */
  listen(host: string, port: number): Promise<{ port: number }>;
  /**
   * Listens on a Unix socket, also or instead; `mode` is its file mode. A stale socket file is replaced; rejects if
   * anything else is at `path`, or if it cannot be created. At most once.
   */
  listenUnix(path: string, mode: number): Promise<void>;
  /**
   * Accepts no new connections and removes the socket's file; open connections stay, and are closed with their next
   * response. Idempotent.
   */
  stopListening(): void;
  /** Closes everything at once; waiting callers are disconnected (their exchanges' `gone` is aborted). Idempotent. */
  close(): Promise<void>;
  /** Memory held by request bodies, in bytes. */
  readonly bodyBytes: number;
  /** Upper bound of the bytes that open streams and whole replies buffer for their readers. */
  readonly bufferedBytes: number;
  /** Open connections, idle ones included. */
  readonly connections: number;
}

/** Like Node's own requestTimeout: five minutes suffice for 80 MiB at 2.3 Mbit/s. */
export const BODY_MS = 300_000;

/** As the settings `stream.maxBufferedBytes` and `stream.totalBufferedBytes` have it. */
export const BACKLOG: BacklogLimits = { streamBytes: 1 << 20, totalBytes: 64 << 20 };

interface Route {
  readonly path: string;
  readonly handlers: ReadonlyMap<string, Handler>;
  /** The value of Allow. */
  readonly allow: string;
}

/**
 * An HTTP server on uWS. Requests that uWS's parser rejects never arrive here: it answers them in HTML with 400, 431 (4
 * KiB or some 100 header fields) or 505 and closes the connection. A request before the previous answer is completely
 * sent closes the connection, and so does a caller that closes its sending side.
 */
export function createServer(options: ServerOptions): Server {
  return new UwsServer(options);
}

class UwsServer implements Server {
  readonly #app = App();
  readonly #routes: ReadonlyMap<string, Route>;
  /** Those that stand for many paths, by what all of them begin with. */
  readonly #open: readonly (readonly [beginning: string, route: Route])[];
  readonly #absent: (path: string) => ContractError;
  readonly #wrap: (exchange: Exchange) => Exchange;
  readonly #onFault: ServerOptions['onFault'];
  readonly #edge: ServerContext & { closing: boolean };
  readonly #connections: Connections;
  #socket: us_listen_socket | undefined;
  #unixSocket: us_listen_socket | undefined;
  #socketFile: SocketFile | undefined;
  #closed = false;

  constructor(options: ServerOptions) {
    const { routes, origins, clock, limits, wrap, loadReport, onFault, onExchange, onExchangeEnd, onReaderCut } =
      options;
    const nextTurn = new NextTurn();
    const { totalBytes, shortBytes = 0, bodyMs = BODY_MS, backlog = BACKLOG } = limits;
    this.#routes = new Map(Object.entries(routes).map(([path, handlers]) => [path, route(path, handlers)]));
    this.#open = [...this.#routes.values()].flatMap((each) =>
      each.path.endsWith('}') ? [[each.path.slice(0, each.path.lastIndexOf('{')), each] as const] : [],
    );
    this.#absent = options.absent ?? (() => contractError('not_found', 'There is nothing at this path.'));
    this.#wrap = wrap ?? ((exchange) => exchange);
    this.#onFault = onFault;
    this.#edge = {
      cors: new Cors(origins),
      clock,
      bodies: new BodyBudget(totalBytes, shortBytes),
      bodyMs,
      backlog: new Backlog(backlog),
      endedStreams: new EndedStreams(clock, backlog),
      nextTurn,
      parserCork: new ParserCork(nextTurn),
      closing: false,
      ...(loadReport === undefined ? {} : { loadReport }),
      ...(onReaderCut === undefined ? {} : { onReaderCut }),
      ...(onExchange === undefined ? {} : { onExchange }),
      ...(onExchangeEnd === undefined ? {} : { onExchangeEnd }),
    };
    this.#connections = new Connections(limits.connections ?? Infinity, options.onConnectionRefused, limits.refusing);
    this.#app.filter((res, change) => this.#connections.changed(res, Number(change)));
    this.#app.any('/*', (res, req) => this.#take(res, req));
  }

  get bodyBytes(): number {
    return this.#edge.bodies.held;
  }

  get bufferedBytes(): number {
    return this.#edge.backlog.bytes;
  }

  get connections(): number {
    return this.#connections.open;
  }

  listen(host: string, port: number): Promise<{ port: number }> {
    return new Promise((resolve, reject) => {
      if (this.#closed || this.#socket !== undefined) throw new Error('a server listens once');
      this.#app.listen(host, port, EXCLUSIVE_PORT, (socket) => {
        if (socket === false) {
          reject(new Error(`cannot listen on ${host}:${port}`));
          return;
        }
        this.#socket = socket;
        resolve({ port: us_socket_local_port(socket) });
      });
    });
  }

  async listenUnix(path: string, mode: number): Promise<void> {
    await clearSocketPath(path);
    if (this.#closed || this.#unixSocket !== undefined) throw new Error('a server listens once');
    this.#socketFile = bindSocketFile(path, mode, () => {
      this.#app.listen_unix((socket) => (this.#unixSocket = socket === false ? undefined : socket), path);
      return this.#unixSocket !== undefined;
    });
    if (this.#socketFile === undefined) throw new Error(`cannot listen on ${path}`);
  }

  stopListening(): void {
    this.#edge.closing = true;
    for (const socket of [this.#socket, this.#unixSocket]) if (socket !== undefined) us_listen_socket_close(socket);
    this.#socket = undefined;
    this.#unixSocket = undefined;
    this.#socketFile?.remove();
    this.#socketFile = undefined;
  }

  close(): Promise<void> {
    this.stopListening();
    // Replies that were scheduled before.
    this.#edge.nextTurn.run();
    if (!this.#closed) this.#app.close();
    this.#closed = true;
    return Promise.resolve();
  }

  /** Everything that reads `req` happens here, before any await. */
  #take(res: HttpResponse, req: HttpRequest): void {
    const taken = snapshot(req, Buffer.from(res.getRemoteAddressAsText()).toString('latin1'));
    const known = this.#routeOf(taken.head.path);
    const edge = new UwsExchange(res, taken, known?.path, this.#edge);
    const exchange = this.#wrap(edge);
    const { refusal } = taken;
    if (refusal === undefined) this.#answer(exchange, known, () => edge.crash());
    else exchange.fail(contractError('bad_request', refusal));
    edge.parsed();
  }

  #routeOf(path: string): Route | undefined {
    return (
      this.#routes.get(path) ??
      this.#open.find(([beginning]) => path.length > beginning.length && path.startsWith(beginning))?.[1]
    );
  }

  #answer(exchange: Exchange, known: Route | undefined, crash: () => void): void {
    const { method } = exchange.head;
    if (known === undefined) {
      exchange.fail(this.#absent(exchange.head.path));
      return;
    }
    const handler = known.handlers.get(method === 'HEAD' ? 'GET' : method);
    if (handler !== undefined) {
      this.#run(handler, exchange, crash);
    } else if (method === 'OPTIONS') {
      const preflight = this.#edge.cors.preflight(exchange.head, known.allow);
      exchange.reply({ status: 204, headers: { Allow: known.allow, ...preflight } });
    } else {
      const error = contractError('bad_request', `This path answers ${known.allow} only.`, { status: 405 });
      exchange.fail(error, { Allow: known.allow });
    }
  }

  #run(handler: Handler, exchange: Exchange, crash: () => void): void {
    const fault = (reason: unknown): void => {
      this.#onFault(reason, exchange.head.requestId);
      crash();
    };
    try {
      handler(exchange)?.catch(fault);
    } catch (reason) {
      fault(reason);
    }
  }
}

function route(path: string, handlers: Routes[string]): Route {
  const table = new Map(Object.entries(handlers));
  const allow = [...table.keys(), ...(table.has('GET') ? ['HEAD'] : []), 'OPTIONS'].join(', ');
  return { path, handlers: table, allow };
}
