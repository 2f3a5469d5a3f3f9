/**
 * Seat time of accounts that all want more than there is, on one engine and on four replicas with as many seats together:
 * `node dist/bench/http/replica-fairness.bench.js`; two minutes.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { jain } from '../../sidecar/admission/state.js';
import { makeKey } from '../../test/support/keys.js';
import { CHAT, Sidecar } from '../../test/support/sidecar.js';
import { ask } from '../support/conversation.js';
import { endlessEmbedded } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';

/** Of all replicas together. */
const SEATS = 8;
const CONTEXT = 512;
const ROUNDS = 5;
/** From when all seats are taken. */
const SECONDS = 10;
/** Until then. */
const WARM_MS = 1000;
/** The accounts: callers in a closed loop, and the tokens of each reply. */
const ACCOUNTS = [
  { account: 'short', callers: 8, tokens: 16 },
  { account: 'long', callers: 8, tokens: 256 },
  { account: 'flood', callers: 32, tokens: 64 },
] as const;

const file = await endlessEmbedded();
const keys = ACCOUNTS.map(({ account }) => makeKey({ id: account, account }));
const folder = await mkdtemp(join(tmpdir(), 'ra-fairness-'));
const keyFile = join(folder, 'keys.json');
await writeFile(keyFile, JSON.stringify({ version: 1, keys: keys.map(({ stored }) => stored) }));

interface Page {
  readonly models: readonly { readonly accounts: readonly { readonly account: string; readonly seatMs: number }[] }[];
}

/** Seat time of each account so far, ms. */
async function seatMs(port: number): Promise<readonly number[]> {
  const page = (await (await fetch(`http://127.0.0.1:${port}/admission`)).json()) as Page;
  const of = (name: string): number => page.models[0]?.accounts.find(({ account }) => account === name)?.seatMs ?? 0;
  return ACCOUNTS.map(({ account }) => of(account));
}

/** The share of the seat time that each account got in one round. */
async function shares(replicas: number): Promise<readonly number[]> {
  const teardowns = new Teardowns();
  const sizes = { seats: SEATS / replicas, contextPerSeat: CONTEXT, threads: 1, gpu: false, replicas };
  const { port, operatorsPort } = await Sidecar.start(teardowns, {
    config: {
      models: [{ id: CHAT, kind: 'chat', file, ...sizes }],
      keys: { file: keyFile },
      queue: { maxWaitMs: 600_000, waitingPerSeat: 100 },
      development: { validateAnswers: false, learnedQueue: false },
    },
  });
  let ends = false;
  const call = async (at: number, caller: number): Promise<void> => {
    const { tokens } = ACCOUNTS[at] ?? { tokens: 0 };
    const messages = [{ role: 'user', content: `${caller} What is known of the sea?` }];
    const target = { port, key: keys[at]?.key ?? '' };
    while (!ends) await ask(target, { model: CHAT, messages, max_tokens: tokens, temperature: 0 });
  };
  const calling = ACCOUNTS.flatMap(({ callers }, at) => Array.from({ length: callers }, (_, i) => call(at, i)));
  await new Promise((later) => setTimeout(later, WARM_MS));
  const before = await seatMs(operatorsPort);
  await new Promise((later) => setTimeout(later, SECONDS * 1000));
  const after = await seatMs(operatorsPort);
  ends = true;
  await Promise.all(calling);
  await teardowns.run();
  const got = after.map((ms, at) => ms - (before[at] ?? 0));
  const all = got.reduce((sum, ms) => sum + ms, 0);
  return got.map((ms) => ms / all);
}

const measured = new Map([1, 4].map((replicas): [number, (readonly number[])[]] => [replicas, []]));
for (let round = 0; round < ROUNDS; round += 1) {
  for (const [replicas, all] of measured) all.push(await shares(replicas));
}
await rm(folder, { recursive: true, force: true });
const rows = [...measured].map(([replicas, all]): Row => ({
  what: replicas === 1 ? 'one engine with all seats' : `${replicas} replicas, one queue`,
  "Jain's index": median(all.map(jain)),
  'lowest of the rounds': Math.min(...all.map(jain)),
  ...Object.fromEntries(
    ACCOUNTS.map(({ account }, at) => [`share of ${account}`, median(all.map((round) => round[at] ?? NaN))]),
  ),
}));
await keep('replica-fairness', {
  title: 'Seat time of accounts on replicas',
  about: [
    `Three accounts over HTTP, each with callers in a closed loop that want more than its part of ${SEATS} seats: ${ACCOUNTS.map(({ account, callers, tokens }) => `${account}, ${callers} callers with replies of ${tokens} tokens`).join('; ')}. A llama model of 3 million weights, one compute thread for each engine; all share two cores. Seat time of ${SECONDS} s as \`/admission\` has it, medians of ${ROUNDS} rounds of each, in turn, each with a new sidecar.`,
  ],
  rows,
  conclusions: [
    `Jain's index of seat time over the accounts: ${rows.map((row) => `${Number(row["Jain's index"]).toFixed(4)} with ${String(row['what'])}`).join(', ')}.`,
  ],
});
process.exit(0);
