/**
 * Traces of requests, from the head to the endpoint:
 *
 *     head ──begin──> in flight ──ended──> waiting (bounded) ──a batch──> spans ──export──> endpoint
 *
 * While a request runs, its trace is one started span, which decides sampling and has the ids for other services. All
 * further spans are built from the request's record when its batch is due. One batch is in flight at a time: if the
 * endpoint is slow or unavailable, the waiting list fills up and further traces are dropped. So a trace is delivered
 * completely or not at all.
 */
import { ROOT_CONTEXT, trace, type Span, type TextMapGetter, type Tracer } from '@opentelemetry/api';
import type { W3CTraceContextPropagator } from '@opentelemetry/core';
import type { ReadableSpan } from '@opentelemetry/sdk-trace-base';
import type { Clock } from '../../lib/clock.js';
import type { DropLabel } from '../otlp-metrics.js';
import type { RequestRecord, RequestTrace, Tracing } from '../tracing.js';
import { finish, SERVER, time } from './spans.js';

export interface TraceLimits {
  /** Requests in one batch. */
  readonly batchRequests: number;
  /** How long a request waits for its batch to fill, ms. */
  readonly batchMs: number;
  /** Requests that may wait. */
  readonly maxQueued: number;
}

export interface RequestTracesOptions {
  readonly clock: Clock;
  /** Milliseconds since 1970. */
  readonly date: () => number;
  /** Its provider passes every ended span to `taken` at once. */
  readonly tracer: Tracer;
  readonly propagator: W3CTraceContextPropagator;
  /** Returns the spans that have ended since the last call. */
  readonly taken: () => ReadableSpan[];
  /** Sends spans; false: they are lost. Never rejects, and settles within a time limit. */
  readonly send: (spans: ReadableSpan[]) => Promise<boolean>;
  readonly limits: TraceLimits;
  readonly dropped: (reason: DropLabel, traces: number) => void;
}

type Head = Parameters<Tracing['begin']>[0];

/** A finished request and its span. */
interface Finished {
  readonly server: Span;
  readonly record: RequestRecord;
  readonly offsetMs: number;
}

const HEADERS: TextMapGetter<Head> = { get: (head, name) => head.header(name), keys: () => [] };

export class RequestTraces implements Tracing {
  readonly #options: RequestTracesOptions;
  #waiting: Finished[] = [];
  #sending: Promise<void> | undefined;
  /** The timer for the next batch; full: a full batch is waiting. */
  #timer: { readonly full: boolean; readonly cancel: () => void } | undefined;

  constructor(options: RequestTracesOptions) {
    this.#options = options;
  }

  begin(head: Head, startedAt: number): RequestTrace {
    const { tracer, propagator, clock, date } = this.#options;
    const offsetMs = date() - clock.now();
    const parent = propagator.extract(ROOT_CONTEXT, head, HEADERS);
    const server = tracer.startSpan('request', { ...SERVER, startTime: time(startedAt + offsetMs) }, parent);
    const { traceId, spanId } = server.spanContext();
    return {
      ids: { trace_id: traceId, span_id: spanId },
      headers: () => {
        const carrier: Record<string, string> = {};
        propagator.inject(trace.setSpan(ROOT_CONTEXT, server), carrier, { set: setUnlessEmpty });
        return carrier;
      },
      ended: (record) => {
        if (server.isRecording()) this.#keep({ server, record, offsetMs });
      },
    };
  }

  /** Sends all that is waiting. The caller must bound its time. */
  async flush(): Promise<void> {
    while (this.#waiting.length > 0 || this.#sending) await this.#send();
  }

  #keep(finished: Finished): void {
    const { limits, dropped } = this.#options;
    if (this.#waiting.length >= limits.maxQueued) {
      dropped('queue_full', 1);
      return;
    }
    this.#waiting.push(finished);
    this.#plan();
  }

  /** A full batch is sent at once, but not within a request's own turn; others when their time has come. */
  #plan(): void {
    const { clock, limits } = this.#options;
    if (this.#sending || this.#waiting.length === 0) return;
    const full = this.#waiting.length >= limits.batchRequests;
    if (this.#timer && (this.#timer.full || !full)) return;
    this.#timer?.cancel();
    this.#timer = { full, cancel: clock.after(full ? 0 : limits.batchMs, () => void this.#send()) };
  }

  #send(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = undefined;
    return (this.#sending ??= this.#sendBatch().finally(() => {
      this.#sending = undefined;
      this.#plan();
    }));
  }

  async #sendBatch(): Promise<void> {
    const { tracer, taken, send, dropped, limits } = this.#options;
    const batch = this.#waiting.splice(0, limits.batchRequests);
    if (batch.length === 0) return;
    for (const { server, record, offsetMs } of batch) finish(tracer, server, record, offsetMs);
    if (!(await send(taken()))) dropped('export_failed', batch.length);
  }
}

/** An empty `tracestate` has no meaning. */
function setUnlessEmpty(carrier: Record<string, string>, name: string, value: string): void {
  if (value !== '') carrier[name] = value;
}
