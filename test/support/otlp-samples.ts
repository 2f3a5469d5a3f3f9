/** Received metrics, with the names of Prometheus’ text format: what a collector would make of them. */
import type { ReceivedMetric } from './otlp-messages.js';

type Labels = readonly (readonly [label: string, value: string])[];

/** Values by {@link sampleName}. */
export function samplesOf(metrics: readonly ReceivedMetric[]): Map<string, number> {
  const samples = new Map<string, number>();
  for (const { name, unit, type, points } of metrics) {
    const shown = name.includes('.') ? `${name.replaceAll('.', '_')}${unit === 's' ? '_seconds' : ''}` : name;
    for (const { attributes, value, count, sum, counts, bounds } of points) {
      const labels = Object.entries(attributes).map(([key, at]) => [key.replaceAll('.', '_'), String(at)] as const);
      const put = (suffix: string, of: number, more: Labels = []): void =>
        void samples.set(nameOf(shown + suffix, [...labels, ...more]), of);
      if (type !== 'histogram') {
        put('', value);
        continue;
      }
      put('_count', count);
      put('_sum', sum);
      let upTo = 0;
      for (const [i, own] of counts.entries()) put('_bucket', (upTo += own), [['le', String(bounds[i] ?? '+Inf')]]);
    }
  }
  return samples;
}

/** The name and the labels of a line of the text format, labels in order. */
export function sampleName(line: string): string {
  const [, name = '', labels = ''] = /^(\w+)(?:\{(.*)\})? \S+$/.exec(line) ?? [];
  return nameOf(
    name,
    [...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, label = '', at = '']) => [label, at]),
  );
}

function nameOf(name: string, labels: Labels): string {
  return `${name} ${JSON.stringify([...labels].sort())}`;
}
