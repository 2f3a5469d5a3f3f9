import { contractError, type ContractError } from '../domain/errors.js';
import { Backlog } from './backlog.js';
import { addressText, bindError, hostInstead, socketProblem } from './bind.js';
import { BodyBudget } from './body.js';
import { Connections } from './connections.js';
import { EndedStreams } from './ended-streams.js';
import { Cors } from './cors.js';
import type { ServerContext } from './server-context.js';
import type { Exchange, RequestHead } from './exchange.js';
import { NextTurn } from './next-turn.js';
import { ParserCork } from './parser-cork.js';
import { RouteTable, type Handler, type Route } from './routes.js';
import { BACKLOG, BODY_MS, type ServerOptions } from './server-options.js';
import { snapshot } from './head.js';
import { bindSocketFile, clearSocketPath, type SocketFile } from './socket-file.js';
import { TlsApps, type TlsFiles } from './tls-apps.js';
import { App, EXCLUSIVE_PORT, us_listen_socket_close, us_socket_local_port } from './uws.js';
import type { HttpRequest, HttpResponse, TemplatedApp, us_listen_socket } from './uws.js';
import { UwsExchange } from './uws-exchange.js';

export interface Server {
  /**
   * Port 0 picks a free one. `::` takes IPv4 too, and means all addresses of IPv4 on a kernel without IPv6. Rejects if the address
   * cannot be used. At most once.
   */
  listen(host: string, port: number): Promise<{ port: number }>;
  /**
   * Listens on a Unix socket, also or instead; `mode` is its file mode. A stale socket file is replaced; rejects if
   * anything else is at `path`, or if it cannot be created. At most once.
   */
  listenUnix(path: string, mode: number): Promise<void>;
  /**
   * Connections from now on get this certificate; open ones keep theirs and continue. Only with `tls`.
   *
   * @throws {Error} The pair cannot be used; the previous one stays in force.
   */
  renewTls(files: TlsFiles): void;
  /**
   * From now on each answer has `Connection: close`, and its connection ends after a whole reply, so that callers who keep one
   * connect elsewhere. New connections are still accepted. Idempotent.
   */
  endConnections(): void;
  /** Closes everything at once; waiting callers are disconnected (their exchanges' `gone` is aborted). Idempotent. */
  close(): Promise<void>;
  /** Memory held by request bodies, in bytes. */
  readonly bodyBytes: number;
  /** Upper bound of the bytes that open streams and whole replies buffer for their readers. */
  readonly bufferedBytes: number;
  /** Open connections, idle ones included. */
  readonly connections: number;
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
  readonly #tls: TlsApps | undefined;
  readonly #routes: RouteTable;
  readonly #absent: (path: string) => ContractError;
  readonly #wrap: (exchange: Exchange) => Exchange;
  readonly #onFault: ServerOptions['onFault'];
  readonly #context: ServerContext & { closing: boolean };
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
    this.#routes = new RouteTable(routes);
    this.#absent = options.absent ?? (() => contractError('not_found', 'There is nothing at this path.'));
    this.#wrap = wrap ?? ((exchange) => exchange);
    this.#onFault = onFault;
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
      ...(loadReport === undefined ? {} : { loadReport }),
      ...(onReaderCut === undefined ? {} : { onReaderCut }),
      ...(onExchange === undefined ? {} : { onExchange }),
      ...(onExchangeEnd === undefined ? {} : { onExchangeEnd }),
    };
    this.#connections = new Connections(limits.connections ?? Infinity, options.onConnectionRefused, limits.refusing);
    const configure = (app: TemplatedApp, scheme: RequestHead['scheme']): void => {
      app.filter((res, change) => this.#connections.changed(res, Number(change)));
      app.any('/*', (res, req) => this.#take(res, req, scheme));
    };
    configure(this.#app, 'http');
    this.#tls = options.tls && new TlsApps(options.tls, clock, (app) => configure(app, 'https'));
  }

  get bodyBytes(): number {
    return this.#context.bodies.held;
  }

  get bufferedBytes(): number {
    return this.#context.backlog.bytes;
  }

  get connections(): number {
    return this.#connections.open;
  }

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

  async listenUnix(path: string, mode: number): Promise<void> {
    await clearSocketPath(path);
    if (this.#closed || this.#unixSocket !== undefined) throw new Error('a server listens once');
    this.#socketFile = bindSocketFile(path, mode, () => {
      this.#app.listen_unix((socket) => (this.#unixSocket = socket === false ? undefined : socket), path);
      return this.#unixSocket !== undefined;
    });
    if (this.#socketFile === undefined) throw new Error(refusal(path, await socketProblem(path)));
  }

  renewTls(files: TlsFiles): void {
    this.#tls?.renew(files);
  }

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

  /** Everything that reads `req` happens here, before any await. */
  #take(res: HttpResponse, req: HttpRequest, scheme: RequestHead['scheme']): void {
    const address = Buffer.from(res.getRemoteAddressAsText()).toString('latin1');
    const known = this.#routes.find(req.getUrl());
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
