import { integer, milliseconds, section, text, type SettingSchema } from './kinds.js';

/** The section `telemetry`: exports to a collector. /metrics and the log do not depend on it. */
export const telemetrySchema: SettingSchema = section({
  otlp: section({
    endpoint: text(
      'Where traces and metrics are sent, by OTLP over HTTP (docs/tracing.md): `/v1/traces` and `/v1/metrics` are appended. Without it nothing is sent, and OpenTelemetry’s SDK is not loaded.',
      { pattern: '^https?://', maxLength: 2048, defaultText: 'none' },
    ),
    headersFile: text(
      'A file, relative to the working directory, with headers for the endpoint, one `name: value` per line. It is read again for each export, so it can be changed at any time.',
      { defaultText: 'none: no header is added' },
    ),
    serviceName: text('`service.name` of all that is sent.', {
      default: 'ra-sidecar',
      pattern: '^[\\x21-\\x7e]+$',
      maxLength: 128,
    }),
    traces: { type: 'boolean', description: 'Send a trace of each sampled request.', default: true },
    metrics: { type: 'boolean', description: 'Send what `/metrics` shows.', default: true },
    samplePercent: integer(
      'Share of the requests without a `traceparent` that are traced. A request with one follows its caller’s sampling decision.',
      { default: 100, minimum: 0, maximum: 100, unit: '%' },
    ),
    metricsIntervalMs: milliseconds('The time from one export of the metrics to the next.', {
      default: 60_000,
      minimum: 100,
    }),
    batchMs: milliseconds('How long the trace of a finished request may wait for its export’s batch to fill.', {
      default: 5000,
      minimum: 1,
    }),
    batchRequests: integer('The most requests in one export of traces; each has some eight spans.', {
      default: 32,
      minimum: 1,
      maximum: 1024,
      unit: 'requests',
    }),
    maxQueued: integer('Requests whose traces may wait; further ones are dropped and counted.', {
      default: 2048,
      minimum: 1,
      maximum: 1_000_000,
      unit: 'requests',
    }),
    // Node's own limit for a response head is five minutes.
    timeoutMs: integer('How long one export may take, retries included. Then its content is dropped.', {
      default: 10_000,
      minimum: 1,
      maximum: 300_000,
      unit: 'ms',
    }),
    stopMs: milliseconds('How long the last exports may take after SIGTERM.', { default: 3000 }),
  }),
});
