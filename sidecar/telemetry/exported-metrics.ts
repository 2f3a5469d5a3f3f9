/** The content of the metrics page as values, for exports in another form. */
import type { Unit } from './units.js';

type Labels = Readonly<Record<string, string | number>>;

/** The parts of a metric's definition that are used here. */
interface KnownDefinition {
  readonly unit: Unit;
  readonly convention?: { readonly name: string; readonly unit: string };
}

/** One metric at one moment. Counts and buckets are cumulative since the start of the process. */
export interface MetricReading {
  readonly name: string;
  readonly help: string;
  /** Absent for prom-client's metrics of the process. */
  readonly definition?: KnownDefinition;
  readonly values:
    | { readonly type: 'counter' | 'gauge'; readonly points: readonly NumberPoint[] }
    | { readonly type: 'histogram'; readonly points: readonly HistogramPoint[] };
}

export interface NumberPoint {
  readonly labels: Labels;
  readonly value: number;
}

export interface HistogramPoint {
  readonly labels: Labels;
  /** Upper bounds, inclusive. */
  readonly bounds: readonly number[];
  /** One more than bounds: the last counts values above all of them. Not cumulative. */
  readonly counts: readonly number[];
  readonly count: number;
  readonly sum: number;
}

/** A metric as prom-client lists it. */
export interface ListedMetric {
  readonly name: string;
  readonly help: string;
  /** A name of prom-client, whose types and run time spell it differently. */
  readonly type: unknown;
  readonly values: readonly ListedValue[];
}

interface ListedValue {
  readonly value: number;
  readonly labels: Readonly<Record<string, string | number | undefined>>;
  readonly metricName?: string;
}

/** Undefined for a summary, of which there are none. */
export function readingOf(metric: ListedMetric, definition: KnownDefinition | undefined): MetricReading | undefined {
  const { name, help, type, values } = metric;
  const about = { name, help, ...(definition && { definition }) };
  switch (type) {
    case 'counter':
    case 'gauge':
      return {
        ...about,
        values: { type, points: values.map(({ labels, value }) => ({ labels: given(labels), value })) },
      };
    case 'histogram':
      return { ...about, values: { type, points: histograms(name, values) } };
    default:
      return undefined;
  }
}

function given(labels: ListedValue['labels']): Labels {
  return Object.fromEntries(
    Object.entries(labels).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
  );
}

/**
 * Buckets, sums and counts of one metric, combined by their labels. prom-client's buckets are cumulative and in order.
 */
function histograms(name: string, values: readonly ListedValue[]): HistogramPoint[] {
  const points = new Map<string, { labels: Labels; bounds: number[]; upTo: number[]; count: number; sum: number }>();
  for (const { metricName, value, labels } of values) {
    const { le, ...rest } = labels;
    const own = given(rest);
    const key = JSON.stringify(Object.entries(own).sort());
    let point = points.get(key);
    if (!point) points.set(key, (point = { labels: own, bounds: [], upTo: [], count: 0, sum: 0 }));
    if (metricName === `${name}_sum`) point.sum = value;
    else if (metricName === `${name}_count`) point.count = value;
    else if (le !== '+Inf') {
      point.bounds.push(Number(le));
      point.upTo.push(value);
    }
  }
  return [...points.values()].map(({ labels, bounds, upTo, count, sum }) => ({
    labels,
    bounds,
    counts: [...upTo, count].map((each, i, all) => each - (all[i - 1] ?? 0)),
    count,
    sum,
  }));
}
