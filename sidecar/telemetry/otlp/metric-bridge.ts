/**
 * Converts the metrics of /metrics to OpenTelemetry's form when an export is due, so that nothing is counted twice and
 * requests are not delayed.
 */
import { ValueType, type Attributes, type HrTime } from '@opentelemetry/api';
import type { Resource } from '@opentelemetry/resources';
import {
  AggregationTemporality,
  DataPointType,
  type CollectionResult,
  type MetricData,
  type MetricProducer,
} from '@opentelemetry/sdk-metrics';
import { UNITS, type MetricReading } from '../instruments.js';

export interface MetricBridgeOptions {
  readonly read: () => Promise<readonly MetricReading[]>;
  readonly resource: Resource;
  readonly scope: { readonly name: string };
  /** Start of all counts: the start of the process. */
  readonly since: HrTime;
  readonly now: () => HrTime;
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

export class MetricBridge implements MetricProducer {
  readonly #options: MetricBridgeOptions;

  constructor(options: MetricBridgeOptions) {
    this.#options = options;
  }

  async collect(): Promise<CollectionResult> {
    const { read, resource, scope, since, now } = this.#options;
    const readings = await read();
    const endTime = now();
    const metrics = readings.flatMap((reading) => metricOf(reading, since, endTime) ?? []);
    return { resourceMetrics: { resource, scopeMetrics: [{ scope, metrics }] }, errors: [] };
  }
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
