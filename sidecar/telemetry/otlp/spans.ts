/** Spans of a request that is over, by OpenTelemetry's conventions for HTTP servers and for generative AI. */
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

/** For attributes that no convention has a name for. */
const OWN = 'ra_sidecar';

/**
 * Ends `server`, the request's own span, and makes one for each part of its time. `offsetMs`: what makes a clock reading
 * a time since 1970, ms.
 */
export function finish(tracer: Tracer, server: Span, record: RequestRecord, offsetMs: number): void {
  const phases = phasesOf(record);
  const within = trace.setSpan(ROOT_CONTEXT, server);
  for (const phase of phases) {
    const span = tracer.startSpan(phase.name, { startTime: time(phase.from + offsetMs) }, within);
    if (phase.lost) span.setAttribute('error.type', 'bad_gateway').setStatus({ code: SpanStatusCode.ERROR });
    else if (phase === phases.at(-1)) markEnd(span, record);
    span.end(time(phase.until + offsetMs));
  }
  server.updateName(nameOf(record)).setAttributes(attributesOf(record, phases.at(-1)));
  markEnd(server, record);
  server.end(time(record.endedAt + offsetMs));
}

export const SERVER = { kind: SpanKind.SERVER } as const;

/** Of a request, as far as it came: `chat <model>`, or its method and route. */
function nameOf({ operation, model, method, route }: RequestRecord): string {
  return operation === undefined || model === undefined ? `${method} ${route}` : `${operation} ${model}`;
}

/** What went wrong with it, if anything did. Who left or was refused met no fault of this side: the status stays unset. */
function markEnd(span: Span, { code, outcome }: RequestRecord): void {
  if (code !== undefined) span.setAttribute('error.type', code);
  if (outcome === 'failed') span.setStatus({ code: SpanStatusCode.ERROR });
}

function attributesOf(record: RequestRecord, last: Phase | undefined): Attributes {
  const { method, route, status, operation, model, reason, promptTokens, cachedTokens, completionTokens } = record;
  return {
    'http.request.method': method,
    'http.route': route,
    'url.path': route,
    // TLS ends in front of this process.
    'url.scheme': 'http',
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

/** Milliseconds since 1970 as OpenTelemetry counts them: seconds, and nanoseconds besides. */
export function time(ms: number): HrTime {
  const seconds = Math.floor(ms / 1000);
  const nanoseconds = Math.round((ms - seconds * 1000) * 1e6);
  return nanoseconds < 1e9 ? [seconds, nanoseconds] : [seconds + 1, 0];
}
