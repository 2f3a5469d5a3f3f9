/**
 * The accuracy of Server-Timing: `ra-queue` and `ra-admit` compared with a clock outside the sidecar, with stub
 * engines.
 */
import { fileURLToPath } from 'node:url';
import { chatBody } from '../../test/support/in-process.js';
import { LinkedChild } from '../../test/support/linked-child.js';
import { end, forked, messageOf } from '../support/children.js';
import { byTheClock, onWhoIsFree, type OpenLoopResult, type Rate } from '../support/by-the-clock.js';
import { keep, markdown, medians, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { quietRounds } from '../support/stolen.js';
import { TimedCaller, type Timed } from '../support/timed-caller.js';
import { GOAL_MS, RATE as REFUSED, refusals } from './refusals.js';

const PER_SECOND = 1000;
const RATE = { perSecond: PER_SECOND, seconds: 4 };
/** Of Poisson arrivals. */
const SEED = 1;
/** More than are ever in flight at that rate, unless the sidecar falls behind; then arrivals wait and are counted. */
const CONNECTIONS = 64;
const ALONE = 2000;
/** Rounds at the rate before those that count: compilers and heaps are stable by then. */
const WARM_UP_ROUNDS = 2;
/** Callers in turn for two seats that are held 5 ms each. */
const QUEUED_CALLERS = 8;
const QUEUED = 1200;

const sidecar = await forked(fileURLToPath(new URL('../support/timing-sidecar.js', import.meta.url)));
const port = Number(sidecar.reported);

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

/** Requests by the clock, on new connections: the sidecar closes idle ones. */
async function requests(rate: Rate): Promise<OpenLoopResult<Timed>> {
  const all = await callers('wide', 'clocked', CONNECTIONS);
  await inTurn(all, CONNECTIONS);
  const asked = await onWhoIsFree(all, rate, (caller) => caller.ask());
  for (const caller of all) caller.close();
  return asked;
}

/** Round trips to a process that does nothing, by the clock, in ms: `ra-admit` contains one, to the prompt host. */
async function echoes(): Promise<number[]> {
  const child = new LinkedChild(fileURLToPath(new URL('../../test/support/link-echo.js', import.meta.url)));
  const times: number[] = [];
  const all = new Promise<void>((resolve) => {
    child.on('message', (raw) => {
      times.push(performance.now() - (raw as { at: number }).at);
      if (times.length === RATE.perSecond * RATE.seconds) resolve();
    });
  });
  // The first comes back when the process has started; it is no round trip.
  child.send({ at: performance.now() });
  await messageOf(child);
  times.length = 0;
  await byTheClock(RATE, () => {
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

/** One after the other, by one caller. */
async function alone(): Promise<Row> {
  const one = await callers('wide', 'clocked', 1);
  const done = await inTurn(one, ALONE);
  for (const caller of one) caller.close();
  const meanMs = done.reduce((sum, { outsideMs }) => sum + outsideMs, 0) / done.length;
  return row('one at a time', 1000 / meanMs, done);
}

/** The clock’s load, and the echo after it. */
async function clocked(): Promise<{ readonly row: Row; readonly late: number; readonly floor: readonly number[] }> {
  const { done, late, perSecond } = await requests(RATE);
  return { row: row(`${PER_SECOND}/s by the clock`, perSecond, done), late, floor: await echoes() };
}

/** As many, of independent callers. */
async function atRandom(): Promise<Row> {
  const { done, perSecond } = await requests({ ...RATE, seed: SEED });
  return row(`${PER_SECOND}/s at random`, perSecond, done);
}

/** More callers than seats. */
async function queued(): Promise<Row> {
  const narrow = await callers('narrow', 'clockedSlow', QUEUED_CALLERS);
  const from = performance.now();
  const done = await inTurn(narrow, QUEUED);
  const perSecond = QUEUED / ((performance.now() - from) / 1000);
  for (const caller of narrow) caller.close();
  return row(`${QUEUED_CALLERS} callers for 2 seats of 5 ms`, perSecond, done);
}

for (let round = 0; round < WARM_UP_ROUNDS; round++) await requests(RATE);
const ones = await quietRounds(alone);
const byClock = await quietRounds(clocked);
const byChance = await quietRounds(atRandom);
const queues = await quietRounds(queued);
await end(sidecar.child);
const refused = await refusals();

const late = byClock.tried.reduce((sum, round) => sum + round.late, 0);
const floorP50 = median(byClock.rounds.map(({ floor }) => median(floor)));
const floorP99 = median(byClock.rounds.map(({ floor }) => quantile(floor, 0.99)));
const rows = [
  medians(ones.rounds),
  medians(byClock.rounds.map((round) => round.row)),
  medians(byChance.rounds),
  medians(queues.rounds),
];
const loads = [ones, byClock, byChance, queues];
const tries = loads.map(({ tried }) => tried.length).join(', ');
const stolen = loads.every(({ stolenPercent }) => stolenPercent !== undefined)
  ? `${Math.max(...loads.map(({ stolenPercent }) => stolenPercent ?? 0)).toFixed(1)} % at most`
  : 'which is not known here';
const off = Math.max(...rows.map((each) => Number(each['off p99 ms'])));
const admit = Number(rows[1]?.['ra-admit p99 ms']);
const refusal = Math.max(...refused.map((each) => Number(each['p99 ms'])));

await keep('server-timing', {
  title: 'Server-Timing against a clock outside',
  about: [
    'Whole chat replies of a small body through the real HTTP server, prompt host and queue; the engines are stand-ins that answer at once and say in their reply when the job came. Caller, sidecar, prompt host and engines are processes of one machine and read one monotonic clock. By the clock: a request each millisecond. At random: Poisson arrivals at that rate, so that some come together; no goal is set for these.',
    'Off: the time from the request’s last byte written by the caller to the job’s coming at the engine, less `ra-queue` and `ra-admit` as the response says them; so the loopback and the pipe to the engine count against the header. Echo: a message to a process that does nothing and back, at the same rate just after; `ra-admit` holds one such round trip, to the prompt host. Requests/s of the first row: what its time to the engine would allow.',
    `Medians of ${ones.rounds.length} rounds each, those in which the machine’s own host took least of its time for others (${stolen}), of ${tries} rounds: a processor that is gone for milliseconds is in whatever is measured at p99.`,
  ],
  rows,
  conclusions: [
    `${off <= 2 ? 'Held' : 'Missed'}: within 2 ms of the outside clock at p99 (${off.toFixed(2)} ms at worst).`,
    `Echo at ${PER_SECOND}/s: p50 ${floorP50.toFixed(2)} ms, p99 ${floorP99.toFixed(2)} ms.`,
    `${admit <= 1 ? 'Held' : 'Missed'}: \`ra-admit\` p99 at most 1 ms at ${PER_SECOND} requests a second (${admit.toFixed(2)} ms${late > 0 ? `; in all rounds the caller found no free connection ${late} times` : ''}).`,
    '## Refusals at once',
    `${REFUSED.perSecond} requests a second that are refused as they come, in a sidecar of its own whose seats are all held and whose waiting requests stay where they are; from the request’s last byte written to the refusal’s last byte read. By reason: the seats stay in use and no more requests may wait; the caller has 20 ms and the wait would be longer; the room has places, but not for so many bytes. Medians of the rounds. Other answers: with another reason, or after a wait; sent late: no connection was free; of all rounds.`,
    markdown(refused),
    `${refusal <= GOAL_MS ? 'Held' : 'Missed'}: a refusal within ${GOAL_MS} ms at p99 (${refusal.toFixed(2)} ms at worst).`,
  ],
});
