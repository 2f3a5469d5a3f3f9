/**
 * The cost of metrics: `node dist/bench/micro/metrics.bench.js`, part of `make bench`. A token is counted on the event
 * loop that all streams share, so its cost is multiplied by seats and steps.
 */
import { Metrics } from '../../sidecar/telemetry/metrics.js';
import { keep } from '../support/results.js';

/** Calls timed together: one alone is shorter than the clock's own noise. */
const BATCH = 500;
const BATCHES = 400;
const SCRAPES = 100;

/** Models on the page. */
const MODELS = ['chat-a', 'chat-b', 'chat-c', 'decide'];

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] ?? NaN;
}

const metrics = new Metrics(MODELS);
const { http } = metrics;
const meter = metrics.requests.meter('chat', 'chat-a');
const ended = {
  method: 'POST',
  scheme: 'http',
  route: '/v1/chat/completions',
  status: 200,
  durationMs: 812,
  outcome: 'complete',
} as const;

const CALLS: readonly (readonly [what: string, call: (i: number) => void])[] = [
  ['a piece of a reply (each token)', (i) => meter.piece(5 + (i % 40))],
  ['a look at the clock (each token)', () => void performance.now()],
  ['a first token', (i) => meter.firstToken(40 + i)],
  [
    'the tokens and the time by token of a reply',
    (i) => {
      meter.replied(100, 2000 + i);
      meter.used({ prompt: 500, cached: 100, completion: 100 });
    },
  ],
  ['the end of a request for a model', (i) => meter.ended(2000 + i)],
  [
    'an HTTP exchange, begun and ended',
    () => {
      http.began(ended);
      http.ended(ended);
    },
  ],
];

// In turn, so that other work of the machine affects all of them alike.
const times = CALLS.map((): number[] => []);
for (let batch = 0; batch < BATCHES; batch++) {
  for (const [k, [, call]] of CALLS.entries()) {
    const start = performance.now();
    for (let i = 0; i < BATCH; i++) call(i);
    times[k]?.push(((performance.now() - start) * 1000) / BATCH);
  }
}
for (const model of MODELS) metrics.requests.meter('chat', model).ended(1, 'capacity_exceeded');
const scrapes: number[] = [];
let bytes = 0;
for (let i = 0; i < SCRAPES; i++) {
  const start = performance.now();
  bytes = (await metrics.render()).text.length;
  scrapes.push(performance.now() - start);
}

const perToken = median(times[0] ?? []) + median(times[1] ?? []);
await keep('metrics', {
  title: 'The cost of metrics',
  about: [
    `Medians of ${BATCHES} batches of ${BATCH} calls each, the kinds in turn, on the event loop of the sidecar.`,
    'Labels are resolved once for each model (sidecar/telemetry/model-metrics.ts): a token creates none.',
  ],
  rows: CALLS.map(([what], k) => ({ what, 'median, µs': Number(median(times[k] ?? []).toFixed(3)) })),
  conclusions: [
    `64 streams at 50 tokens a second each: ${((perToken * 64 * 50) / 10_000).toFixed(2)} % of one core.`,
    `A page of ${Math.round(bytes / 1024)} KiB takes ${median(scrapes).toFixed(1)} ms to make.`,
  ],
});
