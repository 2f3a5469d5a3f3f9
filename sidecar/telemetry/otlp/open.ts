/** Sets up OpenTelemetry's SDK; loaded only if an endpoint is configured. */
import { randomUUID } from 'node:crypto';
import { ExportResultCode, W3CTraceContextPropagator } from '@opentelemetry/core';
import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-proto';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes, type Resource } from '@opentelemetry/resources';
import { MeterProvider, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics';
import {
  BasicTracerProvider,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  type ReadableSpan,
} from '@opentelemetry/sdk-trace-base';
import type { Clock } from '../../lib/clock.js';
import type { Log } from '../logger.js';
import type { OtlpMetrics, Signal } from '../otlp-metrics.js';
import type { MetricReading } from '../exported-metrics.js';
import type { Tracing } from '../tracing.js';
import { MetricBridge } from './metric-bridge.js';
import { RequestTraces, type TraceLimits } from './request-traces.js';
import { time } from './spans.js';
import { WatchedExporter, type WatchedOptions } from './watched-exporter.js';

/** The SDK's name for the source of the data. */
const SCOPE = 'ra-sidecar';

/** Concurrent exports of a signal: the one that is due, and one whose endpoint has not finished. */
const CONCURRENCY = 2;

export interface OtlpOptions {
  readonly clock: Clock;
  /** Milliseconds since 1970. */
  readonly date: () => number;
  /** Without a slash at its end. */
  readonly endpoint: string;
  /** Called at each export. Never rejects. */
  readonly headers: () => Promise<Record<string, string>>;
  readonly serviceName: string;
  /** `deployment.environment.name`. */
  readonly environment: string;
  readonly traces: boolean;
  readonly metrics: boolean;
  /** From 0 to 1. */
  readonly sampleRatio: number;
  readonly metricsIntervalMs: number;
  readonly timeoutMs: number;
  readonly limits: TraceLimits;
  /** Reads the metrics. */
  readonly read: () => Promise<readonly MetricReading[]>;
  readonly counted: OtlpMetrics;
  readonly log: Log;
}

export interface Otlp {
  /** Undefined: tracing is off. */
  readonly tracing: Tracing | undefined;
  /** Sends what is waiting, and the metrics once more. The caller must bound its time. Never rejects. */
  close(): Promise<void>;
}

/** Starts the exports. Does not set any global of OpenTelemetry. */
export function openOtlp(options: OtlpOptions): Otlp {
  const resource = resourceFromAttributes({
    'service.name': options.serviceName,
    'service.instance.id': randomUUID(),
    'deployment.environment.name': options.environment,
  });
  const traces = options.traces ? openTraces(options, resource) : undefined;
  const metrics = options.metrics ? openMetrics(options, resource) : undefined;
  return {
    tracing: traces?.tracing,
    close: async () => {
      await Promise.allSettled([traces?.close(), metrics?.shutdown()]);
    },
  };
}

function openTraces(options: OtlpOptions, resource: Resource): { tracing: Tracing; close(): Promise<void> } {
  const { clock, date, limits, counted } = options;
  const exporter = new WatchedExporter<ReadableSpan[]>(
    new OTLPTraceExporter(exporterSettings(options, 'traces')),
    watching(options, 'traces'),
  );
  const ended: ReadableSpan[] = [];
  const provider = new BasicTracerProvider({
    resource,
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(options.sampleRatio) }),
    spanProcessors: [
      {
        onStart: () => undefined,
        onEnd: (span) => void ended.push(span),
        forceFlush: () => Promise.resolve(),
        shutdown: () => Promise.resolve(),
      },
    ],
  });
  const tracing = new RequestTraces({
    clock,
    date,
    tracer: provider.getTracer(SCOPE),
    propagator: new W3CTraceContextPropagator(),
    taken: () => ended.splice(0),
    send: (spans) =>
      new Promise((resolve) => exporter.export(spans, ({ code }) => resolve(code === ExportResultCode.SUCCESS))),
    limits,
    dropped: (reason, count) => counted.dropped(reason, count),
  });
  return {
    tracing,
    close: async () => {
      await tracing.flush();
      await exporter.shutdown();
    },
  };
}

function openMetrics(given: OtlpOptions, resource: Resource): MeterProvider {
  const { date, read, metricsIntervalMs } = given;
  // Bounded by the interval, so that the next export does not start before it; the SDK requires that too.
  const timeoutMs = Math.min(given.timeoutMs, metricsIntervalMs);
  const options = { ...given, timeoutMs };
  return new MeterProvider({
    resource,
    readers: [
      new PeriodicExportingMetricReader({
        exporter: new WatchedExporter(
          new OTLPMetricExporter(exporterSettings(options, 'metrics')),
          watching(options, 'metrics'),
        ),
        exportIntervalMillis: metricsIntervalMs,
        exportTimeoutMillis: timeoutMs,
        metricProducers: [
          new MetricBridge({
            read,
            resource,
            scope: { name: SCOPE },
            since: time(performance.timeOrigin),
            now: () => time(date()),
          }),
        ],
      }),
    ],
  });
}

function exporterSettings({ endpoint, headers, timeoutMs }: OtlpOptions, signal: Signal): object {
  return {
    url: `${endpoint}/v1/${signal}`,
    headers,
    timeoutMillis: timeoutMs,
    concurrencyLimit: CONCURRENCY,
    httpAgentOptions: { keepAlive: true, maxSockets: CONCURRENCY },
  };
}

/** Counts each export, and logs the first failure and the first success after it. */
function watching({ clock, timeoutMs, counted, log }: OtlpOptions, signal: Signal): WatchedOptions {
  let failing = false;
  return {
    clock,
    timeoutMs,
    ended: (ok, why) => {
      counted.exported(signal, ok);
      if (ok === !failing) return;
      failing = !ok;
      if (failing) log.warn('otlp export fails', { otlp: signal, reason: why });
      else log.info('otlp export works again', { otlp: signal });
    },
  };
}
