import type { HistogramDefinition, MetricDefinition, Sample } from './instruments.js';

type Labels = Readonly<Record<string, string>>;

/** A histogram as on the metrics page: cumulative since the start. */
export interface HistogramReading {
  /** Upper bounds, in the metric's unit. */
  readonly bounds: readonly number[];
  /** Number of values up to each bound; the last element counts all values. */
  readonly counts: readonly number[];
  readonly sum: number;
}

/** Samples of one moment, for uses other than the metrics page. */
export class Reading {
  readonly #samples = new Map<string, Sample[]>();

  constructor(samples: readonly (readonly Sample[])[]) {
    for (const sample of samples.flat()) {
      const known = this.#samples.get(sample.name);
      if (known) known.push(sample);
      else this.#samples.set(sample.name, [sample]);
    }
  }

  /** The sum of all samples with these labels; undefined if there is none. */
  value(name: string, labels: Labels = {}): number | undefined {
    const fitting = this.#fitting(name, labels);
    return fitting.length === 0 ? undefined : fitting.reduce((sum, { value }) => sum + value, 0);
  }

  /** The sums by one more label; samples without it under an empty string. */
  by(name: string, label: string, labels: Labels): Record<string, number> {
    const sums: Record<string, number> = {};
    for (const { labels: own, value } of this.#fitting(name, labels)) {
      const key = String(own[label] ?? '');
      sums[key] = (sums[key] ?? 0) + value;
    }
    return sums;
  }

  histogram({ name, buckets }: HistogramDefinition<string>, labels: Labels): HistogramReading {
    const counts = this.by(`${name}_bucket`, 'le', labels);
    return {
      bounds: buckets,
      counts: [...buckets.map((bound) => counts[String(bound)] ?? 0), counts['+Inf'] ?? 0],
      sum: this.value(`${name}_sum`, labels) ?? 0,
    };
  }

  #fitting(name: string, labels: Labels): Sample[] {
    const wanted = Object.entries(labels);
    return (this.#samples.get(name) ?? []).filter((sample) =>
      wanted.every(([label, value]) => sample.labels[label] === value),
    );
  }
}

/** Names of some metrics, for the maker of a {@link Reading}. */
export function namesOf(definitions: readonly MetricDefinition[]): string[] {
  return definitions.map(({ name }) => name);
}
