/**
 * The interface between requests and their traces. A request takes times while it runs and passes one record when it has ended
 * (otlp/traces.ts). With tracing off, nothing is recorded.
 */
import type { ErrorCode } from '../domain/errors.js';
import type { TokenCounts } from '../domain/money.js';
import type { ArrivedRequest } from './http-metrics.js';
import type { Operation } from './model-metrics.js';

export interface Tracing {
  /** A request's head arrived, at `startedAt` on the clock. A valid `traceparent` makes its trace part of the caller's. Never throws. */
  begin(head: { header(name: string): string | undefined }, startedAt: number): RequestTrace;
}

/** The trace of one request, while that runs. */
export interface RequestTrace {
  /** Ids for its log line, under OpenTelemetry's names. */
  readonly ids: { readonly trace_id: string; readonly span_id: string };
  /** Headers for requests to other services on behalf of this one. */
  readonly headers: () => Readonly<Record<string, string>>;
  /** The request has ended. Called once; only stores `record`. */
  ended(record: RequestRecord): void;
}

/** One attempt to get a seat and run on the engine. All are clock readings; undefined if it did not come so far. */
export interface Attempt {
  /** The last check passed at this time; from then on it waited. */
  readonly readyAt: number;
  readonly seatedAt: number | undefined;
  /** The replica whose seat it got, by its index. */
  readonly replica: number | undefined;
  readonly handedOverAt: number | undefined;
  readonly firstTokenAt: number | undefined;
  /** The engine finished at this time, or was lost before it started; undefined if it was interrupted or not started. */
  readonly ranUntil: number | undefined;
}

/** The record of a finished request. Times are clock readings. It contains no text of the caller. */
export interface RequestRecord extends ArrivedRequest, TokenCounts {
  /** The path of the route table, never the caller's: it names spans. Undefined if nothing is served at the path. */
  readonly route: string | undefined;
  /** Undefined for a route that uses no model. */
  readonly operation: Operation | undefined;
  /** A configured model's id; undefined if the request did not come so far. */
  readonly model: string | undefined;
  readonly startedAt: number;
  readonly authorized: { readonly from: number; readonly until: number } | undefined;
  /** The body's last byte. */
  readonly receivedAt: number | undefined;
  /**
   * Attempts before the last: those whose engine was lost before it began, at most one more than the model's replicas, and those whose lent
   * seat was recalled (admission/lent.ts).
   */
  readonly lost: readonly Attempt[];
  readonly last: Attempt | undefined;
  readonly endedAt: number;
  /** The status that the caller got; 499: it disconnected before. */
  readonly status: number;
  /** cancelled: the caller disconnected; refused: because of the request or for lack of room; failed: by a fault of the service. */
  readonly outcome: 'done' | 'cancelled' | 'refused' | 'failed';
  readonly code: ErrorCode | undefined;
  /** Why the seat queue refused. */
  readonly reason: string | undefined;
}
