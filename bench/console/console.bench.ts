/** The console’s cost for requests: never opened, watched, closed again. */
import type { ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { FeedReader } from '../../test/support/console-feed.js';
import { chatBody } from '../../test/support/in-process.js';
import { cpuOf } from '../support/cpu.js';
import { change, closedLoop, compared, end, forked, inTurn, typical, verdict, type State } from '../support/in-turn.js';
import { keep, type Row } from '../support/results.js';
import { TimedCaller } from '../support/timed-caller.js';
import { ACCOUNTS } from './accounts.js';

const LIVES = Number(process.argv[2] ?? 4);
const ROUNDS = Number(process.argv[3] ?? 8);
const CALLERS = 4;
const REQUESTS = 600;
const WARM_UP = 2000;
const VIEWERS = 3;
/** How long idle sidecars’ own work is measured, ms: as many snapshots as seconds. */
const IDLE_MS = 10_000;
/** More than a median varies by itself. */
const TOLERATED = 0.03;

const NEVER = 'never opened';
const TWIN = 'never opened, another process';
const WATCHED = `${VIEWERS} viewers`;
const CLOSED = 'closed again';

const SIDECAR = fileURLToPath(new URL('./watched-sidecar.js', import.meta.url));

interface Open {
  readonly child: ChildProcess;
  readonly port: number;
  readonly operatorsPort: number;
}

/** The processes of the current life. */
const open = new Map<string, Open>();
/** ms of work a second of idle sidecars. */
const idles = new Map<string, number>();

/** Callers, each of another account. */
function callers({ port }: Pick<Open, 'port'>, count = CALLERS): Promise<TimedCaller[]> {
  const body = JSON.stringify(chatBody('wide', 'clocked'));
  return Promise.all(Array.from({ length: count }, (_, i) => TimedCaller.open(port, body, String(i))));
}

/** A sidecar with all accounts, which fill the snapshot. */
async function start(): Promise<Open> {
  const { child, reported } = await forked(SIDECAR);
  const ports = reported as Omit<Open, 'child'>;
  await closedLoop(await callers(ports, ACCOUNTS), WARM_UP);
  return { child, ...ports };
}

/** Viewers that read everything, while `work` runs. */
async function watched<T>({ operatorsPort }: Open, work: () => Promise<T>): Promise<T> {
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

const nothing = (): Promise<void> => Promise.resolve();

/** What happens with a state’s sidecar around a run, or around a measurement while it is idle. */
const AROUND: Readonly<Record<string, <T>(of: Open, work: () => Promise<T>) => Promise<T>>> = {
  [NEVER]: (_, work) => work(),
  [TWIN]: (_, work) => work(),
  [WATCHED]: watched,
  [CLOSED]: async (of, work) => {
    await watched(of, nothing);
    return await work();
  },
};

const states = Object.entries(AROUND).map(([name, around]): State => ({
  name,
  start: async () => {
    const of = await start();
    open.set(name, of);
    return {
      run: () => around(of, async () => closedLoop(await callers(of), REQUESTS)),
      close: () => end(of.child),
    };
  },
}));

/** All of them at once: none has work. */
async function lookAtIdle(): Promise<void> {
  const work = async ({ child }: Open): Promise<number> => (await cpuOf(child.pid ?? 0)).all * 1000;
  const look = async ([name, of]: [string, Open]): Promise<void> => {
    await AROUND[name]?.(of, async () => {
      const before = await work(of);
      await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
      idles.set(name, ((await work(of)) - before) / (IDLE_MS / 1000));
    });
  };
  await Promise.all([...open].map(look));
}

const runs = await inTurn(states, { lives: LIVES, rounds: ROUNDS }, lookAtIdle);

const to = (name: string, of: Parameters<typeof compared>[3]): number => compared(runs, name, NEVER, of).ratio;
const rows = states.map(({ name }): Row => ({
  console: name,
  'requests/s': typical(runs, name, ({ perSecond }) => perSecond),
  'p50 ms': typical(runs, name, ({ p50 }) => p50),
  'p99 ms': typical(runs, name, ({ p99 }) => p99),
  'requests/s, of never opened': to(name, ({ perSecond }) => perSecond),
  'p50, of never opened': to(name, ({ p50 }) => p50),
  'p99, of never opened': to(name, ({ p99 }) => p99),
  'idle, ms of work a second': idles.get(name) ?? NaN,
}));
const [twins, closed, watching] = [TWIN, CLOSED, WATCHED].map((name) =>
  compared(runs, name, NEVER, ({ perSecond }) => perSecond),
);
if (!twins || !closed || !watching) throw new Error('all states ran');

await keep('console', {
  title: 'The console’s cost for requests',
  about: [
    `Whole chat replies of a small body through the real HTTP server, prompt host and queue, on stand-in engines that answer at once; ${CALLERS} callers, each its next request when its last was answered, ${REQUESTS} requests a run. Each state has a sidecar of its own; in each of ${ROUNDS} rounds all run in turn, and all of that ${LIVES} times with new processes. Medians; ratios are of pairs within a round, their median in each life, and the median of the lives. Callers, viewers and sidecars are processes of one machine.`,
    `Viewers: ${VIEWERS} connections that read \`/console/events\`, one picture a second of two models, 72 seats and ${ACCOUNTS} accounts. Never opened: nobody ever asked for its console; twice, since two processes differ by themselves. Closed again: watched and left just before each run. Idle: processor time of a sidecar that nobody sends anything, over ${IDLE_MS / 1000} s.`,
  ],
  rows,
  conclusions: [
    `${verdict(closed, twins, TOLERATED)}: closed again it does as many requests a second as one that was never opened: ${change(closed)}, the range of the lives in brackets; two that were never opened differ by ${change(twins)}.`,
    `${VIEWERS} viewers change requests a second by ${change(watching)}.`,
  ],
});
