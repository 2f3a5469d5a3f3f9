/** The metrics page’s content in OpenTelemetry’s form. The integration test compares both on a real sidecar. */
import { DataPointType } from '@opentelemetry/sdk-metrics';
import t from 'tap';
import { metricOf } from '../../../../sidecar/telemetry/otlp/open.js';
import { Metrics } from '../../../../sidecar/telemetry/metrics.js';
import { UNITS } from '../../../../sidecar/telemetry/instruments.js';

const metrics = new Metrics(['m']);
metrics.requests.meter('chat', 'm').ended(30);
metrics.requests.meter('chat', 'm').ended(1e9, 'internal');
metrics.http.began({ method: 'GET', scheme: 'http' });
const readings = await metrics.readings();
const sent = readings.flatMap((reading) => metricOf(reading, [1, 0], [2, 0]) ?? []);
const defined = metrics.definitions;
const named = (name: string) => sent.find(({ descriptor }) => descriptor.name === name);

t.test('every defined metric is sent, and no name twice', async (t) => {
  const names = sent.map(({ descriptor }) => descriptor.name);
  t.equal(new Set(names).size, names.length);
  const empty = new Set(readings.filter(({ values }) => values.points.length === 0).map(({ name }) => name));
  for (const { name, convention } of defined) t.ok(empty.has(name) || names.includes(convention?.name ?? name), name);
  t.ok(names.includes('process_cpu_seconds_total'));
});

t.test('a histogram counts each bucket separately, and those above all bounds', async (t) => {
  const metric = named('gen_ai.server.request.duration');
  t.match(metric, { descriptor: { unit: 's' }, dataPointType: DataPointType.HISTOGRAM, aggregationTemporality: 1 });
  const points = metric?.dataPoints ?? [];
  t.match(points[0], {
    startTime: [1, 0],
    endTime: [2, 0],
    attributes: { 'gen_ai.operation.name': 'chat', 'gen_ai.request.model': 'm' },
    value: { count: 1, sum: 0.03, buckets: { boundaries: [0.01, 0.02, 0.04, 0.08], counts: [0, 0, 1, 0] } },
  });
  t.match(points[1], { attributes: { 'error.type': 'internal' }, value: { count: 1, sum: 1e6 } });
  const { buckets } = (points[1]?.value ?? {}) as { buckets: { boundaries: number[]; counts: number[] } };
  t.equal(buckets.counts.length, buckets.boundaries.length + 1);
  t.equal(buckets.counts.at(-1), 1);
});

t.test('types and units follow the conventions, or the name', async (t) => {
  t.match(named('http.server.active_requests'), { dataPointType: DataPointType.SUM, isMonotonic: false });
  t.match(named('ra_sidecar_cached_tokens_total'), { dataPointType: DataPointType.SUM, isMonotonic: true });
  for (const [name, unit] of [
    ['http.server.active_requests', '{request}'],
    ['ra_sidecar_cached_tokens_total', '{token}'],
    ['ra_sidecar_stream_buffered_bytes', 'By'],
    ['ra_sidecar_engine_unconfirmed_cancels_total', '{reply}'],
    ['ra_sidecar_keys_file_valid', '1'],
    ['process_cpu_seconds_total', 's'],
    ['nodejs_eventloop_lag_p99_seconds', 's'],
    ['process_open_fds', ''],
  ] as const)
    t.equal(named(name)?.descriptor.unit, unit, name);
});

t.test('every unit is one of UCUM, and what is counted is named in the singular', async (t) => {
  const units = defined.map(({ unit, convention }) => convention?.unit ?? UNITS[unit]);
  t.strictSame(
    units.filter((unit) => !/^(s|By|1|\{[a-z]+[^s}]\})$/.test(unit)),
    [],
  );
});

t.test('values that are not numbers are left out', async (t) => {
  const point = (value: number) => ({ labels: {}, value });
  const reading = { name: 'lag', help: '', values: { type: 'gauge' as const, points: [point(NaN), point(1)] } };
  t.equal(metricOf(reading, [1, 0], [2, 0])?.dataPoints.length, 1);
  t.equal(metricOf({ ...reading, values: { type: 'gauge', points: [] } }, [1, 0], [2, 0]), undefined);
});
