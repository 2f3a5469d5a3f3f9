/**
 * Creates the metrics from the definitions, from which the reference (docs/metrics.md) is generated too. Only this file
 * imports prom-client.
 *
 * Every label has few values: routes, codes and reasons are closed unions, models come from the configuration. Keys and
 * users are never labels; accounts only as queue-metrics.ts describes.
 */
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry, type MetricValueWithName } from 'prom-client';
import { readingOf, type MetricReading } from './exported-metrics.js';
import type { Unit } from './units.js';

export type { Counter, Gauge, Histogram } from 'prom-client';

/** One metric, for scrapes and for the reference. */
export interface MetricDefinition<L extends string = string> {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  /** Unit of its values: seconds, bytes, or what is counted. */
  readonly unit: Unit;
  readonly labels: readonly L[];
  /** Its meaning in one sentence: the page's HELP. */
  readonly help: string;
  /** What to do when it is high or grows. */
  readonly advice: string;
  /** Its name and unit in OpenTelemetry's semantic conventions; absent: they define none. */
  readonly convention?: { readonly name: string; readonly unit: string };
  /** Upper bounds, of a histogram. */
  readonly buckets?: readonly number[];
}

/** Values that only increase. */
export type CounterDefinition<L extends string = never> = MetricDefinition<L> & { readonly type: 'counter' };
/** Values that increase and decrease. */
export type GaugeDefinition<L extends string = never> = MetricDefinition<L> & { readonly type: 'gauge' };
/** Values that are counted in buckets. */
export type HistogramDefinition<L extends string = never> = MetricDefinition<L> & {
  readonly type: 'histogram';
  readonly buckets: readonly number[];
};

/** One line of the page. A histogram's names end with `_bucket`, `_sum` and `_count`. */
export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Partial<Record<string, string | number>>>;
  readonly value: number;
}

/** Prefix of this project's own names. OpenTelemetry's names have no prefix. */
export const PREFIX = 'ra_sidecar_';

/** A separate registry, so that two in one process (tests) do not interfere. */
export class Instruments {
  readonly #registry = new Registry();
  readonly #definitions = new Map<string, MetricDefinition>();

  /** Adds the process's own metrics, with prom-client's names. */
  withProcess(): this {
    collectDefaultMetrics({ register: this.#registry });
    return this;
  }

  counter<L extends string>(definition: CounterDefinition<L>): Counter<L> {
    return new Counter(this.#settings(definition));
  }

  gauge<L extends string>(definition: GaugeDefinition<L>): Gauge<L> {
    return new Gauge(this.#settings(definition));
  }

  histogram<L extends string>(definition: HistogramDefinition<L>): Histogram<L> {
    return new Histogram({ ...this.#settings(definition), buckets: [...definition.buckets] });
  }

  /** The page in Prometheus' text format, or only the metrics in `names`. */
  async page(names?: readonly string[]): Promise<{ readonly contentType: string; readonly text: string }> {
    const { contentType } = this.#registry;
    if (names === undefined) return { contentType, text: await this.#registry.metrics() };
    const each = await Promise.all(names.map((name) => this.#registry.getSingleMetricAsString(name)));
    return { contentType, text: `${each.join('\n\n')}\n` };
  }

  /** The page's content as values. */
  async readings(): Promise<MetricReading[]> {
    const shown = await this.#registry.getMetricsAsJSON();
    return shown.flatMap((metric) => readingOf(metric, this.#definitions.get(metric.name)) ?? []);
  }

  /** The current values of one metric. Empty if it is not registered or has no samples. */
  async samples(name: string): Promise<readonly Sample[]> {
    const found = await this.#registry.getSingleMetric(name)?.get();
    const values: readonly MetricValueWithName<string>[] = found?.values ?? [];
    return values.map(({ metricName = name, labels, value }) => ({ name: metricName, labels, value }));
  }

  #settings<L extends string>(
    definition: MetricDefinition<L>,
  ): {
    readonly name: string;
    readonly help: string;
    readonly labelNames: readonly L[];
    readonly registers: Registry[];
  } {
    const { name, help, labels } = definition;
    this.#definitions.set(name, definition);
    return { name, help, labelNames: labels, registers: [this.#registry] };
  }
}
