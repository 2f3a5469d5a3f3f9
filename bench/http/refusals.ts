/**
 * The time of a refusal over HTTP, by its reason, while all seats are in use and the queue stands. With stub engines.
 */
import type { ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { RefusalReason } from '../../sidecar/domain/refusal-reasons.js';
import { refused } from '../../sidecar/api/refusals.js';
import { chatBody } from '../../test/support/in-process.js';
import { end, forked, messageOf } from '../support/children.js';
import { onWhoIsFree } from '../support/by-the-clock.js';
import { medians, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { TimedCaller, type TimedAnswer } from '../support/timed-caller.js';

/** A refusal's latency, p99 (docs/admission.md#goals). */
export const GOAL_MS = 5;

export const RATE = { perSecond: 200, seconds: 4 } as const;
/** All reasons in turn, repeatedly; the figures are medians of the rounds’. The first round is not counted. */
const ROUNDS = 5;
/** More than are ever in flight at that rate. */
const CONNECTIONS = 16;

/** Of timing-sidecar.ts. */
const SEATS = { narrow: 2, wide: 64 } as const;
const WAITING_PER_SEAT = 8;
/**
 * Waiting requests wait until the bench ends. Only few bytes may wait, so that a body of so many is refused for them.
 */
const WAITING_BYTES = 8192;
const QUEUE = { maxWaitMs: 600_000, waitingPerSeat: WAITING_PER_SEAT, waitingBytes: WAITING_BYTES };
/** Shorter than the wait of those before it: two seats of 5 ms for sixteen, and half of that at best. */
const HURRIED = { 'x-ra-deadline-ms': '20' };
/** From these the queue learns hold times, so that it can predict waits. */
const LESSONS = 200;

const OTHER = 'other answers';
const LATE = 'sent late';

interface Case {
  readonly reason: RefusalReason;
  readonly beside: string;
  readonly open: (port: number) => Promise<TimedCaller>;
}

const CASES: readonly Case[] = [
  {
    reason: 'standing',
    beside: 'a queue that stands, without room',
    open: (port) => TimedCaller.open(port, bodyOf('narrow', 'echo')),
  },
  {
    reason: 'predicted',
    beside: 'the same, in a hurry',
    open: (port) => TimedCaller.open(port, bodyOf('narrow', 'echo'), 'vouched', HURRIED),
  },
  {
    reason: 'bytes',
    beside: `one that waits, with a body of ${WAITING_BYTES} bytes`,
    open: (port) => TimedCaller.open(port, bodyOf('wide', 'echo').padEnd(WAITING_BYTES)),
  },
];

function bodyOf(model: keyof typeof SEATS, act: 'hold' | 'clockedSlow' | 'echo'): string {
  return JSON.stringify(chatBody(model, act));
}

/** Starts a sidecar, fills it, and has it refuse. The goal is about its `p99 ms`. */
export async function refusals(): Promise<readonly Row[]> {
  const sidecar = fileURLToPath(new URL('../support/timing-sidecar.js', import.meta.url));
  const { child, reported } = await forked(sidecar, [JSON.stringify({ queue: QUEUE })]);
  const port = Number(reported);
  try {
    const teacher = await TimedCaller.open(port, bodyOf('narrow', 'clockedSlow'));
    for (let i = 0; i < LESSONS; i++) await teacher.ask();
    teacher.close();
    const held = [
      ...(await hold(child, port, 'narrow', SEATS.narrow * WAITING_PER_SEAT)),
      ...(await hold(child, port, 'wide', 1)),
    ];
    const rounds: Row[][] = [];
    for (let round = 0; round <= ROUNDS; round++) {
      const rows: Row[] = [];
      for (const each of CASES) rows.push(await refuse(each, port));
      if (round > 0) rounds.push(rows);
    }
    for (const caller of held) caller.close();
    return CASES.map((_, i) => summed(rounds.flatMap((rows) => rows.slice(i, i + 1))));
  } finally {
    await end(child);
  }
}

/** Callers that keep all seats of a model in use, and so many more that wait for them. They are never answered. */
async function hold(
  child: ChildProcess,
  port: number,
  model: keyof typeof SEATS,
  waiting: number,
): Promise<TimedCaller[]> {
  const body = bodyOf(model, 'hold');
  const callers = await Promise.all(Array.from({ length: SEATS[model] + waiting }, () => TimedCaller.open(port, body)));
  for (const caller of callers) void caller.send().catch(() => undefined);
  child.send({ sample: `ra_sidecar_waiting_requests{model="${model}",class="standard"}`, value: waiting });
  await messageOf(child);
  return callers;
}

async function refuse({ reason, beside, open }: Case, port: number): Promise<Row> {
  const callers = await Promise.all(Array.from({ length: CONNECTIONS }, () => open(port)));
  const { done, late, perSecond } = await onWhoIsFree(callers, RATE, (caller) => caller.time());
  for (const caller of callers) caller.close();
  const as = JSON.stringify(refused({ reason, retryAfterMs: 0 }).message);
  const times = done.filter(({ response }) => refusedAtOnce(response, as)).map(({ ms }) => ms);
  return {
    'refused as': `\`${reason}\``,
    beside,
    'requests/s': perSecond,
    'p50 ms': median(times),
    'p99 ms': quantile(times, 0.99),
    [OTHER]: done.length - times.length,
    [LATE]: late,
  };
}

/** Medians, but errors of any round are reported. */
function summed(rows: readonly Row[]): Row {
  const sum = (column: string): number => rows.reduce((total, row) => total + Number(row[column]), 0);
  return { ...medians(rows), [OTHER]: sum(OTHER), [LATE]: sum(LATE) };
}

function refusedAtOnce(response: TimedAnswer['response'], message: string): boolean {
  return response.startsWith('HTTP/1.1 429 ') && response.includes(message) && /\bra-queue;dur=0[,\r]/.test(response);
}
