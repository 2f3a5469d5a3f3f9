/**
 * How long the event loop is blocked while the balances of 100,000 accounts are written: `node
 * dist/bench/micro/balances.bench.js`. Prints a line; the goal is 5 ms at most.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeSnapshot } from '../../sidecar/usage/balance-file.js';
import { quantile, shown } from '../support/stats.js';
import { machine } from './machine.js';

const ACCOUNTS = 100_000;
const ROUNDS = 20;
const WARM_UP = 3;

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
  process.stdout.write(
    `${machine()}\n${ACCOUNTS} accounts: the loop stands still for ${shown(quantile(blocks, 0.5))} ms (p50 of the longest ` +
      `block), ${shown(quantile(blocks, 1))} ms at most; a snapshot takes ${shown(quantile(wholes, 0.5))} ms\n`,
  );
} finally {
  await rm(dir, { recursive: true, force: true });
}
