import type { Clock } from '../lib/clock.js';
import type { ErrorCode } from '../domain/errors.js';
import type { Backlog, CutReason } from './backlog.js';
import type { BodyBudget } from './body.js';
import type { Cors } from './cors.js';
import type { EndedStreams } from './ended-streams.js';
import type { RequestHead } from './exchange.js';
import type { LoadReport } from './load-report.js';
import type { NextTurn } from './next-turn.js';
import type { ParserCork } from './parser-cork.js';

/** The end of one exchange, for logs and metrics. Contains no content. */
export interface ExchangeEnd {
  readonly requestId: string;
  readonly method: string;
  readonly scheme: RequestHead['scheme'];
  /** The matched path of the route table; undefined for an unknown path, whose text is the caller's. */
  readonly route: string | undefined;
  /** The status that was sent; 499 if the caller disconnected before. */
  readonly status: number;
  readonly requestBytes: number;
  /** Of the body, framing included. */
  readonly responseBytes: number;
  readonly durationMs: number;
  readonly outcome: 'complete' | 'gone';
  /** The code of the error that was sent, or that ended its stream; absent: none. */
  readonly code?: ErrorCode;
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
  readonly loadReport?: LoadReport;
  readonly onExchange?: (head: RequestHead) => void;
  readonly onExchangeEnd?: (end: ExchangeEnd) => void;
  readonly onReaderCut?: (cut: ReaderCut) => void;
}
