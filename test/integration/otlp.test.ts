/**
 * Traces and metrics that a real OTLP receiver gets from a real sidecar, compared with what callers see of the same
 * requests.
 */
import { createServer, type IncomingHttpHeaders } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { chatBody } from '../support/canaries.js';
import { OtlpReceiver, type ReceivedTrace } from '../support/otlp-receiver.js';
import { RawConnection } from '../support/raw-http.js';
import { sampleName, samplesOf } from '../support/otlp-samples.js';
import { CHAT, Sidecar, type LogLine } from '../support/sidecar.js';
import { ProcessGate } from '../support/process-gate.js';
import { isWhole, lasts, names, NEAR_MS, timings } from '../support/traces.js';

const GOOD = 'a-key-that-the-authorizer-takes';
const CHATS = '/chat/completions';
/** Comparisons after the first one: an engine’s heartbeat comes twice a second, an export five times. */
const MOST_TRIES = 5;
const PARTS = ['receive', 'prepare', 'queue', 'prefill', 'decode', 'flush'];

/** A trace of the caller. */
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';
const parent = (flags: string): string => `00-${TRACE}-${SPAN}-${flags}`;

const asked: IncomingHttpHeaders[] = [];
const authorizer = createServer((request, response) => {
  const parts: Buffer[] = [];
  asked.push(request.headers);
  request.on('data', (part: Buffer) => parts.push(part));
  request.on('end', () => {
    const { key } = JSON.parse(Buffer.concat(parts).toString()) as { key: string };
    const caller = { account: 'initech', keyId: 'key_i', models: 'all' };
    response.end(JSON.stringify(key.startsWith(GOOD) ? { caller } : { denied: { code: 'invalid_api_key' } }));
  });
}).listen(0, '127.0.0.1');
await once(authorizer, 'listening');
t.teardown(() => authorizer.close());
t.teardown(() => authorizer.closeAllConnections());

const receiver = await OtlpReceiver.start(t);
const gate = new ProcessGate(t, { stub: true });
const sidecar = await Sidecar.start(t, {
  stub: true,
  seats: 2,
  // Replies that a test cuts must last until then.
  contextPerSeat: 16_384,
  config: {
    access: { mode: 'authorizer' },
    authorizer: {
      url: `http://127.0.0.1:${(authorizer.address() as AddressInfo).port}/`,
      send: 'key',
      timeoutMs: 60_000,
    },
    telemetry: { otlp: { endpoint: receiver.endpoint, metricsIntervalMs: 200 } },
    log: { level: 'trace' },
    queue: { waitForLoad: false },
  },
  // None of them may change anything.
  environment: {
    ...gate.environment,
    OTEL_SDK_DISABLED: 'true',
    OTEL_TRACES_SAMPLER: 'always_off',
    OTEL_EXPORTER_OTLP_HEADERS: 'x-strange=1',
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1',
  },
});
sidecar.key = GOOD;
t.match(await sidecar.logged('otlp export begins'), { host: new URL(receiver.endpoint).host });

/** The request’s log line, and the trace that it names. */
async function traced(requestId: string): Promise<{ line: LogLine; trace: ReceivedTrace }> {
  const line = await sidecar.logged('request', 1, (each) => each['requestId'] === requestId);
  return { line, trace: await receiver.trace(String(line['span_id'])) };
}

/** Sends a request with an id; returns its answer and its trace. */
async function ask(path: string, body: unknown, id: string, headers: Record<string, string> = {}, key = GOOD) {
  const from = Date.now();
  const response = await sidecar.post(path, body, { key, headers: { 'x-request-id': id, ...headers } });
  const text = await response.text();
  return { response, text, from, until: Date.now(), ...(await traced(id)) };
}

t.test('a streamed chat within its caller’s trace', async (t) => {
  const connection = await RawConnection.open(sidecar.port);
  t.teardown(() => connection.close());
  const key = `${GOOD}-1`;
  const body = JSON.stringify({ ...chatBody({ max_tokens: 40, stop: undefined }), stream: true });
  const head = {
    Authorization: `Bearer ${key}`,
    TE: 'trailers',
    'Content-Type': 'application/json',
    'x-request-id': 'streamed',
    traceparent: parent('01'),
    tracestate: 'vendor=opaque,other=1',
  };
  const from = Date.now();
  const response = await connection.request('POST', `/v1${CHATS}`, head, body).response();
  const until = Date.now();
  t.equal(response.status, 200);
  const { line, trace } = await traced('streamed');
  const { server } = trace;
  isWhole(t, trace);
  t.strictSame(names(trace), PARTS);
  t.match(server, {
    traceId: TRACE,
    parentId: SPAN,
    traceState: 'vendor=opaque,other=1',
    name: `chat ${CHAT}`,
    status: 0,
    scope: 'ra-sidecar',
    resource: { 'service.name': 'ra-sidecar', 'deployment.environment.name': 'development' },
  });
  t.strictSame(server.attributes, {
    'http.request.method': 'POST',
    'http.route': '/v1/chat/completions',
    'url.path': '/v1/chat/completions',
    'url.scheme': 'http',
    'http.response.status_code': 200,
    'gen_ai.operation.name': 'chat',
    'gen_ai.provider.name': 'ra-sidecar',
    'gen_ai.request.model': CHAT,
    'gen_ai.response.model': CHAT,
    'gen_ai.usage.input_tokens': line['promptTokens'],
    'gen_ai.usage.cache_read.input_tokens': line['cachedTokens'],
    'gen_ai.usage.output_tokens': line['completionTokens'],
    'ra_sidecar.phase': 'flush',
  });
  t.match(line, { trace_id: TRACE, span_id: server.spanId });
  const said = timings(response);
  // Both use the same clock readings, however long a busy machine takes between two of them.
  const same = (found: number, wanted: number, what: string): void =>
    void t.ok(Math.abs(found - wanted) < 0.01, `${what}: ${found} and ${wanted} ms`);
  const beginOf = (name: string): number => trace.parts.find((part) => part.name === name)?.from ?? NaN;
  const { 'ra-queue': queue = NaN, 'ra-admit': admit = NaN, 'ra-ttft': ttft = NaN, authorize = NaN } = said;
  same(beginOf('prefill') - beginOf('prepare'), admit + queue, 'ra-admit and ra-queue');
  same(beginOf('decode') - beginOf('prepare'), ttft, 'ra-ttft');
  same(lasts(trace, 'authorize'), authorize, 'authorize');
  t.ok(Math.abs(lasts(trace, 'queue') - queue) < NEAR_MS, 'ra-queue alone');
  t.ok(server.from >= from - NEAR_MS && server.until <= until + NEAR_MS, 'within the time that the caller measured');
  t.ok(Math.abs(server.until - server.from - Number(line['durationMs'])) < 1, 'as long as the log says');
  const question = asked.find(({ traceparent }) => traceparent?.includes(TRACE));
  t.equal(question?.['traceparent'], `00-${TRACE}-${server.spanId}-01`, 'the authorizer can continue the trace');
  t.equal(question?.['tracestate'], 'vendor=opaque,other=1');
});

t.test(
  'a request whose caller’s trace is not sampled is not exported, and the authorizer gets that flag',
  async (t) => {
    const key = `${GOOD}-2`;
    const before = asked.length;
    const headers = { 'x-request-id': 'unsampled', traceparent: parent('00') };
    t.equal((await sidecar.post(CHATS, chatBody(), { key, headers })).status, 200);
    const line = await sidecar.logged('request', 1, ({ requestId }) => requestId === 'unsampled');
    t.equal(line['trace_id'], TRACE);
    t.equal(asked[before]?.['traceparent'], `00-${TRACE}-${String(line['span_id'])}-00`);
    // A later request’s trace has arrived.
    await ask(CHATS, chatBody(), 'after');
    t.notOk(receiver.spans.some(({ spanId }) => spanId === line['span_id']));
  },
);

t.test('the metrics equal those of /metrics', async (t) => {
  // From now on only time passes: values that change by themselves are left out.
  const moving =
    /^(process|nodejs)_|otlp|http[._]server|seconds_since|timestamp|account_seat|sidecar_connections\{|kv_|fairness/;
  const exports = (): number => receiver.requests.filter(({ path }) => path === '/v1/metrics').length;
  const compare = async (): Promise<{ metrics: typeof receiver.metrics; samples: number; different: string[] }> => {
    const before = exports();
    await receiver.until('two more exports of metrics', () => (exports() >= before + 2 ? true : undefined));
    const { metrics } = receiver;
    const page = await (await fetch(`http://127.0.0.1:${sidecar.operatorsPort}/metrics`)).text();
    const samples = page.split('\n').filter((line) => /^[a-z]/.test(line) && !moving.test(line));
    const sent = samplesOf(metrics);
    const valueOf = (line: string): number => Number(line.slice(line.lastIndexOf(' ')));
    const different = samples.filter((line) => sent.get(sampleName(line)) !== valueOf(line));
    return { metrics, samples: samples.length, different };
  };
  let compared = await compare();
  // An engine reports its cache with its next heartbeat, which may come between an export and the page.
  for (let tries = 0; compared.different.length > 0 && tries < MOST_TRIES; tries += 1) compared = await compare();
  const { metrics, samples, different } = compared;
  t.ok(samples > 300, `${samples} samples to compare`);
  t.strictSame(different, []);
  const of = (name: string) => metrics.find((metric) => metric.name === name);
  t.match(of('http.server.request.duration'), { unit: 's', type: 'histogram', temporality: 2 });
  const statuses = of('http.server.request.duration')?.points.map(
    (point) => point.attributes['http.response.status_code'],
  );
  t.ok(statuses?.includes(200) === true, 'a status is a number');
  t.match(of('http.server.active_requests'), { unit: '{request}', type: 'sum', monotonic: false, temporality: 2 });
  t.match(of('gen_ai.client.token.usage'), { unit: '{token}', type: 'histogram' });
  t.match(of('ra_sidecar_cached_tokens_total'), { unit: '{token}', type: 'sum', monotonic: true, temporality: 2 });
  t.match(of('ra_sidecar_seats'), { unit: '{seat}', type: 'gauge' });
  t.match(of('process_resident_memory_bytes'), { unit: 'By', type: 'gauge' });
  for (const { name, points, resource } of metrics) {
    t.match(resource, { 'service.name': 'ra-sidecar' });
    for (const { from, at } of points) {
      t.ok(from <= at && Math.abs(Date.now() - at) < 60_000, name);
      t.ok(from > Date.now() - 600_000 && from === metrics[0]?.points[0]?.from, 'since the process began');
    }
  }
});

t.test('variables of the environment are ignored', async (t) => {
  t.ok(receiver.requests.every(({ headers }) => headers['x-strange'] === undefined));
  t.match(await sidecar.logged('variables of OpenTelemetry are not read'), { count: 4 });
});
