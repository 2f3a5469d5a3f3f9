/**
 * Makes what counts and measures, from definitions that the reference (docs/metrics.md) is made from too. prom-client is
 * known here alone.
 *
 * Every label has few values: routes, codes and reasons are closed unions, models come from the configuration; no key or
 * user is ever a label, accounts only where queue-metrics.ts says so.
 */
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry, type MetricValueWithName } from 'prom-client';
import { readingOf, type MetricReading } from './readings.js';

export type { Counter, Gauge, Histogram } from 'prom-client';

/** One metric, as a scrape shows it and as the reference tells of it. */
export interface MetricDefinition<L extends string = string> {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  /** Of its values: seconds, bytes, or what is counted. */
  readonly unit: string;
  readonly labels: readonly L[];
  /** What it tells, in one sentence: the page's HELP. */
  readonly help: string;
  /** What to do when it is high or grows. */
  readonly advice: string;
  /** What OpenTelemetry's semantic conventions call it, and its unit there; absent: they have no name for it. */
  readonly convention?: { readonly name: string; readonly unit: string };
  /** Upper bounds, of a histogram. */
  readonly buckets?: readonly number[];
}

/** Amounts that go up for good. */
export type CounterDefinition<L extends string = never> = MetricDefinition<L> & { readonly type: 'counter' };
/** Amounts that go up and down. */
export type GaugeDefinition<L extends string = never> = MetricDefinition<L> & { readonly type: 'gauge' };
/** Amounts, one by one, in buckets. */
export type HistogramDefinition<L extends string = never> = MetricDefinition<L> & {
  readonly type: 'histogram';
  readonly buckets: readonly number[];
};

/** One line of the page: a histogram's names end with `_bucket`, `_sum` and `_count`. */
export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Partial<Record<string, string | number>>>;
  readonly value: number;
}

/** What all of this project's own names begin with. OpenTelemetry's names stand as they are. */
export const PREFIX = 'ra_sidecar_';

/** A registry of its own, so that two in one process (tests) do not meet. */
export class Instruments {
  readonly #registry = new Registry();
  readonly #definitions = new Map<string, MetricDefinition>();

  /** The process's own metrics too, with prom-client's names for them. */
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

  /** The page, in Prometheus' text format; of some metrics alone where `names` says which. */
  async page(names?: readonly string[]): Promise<{ readonly contentType: string; readonly text: string }> {
    const { contentType } = this.#registry;
    if (names === undefined) return { contentType, text: await this.#registry.metrics() };
    const each = await Promise.all(names.map((name) => this.#registry.getSingleMetricAsString(name)));
    return { contentType, text: `${each.join('\n\n')}\n` };
  }

  /** What the page shows, as values. */
  async readings(): Promise<MetricReading[]> {
    const shown = await this.#registry.getMetricsAsJSON();
    return shown.flatMap((metric) => readingOf(metric, this.#definitions.get(metric.name)) ?? []);
  }

  /** What one metric holds now, as the page would show it. Empty for one that is not registered, or has no samples. */
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
