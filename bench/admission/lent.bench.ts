/**
 * People beside an endless batch on lent seats (sidecar/admission/lent.ts), simulated:
 *
 *     node dist/bench/admission/lent.bench.js [CELLS] [MINUTES]
 *
 * CELLS: a part of the names of the cells that are run and printed; all are kept among bench/results. MINUTES (30) are simulated.
 */
import { keep, type Row } from '../support/results.js';
import { quantile } from '../support/stats.js';
import { beside, type Beside } from './lent.js';
import { GPU } from './sessions/stand-in-engine.js';

const only = process.argv[2] ?? '';
const minutes = Number(process.argv[3] ?? 30);
const SEATS = 16;

const WAYS: readonly (readonly [string, Pick<Beside, 'way' | 'headroom'>])[] = [
  ['no batch', { way: 'none', headroom: 0.5 }],
  ['class `batch` in the queue', { way: 'queue', headroom: 0.5 }],
  ['lent, 2 stay idle', { way: 'lent', headroom: 1 / 8 }],
  ['lent, 2 stay idle, nothing lost', { way: 'ideal', headroom: 1 / 8 }],
  ['lent, 8 stay idle', { way: 'lent', headroom: 1 / 2 }],
  ['lent, 8 stay idle, nothing lost', { way: 'ideal', headroom: 1 / 2 }],
];

const rows: Row[] = [];
for (const load of [0.15, 0.3, 0.6]) {
  for (const burst of [1, 4]) {
    const cell = `people use ${load} of the seats, ${burst === 1 ? 'one by one' : `in bursts of ${burst}`}`;
    if (!cell.includes(only)) continue;
    for (const [batch, way] of WAYS) {
      const found = await beside({ ...way, seats: SEATS, load, burst, seed: 1, minutes });
      const { waits, firstTokens, tokens, refused, batchTokensPerSecond, wasted, report } = found;
      const seatMs = report.lent.accounts.map((account) => account.seatMs);
      const meanMs = seatMs.reduce((sum, ms) => sum + ms, 0) / seatMs.length;
      const spread = seatMs.length === 0 ? NaN : Math.max(...seatMs.map((ms) => Math.abs(ms / meanMs - 1)));
      rows.push({
        cell,
        batch,
        'wait p50, ms': quantile(waits, 0.5),
        'wait p99, ms': quantile(waits, 0.99),
        'first token p50, ms': quantile(firstTokens, 0.5),
        'first token p99, ms': quantile(firstTokens, 0.99),
        'between tokens, mean ms': tokens.reduce((sum, ms) => sum + ms, 0) / tokens.length,
        refused,
        'batch tokens/s': batchTokensPerSecond,
        'lost tokens for each of these': wasted,
        recalled: report.lent.ends.recalled,
        'entered the queue': report.lent.ends.queued,
        'shares differ by': Number.isNaN(spread) ? '' : spread.toFixed(3),
        stands: report.overload.standing ? 'yes' : 'no',
        load: report.overload.load.toFixed(2),
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
      `The product's seat queue, and a stand-in engine with the times of 8 B weights on a GPU and ${SEATS} seats, on a simulated clock; ${minutes} minutes. People of four accounts of class \`standard\` stream replies of 60 to 440 tokens to prompts of 200 to 1,000. Three accounts of class \`batch\` have 16 requests each at any time, of 100 to 900 tokens after 200 to 1,800. Wait: from a request to its sequence, so up to a step (${step.toFixed(1)} ms) with a chunk of a prompt (up to ${(GPU.chunk * GPU.tokenMs).toFixed(0)} ms) also where no request waits in the queue. Nothing lost: a stopped request goes on later where it was, at no cost, which is the most that a headroom allows.`,
    ],
    rows,
  });
}
