/** The defined metrics, those on the page, and those of the reference are the same. */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { LABELS, metricDocs } from '../../generate/metric-docs.js';
import { METRICS } from '../../../sidecar/telemetry/definitions/catalogue.js';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';
import { sourceRoot } from '../../support/source-root.js';

const defined = METRICS.flatMap(({ metrics }) => metrics);

t.test('docs/metrics.md equals what the definitions generate (`make docs` writes it)', async (t) => {
  t.equal(readFileSync(`${sourceRoot}/docs/metrics.md`, 'utf8'), metricDocs());
});

t.test('every defined metric is on the page, and no other except the process’s', async (t) => {
  const { text } = await new Metrics(['m']).render();
  const shown = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)]
    .map(([, name = '', type = '']) => ({ name, type }))
    .filter(({ name }) => !/^(process|nodejs)_/.test(name));
  const byName = (a: { name: string }, b: { name: string }): number => (a.name < b.name ? -1 : 1);
  t.strictSame(shown.sort(byName), defined.map(({ name, type }) => ({ name, type })).sort(byName));
  for (const { name, help } of defined) t.ok(text.includes(`# HELP ${name} ${help}\n`), name);
});

t.test('names, units and bounds follow Prometheus’ rules', async (t) => {
  t.equal(new Set(defined.map(({ name }) => name)).size, defined.length, 'no name twice');
  for (const { name, type, unit, buckets, help, advice } of defined) {
    t.match(name, /^(ra_sidecar|http_server|gen_ai)_[a-z_]+$/, name);
    t.equal(name.endsWith('_total'), type === 'counter', `${name}: only counters are totals`);
    if (unit === 'seconds' || unit === 'bytes') t.match(name, new RegExp(`_${unit}$`), `${name} names its unit`);
    t.match(help, /^[A-Z0-9].*\.$/, `${name}: a sentence`);
    t.match(advice, /^[A-Z`0-9].*\.$/, `${name}: advice`);
    t.equal(buckets !== undefined, type === 'histogram', `${name}: bounds`);
    t.strictSame(buckets, buckets && [...buckets].sort((a, b) => a - b), `${name}: bounds increase`);
  }
});

t.test('every label is explained, and no other', async (t) => {
  const used = new Set(defined.flatMap(({ labels }) => labels));
  t.strictSame(Object.keys(LABELS), [...used].sort());
});
