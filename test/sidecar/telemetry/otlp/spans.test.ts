/** The spans of an ended request, by its outcome. */
import { ROOT_CONTEXT } from '@opentelemetry/api';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
  type ReadableSpan,
} from '@opentelemetry/sdk-trace-base';
import t from 'tap';
import { finish, SERVER, time } from '../../../../sidecar/telemetry/otlp/spans.js';
import { requestRecord, ATTEMPT, WAITED } from '../../../support/request-records.js';

/** The server’s span, and the last of its parts. */
function reported(...args: Parameters<typeof requestRecord>): { server: ReadableSpan; parts: ReadableSpan[] } {
  const exporter = new InMemorySpanExporter();
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  const tracer = provider.getTracer('test');
  finish(
    tracer,
    tracer.startSpan('request', { ...SERVER, startTime: time(0) }, ROOT_CONTEXT),
    requestRecord(...args),
    0,
  );
  const spans = exporter.getFinishedSpans();
  const server = spans.at(-1);
  if (!server) throw new Error('no span');
  return { server, parts: spans.slice(0, -1) };
}

t.test('only server errors set the span’s error status', async (t) => {
  const cut = { ...ATTEMPT, ranUntil: undefined };
  for (const { outcome, status, code, error } of [
    { outcome: 'cancelled', status: 499, code: 'request_cancelled', error: 0 },
    { outcome: 'refused', status: 429, code: 'capacity_exceeded', error: 0 },
    { outcome: 'failed', status: 200, code: 'bad_gateway', error: 2 },
    { outcome: 'failed', status: 503, code: 'draining', error: 2 },
  ] as const) {
    const { server, parts } = reported({ outcome, status, code, last: cut });
    const wanted = { status: { code: error }, attributes: { 'error.type': code } };
    t.match(server, { ...wanted, attributes: { ...wanted.attributes, 'http.response.status_code': status } }, code);
    t.match(parts.at(-1), { name: 'decode', ...wanted });
    t.match(parts.at(-2), { status: { code: 0 }, attributes: {} });
    t.equal(parts.at(-2)?.attributes['error.type'], undefined, 'only the part in which it ended');
    t.equal(server.status.message, undefined, 'no text');
  }
});

t.test('spans have tokens for requests sent to an engine, and a reason for refused ones', async (t) => {
  const { server } = reported({ last: WAITED, outcome: 'refused', code: 'capacity_exceeded', reason: 'wait' });
  t.equal(server.attributes['ra_sidecar.refusal.reason'], 'wait');
  t.equal(server.attributes['ra_sidecar.phase'], 'queue');
  t.equal(server.attributes['gen_ai.usage.input_tokens'], undefined);
  t.match(reported().server.attributes, {
    'gen_ai.usage.input_tokens': 5,
    'gen_ai.usage.cache_read.input_tokens': 2,
    'gen_ai.usage.output_tokens': 3,
  });
});

t.test('where a route matches many paths, no span has the caller’s', async (t) => {
  const unknown = { method: 'GET', operation: undefined, model: undefined };
  const { server } = reported({ ...unknown, route: '/v1/models/{id}' });
  t.match(server, { name: 'GET /v1/models/{id}', attributes: { 'http.route': '/v1/models/{id}' } });
  t.notOk('url.path' in server.attributes);
  t.equal(reported().server.attributes['url.path'], '/v1/chat/completions');
  t.equal(reported({ ...unknown, route: undefined }).server.name, 'GET');
});

t.test('an attempt with a lost engine is marked, and the request continues', async (t) => {
  const lost = { readyAt: 20, seatedAt: 21, replica: 0, handedOverAt: 22, firstTokenAt: undefined, ranUntil: 25 };
  const { server, parts } = reported({ lost: [lost], last: { ...ATTEMPT, readyAt: 25 } });
  t.equal(server.status.code, 0);
  t.match(parts[3], { name: 'prefill', status: { code: 2 }, attributes: { 'error.type': 'bad_gateway' } });
  t.strictSame(
    parts.map(({ attributes }) => attributes['ra_sidecar.replica']),
    [undefined, undefined, undefined, 0, undefined, 1, 1, undefined],
    'which replica it was on',
  );
});

t.test('a time keeps its fractions', async (t) => {
  t.strictSame(time(1_700_000_000_123.25), [1_700_000_000, 123_250_000]);
  t.strictSame(time(1999.999_999_9), [2, 0], 'and never has a whole second of nanoseconds');
});
