/**
 * What requests tell for their traces. A request takes times while it runs and hands one record over when it is over; what
 * becomes of that is no business of its own (otlp/request-traces.ts). Without a trace nobody is told anything.
 */
import type { ErrorCode } from '../domain/errors.js';
import type { Operation } from './model-metrics.js';

/** Keeps traces of requests. */
export interface Tracing {
  /**
   * A request's head is there, since `startedAt` on the clock. A well-formed `traceparent` makes its trace a part of the
   * caller's. Never throws.
   */
  begin(head: { header(name: string): string | undefined }, startedAt: number): RequestTrace;
}

/** The trace of one request, while that runs. */
export interface RequestTrace {
  /** For its log line, under the names that OpenTelemetry gives them there. */
  readonly ids: { readonly trace_id: string; readonly span_id: string };
  /** Headers for what is asked of others on behalf of the request. */
  readonly headers: () => Readonly<Record<string, string>>;
  /** The request is over. Called once; takes no longer than to keep `record`. */
  ended(record: RequestRecord): void;
}

/** One try at a seat and the engine. All are clock readings; undefined: it did not come so far. */
export interface Try {
  /** The last check had passed: from here on it waited. */
  readonly readyAt: number;
  readonly seatedAt: number | undefined;
  readonly handedOverAt: number | undefined;
  readonly firstTokenAt: number | undefined;
  /** The engine was done with it, or lost it before it began; undefined: it was cut off, or not begun. */
  readonly ranUntil: number | undefined;
}

/** What is kept of a request that is over. Times are clock readings. It holds no text of the caller's. */
export interface RequestRecord {
  readonly method: string;
  /** The path of the route table. */
  readonly route: string;
  /** Undefined: a route that uses no model. */
  readonly operation: Operation | undefined;
  /** A configured model's id; undefined: the request did not come so far. */
  readonly model: string | undefined;
  readonly startedAt: number;
  readonly authorized: { readonly from: number; readonly until: number } | undefined;
  /** The body's last byte. */
  readonly receivedAt: number | undefined;
  /** Tries before the last one, which the engine lost before it began; at most two: the queue takes nobody back twice. */
  readonly lost: readonly Try[];
  /** The last try. */
  readonly last: Try | undefined;
  readonly endedAt: number;
  /** What the caller was sent; 499: it left before that. */
  readonly status: number;
  /** cancelled: the caller left; refused: for what it was, or for want of room; failed: for a fault of this side. */
  readonly outcome: 'done' | 'cancelled' | 'refused' | 'failed';
  readonly code: ErrorCode | undefined;
  /** Why the seat queue refused. */
  readonly reason: string | undefined;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
}
