import t from 'tap';
import { LABELS } from '../../generate/metric-docs.js';
import { VERSION } from '../../../sidecar/lib/version.js';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';
import { sourcesOf } from '../../support/metric-sources.js';

/** The lines of the page that begin with `name`, without the common prefix. */
async function lines(metrics: Metrics, name: string): Promise<string[]> {
  const { text } = await metrics.render();
  return text
    .split('\n')
    .filter((line) => line.startsWith(`ra_sidecar_${name}`))
    .map((line) => line.slice('ra_sidecar_'.length));
}

t.test('the page is Prometheus text, with the process’s own metrics', async (t) => {
  const { contentType, text } = await new Metrics([]).render();
  t.match(contentType, /^text\/plain; version=0\.0\.4/);
  t.match(text, /^process_resident_memory_bytes \d+/m);
  t.match(text, /^# HELP ra_sidecar_seats \S/m);
  t.match(text, `ra_sidecar_build_info{version="${VERSION}"} 1\n`);
});

t.test('refusals, cancels and restarts exist from the start, at zero', async (t) => {
  const metrics = new Metrics(['m']);
  t.equal((await lines(metrics, 'refusals_total{model="m"')).length, 14);
  t.equal((await lines(metrics, 'cancels_total{model="m"')).length, 3);
  t.strictSame(await lines(metrics, 'engine_restarts_total'), ['engine_restarts_total{model="m"} 0']);
  metrics.queues.refused('m', 'wait');
  metrics.requests.cancelled('m', 'prefilling');
  metrics.processes.engineRestarted('m', 0);
  metrics.processes.promptHostRestarted();
  metrics.spool.recorded('close');
  const { text } = await metrics.render();
  for (const line of [
    ...['refusals_total{model="m",reason="wait"} 1', 'refusals_total{model="m",reason="full"} 0'],
    ...['cancels_total{model="m",phase="prefilling"} 1', 'engine_restarts_total{model="m"} 1'],
    ...['prompt_host_restarts_total 1', 'usage_records_total{kind="close"} 1'],
  ])
    t.ok(text.includes(`ra_sidecar_${line}\n`), line);
});

t.test('a page of some metrics computes no others, and what several come from is read once', async (t) => {
  const metrics = new Metrics(['m']);
  const reads: string[] = [];
  const { queue, engine, load } = sourcesOf({});
  const reading = <T>(name: string, value: T): T => {
    reads.push(name);
    return value;
  };
  metrics.sources.set('m', {
    queue: (named) => reading('queue', queue(named)),
    engine: () => reading('engine', engine()),
    replicas: () => reading('replicas', []),
    caches: () => reading('caches', []),
    load,
  });
  await metrics.renderEndpoint();
  t.strictSame(reads, []);
  const read = await metrics.read(['ra_sidecar_kv_tokens', 'ra_sidecar_kv_capacity_tokens']);
  t.strictSame(reads.splice(0), ['engine']);
  t.equal(read.value('ra_sidecar_kv_tokens', { use: 'kept' }), 0);
  t.throws(() => read.value('ra_sidecar_seats'), { message: 'the metric ra_sidecar_seats was not read' });
  await t.rejects(metrics.read(['ra_sidecar_no_such']), { message: 'there is no metric ra_sidecar_no_such' });
  const { text } = await metrics.render(['ra_sidecar_seats', 'ra_sidecar_no_such']);
  t.strictSame(reads.splice(0), ['queue']);
  t.match(text, 'ra_sidecar_seats{model="m"} ');
  t.notMatch(text, 'ra_sidecar_seats_busy');
  await metrics.render();
  t.strictSame(reads.sort(), ['caches', 'engine', 'queue', 'replicas']);
});

/** The declared metrics, those on the page, and those of the reference are the same. */
const defined = new Metrics([]).definitions;

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
