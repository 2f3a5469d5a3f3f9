/** Batches, bounds and losses on a fake clock; the tracer and its spans are the SDK’s own. */
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import {
  AlwaysOnSampler,
  BasicTracerProvider,
  ParentBasedSampler,
  type ReadableSpan,
} from '@opentelemetry/sdk-trace-base';
import t from 'tap';
import { RequestTraces } from '../../../../sidecar/telemetry/otlp/request-traces.js';
import { FakeClock } from '../../../support/fake-clock.js';
import { deferred } from '../../../support/http-server.js';
import { requestRecord } from '../../../support/request-records.js';

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
