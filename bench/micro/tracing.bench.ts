/**
 * The cost of traces per request: `node dist/bench/micro/tracing.bench.js`, part of `make bench`. All requests share
 * one event loop, so every stream pays for work on it.
 */
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { ProtobufTraceSerializer } from '@opentelemetry/otlp-transformer';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  BasicTracerProvider,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  type ReadableSpan,
} from '@opentelemetry/sdk-trace-base';
import { systemClock } from '../../sidecar/lib/clock.js';
import { Timeline } from '../../sidecar/api/timeline.js';
import { RequestTraces } from '../../sidecar/telemetry/otlp/traces.js';
import type { RequestTrace, Tracing } from '../../sidecar/telemetry/tracing.js';
import { requestRecord } from '../../test/support/request-records.js';
import { keep } from '../support/results.js';
import { median } from '../support/stats.js';

/** Requests timed together: one alone is shorter than the clock's own noise. */
const BATCH = 500;
const BATCHES = 300;
/** As many as the sidecar exports at once. */
const EXPORT = 32;

const PARENT = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
const HEAD = { header: (): undefined => undefined };
const CHILD = { header: (name: string) => (name === 'traceparent' ? PARENT : undefined) };

/** Traces whose exports run through everything up to the socket. */
function traces(ratio: number, send: (spans: ReadableSpan[]) => void): RequestTraces {
  const ended: ReadableSpan[] = [];
  const provider = new BasicTracerProvider({
    resource: resourceFromAttributes({ 'service.name': 'bench' }),
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(ratio) }),
    spanProcessors: [
      {
        onStart: () => undefined,
        onEnd: (span) => void ended.push(span),
        forceFlush: () => Promise.resolve(),
        shutdown: () => Promise.resolve(),
      },
    ],
  });
  return new RequestTraces({
    clock: systemClock,
    date: () => Date.now(),
    tracer: provider.getTracer('bench'),
    propagator: new W3CTraceContextPropagator(),
    taken: () => ended.splice(0),
    send: (spans) => {
      send(spans);
      return Promise.resolve(true);
    },
    limits: { batchRequests: EXPORT, batchMs: 3_600_000, maxQueued: BATCH },
    dropped: () => {
      throw new Error('dropped');
    },
  });
}

/**
 * Everything that a request does for its timing: every mark, Server-Timing, and what request-context.ts does for a
 * trace.
 */
function request(tracing: Tracing | undefined, head: typeof HEAD | typeof CHILD): object {
  const times = new Timeline(systemClock);
  const trace: RequestTrace | undefined = tracing?.begin(head, times.startedAt);
  times.authorized(times.startedAt);
  times.receivedAt = systemClock.now();
  times.waits();
  times.seated(0, 0);
  times.handedOver();
  times.firstToken();
  const header = times.header();
  times.ran();
  const line = { header, trailer: times.trailer(), ...trace?.ids };
  if (trace) {
    const { startedAt, receivedAt, authorization: authorized, last } = times;
    trace.ended(requestRecord({ startedAt, receivedAt, authorized, last, endedAt: systemClock.now() }));
  }
  return line;
}

const none = traces(0, () => undefined);
const all = traces(1, () => undefined);
const CASES: readonly (readonly [
  what: string,
  tracing: RequestTraces | undefined,
  head: typeof HEAD | typeof CHILD,
])[] = [
  ['no endpoint: marks and Server-Timing', undefined, HEAD],
  ['the same again', undefined, HEAD],
  ['an endpoint, not sampled', none, HEAD],
  ['an endpoint, sampled', all, HEAD],
  ['an endpoint, sampled, in its caller’s trace', all, CHILD],
];

// In turn, so that other work of the machine affects all of them alike.
const times = CASES.map((): number[] => []);
const marks: number[] = [];
let kept: object = {};
for (let batch = 0; batch < BATCHES; batch++) {
  for (const [k, [, tracing, head]] of CASES.entries()) {
    const from = performance.now();
    for (let i = 0; i < BATCH; i++) kept = request(tracing, head);
    times[k]?.push(((performance.now() - from) * 1000) / BATCH);
    // Waiting spans are sent outside the measurement.
    await tracing?.flush();
  }
  const from = performance.now();
  for (let i = 0; i < BATCH; i++) kept = [systemClock.now(), systemClock.now()];
  marks.push(((performance.now() - from) * 1000) / BATCH);
}
if (Object.keys(kept).length === 0) throw new Error('nothing was done');

/** Spans made, and spans and their message made, of one export. */
const made: number[] = [];
const written: number[] = [];
let bytes = 0;
for (let i = 0; i < BATCHES; i++) {
  let from = 0;
  const exported = traces(1, (spans) => {
    made.push(performance.now() - from);
    bytes = ProtobufTraceSerializer.serializeRequest(spans)?.byteLength ?? 0;
    written.push(performance.now() - from);
  });
  for (let k = 0; k < EXPORT; k++) request(exported, CHILD);
  from = performance.now();
  await exported.flush();
}

const us = (k: number): number => median(times[k] ?? []);
const rounded = (value: number): number => Number(value.toFixed(3));
const exportUs = (median(written) * 1000) / EXPORT;
await keep('tracing', {
  title: 'The cost of traces per request',
  about: [
    `Medians of ${BATCHES} batches of ${BATCH} requests each, the kinds in turn, on the event loop of the sidecar. Each request takes every mark of a streamed chat and writes its Server-Timing, as it does without traces; the first two rows are the same, and what lies between them is noise.`,
    `Spans are made of a request’s record when its export is due, ${EXPORT} requests at a time, not while it runs: eight spans and their part of the message (\`http\` itself not counted).`,
  ],
  rows: [
    ...CASES.map(([what], k) => ({ 'on the request’s way': what, 'median, µs': rounded(us(k)) })),
    { 'on the request’s way': 'of these, the two marks that only traces need', 'median, µs': rounded(median(marks)) },
  ],
  conclusions: [
    `Without an endpoint: ${Math.abs(us(0) - us(1)).toFixed(3)} µs between two runs of the same. What traces add there is two looks at the clock (${median(marks).toFixed(3)} µs) and a few tests for undefined.`,
    `Sampled: ${(us(3) - us(0)).toFixed(1)} µs on the request’s way, and ${exportUs.toFixed(1)} µs later. At 100 requests a second: ${((us(3) - us(0) + exportUs) / 100).toFixed(2)} % of one core.`,
    `An export of ${EXPORT} requests keeps the event loop for ${median(written).toFixed(2)} ms (${median(made).toFixed(2)} ms spans, the rest the message of ${Math.round(bytes / 1024)} KiB).`,
  ],
});
