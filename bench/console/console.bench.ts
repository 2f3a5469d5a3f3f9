/** What the console takes from requests: never opened, watched, closed again. */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { FeedReader } from '../../test/support/console-feed.js';
import { chatBody } from '../../test/support/in-process.js';
import { cpuOf } from '../support/cpu.js';
import { keep, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { TimedCaller } from '../support/timed-caller.js';
import { ACCOUNTS } from './accounts.js';

const ROUNDS = Number(process.argv[2] ?? 15);
const CALLERS = 4;
const REQUESTS = 1500;
const WARM_UP = 3000;
const VIEWERS = 3;
/** How long an idle sidecar's own work is looked at, ms: as many pictures as seconds. */
const IDLE_MS = 10_000;
/** Past what a run's median moves by itself. */
const TOLERATED = 0.03;

/** One sidecar and its callers, each of another account. */
interface Subject {
  readonly child: ChildProcess;
  readonly operatorsPort: number;
  readonly callers: readonly TimedCaller[];
}

interface Run {
  readonly perSecond: number;
  readonly p50: number;
  readonly p99: number;
}

async function start(): Promise<Subject> {
  const child = fork(fileURLToPath(new URL('./watched-sidecar.js', import.meta.url)));
  const [{ port, operatorsPort }] = (await once(child, 'message')) as [{ port: number; operatorsPort: number }];
  const body = JSON.stringify(chatBody('wide', 'clocked'));
  const open = (_: unknown, i: number): Promise<TimedCaller> => TimedCaller.open(port, body, String(i));
  const all = await Promise.all(Array.from({ length: ACCOUNTS }, open));
  await run({ callers: all }, WARM_UP);
  // The others are known from now on, and fill the picture.
  for (const caller of all.slice(CALLERS)) caller.close();
  return { child, operatorsPort, callers: all.slice(0, CALLERS) };
}

/** So many small requests, each caller its next when its last was answered. */
async function run({ callers }: Pick<Subject, 'callers'>, requests = REQUESTS): Promise<Run> {
  const times: number[] = [];
  let sent = 0;
  const from = performance.now();
  const inTurn = async (caller: TimedCaller): Promise<void> => {
    while (sent < requests) {
      sent += 1;
      const at = performance.now();
      await caller.ask();
      times.push(performance.now() - at);
    }
  };
  await Promise.all(callers.map(inTurn));
  return {
    perSecond: requests / ((performance.now() - from) / 1000),
    p50: median(times),
    p99: quantile(times, 0.99),
  };
}

/** Viewers who read all that comes, while `work` is done. */
async function watched<T>({ operatorsPort }: Subject, work: () => Promise<T>): Promise<T> {
  const feeds = await Promise.all(Array.from({ length: VIEWERS }, () => FeedReader.open(operatorsPort)));
  for (const feed of feeds) await feed.next();
  const reading = feeds.map(async (feed) => {
    while ((await feed.next()) !== undefined);
  });
  try {
    return await work();
  } finally {
    for (const feed of feeds) feed.close();
    await Promise.allSettled(reading);
  }
}

/** ms of work a second of a sidecar that nobody sends anything. */
async function idle({ child }: Subject): Promise<number> {
  const work = async (): Promise<number> => (await cpuOf(child.pid ?? 0)).all * 1000;
  const before = await work();
  await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
  return ((await work()) - before) / (IDLE_MS / 1000);
}

/** A process a state, so that all have done the same before; two are never opened, for what processes differ by themselves. */
const [never, other, seen, closedAgain] = [await start(), await start(), await start(), await start()];

const STATES = new Map<string, () => Promise<Run>>([
  ['never opened', () => run(never)],
  ['never opened, another process', () => run(other)],
  [`${VIEWERS} viewers`, () => watched(seen, () => run(seen))],
  [
    'closed again',
    async () => {
      await watched(closedAgain, () => Promise.resolve());
      return await run(closedAgain);
    },
  ],
]);
const names = [...STATES.keys()];
const runs = new Map<string, Run[]>(names.map((name) => [name, []]));
for (let round = 0; round < ROUNDS; round += 1) {
  // Each state comes first as often as the others: what the machine does besides falls on all.
  for (const [name, measure] of [...STATES, ...STATES].slice(
    round % STATES.size,
    (round % STATES.size) + STATES.size,
  )) {
    runs.get(name)?.push(await measure());
  }
}

const idles = new Map([
  ['never opened', await idle(never)],
  ['never opened, another process', await idle(other)],
  [`${VIEWERS} viewers`, await watched(seen, () => idle(seen))],
  ['closed again', await idle(closedAgain)],
]);
for (const { callers, child } of [never, other, seen, closedAgain]) {
  for (const caller of callers) caller.close();
  child.disconnect();
  await once(child, 'exit');
}

/** Medians over rounds of what a run is to that of the same round which was never opened. */
function ratio(name: string, of: (run: Run) => number): number {
  const base = runs.get('never opened') ?? [];
  return median((runs.get(name) ?? []).map((each, i) => of(each) / of(base[i] ?? each)));
}

const rows: Row[] = names.map((name) => {
  const all = runs.get(name) ?? [];
  return {
    console: name,
    'requests/s': median(all.map(({ perSecond }) => perSecond)),
    'p50 ms': median(all.map(({ p50 }) => p50)),
    'p99 ms': median(all.map(({ p99 }) => p99)),
    'requests/s, of never opened': ratio(name, ({ perSecond }) => perSecond),
    'p50, of never opened': ratio(name, ({ p50 }) => p50),
    'p99, of never opened': ratio(name, ({ p99 }) => p99),
    'idle, ms of work a second': idles.get(name) ?? NaN,
  };
});

const closed = ratio('closed again', ({ perSecond }) => perSecond);
const twin = ratio('never opened, another process', ({ perSecond }) => perSecond);
const watching = ratio(`${VIEWERS} viewers`, ({ perSecond }) => perSecond);
const held = Math.abs(closed - 1) <= Math.abs(twin - 1) + TOLERATED;
const percent = (value: number): string => `${((value - 1) * 100).toFixed(1)} %`;

await keep('console', {
  title: 'What the console takes from requests',
  about: [
    `Whole chat replies of a small body through the real HTTP server, prompt host and queue, on stand-in engines that answer at once; ${CALLERS} callers, each its next request when its last was answered, ${REQUESTS} requests a run, ${ROUNDS} rounds of all four states, which come first in turn. Medians; ratios are medians of pairs within a round. Callers, viewers and sidecars are processes of one machine.`,
    `Viewers: ${VIEWERS} connections that read \`/console/events\`, one picture a second of two models, 72 seats and ${ACCOUNTS} accounts. Each state has a sidecar of its own, which has served as much as the others. Never opened: nobody ever asked for its console; twice, since two processes differ by themselves. Closed again: watched and left just before each run. Idle: processor time of a sidecar that nobody sends anything, over ${IDLE_MS / 1000} s.`,
  ],
  rows,
  conclusions: [
    `${held ? 'Held' : 'Missed'}: closed again it does as many requests a second as one that was never opened (${percent(closed)}; two that were never opened differ by ${percent(twin)}).`,
    `${VIEWERS} viewers change requests a second by ${percent(watching)}.`,
  ],
});
