/**
 * People beside an endless batch on lent seats (sidecar/admission/lent.ts), simulated:
 *
 *     node dist/bench/admission/lent.bench.js [CELLS] [MINUTES]
 *
 * CELLS: a part of the names of the cells that are run and printed; all are kept among bench/results. MINUTES (60) are simulated with each
 * seed: what differs between seeds without a batch is no effect of a batch.
 */
import { keep, type Row } from '../support/results.js';
import { quantile } from '../support/stats.js';
import { beside, type Beside, type BesideFigures } from './lent.js';
import { GPU } from './sessions/stand-in-engine.js';

const only = process.argv[2] ?? '';
const minutes = Number(process.argv[3] ?? 60);
const SEATS = 16;
const SEEDS = [1, 2, 3];

const WAYS: readonly (readonly [string, Pick<Beside, 'way' | 'headroom'>])[] = [
  ['no batch', { way: 'none', headroom: 0.5 }],
  ['class `batch` in the queue', { way: 'queue', headroom: 0.5 }],
  ['lent, 2 stay idle', { way: 'lent', headroom: 1 / 8 }],
  ['lent, 2 stay idle, begun again', { way: 'again', headroom: 1 / 8 }],
  ['lent, 2 stay idle, nothing lost', { way: 'ideal', headroom: 1 / 8 }],
  ['lent, 8 stay idle', { way: 'lent', headroom: 1 / 2 }],
  ['lent, 8 stay idle, begun again', { way: 'again', headroom: 1 / 2 }],
  ['lent, 8 stay idle, nothing lost', { way: 'ideal', headroom: 1 / 2 }],
];

const add = (a: number, b: number): number => a + b;
const rows: Row[] = [];
for (const load of [0.15, 0.3, 0.6]) {
  for (const burst of [1, 4]) {
    const cell = `people use ${load} of the seats, ${burst === 1 ? 'one by one' : `in bursts of ${burst}`}`;
    if (!cell.includes(only)) continue;
    for (const [batch, way] of WAYS) {
      const all: BesideFigures[] = [];
      for (const seed of SEEDS) all.push(await beside({ ...way, seats: SEATS, load, burst, seed, minutes }));
      const of = (times: (figures: BesideFigures) => readonly number[]): readonly number[] => all.flatMap(times);
      const sum = (count: (figures: BesideFigures) => number): number => of((each) => [count(each)]).reduce(add, 0);
      const accounts = Object.keys(all[0]?.seatMs ?? {});
      const seatMs = accounts.map((account) => sum((each) => each.seatMs[account] ?? 0));
      const meanMs = seatMs.reduce(add, 0) / seatMs.length;
      const tokens = of((each) => each.tokens);
      rows.push({
        cell,
        batch,
        'wait p50, ms': quantile(
          of(({ waits }) => waits),
          0.5,
        ),
        'wait p99, ms': quantile(
          of(({ waits }) => waits),
          0.99,
        ),
        'of each seed': all.map(({ waits }) => quantile([...waits], 0.99).toFixed(0)).join(', '),
        'where people leave a seat, p99, ms': quantile(
          of((each) => each.waitsBesideRoom),
          0.99,
        ),
        'first token p50, ms': quantile(
          of(({ firstTokens }) => firstTokens),
          0.5,
        ),
        'first token p99, ms': quantile(
          of(({ firstTokens }) => firstTokens),
          0.99,
        ),
        'between tokens, mean ms': tokens.reduce(add, 0) / tokens.length,
        refused: sum(({ refused }) => refused),
        'batch tokens/s': sum((each) => each.batchTokensPerSecond) / SEEDS.length,
        'lost tokens for each of these': sum(({ wasted }) => wasted) / SEEDS.length,
        recalled: sum(({ report }) => report.lent.ends.recalled),
        'entered the queue': sum(({ report }) => report.lent.ends.queued),
        'shares differ by':
          seatMs.length === 0 ? '' : Math.max(...seatMs.map((ms) => Math.abs(ms / meanMs - 1))).toFixed(3),
        stands: all.some(({ report }) => report.overload.standing) ? 'yes' : 'no',
        load: (sum(({ report }) => report.overload.load) / SEEDS.length).toFixed(2),
      });
      process.stdout.write(`${JSON.stringify(rows.at(-1))}\n`);
    }
  }
}

if (only === '') {
  const step = GPU.stepMs(SEATS);
  await keep('lent-seats', {
    title: 'People beside an endless batch on lent seats',
    simulated: true,
    about: [
      `The product's seat queue, and a stand-in engine with the times of 8 B weights on a GPU and ${SEATS} seats, on a simulated clock; ${minutes} minutes with each of ${SEEDS.length} seeds, which are the same people in each row of a cell. People of four accounts of class \`standard\` stream replies of 60 to 440 tokens to prompts of 200 to 1,000. Three accounts of class \`batch\` have 16 requests each at any time, of 100 to 900 tokens after 200 to 1,800. Wait: from a request to its sequence, so up to a step (${step.toFixed(1)} ms) with a chunk of a prompt (up to ${(GPU.chunk * GPU.tokenMs).toFixed(0)} ms) also where no request waits in the queue. Where people leave a seat: of requests that come while people have fewer than ${SEATS - 1}, since one request of the batch may have a seat in the queue; without a batch each has a seat at once. Shares: of the batch accounts, of the time of all their seats. A request that is stopped goes on later after the tokens that it had, once these and its prompt are evaluated again. Begun again: where it may not go on. Nothing lost: it goes on at no cost, which is the most that a headroom allows.`,
    ],
    rows,
  });
}
