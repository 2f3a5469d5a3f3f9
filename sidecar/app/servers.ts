/** The two servers of this process: the public one with its TLS and its running requests, and the operators'. */
import type { Config } from '../config/config.js';
import type { DescriptorReserve, ConnectionBounds } from './descriptors.js';
import type { Clock } from '../lib/clock.js';
import { checkAnswers } from '../api/checked-exchange.js';
import { health, healthz, readyz, readyzWithReasons } from '../api/health.js';
import { keyRoutes, type KeysServices } from '../api/key-routes.js';
import {
  admission,
  operatorsMetrics,
  publicMetrics,
  reloadModel,
  type Reload,
  type Scrapers,
} from '../api/operators.js';
import { endBatch, listBatches } from '../api/batch-operators.js';
import { answerForms, notServed, routesOf } from '../api/public-routes.js';
import { run } from '../api/run.js';
import type { BatchServices, Services } from '../api/services.js';
import { LoadReport } from '../http/load-report.js';
import { Server, type Handler, type Routes, type ServerOptions } from '../http/server.js';
import type { TlsFiles } from '../http/tls-apps.js';
import type { Log } from '../telemetry/logger.js';
import type { Metrics } from '../telemetry/metrics.js';
import { bearerOf } from '../access/identity.js';
import { FailureLimit } from '../access/failed-keys.js';
import { isLoopback } from '../config/checks.js';
import { openSecrets, type Opening } from './identities.js';
import { openConsole } from '../console/console.js';
import type { WatchedServices } from '../console/snapshot.js';
import { contractError } from '../domain/errors.js';
import type { Exchange, RequestHead } from '../http/exchange.js';
import { CertificateFiles, type Certificate } from '../lib/certificate-files.js';

/** Dependencies of every server of this process. */
export interface ServerDeps extends Opening {
  readonly config: Config;
  readonly metrics: Metrics;
  /** The bounds of open connections for each listener. */
  readonly connections: ConnectionBounds;
  readonly reserve: Pick<DescriptorReserve, 'refusing'>;
}

/** Time between log lines about refused connections, ms: thousands may be refused per second. */
const REFUSALS_LOGGED_MS = 60_000;

/** The public listener, not yet listening. `services`: read at each request. `inFlight` counts those for models. `tls`: HTTPS. */
export function openPublic(
  deps: ServerDeps,
  services: () => Services,
  inFlight: InFlight,
  { scrapers, tls }: { readonly scrapers?: Scrapers | undefined; readonly tls?: TlsFiles | undefined },
): Server {
  const { config, log, clock, metrics, closers } = deps;
  const { pickerMetrics, loadReport } = config.fleet;
  const shown = { metrics, open: pickerMetrics, scrapers };
  /** Paths that use a model. */
  const counted = new Set<string>();
  const serving = { contract: config.contract, batch: config.batch.store !== 'off' };
  const described = new Map<string, Routes[string]>();
  for (const route of routesOf(serving)) {
    const { path, method } = route.reference;
    if (!('serve' in route)) counted.add(path);
    const handler: Handler =
      'serve' in route
        ? (exchange) => route.serve(exchange, services())
        : (exchange) => inFlight.run(() => run(route, exchange, services()));
    described.set(path, { ...described.get(path), [method.toUpperCase()]: handler });
  }
  const routes: Routes = {
    ...Object.fromEntries(described),
    ...((pickerMetrics || scrapers) && { '/metrics': { GET: (exchange) => publicMetrics(exchange, shown) } }),
  };
  const forms = answerForms(config.contract);
  const server = serverOf('public', deps, routes, {
    origins: config.cors.origins,
    refusesWebSockets: config.contract === 'compatible',
    ...(tls && { tls }),
    absent: (path) => notServed(path, serving),
    ...(forms && { answerForm: forms }),
    ...(config.development.validateAnswers && { wrap: checkAnswers(log, config.contract) }),
    ...(loadReport !== 'off' && {
      loadReport: new LoadReport({ clock, when: loadReport, counted, load: () => metrics.endpointLoad }),
    }),
  });
  metrics.http.bufferedBytes = () => server.bufferedBytes;
  closers.add({ name: 'public listener', close: () => server.close() });
  return server;
}

/** A server with the common settings. */
function serverOf(
  listener: keyof ConnectionBounds,
  { config, clock, metrics, log, connections, reserve }: ServerDeps,
  routes: Routes,
  own: Pick<ServerOptions, 'origins'> &
    Partial<Pick<ServerOptions, 'wrap' | 'loadReport' | 'absent' | 'tls' | 'answerForm' | 'refusesWebSockets'>>,
): Server {
  const { bodies, stream } = config;
  let logAt = -Infinity;
  const refused = (): void => {
    metrics.http.connectionRefused(listener);
    if (clock.now() < logAt) return;
    logAt = clock.now() + REFUSALS_LOGGED_MS;
    log.warn('connections refused', {
      reason: `${listener}: the limit of open connections is reached`,
      count: connections[listener],
    });
  };
  const server = new Server({
    routes,
    clock,
    trailers: stream.trailer,
    limits: {
      totalBytes: bodies.totalBytes,
      shortBytes: bodies.shortBytes,
      backlog: { streamBytes: stream.maxBufferedBytes, totalBytes: stream.totalBufferedBytes },
      connections: connections[listener],
      refusing: () => reserve.refusing,
    },
    onReaderCut: ({ requestId, reason, bytes }) => {
      metrics.http.readerCut(reason);
      log.forRequest(requestId).warn('reader cut off', { reason, bytes });
    },
    onConnectionRefused: refused,
    onExchange: (head) => metrics.http.began(head),
    onExchangeEnd: (end) => metrics.http.ended(end),
    onFault: (fault, requestId) => log.forRequest(requestId).error('handler failed', { fault }),
    ...own,
  });
  metrics.http.connections.set(listener, () => server.connections);
  return server;
}

/** What operators can see; it changes during the start. */
export interface OperatorsView extends WatchedServices, Omit<KeysServices, keyof WatchedServices> {
  /** Absent: the sidecar still starts. */
  readonly reload?: Reload;
  /** Absent: `batch.store` is off, or the sidecar still starts. */
  readonly batch?: BatchServices;
}

/** Wrong secrets of one address in a burst, and then a minute; past that they get 429. A right one is never refused. */
const WRONG_SECRETS_PER_MINUTE = 60;

/** Time between two log lines about wrong secrets, ms. */
const WRONG_SECRETS_LOGGED_MS = 60_000;

/**
 * The operators' server, not yet listening: health, metrics, the queues, the console. `view` is called at each request and each
 * snapshot of the console. On loopback it needs no key unless one is set, but each request has to name a loopback address as its
 * host; with a key it may be on any address. Health routes and the console's page never need a key: they contain no data, and
 * probes and browsers that open a page cannot send one. Rejects with one line if the file of keys is invalid.
 */
export async function openOperators(deps: ServerDeps, view: () => OperatorsView): Promise<Server> {
  const { config, clock, metrics, log, closers } = deps;
  const { secretFile: file } = config.operators;
  const console = openConsole({
    clock,
    metrics,
    config: config.console,
    onFault: (fault) => log.error('console failed', { fault }),
    watched: view,
  });
  // A feed may have been opened with a key that was removed.
  const keys = file === undefined ? undefined : await openSecrets(file, deps, () => console.dismiss());
  const hasKey = (head: RequestHead): boolean => keys === undefined || keys.has(bearerOf(head) ?? '');
  const operatorOf = (head: RequestHead): string | undefined => keys?.nameOf(bearerOf(head) ?? '');
  const countWrong = wrongSecrets(deps);
  const managing = keyRoutes({ config, services: view, operatorOf });
  const open: Routes = {
    '/healthz': { GET: healthz },
    '/health': { GET: (exchange) => health(exchange, view()) },
    '/readyz': {
      GET: (exchange) => {
        if (!hasKey(exchange.head)) countWrong(exchange.head);
        (hasKey(exchange.head) ? readyzWithReasons : readyz)(exchange, view());
      },
    },
    ...console.page,
  };
  const closed: Routes = {
    '/metrics': { GET: (exchange) => operatorsMetrics(exchange, { metrics }) },
    '/admission': { GET: (exchange) => admission(exchange, view()) },
    ...managing,
    // Under a prefix of their own too, for a proxy that passes on no others.
    ...Object.fromEntries(Object.entries(managing).map(([path, route]) => [`/admin${path}`, route])),
    '/models/reload': { POST: (exchange) => reloadModel(exchange, view().reload) },
    '/batches': { GET: (exchange) => listBatches(exchange, view().batch) },
    '/batches/cancel': { POST: (exchange) => endBatch(exchange, 'cancel', view().batch) },
    '/batches/drop': { POST: (exchange) => endBatch(exchange, 'drop', view().batch) },
    ...console.feed,
  };
  const server = serverOf(
    'operators',
    deps,
    keys === undefined
      ? guarded({ ...open, ...closed }, namesLoopback, refuseName)
      : { ...open, ...guarded(closed, hasKey, secretRefusals(countWrong)) },
    // No web page of another origin may read it, whatever the CORS settings of the public listener.
    { origins: [] },
  );
  closers.add({
    name: "operators' listener",
    close: () => {
      console.close();
      return server.close();
    },
  });
  return server;
}

/** The routes, which call `refuse` in place of their handlers unless a request is allowed. */
function guarded(routes: Routes, isAllowed: (head: RequestHead) => boolean, refuse: Handler): Routes {
  const guard =
    (handler: Handler): Handler =>
    (exchange) =>
      (isAllowed(exchange.head) ? handler : refuse)(exchange);
  return Object.fromEntries(
    Object.entries(routes).map(([path, handlers]) => [
      path,
      Object.fromEntries(Object.entries(handlers).map(([method, handler]) => [method, guard(handler)])),
    ]),
  );
}

/** Against DNS rebinding: a web page whose name was made to resolve to this machine sends its own name as the host. */
function namesLoopback(head: RequestHead): boolean {
  return isLoopback((head.header('host') ?? '').replace(/:\d+$/, ''));
}

function refuseName(exchange: Exchange): void {
  const message = 'Without operators.secretFile, address this listener as 127.0.0.1, [::1] or localhost.';
  exchange.fail(contractError('bad_request', message));
}

/** Counts and logs the requests with a wrong secret, without it. Returns how long the request is too early, ms. */
function wrongSecrets({ clock, log }: ServerDeps): (head: RequestHead) => number {
  const failures = new FailureLimit(clock, WRONG_SECRETS_PER_MINUTE);
  let count = 0;
  let logAt = -Infinity;
  return (head) => {
    // A browser that opens the console has none yet.
    if (head.header('authorization') === undefined) return 0;
    count += 1;
    if (clock.now() >= logAt) {
      log.warn('operators: wrong secrets', { count });
      logAt = clock.now() + WRONG_SECRETS_LOGGED_MS;
      count = 0;
    }
    return Math.ceil(failures.failed(head.address));
  };
}

/** Refuses requests without a secret, and those with a wrong one. */
function secretRefusals(countWrong: (head: RequestHead) => number): Handler {
  return (exchange) => {
    const waitMs = countWrong(exchange.head);
    const error =
      waitMs === 0
        ? contractError('invalid_api_key', 'Send one of the operators’ keys as the bearer token.')
        : contractError('user_rate_limited', 'Too many wrong secrets.', { retryAfterMs: waitMs });
    exchange.fail(error, { ...(waitMs === 0 && { 'WWW-Authenticate': 'Bearer' }), 'Cache-Control': 'no-store' });
  };
}

/** Opens the public listener: a port, a Unix socket, or both. Resolves with the port, or 0 if there is none. */
export async function listen(server: Server, at: Config['listen'], log: Log): Promise<number> {
  const { host, tcp, socket, socketMode } = at;
  const [port] = await Promise.all([
    tcp
      ? withSettings('listen.host and listen.port', server.listen(host, at.port)).then(({ port: given }) => given)
      : 0,
    socket === undefined
      ? undefined
      : withSettings('listen.socket', server.listenUnix(socket, parseInt(socketMode, 8))),
  ]);
  if (tcp) log.info('listening', { host, port });
  if (socket !== undefined) log.info('listening on a socket', { file: socket });
  return port;
}

/** Adds to the error of an address that cannot be used by which settings it was chosen. */
export function withSettings<T>(names: string, listening: Promise<T>): Promise<T> {
  return listening.catch((error: unknown) => {
    if (!(error instanceof Error)) throw error;
    throw new Error(`${error.message} (set by ${names})`, { cause: error });
  });
}

/** Twice this is the time at a drain's end for the last bytes of replies, before connections are closed, ms. */
export const FLUSH_MS = 100;

/** How often it is looked whether readers have taken what was sent to them, ms. */
const LOOK_MS = 50;

/** Resolves once no answer waits for its reader any more, or at the clock reading `until`. */
export async function taken(server: Pick<Server, 'bufferedBytes'>, clock: Clock, until: number): Promise<void> {
  while (server.bufferedBytes > 0 && clock.now() < until) await new Promise<void>((look) => clock.after(LOOK_MS, look));
}

/** Counts running requests, so that a drain can wait for the last of them. */
export class InFlight {
  #count = 0;
  readonly #waiting = new Set<() => void>();

  get count(): number {
    return this.#count;
  }

  async run(work: () => Promise<void>): Promise<void> {
    this.#count += 1;
    try {
      await work();
    } finally {
      this.#count -= 1;
      if (this.#count === 0) for (const settle of this.#waiting) settle();
    }
  }

  /** Resolves with true once no request runs, and with false after `ms`. */
  idle(clock: Clock, ms: number): Promise<boolean> {
    if (this.#count === 0) return Promise.resolve(true);
    return new Promise((resolve) => {
      const cancel = clock.after(ms, () => {
        this.#waiting.delete(settle);
        resolve(false);
      });
      const settle = (): void => {
        cancel();
        this.#waiting.delete(settle);
        resolve(true);
      };
      this.#waiting.add(settle);
    });
  }
}

/**
 * Opens and follows the configured files of TLS; undefined for plain HTTP. Rejects with one line if they are no pair that TLS can use.
 * `follow` is called once, with the server that renewed certificates go to from then on. `reload` logs problems.
 */
export async function openTls({ tls }: Pick<Config, 'tls'>, { clock, log, closers }: Opening) {
  const { keyFile, certFile } = tls;
  if (keyFile === undefined || certFile === undefined) return undefined;
  const files = { keyFile, certFile };
  let server: Pick<Server, 'renewTls'> | undefined;
  const unusable = (reason: string): void =>
    log.warn('certificate cannot be used, the previous one stays in force', { file: certFile, reason });
  const report = ({ fingerprint, notAfter }: Certificate): void => {
    log.info('certificate in force', {
      file: certFile,
      reason: `SHA-256 ${fingerprint}, until ${notAfter.toISOString()}`,
    });
    if (notAfter.getTime() <= Date.now()) log.warn('certificate is past its end', { file: certFile });
  };
  const opened = await CertificateFiles.open(files, clock, {
    changed: (certificate) => {
      try {
        server?.renewTls(files);
        report(certificate);
        return true;
      } catch {
        // The files changed between the check and uWS's own reading; the next change is read again.
        unusable('the HTTP library cannot use the pair');
        return false;
      }
    },
    unusable,
  });
  closers.add({ name: 'certificate', close: () => opened.close() });
  report(opened.inForce);
  return { files, follow: (given: typeof server) => (server = given), reload: () => opened.reload() };
}
