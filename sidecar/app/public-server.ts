/** The public listener, and how servers of this process are made; the operators' server is in operators-server.ts. */
import type { Config } from '../config/config.js';
import type { DescriptorReserve } from './descriptor-reserve.js';
import type { ConnectionBounds } from './descriptors.js';
import type { Clock } from '../lib/clock.js';
import { checkAnswers } from '../api/checked-exchange.js';
import { publicMetrics, type Scrapers } from '../api/operators.js';
import { notServed, routesOf } from '../api/public-routes.js';
import { run } from '../api/run.js';
import type { Services } from '../api/services.js';
import { LoadReport } from '../http/load-report.js';
import { createServer, type Handler, type Routes, type Server, type ServerOptions } from '../http/server.js';
import type { TlsFiles } from '../http/tls-apps.js';
import type { InFlight } from './in-flight.js';
import type { Log } from '../telemetry/logger.js';
import type { Metrics } from '../telemetry/metrics.js';

/** Dependencies of every server of this process. */
export interface ServerDeps {
  readonly config: Config;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Log;
  /** The bounds of open connections for each listener. */
  readonly connections: ConnectionBounds;
  readonly reserve: Pick<DescriptorReserve, 'refusing'>;
}

/** Time between log lines about refused connections, ms: thousands may be refused per second. */
const REFUSALS_LOGGED_MS = 60_000;

/**
 * The public listener's server, not yet listening. Requests that use a model are counted in `inFlight`; `scrapers` may
 * read all metrics; with `tls` the port speaks HTTPS.
 */
export function publicServer(
  deps: ServerDeps,
  services: Services,
  inFlight: InFlight,
  { scrapers, tls }: { readonly scrapers?: Scrapers | undefined; readonly tls?: TlsFiles | undefined },
): Server {
  const { config, log, clock, metrics } = deps;
  const { pickerMetrics, loadReport } = config.fleet;
  const shown = { metrics, open: pickerMetrics, scrapers };
  /** Paths that use a model. */
  const counted = new Set<string>();
  const described = routesOf(config.contract).map((route): [string, Routes[string]] => {
    const { path, method } = route.reference;
    if (!('serve' in route)) counted.add(path);
    const handler: Handler =
      'serve' in route
        ? (exchange) => route.serve(exchange, services)
        : (exchange) => inFlight.run(() => run(route, exchange, services));
    return [path, { [method.toUpperCase()]: handler }];
  });
  const routes: Routes = {
    ...Object.fromEntries(described),
    ...((pickerMetrics || scrapers) && { '/metrics': { GET: (exchange) => publicMetrics(exchange, shown) } }),
  };
  return serverOf('public', deps, routes, {
    origins: config.cors.origins,
    ...(tls && { tls }),
    absent: (path) => notServed(path, config.contract),
    ...(config.development.validateAnswers && { wrap: checkAnswers(log) }),
    ...(loadReport !== 'off' && {
      loadReport: new LoadReport({ clock, when: loadReport, counted, load: () => metrics.endpointLoad }),
    }),
  });
}

/** A server with the common settings. */
export function serverOf(
  listener: keyof ConnectionBounds,
  { config, clock, metrics, log, connections, reserve }: ServerDeps,
  routes: Routes,
  own: Pick<ServerOptions, 'origins'> & Partial<Pick<ServerOptions, 'wrap' | 'loadReport' | 'absent' | 'tls'>>,
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
  const server = createServer({
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
