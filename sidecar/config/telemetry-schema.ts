import { integer, milliseconds, section, text, type SettingSchema } from './kinds.js';

/** The section `telemetry`: what leaves for a collector by itself. /metrics and the log are there without it. */
export const telemetrySchema: SettingSchema = section({
  otlp: section({
    endpoint: text(
      'Where traces and metrics are sent, by OTLP over HTTP (docs/tracing.md): `/v1/traces` and `/v1/metrics` are put behind it. Without it nothing is sent, and nothing of OpenTelemetry’s SDK is loaded.',
      { pattern: '^https?://', maxLength: 2048, defaultText: 'none' },
    ),
    headersFile: text(
      'A file, from the working directory, with headers that the endpoint asks for, `name: value` on a line each. It is read again for each export, so that it can be changed at any time.',
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
      'Of requests that come without a `traceparent`, how many are traced. One that comes with it is traced if its caller’s trace is.',
      { default: 100, minimum: 0, maximum: 100, unit: '%' },
    ),
    metricsIntervalMs: milliseconds('The time from one export of the metrics to the next.', {
      default: 60_000,
      minimum: 100,
    }),
    batchMs: milliseconds('How long the trace of a request that is over may wait for others to share its export.', {
      default: 5000,
      minimum: 1,
    }),
    batchRequests: integer('The most requests in one export of traces; each has some eight spans.', {
      default: 32,
      minimum: 1,
      maximum: 1024,
      unit: 'requests',
    }),
    maxQueued: integer('Requests whose traces may wait; those that come after them are dropped, and counted.', {
      default: 2048,
      minimum: 1,
      maximum: 1_000_000,
      unit: 'requests',
    }),
    // Node's own limit for an answer's head is five minutes.
    timeoutMs: integer('How long one export may take, being tried again included. Then what it held is dropped.', {
      default: 10_000,
      minimum: 1,
      maximum: 300_000,
      unit: 'ms',
    }),
    stopMs: milliseconds('How long the last exports may take after SIGTERM.', { default: 3000 }),
  }),
});
