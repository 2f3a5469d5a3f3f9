/**
 * The operators' listener: health, metrics, the queues, the console. On loopback it needs no key unless one is set, but
 * each request has to name a loopback address as its host; with a key it may be on any address. Health routes and the
 * console's page never need a key: they contain no data, and probes and browsers that open a page cannot send one.
 */
import { bearerOf } from '../access/bearer.js';
import type { KeysInForce } from '../access/key-file-watch.js';
import { isLoopback } from '../config/checks.js';
import { SecretFile } from '../lib/secret-file.js';
import { openConsole } from '../console/console.js';
import type { WatchedServices } from '../console/snapshot.js';
import { contractError } from '../domain/errors.js';
import { health, healthz, readyz, readyzWithReasons } from '../api/health.js';
import { admission, keysInForce, operatorsMetrics, reloadModel, type Reload } from '../api/operators.js';
import type { Exchange, RequestHead } from '../http/exchange.js';
import type { Handler, Routes, Server } from '../http/server.js';
import { serverOf, type ServerDeps } from './public-server.js';

/** What operators can see; it changes during the start. */
export interface OperatorsView extends WatchedServices {
  /** Absent: the sidecar still starts. */
  readonly reload?: Reload;
  /** Absent: no keys file is used. */
  readonly keysInForce?: () => Promise<KeysInForce>;
}

/** A server that is only opened and closed. Its owner closes it, also if `listen` has rejected. */
export type OperatorsServer = Pick<Server, 'listen' | 'close'>;

/**
 * The operators' server, not yet listening. `view` is called at each request and each snapshot of the console. Rejects
 * with one line if the file of keys is invalid.
 */
export async function openOperators(deps: ServerDeps, view: () => OperatorsView): Promise<OperatorsServer> {
  const { config, clock, metrics, log } = deps;
  const { secretFile: file } = config.operators;
  const console = openConsole({
    clock,
    metrics,
    config: config.console,
    onFault: (fault) => log.error('console failed', { fault }),
    watched: view,
  });
  const keys =
    file === undefined
      ? undefined
      : await SecretFile.open(file, clock, {
          changed: () => {
            log.info('secrets read anew', { file });
            // A feed may have been opened with a key that was removed.
            console.dismiss();
          },
          unusable: (reason) => log.error('secrets cannot be read, the previous ones stay in force', { file, reason }),
        });
  const hasKey = (head: RequestHead): boolean => keys === undefined || keys.has(bearerOf(head) ?? '');
  const open: Routes = {
    '/healthz': { GET: healthz },
    '/health': { GET: (exchange) => health(exchange, view()) },
    '/readyz': { GET: (exchange) => (hasKey(exchange.head) ? readyzWithReasons : readyz)(exchange, view()) },
    ...console.page,
  };
  const closed: Routes = {
    '/metrics': { GET: (exchange) => operatorsMetrics(exchange, { metrics }) },
    '/admission': { GET: (exchange) => admission(exchange, view()) },
    '/keys': { GET: (exchange) => keysInForce(exchange, view().keysInForce) },
    '/models/reload': { POST: (exchange) => reloadModel(exchange, view().reload) },
    ...console.feed,
  };
  const server = serverOf(
    'operators',
    deps,
    keys === undefined
      ? guarded({ ...open, ...closed }, namesLoopback, refuseName)
      : { ...open, ...guarded(closed, hasKey, refuseKey) },
    // No web page of another origin may read it, whatever the CORS settings of the public listener.
    { origins: [] },
  );
  return {
    listen: (host, port) => server.listen(host, port),
    close: () => {
      keys?.close();
      console.close();
      return server.close();
    },
  };
}

/** The routes, which call `refuse` in place of their handlers unless a request is allowed. */
function guarded(routes: Routes, isAllowed: (head: RequestHead) => boolean, refuse: Handler): Routes {
  const guard =
    (handler: Handler): Handler =>
    (exchange) =>
      (isAllowed(exchange.head) ? handler : refuse)(exchange);
  return Object.fromEntries(
    Object.entries(routes).map(([path, { GET, POST }]) => [
      path,
      { ...(GET && { GET: guard(GET) }), ...(POST && { POST: guard(POST) }) },
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

function refuseKey(exchange: Exchange): void {
  const error = contractError('invalid_api_key', 'Send one of the operators’ keys as the bearer token.');
  exchange.fail(error, { 'WWW-Authenticate': 'Bearer' });
}
