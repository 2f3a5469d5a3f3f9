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
export interface ServerContext {
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
  /** No new connections are taken, and responses ask callers to leave. */
  readonly closing: boolean;
  readonly loadReport?: LoadReport;
  readonly onExchange?: (head: RequestHead) => void;
  readonly onExchangeEnd?: (end: ExchangeEnd) => void;
  readonly onReaderCut?: (cut: ReaderCut) => void;
}
