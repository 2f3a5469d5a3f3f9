import type { Clock } from '../lib/clock.js';
import { contractError, type ContractError } from '../domain/errors.js';
import { addressText, bindError, bindSocketFile, clearSocketPath, hostInstead, socketProblem } from './addresses.js';
import type { SocketFile } from './addresses.js';
import { Backlog, type BacklogLimits } from './backlog.js';
import { BodyBudget } from './body.js';
import { NextTurn, ParserCork } from './corks.js';
import { EndedStreams } from './ended-streams.js';
import type { AnswerForm, Exchange, RequestHead } from './exchange.js';
import { Cors } from './fields.js';
import { snapshot } from './head.js';
import type { LoadReport } from './load-report.js';
import { TlsApps, type TlsFiles } from './tls-apps.js';
import { App, EXCLUSIVE_PORT, us_listen_socket_close, us_socket_local_port } from './uws.js';
import type { HttpRequest, HttpResponse, TemplatedApp, us_listen_socket } from './uws.js';
import { UwsExchange, type ExchangeEnd, type ReaderCut, type ServerContext, type Trailers } from './uws-exchange.js';

/** Handles one exchange, now or later. If it throws or rejects, the caller gets a 500 or, within a stream, one error frame. */
export type Handler = (exchange: Exchange) => void | Promise<void>;

/** HEAD is answered by GET's handler without its body, OPTIONS by the server. */
export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/** Exact path -> method -> handler. `{…}` stands for a segment; at a path's end, for the rest. A path without `{…}` at its end wins. */
export type Routes = Readonly<Record<string, Readonly<Partial<Record<Method, Handler>>>>>;

/** Like Node's own requestTimeout: five minutes suffice for 80 MiB at 2.3 Mbit/s. */
export const BODY_MS = 300_000;

/** As the settings `stream.maxBufferedBytes` and `stream.totalBufferedBytes` have it. */
export const BACKLOG: BacklogLimits = { streamBytes: 1 << 20, totalBytes: 64 << 20 };

export interface ServerOptions {
  readonly routes: Routes;
  /** Terminate TLS on the port, with this pair; Unix sockets stay without. Absent: plain HTTP. */
  readonly tls?: TlsFiles;
  /** Origins of web pages that may send requests; `*` for all. */
  readonly origins: readonly string[];
  /** Which streams may end with a trailer. Default: `asked`. */
  readonly trailers?: Trailers;
  /** A GET that would open a WebSocket on a path that takes no GET is answered 426, after which clients send HTTP. Default: 405. */
  readonly refusesWebSockets?: boolean;
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
  /** The answer for a path that is not served. */
  readonly absent?: (path: string) => ContractError;
  /** Adds its field to responses. */
  readonly loadReport?: LoadReport;
  /** The form of a request's answers, if it has one of its own. */
  readonly answerForm?: (head: RequestHead) => AnswerForm | undefined;
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

/**
 * An HTTP server on uWS. Requests that uWS's parser rejects never arrive here: it answers them in HTML with 400, 431 (4
 * KiB or some 100 header fields) or 505 and closes the connection. A request before the previous answer is completely
 * sent closes the connection, and so does a caller that closes its sending side.
 */
export class Server {
  readonly #app = App();
  readonly #tls: TlsApps | undefined;
  readonly #routeOf: ReturnType<typeof routeFinder>;
  readonly #absent: (path: string) => ContractError;
  readonly #wrap: (exchange: Exchange) => Exchange;
  readonly #onFault: ServerOptions['onFault'];
  readonly #refusesWebSockets: boolean;
  readonly #context: ServerContext & { closing: boolean };
  readonly #maxConnections: number;
  readonly #refusing: (() => boolean) | undefined;
  readonly #onConnectionRefused: (() => void) | undefined;
  #connections = 0;
  #socket: us_listen_socket | undefined;
  #unixSocket: us_listen_socket | undefined;
  #socketFile: SocketFile | undefined;
  #closed = false;

  constructor(options: ServerOptions) {
    const { routes, origins, clock, limits, wrap, loadReport, onFault, onExchange, onExchangeEnd, onReaderCut } =
      options;
    const nextTurn = new NextTurn();
    const { totalBytes, shortBytes = 0, bodyMs = BODY_MS, backlog = BACKLOG } = limits;
    this.#routeOf = routeFinder(routes);
    this.#absent = options.absent ?? (() => contractError('not_found', 'There is nothing at this path.'));
    this.#wrap = wrap ?? ((exchange) => exchange);
    this.#onFault = onFault;
    this.#refusesWebSockets = options.refusesWebSockets === true;
    this.#context = {
      secure: options.tls !== undefined,
      trailers: options.trailers ?? 'asked',
      cors: new Cors(origins),
      clock,
      bodies: new BodyBudget(totalBytes, shortBytes),
      bodyMs,
      backlog: new Backlog(backlog),
      endedStreams: new EndedStreams(clock, backlog),
      nextTurn,
      parserCork: new ParserCork(nextTurn),
      closing: false,
      loadReport,
      answerForm: options.answerForm,
      onReaderCut,
      onExchange,
      onExchangeEnd,
    };
    this.#maxConnections = limits.connections ?? Infinity;
    this.#refusing = limits.refusing;
    this.#onConnectionRefused = options.onConnectionRefused;
    const configure = (app: TemplatedApp, scheme: RequestHead['scheme']): void => {
      app.filter((res, change) => this.#connectionChanged(res, Number(change)));
      app.any('/*', (res, req) => this.#take(res, req, scheme));
    };
    configure(this.#app, 'http');
    this.#tls = options.tls && new TlsApps(options.tls, clock, (app) => configure(app, 'https'));
  }

  /** Memory held by request bodies, in bytes. */
  get bodyBytes(): number {
    return this.#context.bodies.held;
  }

  /** Upper bound of the bytes that open streams and whole replies buffer for their readers. */
  get bufferedBytes(): number {
    return this.#context.backlog.bytes;
  }

  /** Open connections, idle ones included. */
  get connections(): number {
    return this.#connections;
  }

  /**
   * Port 0 picks a free one. `::` takes IPv4 too, and on a kernel without IPv6 means all IPv4 addresses. Rejects if the address cannot be
   * used. At most once.
   */
  async listen(host: string, port: number): Promise<{ port: number }> {
    const given = await this.#bind(host, port);
    if (given !== undefined) return { port: given };
    const code = await bindError(host, port);
    const instead = hostInstead(host, code);
    if (instead !== undefined) return await this.listen(instead, port);
    throw new Error(refusal(addressText(host, port), code));
  }

  /** Resolves with the port, or undefined if the address cannot be used. */
  #bind(host: string, port: number): Promise<number | undefined> {
    return new Promise((resolve) => {
      if (this.#closed || this.#socket !== undefined) throw new Error('a server listens once');
      (this.#tls ?? this.#app).listen(host, port, EXCLUSIVE_PORT, (socket) => {
        if (socket !== false) this.#socket = socket;
        resolve(socket === false ? undefined : us_socket_local_port(socket));
      });
    });
  }

  /**
   * Listens on a Unix socket, also or instead; `mode` is its file mode. A stale socket file is replaced; rejects if anything else is at
   * `path`, or if it cannot be created. At most once.
   */
  async listenUnix(path: string, mode: number): Promise<void> {
    await clearSocketPath(path);
    if (this.#closed || this.#unixSocket !== undefined) throw new Error('a server listens once');
    this.#socketFile = bindSocketFile(path, mode, () => {
      this.#app.listen_unix((socket) => (this.#unixSocket = socket === false ? undefined : socket), path);
      return this.#unixSocket !== undefined;
    });
    if (this.#socketFile === undefined) throw new Error(refusal(path, await socketProblem(path)));
  }

  /**
   * Connections from now on get this certificate; open ones keep theirs and continue. Only with `tls`.
   *
   * @throws {Error} The pair cannot be used; the previous one stays in force.
   */
  renewTls(files: TlsFiles): void {
    this.#tls?.renew(files);
  }

  /**
   * From now on each answer has `Connection: close`, and its connection ends after a whole reply, so that callers who keep one connect
   * elsewhere. New connections are still accepted. Idempotent.
   */
  endConnections(): void {
    this.#context.closing = true;
  }

  #stopListening(): void {
    for (const socket of [this.#socket, this.#unixSocket]) if (socket !== undefined) us_listen_socket_close(socket);
    this.#socket = undefined;
    this.#unixSocket = undefined;
    this.#socketFile?.remove();
    this.#socketFile = undefined;
  }

  /** Closes everything at once; waiting callers are disconnected (their exchanges' `gone` is aborted). Idempotent. */
  close(): Promise<void> {
    this.endConnections();
    this.#stopListening();
    // Replies that were scheduled before.
    this.#context.nextTurn.run();
    if (!this.#closed) {
      this.#app.close();
      this.#tls?.close();
    }
    this.#closed = true;
    return Promise.resolve();
  }

  /**
   * uWS's filter callback: `change` is 1 for an opened connection, and negative for a closed one. A connection past the bound is closed at
   * once, before anything is read from it.
   */
  #connectionChanged(connection: HttpResponse, change: number): void {
    if (change < 0) {
      this.#connections -= 1;
      return;
    }
    this.#connections += 1;
    if (this.#connections <= this.#maxConnections && this.#refusing?.() !== true) return;
    this.#onConnectionRefused?.();
    connection.close();
  }

  /** Everything that reads `req` happens here, before any await. */
  #take(res: HttpResponse, req: HttpRequest, scheme: RequestHead['scheme']): void {
    const address = Buffer.from(res.getRemoteAddressAsText()).toString('latin1');
    const known = this.#routeOf(req.getUrl());
    const taken = snapshot(req, { address, scheme, route: known?.path });
    const served = new UwsExchange(res, taken, this.#context);
    const exchange = this.#wrap(served);
    const { refusal } = taken;
    if (refusal === undefined) this.#answer(exchange, known, () => served.crash());
    else exchange.fail(contractError('bad_request', refusal));
    served.parsed();
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
      const preflight = this.#context.cors.preflight(exchange.head, known.allow);
      exchange.reply({ status: 204, headers: { Allow: known.allow, ...preflight } });
    } else if (this.#refusesWebSockets && asksForWebSocket(exchange.head)) {
      const message = 'Nothing is served over WebSocket here: send the request over HTTP, as a POST.';
      exchange.fail(contractError('bad_request', message, { status: 426 }));
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

/** The address may be free by the time that it is asked why it was not. */
function refusal(address: string, why: string | undefined): string {
  return `cannot listen on ${address}${why === undefined ? '' : `: ${why}`}`;
}

function asksForWebSocket(head: RequestHead): boolean {
  return head.method === 'GET' && head.header('upgrade')?.toLowerCase() === 'websocket';
}

interface Route {
  readonly path: string;
  readonly handlers: ReadonlyMap<string, Handler>;
  readonly allow: string;
}

/** Finds the route of a path; undefined if nothing is served there. Routes that match many paths are last, those that match all that follows behind them. */
function routeFinder(routes: Routes): (path: string) => Route | undefined {
  const exact = new Map(Object.entries(routes).map(([path, handlers]) => [path, route(path, handlers)]));
  const many = [...exact.values()].filter(({ path }) => path.includes('{'));
  many.sort((a, b) => Number(a.path.endsWith('}')) - Number(b.path.endsWith('}')));
  const open = many.map((each) => ({ paths: pathsOf(each.path), route: each }));
  return (path) => exact.get(path) ?? open.find(({ paths }) => paths.test(path))?.route;
}

/** The paths that one with `{…}` stands for. */
function pathsOf(path: string): RegExp {
  const segments = path
    .replaceAll('.', '\\.')
    .replace(/\{\w+\}$/, '.+')
    .replaceAll(/\{\w+\}/g, '[^/]+');
  return new RegExp(`^${segments}$`, 's');
}

function route(path: string, handlers: Routes[string]): Route {
  const table = new Map(Object.entries(handlers));
  const allow = [...table.keys(), ...(table.has('GET') ? ['HEAD'] : []), 'OPTIONS'].join(', ');
  return { path, handlers: table, allow };
}
