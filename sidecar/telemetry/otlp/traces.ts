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
import {
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  type Attributes,
  type HrTime,
  type Span,
  type TextMapGetter,
  type Tracer,
} from '@opentelemetry/api';
import type { W3CTraceContextPropagator } from '@opentelemetry/core';
import type { ReadableSpan } from '@opentelemetry/sdk-trace-base';
import type { Clock } from '../../lib/clock.js';
import { PROVIDER } from '../model-metrics.js';
import type { Attempt, RequestRecord, RequestTrace, Tracing } from '../tracing.js';

/** Of a batch; tests have other values. */
const BATCH = {
  /** Requests in one batch: each has some eight spans, and collectors take bodies of some megabytes. */
  batchRequests: 32,
  /** How long a request waits for its batch to fill, ms: a trace is there soon after its request, also while there are few. */
  batchMs: 1000,
};

export interface TraceLimits extends Partial<typeof BATCH> {
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
  readonly dropped: (reason: 'queue_full' | 'export_failed', traces: number) => void;
}

type TracedHead = Parameters<Tracing['begin']>[0];

/** A finished request and its span. */
interface Finished {
  readonly server: Span;
  readonly record: RequestRecord;
  readonly offsetMs: number;
}

const HEADERS: TextMapGetter<TracedHead> = { get: (head, name) => head.header(name), keys: () => [] };

export class RequestTraces implements Tracing {
  readonly #options: RequestTracesOptions;
  readonly #limits: Required<TraceLimits>;
  #waiting: Finished[] = [];
  #sending: Promise<void> | undefined;
  /** The timer for the next batch; full: a full batch is waiting. */
  #timer: { readonly full: boolean; readonly cancel: () => void } | undefined;

  constructor(options: RequestTracesOptions) {
    this.#options = options;
    this.#limits = { ...BATCH, ...options.limits };
  }

  begin(head: TracedHead, startedAt: number): RequestTrace {
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
    if (this.#waiting.length >= this.#limits.maxQueued) {
      this.#options.dropped('queue_full', 1);
      return;
    }
    this.#waiting.push(finished);
    this.#plan();
  }

  /** A full batch is sent at once, but not within a request's own turn; others when their time has come. */
  #plan(): void {
    const { batchRequests, batchMs } = this.#limits;
    if (this.#sending || this.#waiting.length === 0) return;
    const full = this.#waiting.length >= batchRequests;
    if (this.#timer && (this.#timer.full || !full)) return;
    this.#timer?.cancel();
    this.#timer = { full, cancel: this.#options.clock.after(full ? 0 : batchMs, () => void this.#send()) };
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
    const { tracer, taken, send, dropped } = this.#options;
    const batch = this.#waiting.splice(0, this.#limits.batchRequests);
    if (batch.length === 0) return;
    for (const { server, record, offsetMs } of batch) finish(tracer, server, record, offsetMs);
    if (!(await send(taken()))) dropped('export_failed', batch.length);
  }
}

/** An empty `tracestate` has no meaning. */
function setUnlessEmpty(carrier: Record<string, string>, name: string, value: string): void {
  if (value !== '') carrier[name] = value;
}

/** Prefix of attributes that no convention defines. */
const OWN = 'ra_sidecar';

/** Ends `server`, the request's own span, and makes one for each phase. `offsetMs` converts a clock reading to ms since 1970. */
export function finish(tracer: Tracer, server: Span, record: RequestRecord, offsetMs: number): void {
  const phases = phasesOf(record);
  const within = trace.setSpan(ROOT_CONTEXT, server);
  for (const phase of phases) {
    const span = tracer.startSpan(phase.name, { startTime: time(phase.from + offsetMs) }, within);
    if (phase.replica !== undefined) span.setAttribute(`${OWN}.replica`, phase.replica);
    if (phase.lost) span.setAttribute('error.type', 'bad_gateway').setStatus({ code: SpanStatusCode.ERROR });
    else if (phase === phases.at(-1)) markEnd(span, record);
    span.end(time(phase.until + offsetMs));
  }
  server.updateName(nameOf(record)).setAttributes(attributesOf(record, phases.at(-1)));
  markEnd(server, record);
  server.end(time(record.endedAt + offsetMs));
}

export const SERVER = { kind: SpanKind.SERVER } as const;

/** `chat <model>`, or method and route if the model is not known. */
function nameOf({ operation, model, method, route }: RequestRecord): string {
  if (operation !== undefined && model !== undefined) return `${operation} ${model}`;
  return route === undefined ? method : `${method} ${route}`;
}

/** The error status, if any. Cancelled and refused requests are not faults of the service: the status stays unset. */
function markEnd(span: Span, { code, outcome }: RequestRecord): void {
  if (code !== undefined) span.setAttribute('error.type', code);
  if (outcome === 'failed') span.setStatus({ code: SpanStatusCode.ERROR });
}

function attributesOf(record: RequestRecord, last: Phase | undefined): Attributes {
  const { method, scheme, route, status, operation, model, reason, promptTokens, cachedTokens, completionTokens } =
    record;
  return {
    'http.request.method': method,
    'http.route': route,
    // Where a route matches many paths, the path is a text of the caller.
    'url.path': route?.endsWith('}') === true ? undefined : route,
    'url.scheme': scheme,
    'http.response.status_code': status,
    ...(operation !== undefined && { 'gen_ai.operation.name': operation, 'gen_ai.provider.name': PROVIDER }),
    ...(model !== undefined && { 'gen_ai.request.model': model, 'gen_ai.response.model': model }),
    ...(record.last?.handedOverAt !== undefined && {
      'gen_ai.usage.input_tokens': promptTokens,
      'gen_ai.usage.cache_read.input_tokens': cachedTokens,
      'gen_ai.usage.output_tokens': completionTokens,
    }),
    ...(last !== undefined && { [`${OWN}.phase`]: last.name }),
    ...(reason !== undefined && { [`${OWN}.refusal.reason`]: reason }),
  };
}

/** Converts milliseconds since 1970 to OpenTelemetry's seconds and nanoseconds. */
export function time(ms: number): HrTime {
  const seconds = Math.floor(ms / 1000);
  const nanoseconds = Math.round((ms - seconds * 1000) * 1e6);
  return nanoseconds < 1e9 ? [seconds, nanoseconds] : [seconds + 1, 0];
}

/** The phases of a request. `authorize` overlaps `receive` and `prepare`; all others follow each other. */
export type PhaseName = 'authorize' | 'receive' | 'prepare' | 'queue' | 'prefill' | 'decode' | 'flush';

/** Times are clock readings. */
export interface Phase {
  readonly name: PhaseName;
  readonly from: number;
  readonly until: number;
  /** The replica of the model's engine that worked, by its index. */
  readonly replica?: number;
  /** The engine was lost before it started the request, which then waited again. */
  readonly lost?: true;
}

/**
 * The phases of a request; the last one is where it ended. In Server-Timing, `prepare` is `ra-admit`, `queue` is `ra-queue`, and both with
 * `prefill` are `ra-ttft`.
 */
export function phasesOf({
  operation,
  startedAt,
  authorized,
  receivedAt,
  lost,
  last,
  endedAt,
}: RequestRecord): Phase[] {
  const phases: Phase[] = authorized ? [{ name: 'authorize', ...authorized }] : [];
  // Routes without a model end after the key's check.
  if (operation === undefined) return phases;
  phases.push({ name: 'receive', from: startedAt, until: receivedAt ?? endedAt });
  if (receivedAt === undefined) return phases;
  phases.push({ name: 'prepare', from: receivedAt, until: (lost[0] ?? last)?.readyAt ?? endedAt });
  for (const one of lost) phases.push(...triedAndLost(one));
  if (last) phases.push(...tried(last, operation === 'chat', endedAt));
  return phases;
}

function triedAndLost({ readyAt, seatedAt, replica, handedOverAt, ranUntil }: Attempt): Phase[] {
  const from = handedOverAt ?? readyAt;
  return [
    { name: 'queue', from: readyAt, until: seatedAt ?? from },
    { name: 'prefill', from, until: ranUntil ?? from, ...on(replica), lost: true },
  ];
}

/** `decodes`: tokens are generated after the prompt, unlike for decisions. */
function tried(
  { readyAt, seatedAt, replica, handedOverAt, firstTokenAt, ranUntil }: Attempt,
  decodes: boolean,
  end: number,
): Phase[] {
  // A request that has a seat and ends before it is sent to the engine counts as waiting.
  if (handedOverAt === undefined) return [{ name: 'queue', from: readyAt, until: end }];
  const phases: Phase[] = [{ name: 'queue', from: readyAt, until: seatedAt ?? handedOverAt }];
  phases.push({ name: 'prefill', from: handedOverAt, until: firstTokenAt ?? ranUntil ?? end, ...on(replica) });
  if (decodes && firstTokenAt !== undefined)
    phases.push({ name: 'decode', from: firstTokenAt, until: ranUntil ?? end, ...on(replica) });
  if (ranUntil !== undefined && ranUntil < end) phases.push({ name: 'flush', from: ranUntil, until: end });
  return phases;
}

function on(replica: number | undefined): Pick<Phase, 'replica'> {
  return replica === undefined ? {} : { replica };
}
