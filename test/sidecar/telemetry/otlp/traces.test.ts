/** Batches, bounds and losses on a fake clock; the tracer and its spans are the SDK’s own. */
import { ROOT_CONTEXT } from '@opentelemetry/api';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import {
  AlwaysOnSampler,
  BasicTracerProvider,
  InMemorySpanExporter,
  ParentBasedSampler,
  SimpleSpanProcessor,
  type ReadableSpan,
} from '@opentelemetry/sdk-trace-base';
import t from 'tap';
import { finish, phasesOf, RequestTraces, SERVER, time } from '../../../../sidecar/telemetry/otlp/traces.js';
import { FakeClock } from '../../../support/fake-clock.js';
import { deferred } from '../../../support/http-server.js';
import { requestRecord, ATTEMPT, WAITED } from '../../../support/request-records.js';

const LIMITS = { batchRequests: 2, batchMs: 100, maxQueued: 3 };
/** Spans of a successful chat: the request and its six parts. */
const SPANS = 7;

class Harness {
  readonly clock = new FakeClock();
  readonly sent: { readonly spans: ReadableSpan[]; readonly end: (ok: boolean) => void }[] = [];
  readonly dropped: string[] = [];
  readonly traces: RequestTraces;

  constructor() {
    const ended: ReadableSpan[] = [];
    const provider = new BasicTracerProvider({
      sampler: new ParentBasedSampler({ root: new AlwaysOnSampler() }),
      spanProcessors: [
        {
          onStart: () => undefined,
          onEnd: (span) => void ended.push(span),
          forceFlush: () => Promise.resolve(),
          shutdown: () => Promise.resolve(),
        },
      ],
    });
    this.traces = new RequestTraces({
      clock: this.clock,
      // The clock began a minute after 1970.
      date: () => 60_000 + this.clock.now(),
      tracer: provider.getTracer('test'),
      propagator: new W3CTraceContextPropagator(),
      taken: () => ended.splice(0),
      send: (spans) => {
        const { promise, resolve } = deferred<boolean>();
        this.sent.push({ spans, end: resolve });
        return promise;
      },
      limits: LIMITS,
      dropped: (reason, count) => this.dropped.push(`${count} ${reason}`),
    });
  }

  /** A request from its head to its end. */
  request(traceparent?: string): void {
    const header = (name: string): string | undefined => (name === 'traceparent' ? traceparent : undefined);
    this.traces.begin({ header }, this.clock.now()).ended(requestRecord());
  }

  /** Ends the current batch, and lets what depends on it continue. */
  async end(ok: boolean): Promise<void> {
    this.sent.at(-1)?.end(ok);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

t.test('a batch is sent when it is full, or when its time has come', async (t) => {
  const harness = new Harness();
  harness.request();
  harness.clock.advance(99);
  t.equal(harness.sent.length, 0);
  harness.clock.advance(1);
  t.equal(harness.sent[0]?.spans.length, SPANS);
  await harness.end(true);

  harness.request();
  harness.request();
  t.equal(harness.sent.length, 1, 'not from within a request');
  harness.clock.advance(0);
  t.equal(harness.sent[1]?.spans.length, 2 * SPANS);
  await harness.end(true);
  harness.clock.advance(1000);
  t.equal(harness.sent.length, 2, 'nothing waits');
  t.equal(harness.clock.pending, 0);
  t.strictSame(harness.dropped, []);
});

t.test('a hanging endpoint lets at most the configured number wait', async (t) => {
  const harness = new Harness();
  for (let i = 0; i < 2; i += 1) harness.request();
  harness.clock.advance(0);
  for (let i = 0; i < 10; i += 1) harness.request();
  harness.clock.advance(10_000);
  t.equal(harness.sent.length, 1, 'one at a time');
  t.strictSame(harness.dropped, Array(7).fill('1 queue_full'));
  await harness.end(false);
  t.equal(harness.dropped.at(-1), '2 export_failed', 'its spans are lost');
  harness.clock.advance(0);
  t.equal(harness.sent[1]?.spans.length, 2 * SPANS, 'the next is sent at once');
  await harness.end(true);
  harness.clock.advance(100);
  t.equal(harness.sent[2]?.spans.length, SPANS);
});

t.test('a flush sends all of it', async (t) => {
  const harness = new Harness();
  for (let i = 0; i < 3; i += 1) harness.request();
  let flushed = false;
  void harness.traces.flush().then(() => (flushed = true));
  t.equal(harness.sent.length, 1);
  await harness.end(true);
  t.equal(harness.sent.length, 2);
  t.notOk(flushed);
  await harness.end(true);
  t.ok(flushed);
});

t.test('times are those of the clock, and an unsampled request costs nothing further', async (t) => {
  const harness = new Harness();
  harness.clock.advance(0);
  harness.request('00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00');
  t.equal(harness.clock.pending, 0, 'no export waits for it');
  harness.request();
  harness.clock.advance(100);
  const spans = harness.sent[0]?.spans ?? [];
  const at = ([seconds, nanoseconds]: [number, number]): number => seconds * 1000 + nanoseconds / 1e6;
  t.strictSame(
    spans.map(({ name, startTime, endTime }) => [name, at(startTime), at(endTime)]),
    [
      ['receive', 60_000, 60_010],
      ['prepare', 60_010, 60_020],
      ['queue', 60_020, 60_030],
      ['prefill', 60_030, 60_040],
      ['decode', 60_040, 60_050],
      ['flush', 60_050, 60_060],
      ['chat m', 60_000, 60_060],
    ],
  );
});

/** The server’s span, and the last of its parts. */
function spansOf(...args: Parameters<typeof requestRecord>): { server: ReadableSpan; parts: ReadableSpan[] } {
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
    const { server, parts } = spansOf({ outcome, status, code, last: cut });
    const wanted = { status: { code: error }, attributes: { 'error.type': code } };
    t.match(server, { ...wanted, attributes: { ...wanted.attributes, 'http.response.status_code': status } }, code);
    t.match(parts.at(-1), { name: 'decode', ...wanted });
    t.match(parts.at(-2), { status: { code: 0 }, attributes: {} });
    t.equal(parts.at(-2)?.attributes['error.type'], undefined, 'only the part in which it ended');
    t.equal(server.status.message, undefined, 'no text');
  }
});

t.test('spans have tokens for requests sent to an engine, and a reason for refused ones', async (t) => {
  const { server } = spansOf({ last: WAITED, outcome: 'refused', code: 'capacity_exceeded', reason: 'wait' });
  t.equal(server.attributes['ra_sidecar.refusal.reason'], 'wait');
  t.equal(server.attributes['ra_sidecar.phase'], 'queue');
  t.equal(server.attributes['gen_ai.usage.input_tokens'], undefined);
  t.match(spansOf().server.attributes, {
    'gen_ai.usage.input_tokens': 5,
    'gen_ai.usage.cache_read.input_tokens': 2,
    'gen_ai.usage.output_tokens': 3,
  });
});

t.test('where a route matches many paths, no span has the caller’s', async (t) => {
  const unknown = { method: 'GET', operation: undefined, model: undefined };
  const { server } = spansOf({ ...unknown, route: '/v1/models/{id}' });
  t.match(server, { name: 'GET /v1/models/{id}', attributes: { 'http.route': '/v1/models/{id}' } });
  t.notOk('url.path' in server.attributes);
  t.equal(spansOf().server.attributes['url.path'], '/v1/chat/completions');
  t.equal(spansOf({ ...unknown, route: undefined }).server.name, 'GET');
});

t.test('an attempt with a lost engine is marked, and the request continues', async (t) => {
  const lost = { readyAt: 20, seatedAt: 21, replica: 0, handedOverAt: 22, firstTokenAt: undefined, ranUntil: 25 };
  const { server, parts } = spansOf({ lost: [lost], last: { ...ATTEMPT, readyAt: 25 } });
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

/** `name from-until` of each, `@` its replica. */
const reported = (...args: Parameters<typeof requestRecord>): string[] =>
  phasesOf(requestRecord(...args)).map(
    ({ name, from, until, replica, lost }) =>
      `${name} ${from}-${until}${replica === undefined ? '' : `@${replica}`}${lost ? ' lost' : ''}`,
  );

t.test('a reply has all parts, without gaps', async (t) => {
  t.strictSame(reported(), [
    'receive 0-10',
    'prepare 10-20',
    'queue 20-30',
    'prefill 30-40@1',
    'decode 40-50@1',
    'flush 50-60',
  ]);
  t.equal(
    reported({ authorized: { from: 2, until: 12 } })[0],
    'authorize 2-12',
    'beside them the key’s check, if it was checked here',
  );
});

t.test('the last part ends when the request ended', async (t) => {
  const nothing = { last: undefined, receivedAt: undefined };
  t.strictSame(reported({ ...nothing, endedAt: 7 }), ['receive 0-7']);
  t.equal(reported({ last: undefined, endedAt: 17 }).at(-1), 'prepare 10-17');
  t.equal(reported({ last: WAITED, endedAt: 99 }).at(-1), 'queue 20-99');
  t.equal(
    reported({ last: { ...WAITED, seatedAt: 30 }, endedAt: 99 }).at(-1),
    'queue 20-99',
    'with a seat, and no job',
  );
  t.equal(
    reported({ last: { ...ATTEMPT, firstTokenAt: undefined, ranUntil: undefined }, endedAt: 99 }).at(-1),
    'prefill 30-99@1',
  );
  t.equal(reported({ last: { ...ATTEMPT, ranUntil: undefined }, endedAt: 99 }).at(-1), 'decode 40-99@1');
});

t.test('questions are answered in the prefill', async (t) => {
  const last = { ...ATTEMPT, firstTokenAt: undefined };
  t.strictSame(reported({ operation: 'decisions', last }).slice(3), ['prefill 30-50@1', 'flush 50-60']);
});

t.test('a request without a model has only its key’s check', async (t) => {
  t.strictSame(reported({ operation: undefined, authorized: { from: 1, until: 3 } }), ['authorize 1-3']);
  t.strictSame(reported({ operation: undefined }), []);
});

t.test('an engine that was lost before it began results in a separate try', async (t) => {
  const lost = { readyAt: 20, seatedAt: 21, replica: 0, handedOverAt: 22, firstTokenAt: undefined, ranUntil: 25 };
  const last = { readyAt: 25, seatedAt: 30, replica: 1, handedOverAt: 30, firstTokenAt: 40, ranUntil: 50 };
  t.strictSame(reported({ lost: [lost], last }).slice(1), [
    ...['prepare 10-20', 'queue 20-21', 'prefill 22-25@0 lost', 'queue 25-30', 'prefill 30-40@1', 'decode 40-50@1'],
    'flush 50-60',
  ]);
});

t.test('a second one too, after which the queue does not take it back', async (t) => {
  const lost = [
    { readyAt: 20, seatedAt: 21, replica: 0, handedOverAt: 22, firstTokenAt: undefined, ranUntil: 25 },
    { readyAt: 25, seatedAt: 30, replica: 1, handedOverAt: 30, firstTokenAt: undefined, ranUntil: 35 },
  ];
  const last = {
    readyAt: 35,
    seatedAt: undefined,
    replica: undefined,
    handedOverAt: undefined,
    firstTokenAt: undefined,
    ranUntil: undefined,
  };
  t.strictSame(reported({ lost, last, endedAt: 36 }).slice(1), [
    'prepare 10-20',
    'queue 20-21',
    'prefill 22-25@0 lost',
    'queue 25-30',
    'prefill 30-35@1 lost',
    'queue 35-36',
  ]);
});
