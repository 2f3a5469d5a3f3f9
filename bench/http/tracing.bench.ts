/** The cost of traces and metrics by OTLP for requests, over HTTP: no endpoint, and one that gets all or a tenth. */
import { fileURLToPath } from 'node:url';
import { chatBody } from '../../test/support/in-process.js';
import { messageOf } from '../support/children.js';
import { change, closedLoop, compared, end, forked, inTurn, typical, type State } from '../support/in-turn.js';
import { keep, type Row } from '../support/results.js';
import { TimedCaller } from '../support/timed-caller.js';

const LIVES = Number(process.argv[2] ?? 4);
const ROUNDS = Number(process.argv[3] ?? 8);
const CALLERS = 4;
const REQUESTS = 600;
const WARM_UP = 2000;
/** A tenth of the default, so that exports of the metrics occur during runs; those of traces do anyway. */
const METRICS_MS = 6000;

const SIDECAR = fileURLToPath(new URL('../support/timing-sidecar.js', import.meta.url));
const COLLECTOR = fileURLToPath(new URL('../support/otlp-collector.js', import.meta.url));

const collector = await forked(COLLECTOR);
const endpoint = `http://127.0.0.1:${String(collector.reported)}`;

const NONE = 'no endpoint';
const TWIN = 'no endpoint, another process';
const ALL = 'all requests traced';
const TENTH = 'a tenth traced';
const STATES: Readonly<Record<string, object>> = {
  [NONE]: {},
  [TWIN]: {},
  [ALL]: { endpoint, metricsIntervalMs: METRICS_MS },
  [TENTH]: { endpoint, metricsIntervalMs: METRICS_MS, samplePercent: 10 },
};

const states = Object.entries(STATES).map(([name, otlp]): State => ({
  name,
  start: async () => {
    const { child, reported } = await forked(SIDECAR, [JSON.stringify({ telemetry: { otlp } })]);
    const body = JSON.stringify(chatBody('wide', 'clocked'));
    const callers = (): Promise<TimedCaller[]> =>
      Promise.all(Array.from({ length: CALLERS }, () => TimedCaller.open(Number(reported), body)));
    await closedLoop(await callers(), WARM_UP);
    return { run: async () => closedLoop(await callers(), REQUESTS), close: () => end(child) };
  },
}));

const runs = await inTurn(states, { lives: LIVES, rounds: ROUNDS });
collector.child.send('bytes');
const taken = await messageOf<number>(collector.child);
await end(collector.child);
if (taken === 0) throw new Error('nothing was sent');

const of = (name: string): ReturnType<typeof compared> => compared(runs, name, NONE, ({ perSecond }) => perSecond);
const rows = states.map(({ name }): Row => ({
  tracing: name,
  'requests/s': typical(runs, name, ({ perSecond }) => perSecond),
  'p50 ms': typical(runs, name, ({ p50 }) => p50),
  'p99 ms': typical(runs, name, ({ p99 }) => p99),
  'requests/s, of no endpoint': of(name).ratio,
  'p50, of no endpoint': compared(runs, name, NONE, ({ p50 }) => p50).ratio,
  'p99, of no endpoint': compared(runs, name, NONE, ({ p99 }) => p99).ratio,
}));

await keep('tracing-http', {
  title: 'The cost of traces over HTTP',
  about: [
    `Whole chat replies of a small body through the real HTTP server, prompt host and queue, on stand-in engines that answer at once; ${CALLERS} callers, each its next request when its last was answered, ${REQUESTS} requests a run. Each state has a sidecar of its own; in each of ${ROUNDS} rounds all run in turn, and all of that ${LIVES} times with new processes. Medians; ratios are of pairs within a round, their median in each life, and the median of the lives.`,
    `The endpoint is a process that reads what is sent and answers 200. It, callers and sidecars share the machine, so what it and the exports' other side cost is in these figures. Metrics are sent every ${METRICS_MS / 1000} s. A process is busy all through a run: requests that wait for an engine leave time for exports.`,
  ],
  rows,
  conclusions: [
    `All requests traced: requests a second change by ${change(of(ALL))}, the range of the lives in brackets; a tenth: by ${change(of(TENTH))}; two processes without an endpoint differ by ${change(of(TWIN))}.`,
    `${Math.round(taken / 1024).toLocaleString('en')} KiB of traces and metrics were sent in all.`,
  ],
});
