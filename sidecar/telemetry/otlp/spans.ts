/** Spans of a finished request, by OpenTelemetry's conventions for HTTP servers and for generative AI. */
import {
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  type Attributes,
  type HrTime,
  type Span,
  type Tracer,
} from '@opentelemetry/api';
import { PROVIDER } from '../model-metrics.js';
import type { RequestRecord } from '../tracing.js';
import { phasesOf, type Phase } from './phases.js';

/** Prefix of attributes that no convention defines. */
const OWN = 'ra_sidecar';

/**
 * Ends `server`, the request's own span, and makes one for each phase. `offsetMs` converts a clock reading to ms since
 * 1970.
 */
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
