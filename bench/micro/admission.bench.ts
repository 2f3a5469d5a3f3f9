/**
 * The time of one operation of the seat queue with 1,000 waiting accounts: `node dist/bench/micro/admission.bench.js`,
 * part of `make bench`. The goal is 50 µs at p99.
 */
import { SeatQueue } from '../../sidecar/admission/queue.js';
import type { Lease, Ticket } from '../../sidecar/admission/types.js';
import { keep, type Row } from '../support/results.js';
import { quantile } from '../support/stats.js';

const ACCOUNTS = 1000;
const ROUNDS = 20_000;
const WARM_UP = 5000;
const GOAL_US = 50;

type Operation = 'enter' | 'ready' | 'cancel' | 'release and seat the next' | 'refuse';

/** Each operation's times, µs, on a full queue that is kept full. */
async function measure(seats: number): Promise<Map<Operation, number[]>> {
  const start = performance.now();
  const queue = new SeatQueue({
    // A hundred times real time, so that requests hold seats for a while.
    clock: { now: () => (performance.now() - start) * 100, after: () => () => undefined },
    random: () => 0.5,
    config: { maxWaitMs: 1e9, waitingPerSeat: Math.ceil((2 * ACCOUNTS) / seats), waitingBytes: 1e12 },
    seats,
    // So many wait only before the overload counts as standing.
    learns: false,
  });
  const times = new Map<Operation, number[]>();
  const timed = <T>(operation: Operation, run: () => T): T => {
    const from = performance.now();
    const result = run();
    const took = (performance.now() - from) * 1000;
    const list = times.get(operation);
    if (list) list.push(took);
    else times.set(operation, [took]);
    return result;
  };
  const leases: Lease[] = [];
  const waiting: Ticket[] = [];
  let next = 0;
  const arrive = (account = next++ % ACCOUNTS): void => {
    const entry = { account: `account ${account}`, weight: [16, 4, 1][account % 3] ?? 1, bytes: 1000, seatsWanted: 1 };
    const ticket = timed('enter', () => queue.enter(entry));
    if ('kind' in ticket) return;
    waiting.push(ticket);
    timed('ready', () => ticket.ready({ promptTokens: 4000 }));
    void ticket.outcome.then((outcome) => {
      if (outcome.kind === 'seated') leases.push(outcome.lease);
    });
  };
  for (let i = 0; i < 2 * ACCOUNTS; i += 1) arrive();
  await Promise.resolve();
  for (let round = 0; round < WARM_UP + ROUNDS; round += 1) {
    if (round === WARM_UP) times.clear();
    const lease = leases.shift();
    if (lease) timed('release and seat the next', () => lease.release('done'));
    arrive();
    arrive();
    timed('cancel', () => waiting[(round * 7919) % waiting.length]?.cancel());
    timed('refuse', () => queue.enter({ account: 'late', weight: 4, bytes: 1, deadlineAt: 1, seatsWanted: 1 }));
    if (waiting.length > 4 * ACCOUNTS) waiting.splice(0, ACCOUNTS);
    await Promise.resolve();
    await Promise.resolve();
  }
  const { waiting: left, accounts } = queue.snapshot();
  if (left < ACCOUNTS || accounts.length < ACCOUNTS / 2)
    throw new Error(`only ${left} wait, of ${accounts.length} accounts`);
  return times;
}

const rows: Row[] = [];
for (const seats of [8, 64, 256]) {
  for (const [operation, list] of await measure(seats)) {
    rows.push({ seats, operation, 'median, µs': quantile(list, 0.5), 'p99, µs': quantile(list, 0.99) });
  }
}
const worst = Math.max(...rows.map((row) => Number(row['p99, µs'])));

await keep('admission-operations', {
  title: `One operation of the seat queue with ${ACCOUNTS.toLocaleString('en')} accounts`,
  about: [`About two requests an account wait; classes mixed; ${ROUNDS.toLocaleString('en')} rounds.`],
  rows,
  conclusions: [`${worst <= GOAL_US ? 'Held' : 'Missed'}: p99 at most ${GOAL_US} µs (${worst.toFixed(1)} at worst).`],
});
