/**
 * How long the event loop is blocked while the balances of 100,000 accounts are written:
 * `node dist/bench/micro/balances.bench.js`, part of `make bench`. The goal is 5 ms at most.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeSnapshot } from '../../sidecar/usage/balances.js';
import { keep } from '../support/results.js';
import { quantile } from '../support/stats.js';

const ACCOUNTS = 100_000;
const ROUNDS = 20;
const WARM_UP = 3;
const GOAL_MS = 5;

/** The longest time between two turns of the event loop while `work` runs, ms, and the duration of all of it. */
async function longestBlock(work: () => Promise<void>): Promise<{ readonly block: number; readonly whole: number }> {
  const from = performance.now();
  let last = from;
  let block = 0;
  let done = false;
  const turn = (): void => {
    const now = performance.now();
    block = Math.max(block, now - last);
    last = now;
    if (!done) setImmediate(turn);
  };
  setImmediate(turn);
  await work();
  done = true;
  const now = performance.now();
  return { block: Math.max(block, now - last), whole: now - from };
}

const dir = await mkdtemp(join(tmpdir(), 'ra-balances-bench-'));
try {
  const settled = new Map(
    Array.from({ length: ACCOUNTS }, (_, i): [string, bigint] => [`account-${i}`, BigInt(i) * 1_000_000_007n]),
  );
  const blocks: number[] = [];
  const wholes: number[] = [];
  for (let round = 0; round < WARM_UP + ROUNDS; round += 1) {
    const position = { segment: 1, offset: round };
    const { block, whole } = await longestBlock(() => writeSnapshot(join(dir, 'balances.json'), { position, settled }));
    if (round < WARM_UP) continue;
    blocks.push(block);
    wholes.push(whole);
  }
  const ms = (values: readonly number[], share: number): number => Number(quantile(values, share).toFixed(2));
  await keep('balances', {
    title: 'How long the event loop is blocked while balances are written',
    about: [
      `${ACCOUNTS} accounts, ${ROUNDS} snapshots. Of each snapshot the longest time between two turns of the loop; the goal is ${GOAL_MS} ms at most.`,
    ],
    rows: [
      {
        accounts: ACCOUNTS,
        'longest block p50, ms': ms(blocks, 0.5),
        'longest block of all, ms': ms(blocks, 1),
        'a snapshot takes, ms': ms(wholes, 0.5),
      },
    ],
  });
} finally {
  await rm(dir, { recursive: true, force: true });
}
