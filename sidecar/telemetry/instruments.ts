/**
 * Metrics. Each is declared once, where it is counted, with its name, help, unit, labels and bounds. The metrics page, the
 * reference (docs/metrics.md) and the export to OpenTelemetry are made from these declarations. Only this file imports
 * prom-client.
 *
 * Every label has few values: routes, codes and reasons are closed unions, models come from the configuration. Keys and
 * users are never labels; accounts only as queue-metrics.ts describes.
 *
 * What is read at a scrape has prom-client's `collect`, which runs only when its metric is asked for. All `collect` of one
 * scrape run before its first await, so they are of one moment.
 */
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';

export type { Counter, Gauge, Histogram } from 'prom-client';

/** The units as docs/metrics.md has them, and in UCUM for OpenTelemetry: what is counted is in braces, in the singular. */
export const UNITS = {
  seconds: 's',
  'seconds since 1970': 's',
  bytes: 'By',
  ratio: '1',
  '0 or 1': '1',
  '1': '1',
  accounts: '{account}',
  batches: '{batch}',
  connections: '{connection}',
  errors: '{error}',
  events: '{event}',
  exports: '{export}',
  files: '{file}',
  posts: '{post}',
  prefixes: '{prefix}',
  readers: '{reader}',
  recalls: '{recall}',
  records: '{record}',
  reloads: '{reload}',
  replicas: '{replica}',
  replies: '{reply}',
  requests: '{request}',
  restarts: '{restart}',
  seats: '{seat}',
  streams: '{stream}',
  tokens: '{token}',
  traces: '{trace}',
} as const;
type Unit = keyof typeof UNITS;

/** What all kinds of metrics are declared with, besides name and unit. */
interface Declaration<L extends string> {
  /** The labels' names; of labels with few known values also these: then each combination exists from the start, at 0. */
  readonly labels?: readonly L[] | Readonly<Record<L, readonly string[]>>;
  /** Its meaning in one sentence: the page's HELP. */
  readonly help: string;
  /** What to do when it is high or grows. */
  readonly advice: string;
  /** Its name and unit in OpenTelemetry's semantic conventions; absent: they define none. */
  readonly convention?: { readonly name: string; readonly unit: string };
}

/** What is read at a scrape: a value, or of a metric with labels several. Undefined: the metric has no sample. */
type Samples<L extends string> = number | undefined | Iterable<Sample<L>>;
type Sample<L extends string> = readonly [labels: Partial<Record<L, string>>, value: number];

/** A metric as the reference has it. */
export interface MetricDefinition extends Omit<Declaration<string>, 'labels'> {
  /** Begins with `ra_sidecar_` unless OpenTelemetry defines it. */
  readonly name: string;
  /** Unit of its values: seconds, bytes, or what is counted. */
  readonly unit: Unit;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly labels: readonly string[];
  /** Upper bounds, of a histogram. */
  readonly buckets?: readonly number[];
}

function isList<T>(labels: readonly T[] | object | undefined): labels is readonly T[] {
  return Array.isArray(labels);
}

function each<L extends string>(samples: Samples<L>): Iterable<Sample<L>> {
  if (samples === undefined) return [];
  return typeof samples === 'number' ? [[{}, samples]] : samples;
}

/** The label of a model: its id, or `other` if it is not configured, since callers choose what they ask for. */
export function modelLabel(configured: readonly string[]): (id: string) => string {
  const ids = new Set(configured);
  return (id) => (ids.has(id) ? id : 'other');
}

/** A sample for each of `states`: 1 for the one that is, 0 for the others. */
export function stateSamples<S extends string, L extends string>(
  states: readonly S[],
  now: S,
  labels?: Record<L, string>,
): Sample<L | 'state'>[] {
  return states.map((state) => [Object.assign({}, labels, { state }), state === now ? 1 : 0]);
}

/** Each combination of the labels' known values; none of labels without. */
function combinations<L extends string>(labels: Declaration<L>['labels']): Record<L, string>[] {
  if (labels === undefined || isList(labels)) return [];
  let made = [{}];
  for (const [label, values] of Object.entries<readonly string[]>(labels)) {
    made = made.flatMap((begun) => values.map((value) => ({ ...begun, [label]: value })));
  }
  return made as Record<L, string>[];
}

/** A separate registry, so that two in one process (tests) do not interfere. */
export class Instruments {
  /** In the order in which they were declared. */
  readonly definitions: MetricDefinition[] = [];
  readonly #registry = new Registry();
  /** Number of the last scrape. */
  #scrape = 0;

  /** Values that only increase. `collect` runs before they are read, and returns by how much they increase. */
  counter<const L extends string = never>(
    name: string,
    unit: Unit,
    { collect, ...declared }: Declaration<L> & { readonly collect?: () => Samples<NoInfer<L>> },
  ): Counter<L> {
    const counter = new Counter<L>({
      ...this.#config('counter', name, unit, declared),
      ...(collect && {
        collect() {
          for (const [labels, value] of each(collect())) this.inc(labels, value);
        },
      }),
    });
    for (const labels of combinations(declared.labels)) counter.inc(labels, 0);
    return counter;
  }

  /** Values that increase and decrease. With `collect` it has those that this returns, and no others. */
  gauge<const L extends string = never>(
    name: string,
    unit: Unit,
    { collect, ...declared }: Declaration<L> & { readonly collect?: () => Samples<NoInfer<L>> },
  ): Gauge<L> {
    const zero = (gauge: Gauge<L>): void => combinations(declared.labels).forEach((labels) => gauge.set(labels, 0));
    const gauge = new Gauge<L>({
      ...this.#config('gauge', name, unit, declared),
      ...(collect && {
        collect() {
          this.reset();
          if (declared.labels === undefined) this.remove();
          zero(this);
          for (const [labels, value] of each(collect())) this.set(labels, value);
        },
      }),
    });
    zero(gauge);
    return gauge;
  }

  /** Values that are counted in buckets. */
  histogram<const L extends string = never>(
    name: string,
    unit: Unit,
    declared: Declaration<L> & { readonly buckets: readonly number[] },
  ): Histogram<L> {
    const about = this.#config('histogram', name, unit, declared);
    const histogram = new Histogram<L>({ ...about, buckets: [...declared.buckets] });
    for (const labels of combinations(declared.labels)) histogram.zero(labels);
    return histogram;
  }

  /** What prom-client makes the metric of; it is in the reference from now on. */
  #config<L extends string>(
    type: MetricDefinition['type'],
    name: string,
    unit: Unit,
    declared: Declaration<L> & { readonly buckets?: readonly number[] },
  ) {
    const { labels, ...about } = declared;
    const labelNames = (isList(labels) ? labels : Object.keys(labels ?? {})) as readonly L[];
    this.definitions.push({ name, unit, ...about, type, labels: labelNames });
    return { name, help: about.help, labelNames, registers: [this.#registry] };
  }

  /** Adds the process's own metrics, with prom-client's names. */
  addProcess(): void {
    collectDefaultMetrics({ register: this.#registry });
  }

  /** `read`, but once a scrape at most: for metrics that come from one reading. */
  onceAScrape<T>(read: () => T): () => T {
    let last: { readonly scrape: number; readonly value: T } | undefined;
    return () => {
      if (last?.scrape !== this.#scrape) last = { scrape: this.#scrape, value: read() };
      return last.value;
    };
  }

  /** The page in Prometheus' text format, or only the metrics in `names`; a name that no metric has is ignored. */
  async page(names?: readonly string[]): Promise<{ readonly contentType: string; readonly text: string }> {
    const { contentType } = this.#registry;
    this.#scrape += 1;
    if (names === undefined) return { contentType, text: await this.#registry.metrics() };
    const known = names.filter((name) => this.#registry.getSingleMetric(name) !== undefined);
    const each = await Promise.all(known.map((name) => this.#registry.getSingleMetricAsString(name)));
    return { contentType, text: `${each.join('\n\n')}\n` };
  }

  /** The page's content as values, or only the metrics in `names`, which must exist. */
  async readings(names?: readonly string[]): Promise<MetricReading[]> {
    this.#scrape += 1;
    const listed =
      names === undefined
        ? await this.#registry.getMetricsAsJSON()
        : await Promise.all(names.map((name) => this.#existing(name).get()));
    const definitions = new Map(this.definitions.map((definition) => [definition.name, definition]));
    return listed.flatMap((metric) => readingOf(metric as ListedMetric, definitions.get(metric.name)) ?? []);
  }

  #existing(name: string): NonNullable<ReturnType<Registry['getSingleMetric']>> {
    const found = this.#registry.getSingleMetric(name);
    if (found === undefined) throw new RangeError(`there is no metric ${name}`);
    return found;
  }
}

type Labels = Readonly<Record<string, string | number>>;

/** One metric at one moment. Counts and buckets are cumulative since the start of the process. */
export interface MetricReading {
  readonly name: string;
  readonly help: string;
  /** Undefined for prom-client's metrics of the process. */
  readonly definition?: MetricDefinition | undefined;
  readonly values:
    | { readonly type: 'counter' | 'gauge'; readonly points: readonly NumberPoint[] }
    | { readonly type: 'histogram'; readonly points: readonly HistogramPoint[] };
}

interface NumberPoint {
  readonly labels: Labels;
  readonly value: number;
}

interface HistogramPoint {
  readonly labels: Labels;
  /** Upper bounds, inclusive. */
  readonly bounds: readonly number[];
  /** One more than bounds: the last counts values above all of them. Not cumulative. */
  readonly counts: readonly number[];
  readonly count: number;
  readonly sum: number;
}

/** A metric as prom-client lists it, whose types and run time spell the type differently. */
interface ListedMetric {
  readonly name: string;
  readonly help: string;
  readonly type: unknown;
  readonly values: readonly ListedValue[];
}

interface ListedValue {
  readonly value: number;
  readonly labels: Labels;
  readonly metricName?: string;
}

/** Undefined for a summary, of which there are none. */
function readingOf(
  { name, help, type, values }: ListedMetric,
  definition: MetricDefinition | undefined,
): MetricReading | undefined {
  const about = { name, help, definition };
  if (type === 'histogram') return { ...about, values: { type, points: histogramPoints(name, values) } };
  if (type === 'counter' || type === 'gauge') return { ...about, values: { type, points: values } };
  return undefined;
}

/** prom-client lists one series after the other: its buckets, which are cumulative and in order, its sum, its count. */
function histogramPoints(name: string, values: readonly ListedValue[]): HistogramPoint[] {
  const points: HistogramPoint[] = [];
  let [bounds, upTo, sum]: [number[], number[], number] = [[], [], 0];
  for (const { metricName, value, labels } of values) {
    if (metricName === `${name}_bucket`) {
      if (labels['le'] === '+Inf') continue;
      bounds.push(Number(labels['le']));
      upTo.push(value);
    } else if (metricName === `${name}_sum`) {
      sum = value;
    } else {
      const counts = [...upTo, value].map((each, i, all) => each - (all[i - 1] ?? 0));
      points.push({ labels, bounds, counts, count: value, sum });
      [bounds, upTo] = [[], []];
    }
  }
  return points;
}

/** Some metrics of one moment, for uses other than the metrics page. Throws for a metric that was not read. */
export class Reading {
  readonly #metrics: ReadonlyMap<string, MetricReading>;

  constructor(metrics: readonly MetricReading[]) {
    this.#metrics = new Map(metrics.map((metric) => [metric.name, metric]));
  }

  /** The sum of all samples with these labels, of a histogram of their counts; undefined if there is none. */
  value(name: string, labels: Labels = {}): number | undefined {
    const values = this.#points(name, labels).map(numberOf);
    return values.length === 0 ? undefined : values.reduce((sum, value) => sum + value, 0);
  }

  /** The same by one more label; samples without it under an empty string. */
  by(name: string, label: string, labels: Labels): Record<string, number> {
    const sums: Record<string, number> = {};
    for (const point of this.#points(name, labels)) {
      const key = String(point.labels[label] ?? '');
      sums[key] = (sums[key] ?? 0) + numberOf(point);
    }
    return sums;
  }

  /**
   * A histogram, summed over all samples with these labels: `bounds` in the metric's unit, and the number of values up to each bound; the
   * last of `counts` is of all values.
   */
  histogram(name: string, labels: Labels) {
    const bounds = this.#metrics.get(name)?.definition?.buckets ?? [];
    const counts = Array<number>(bounds.length + 1).fill(0);
    let sum = 0;
    for (const point of this.#points(name, labels)) {
      if (!('counts' in point)) continue;
      sum += point.sum;
      point.counts.forEach((count, i) => (counts[i] = (counts[i] ?? 0) + count));
    }
    for (let i = 1; i < counts.length; i++) counts[i] = (counts[i] ?? 0) + (counts[i - 1] ?? 0);
    return { bounds, counts, sum };
  }

  #points(name: string, labels: Labels): (NumberPoint | HistogramPoint)[] {
    const metric = this.#metrics.get(name);
    if (metric === undefined) throw new RangeError(`the metric ${name} was not read`);
    const wanted = Object.entries(labels);
    return metric.values.points.filter((point) => wanted.every(([label, value]) => point.labels[label] === value));
  }
}

function numberOf(point: NumberPoint | HistogramPoint): number {
  return 'value' in point ? point.value : point.count;
}
