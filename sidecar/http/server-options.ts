import type { TlsFiles } from './tls-apps.js';
import type { Clock } from '../lib/clock.js';
import type { ContractError } from '../domain/errors.js';
import type { BacklogLimits } from './backlog.js';
import type { Exchange, RequestHead } from './exchange.js';
import type { LoadReport } from './load-report.js';
import type { Routes } from './routes.js';
import type { ExchangeEnd, ReaderCut, Trailers } from './server-context.js';

/** Like Node's own requestTimeout: five minutes suffice for 80 MiB at 2.3 Mbit/s. */
export const BODY_MS = 300_000;

/** As the settings `stream.maxBufferedBytes` and `stream.totalBufferedBytes` have it. */
export const BACKLOG: BacklogLimits = { streamBytes: 1 << 20, totalBytes: 64 << 20 };

/** What a server is made with. */
export interface ServerOptions {
  readonly routes: Routes;
  /** Terminate TLS on the port, with this pair; Unix sockets stay without. Absent: plain HTTP. */
  readonly tls?: TlsFiles;
  /** Origins of web pages that may send requests; `*` for all. */
  readonly origins: readonly string[];
  /** Which streams may end with a trailer. Default: `asked`. */
  readonly trailers?: Trailers;
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
