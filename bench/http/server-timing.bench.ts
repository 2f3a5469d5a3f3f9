/** Whether Server-Timing is true: `ra-queue` and `ra-admit` against a clock outside the sidecar, on stand-in engines. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { chatBody } from '../../test/support/in-process.js';
import { LinkedChild } from '../../test/support/linked-child.js';
import { keep, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { TimedCaller, type Timed } from '../support/timed-caller.js';

const PER_SECOND = 1000;
const SECONDS = 4;
/** The clock's load and the echo after it, again and again; the figures are medians of the rounds'. */
const ROUNDS = 5;
/** More than are ever under way at that rate, unless the sidecar falls behind; then arrivals wait and are counted. */
const CONNECTIONS = 64;
const ALONE = 2000;
/** Rounds at the rate before those that count: compilers and heaps are settled by then. */
const WARM_UP_ROUNDS = 2;
/** Callers in turn for two seats that are held 5 ms each. */
const QUEUED_CALLERS = 8;
const QUEUED = 1200;

const sidecar = fork(fileURLToPath(new URL('../support/timing-sidecar.js', import.meta.url)));
const [port] = (await once(sidecar, 'message')) as [number];

function callers(model: string, act: 'clocked' | 'clockedSlow', count: number): Promise<TimedCaller[]> {
  const body = JSON.stringify(chatBody(model, act));
  return Promise.all(Array.from({ length: count }, () => TimedCaller.open(port, body)));
}

/** `count` requests, each caller its next when its last was answered. */
async function inTurn(all: readonly TimedCaller[], count: number): Promise<Timed[]> {
  const done: Timed[] = [];
  let sent = 0;
  const run = async (caller: TimedCaller): Promise<void> => {
    while (sent < count) {
      sent += 1;
      done.push(await caller.ask());
    }
  };
  await Promise.all(all.map(run));
  return done;
}

/** Calls `send` at the rate, until it has sent them all. It returns false when it cannot send now; then it is asked again. */
async function byTheClock(send: () => boolean): Promise<void> {
  const total = PER_SECOND * SECONDS;
  const from = performance.now();
  for (let sent = 0; sent < total;) {
    const due = Math.min(total, Math.floor(((performance.now() - from) * PER_SECOND) / 1000));
    while (sent < due && send()) sent += 1;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** Requests by the clock, on whichever connection is free; new ones, for the sidecar closes idle ones. `late`: how often none was. */
async function requests(): Promise<{ done: Timed[]; late: number; perSecond: number }> {
  const all = await callers('wide', 'clocked', CONNECTIONS);
  await inTurn(all, CONNECTIONS);
  const free = [...all];
  const done: Timed[] = [];
  const open = new Set<Promise<void>>();
  const from = performance.now();
  let late = 0;
  await byTheClock(() => {
    const caller = free.pop();
    if (caller === undefined) {
      late += 1;
      return false;
    }
    const asked: Promise<void> = caller.ask().then((timed) => {
      done.push(timed);
      free.push(caller);
      open.delete(asked);
    });
    open.add(asked);
    return true;
  });
  await Promise.all(open);
  const perSecond = done.length / ((performance.now() - from) / 1000);
  for (const caller of all) caller.close();
  return { done, late, perSecond };
}

/** Round trips to a process that does nothing, by the clock, in ms: `ra-admit` holds one, to the prompt host. */
async function echoes(): Promise<number[]> {
  const child = new LinkedChild(fileURLToPath(new URL('../../test/support/link-echo.js', import.meta.url)));
  const times: number[] = [];
  const all = new Promise<void>((resolve) => {
    child.on('message', (raw) => {
      times.push(performance.now() - (raw as { at: number }).at);
      if (times.length === PER_SECOND * SECONDS) resolve();
    });
  });
  // The first comes back when the process has started; it is no round trip.
  child.send({ at: performance.now() });
  await once(child, 'message');
  times.length = 0;
  await byTheClock(() => {
    child.send({ at: performance.now() });
    return true;
  });
  await all;
  child.leave();
  return times;
}

function row(what: string, perSecond: number, done: readonly Timed[]): Row {
  const errors = done.map(({ queueMs, admitMs, outsideMs }) => Math.abs(outsideMs - queueMs - admitMs));
  const admits = done.map(({ admitMs }) => admitMs);
  const queues = done.map(({ queueMs }) => queueMs);
  return {
    load: what,
    'requests/s': perSecond,
    'ra-queue p50 ms': median(queues),
    'ra-queue p99 ms': quantile(queues, 0.99),
    'ra-admit p50 ms': median(admits),
    'ra-admit p99 ms': quantile(admits, 0.99),
    'off p50 ms': median(errors),
    'off p99 ms': quantile(errors, 0.99),
  };
}

/** The median of each column of numbers; the first row's words. */
function medians(rows: readonly Row[]): Row {
  const [first = {}] = rows;
  return Object.fromEntries(
    Object.entries(first).map(([name, value]) => [
      name,
      typeof value === 'number' ? median(rows.map((each) => Number(each[name]))) : value,
    ]),
  );
}

for (let round = 0; round < WARM_UP_ROUNDS; round++) await requests();
const [one] = await callers('wide', 'clocked', 1);
const alone = await inTurn(one === undefined ? [] : [one], ALONE);
one?.close();
const rounds: { readonly row: Row; readonly late: number; readonly floor: number[] }[] = [];
for (let round = 0; round < ROUNDS; round++) {
  const { done, late, perSecond } = await requests();
  const floor = await echoes();
  rounds.push({ row: row(`${PER_SECOND}/s by the clock`, perSecond, done), late, floor });
}
const late = rounds.reduce((sum, round) => sum + round.late, 0);
const floorP50 = median(rounds.map(({ floor }) => median(floor)));
const floorP99 = median(rounds.map(({ floor }) => quantile(floor, 0.99)));
const narrow = await callers('narrow', 'clockedSlow', QUEUED_CALLERS);
const from = performance.now();
const queued = await inTurn(narrow, QUEUED);
const queuedPerSecond = QUEUED / ((performance.now() - from) / 1000);
for (const caller of narrow) caller.close();
sidecar.disconnect();
await once(sidecar, 'exit');

const meanMs = alone.reduce((sum, { outsideMs }) => sum + outsideMs, 0) / alone.length;
const rows = [
  row('one at a time', 1000 / meanMs, alone),
  medians(rounds.map((round) => round.row)),
  row(`${QUEUED_CALLERS} callers for 2 seats of 5 ms`, queuedPerSecond, queued),
];
const off = Math.max(...rows.map((each) => Number(each['off p99 ms'])));
const admit = Number(rows[1]?.['ra-admit p99 ms']);

await keep('server-timing', {
  title: 'Server-Timing against a clock outside',
  about: [
    'Whole chat replies of a small body through the real HTTP server, prompt host and queue; the engines are stand-ins that answer at once and say in their reply when the job came. Caller, sidecar, prompt host and engines are processes of one machine and read one monotonic clock.',
    'Off: the time from the request’s last byte written by the caller to the job’s coming at the engine, less `ra-queue` and `ra-admit` as the response says them; so the loopback and the pipe to the engine count against the header. Echo: a message to a process that does nothing and back, at the same rate just after; `ra-admit` holds one such round trip, to the prompt host. Medians of the rounds. Requests/s of the first row: what its time to the engine would allow.',
  ],
  rows,
  conclusions: [
    `${off <= 2 ? 'Held' : 'Missed'}: within 2 ms of the outside clock at p99 (${off.toFixed(2)} ms at worst).`,
    `Echo at ${PER_SECOND}/s: p50 ${floorP50.toFixed(2)} ms, p99 ${floorP99.toFixed(2)} ms.`,
    `${admit <= 1 ? 'Held' : 'Missed'}: \`ra-admit\` p99 at most 1 ms at ${PER_SECOND} requests a second (${admit.toFixed(2)} ms${late > 0 ? `; the caller found no free connection ${late} times` : ''}).`,
  ],
});
