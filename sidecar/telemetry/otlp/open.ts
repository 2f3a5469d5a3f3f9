/** Sets up OpenTelemetry's SDK; loaded only if an endpoint is configured. */
import { randomUUID } from 'node:crypto';
import { ExportResultCode, W3CTraceContextPropagator, type ExportResult } from '@opentelemetry/core';
import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-proto';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes, type Resource } from '@opentelemetry/resources';
import {
  MeterProvider,
  PeriodicExportingMetricReader,
  AggregationTemporality,
  DataPointType,
  type CollectionResult,
  type MetricData,
} from '@opentelemetry/sdk-metrics';
import {
  BasicTracerProvider,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  type ReadableSpan,
} from '@opentelemetry/sdk-trace-base';
import type { Clock } from '../../lib/clock.js';
import type { Log } from '../logger.js';
import { type MetricReading, UNITS } from '../instruments.js';
import type { Metrics } from '../metrics.js';
import type { Tracing } from '../tracing.js';
import { RequestTraces, time, type TraceLimits } from './traces.js';
import { ValueType, type Attributes, type HrTime } from '@opentelemetry/api';

/** The SDK's name for the source of the data. */
const SCOPE = 'ra-sidecar';

type Signal = 'traces' | 'metrics';

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
  readonly read: () => Promise<readonly MetricReading[]>;
  readonly counted: Metrics['otlp'];
  readonly log: Log;
}

/**
 * Starts the exports; without tracing `tracing` is undefined. Does not set any global of OpenTelemetry. `close` sends what is waiting, and
 * the metrics once more. The caller must bound its time. It never rejects.
 */
export function openOtlp(options: OtlpOptions) {
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
        metricProducers: [{ collect: () => collected(read, resource, date) }],
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

/** Added to an export's own time limit, which does not cover an endpoint that sends an endless answer, ms. */
const SLACK_MS = 1000;

interface Exporter<T> {
  export(items: T, report: (result: ExportResult) => void): void;
  forceFlush?(): Promise<void>;
  shutdown(): Promise<void>;
}

export interface WatchedOptions {
  readonly clock: Clock;
  /** The exporter's own time limit, ms. */
  readonly timeoutMs: number;
  /** Called at each end; `why` is a status or a code, and no text of the endpoint's. */
  readonly ended: (ok: boolean, why: string) => void;
}

/** Wraps an exporter of the SDK, so that its exports end within a time limit and each end is reported. */
export class WatchedExporter<T> {
  readonly #inner: Exporter<T>;
  readonly #options: WatchedOptions;

  constructor(inner: Exporter<T>, options: WatchedOptions) {
    this.#inner = inner;
    this.#options = options;
  }

  export(items: T, report: (result: ExportResult) => void): void {
    const { clock, timeoutMs, ended } = this.#options;
    let over = false;
    const end = (result: ExportResult): void => {
      if (over) return;
      over = true;
      cancel();
      ended(result.code === ExportResultCode.SUCCESS, reasonOf(result.error));
      report(result);
    };
    const fail = (error: Error): void => end({ code: ExportResultCode.FAILED, error });
    const cancel = clock.after(timeoutMs + SLACK_MS, () => fail(new Error('timeout')));
    try {
      this.#inner.export(items, end);
    } catch (error) {
      fail(error instanceof Error ? error : new Error('thrown'));
    }
  }

  async forceFlush(): Promise<void> {
    await this.#inner.forceFlush?.();
  }

  shutdown(): Promise<void> {
    return this.#inner.shutdown();
  }
}

/** Messages of the SDK and of this file for an export that took too long. */
const LATE: ReadonlySet<string> = new Set(['Request timed out', 'timeout']);

/** An HTTP status or an operating system's code, `timeout`, or `failed` where it is none of them. */
function reasonOf(error: Error | undefined): string {
  const code = error && 'code' in error ? error.code : undefined;
  if (typeof code === 'number') return `status ${code}`;
  if (typeof code === 'string' && /^[A-Z0-9_]{1,64}$/.test(code)) return code;
  return error && LATE.has(error.message) ? 'timeout' : 'failed';
}

/** Labels that the semantic conventions define. Their values already follow the conventions. */
const ATTRIBUTES: ReadonlyMap<string, string> = new Map(
  [
    'error.type',
    'gen_ai.operation.name',
    'gen_ai.provider.name',
    'gen_ai.request.model',
    'gen_ai.response.model',
    'gen_ai.token.type',
    'http.request.method',
    'http.response.status_code',
    'http.route',
    'url.scheme',
  ].map((name) => [name.replaceAll('.', '_'), name]),
);

/** Counts that can decrease, which the conventions treat as sums. */
const UP_DOWN: ReadonlySet<string> = new Set(['http.server.active_requests']);

/**
 * Converts the metrics of /metrics to OpenTelemetry's form when an export is due, so that nothing is counted twice and requests are not
 * delayed. All counts begin with the process.
 */
async function collected(
  read: OtlpOptions['read'],
  resource: Resource,
  date: OtlpOptions['date'],
): Promise<CollectionResult> {
  const readings = await read();
  const [since, now] = [time(performance.timeOrigin), time(date())];
  const metrics = readings.flatMap((reading) => metricOf(reading, since, now) ?? []);
  return { resourceMetrics: { resource, scopeMetrics: [{ scope: { name: SCOPE }, metrics }] }, errors: [] };
}

/** Undefined if it has no sample. */
export function metricOf(reading: MetricReading, startTime: HrTime, endTime: HrTime): MetricData | undefined {
  const { name, help, definition, values } = reading;
  const descriptor = {
    name: definition?.convention?.name ?? name,
    description: help,
    unit: definition?.convention?.unit ?? (definition ? UNITS[definition.unit] : unitOf(name)),
    valueType: ValueType.DOUBLE,
  };
  const about = { descriptor, aggregationTemporality: AggregationTemporality.CUMULATIVE };
  const at = { startTime, endTime };
  if (values.points.length === 0) return undefined;
  if (values.type === 'histogram') {
    const dataPoints = values.points.map(({ labels, bounds, counts, count, sum }) => ({
      ...at,
      attributes: attributesOf(labels),
      value: { buckets: { boundaries: [...bounds], counts: [...counts] }, count, sum },
    }));
    return { ...about, dataPointType: DataPointType.HISTOGRAM, dataPoints };
  }
  // A gauge that was never set may be NaN, which is not allowed in a time series.
  const dataPoints = values.points
    .filter(({ value }) => Number.isFinite(value))
    .map(({ labels, value }) => ({ ...at, attributes: attributesOf(labels), value }));
  if (values.type === 'gauge' && !UP_DOWN.has(descriptor.name)) {
    return { ...about, dataPointType: DataPointType.GAUGE, dataPoints };
  }
  return { ...about, dataPointType: DataPointType.SUM, isMonotonic: values.type === 'counter', dataPoints };
}

/** The unit of one of prom-client's metrics by its name's suffix; empty: it has none. */
function unitOf(name: string): string {
  const [, ends] = /_(seconds|bytes)(_total)?$/.exec(name) ?? [];
  return ends === 'seconds' || ends === 'bytes' ? UNITS[ends] : '';
}

function attributesOf(labels: Readonly<Record<string, string | number>>): Attributes {
  return Object.fromEntries(
    Object.entries(labels).map(([label, value]) => [ATTRIBUTES.get(label) ?? label, value] as const),
  );
}
