import type { Test } from 'tap';
import { systemClock } from '../../sidecar/lib/clock.js';
import { Server, type ServerOptions, type Handler, type Routes } from '../../sidecar/http/server.js';
import type { ExchangeEnd } from '../../sidecar/http/uws-exchange.js';
import { RawConnection } from './raw-http.js';

export interface RunningServer {
  readonly server: Server;
  readonly port: number;
  readonly ends: ExchangeEnd[];
  readonly faults: unknown[];
  /** A connection that the test’s teardown closes. */
  readonly connect: () => Promise<RawConnection>;
  /** Resolves once `count` exchanges have ended in all. */
  readonly ended: (count: number) => Promise<void>;
}

/** A real server on a free port, closed with the test. A single handler is put at `POST /` and `GET /`. */
export async function serve(
  t: Test,
  routes: Routes | Handler,
  options: Partial<
    Pick<
      ServerOptions,
      'origins' | 'trailers' | 'limits' | 'clock' | 'wrap' | 'tls' | 'onExchange' | 'onExchangeEnd' | 'onReaderCut'
    >
  > = {},
): Promise<RunningServer> {
  const ends: ExchangeEnd[] = [];
  const faults: unknown[] = [];
  const waiting: { count: number; resolve: () => void }[] = [];
  const server = new Server({
    routes: typeof routes === 'function' ? { '/': { GET: routes, POST: routes } } : routes,
    origins: [],
    clock: systemClock,
    limits: { totalBytes: 1 << 30 },
    onFault: (fault) => faults.push(fault),
    onExchangeEnd: (end) => {
      ends.push(end);
      for (const { count, resolve } of waiting) if (ends.length >= count) resolve();
    },
    ...options,
  });
  t.teardown(() => server.close());
  const { port } = await server.listen('127.0.0.1', 0);
  return {
    server,
    port,
    ends,
    faults,
    connect: async () => {
      const connection = await RawConnection.open(port);
      t.teardown(() => connection.close());
      return connection;
    },
    ended: (count) =>
      new Promise((resolve) => {
        if (ends.length >= count) resolve();
        else waiting.push({ count, resolve });
      }),
  };
}

/** A promise and the function that settles it. */
export function deferred<T = void>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => undefined;
  const promise = new Promise<T>((settle) => (resolve = settle));
  return { promise, resolve };
}
