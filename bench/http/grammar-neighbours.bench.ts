/**
 * The gaps between pieces of text of one account’s streams while another account’s requests beside them force a tool: a
 * plain one, and ones made to be expensive. Over the whole path, from HTTP to the engine and back.
 */
import { setMaxListeners } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { Agent } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeKey } from '../../test/support/keys.js';
import { CHAT, Sidecar } from '../../test/support/sidecar.js';
import { wideModel } from '../../test/support/wide-model.js';
import { keep, type Row } from '../support/results.js';
import { quantile } from '../support/stats.js';
import { stream, type Target } from '../support/streaming.js';
import { Teardowns } from '../support/teardowns.js';

const STREAMS = 8;
const HELD = [8, 33];
/** Of a stream; each of the measured ones is followed by another. */
const TOKENS = 60;
const ROUNDS = 3;
const HOSTILE_TOKENS = 256;

const arrays = (count: number, more: (i: number) => object): object => ({
  anyOf: Array.from({ length: count }, (_, i) => ({ type: 'array', ...more(i) })),
});
const optional = (count: number): object => ({
  type: 'object',
  properties: Object.fromEntries(Array.from({ length: count }, (_, i) => [`property_${i}`, { type: 'string' }])),
});
const PLAIN = 'a plain tool';
const CASES: Readonly<Record<string, object>> = {
  [PLAIN]: { type: 'object', properties: { location: { type: 'string' }, days: { type: 'integer' } } },
  '250 arrays, all equal': arrays(250, () => ({})),
  '150 arrays, all different': arrays(150, (i) => ({ items: { type: 'string', maxLength: i + 1 } })),
  '200 optional properties': optional(200),
  // Below the number of stacks from which on a grammar is known to be expensive.
  '17 arrays, all different': arrays(17, (i) => ({ items: { type: 'string', maxLength: i + 1 } })),
};

const folder = await mkdtemp(join(tmpdir(), 'ra-grammar-neighbours-'));
const [hostile, visitor] = ['hostile', 'visitor'].map((account) => makeKey({ id: account, account }));
if (!hostile || !visitor) throw new Error('no keys');
const keyFile = join(folder, 'keys.json');
await writeFile(keyFile, JSON.stringify({ version: 1, keys: [hostile.stored, visitor.stored] }));
const teardowns = new Teardowns();
const seats = STREAMS + Math.max(...HELD);
const sidecar = await Sidecar.start(teardowns, {
  config: {
    keys: { file: keyFile },
    models: [{ id: CHAT, kind: 'chat', file: await wideModel(), seats, contextPerSeat: 8192, threads: 1, gpu: false }],
    development: { validateAnswers: false },
  },
});
const target = ({ key }: { readonly key: string }): Target => ({
  agent: new Agent({ keepAlive: true }),
  port: sidecar.port,
  key,
});
const [others, attackers] = [target(visitor), target(hostile)];
const messages = [{ role: 'user', content: 'Hello' }];
// A reward for repetition prevents the end token.
const FREE = { model: CHAT, messages, temperature: 0, frequency_penalty: -2, max_tokens: TOKENS };

/** Replies forced to call a tool with an argument of `schema`, one after another until `over`. */
async function held(schema: object, over: AbortSignal): Promise<void> {
  const parameters = { type: 'object', properties: { p: schema }, required: ['p'] };
  const tools = [{ type: 'function', function: { name: 'f', parameters } }];
  const body = { model: CHAT, messages, tools, tool_choice: 'required', temperature: 2, max_tokens: HOSTILE_TOKENS };
  // The last replies would take longer than the measurement.
  while (await lastedWhole(stream(attackers, body, over), over));
}

/** False if the measurement ended first. Rejects if the reply failed by itself. */
async function lastedWhole(reply: Promise<unknown>, over: AbortSignal): Promise<boolean> {
  try {
    await reply;
    return !over.aborted;
  } catch (error) {
    if (over.aborted) return false;
    throw error;
  }
}

async function gaps(): Promise<number[]> {
  const all: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const streams = await Promise.all(Array.from({ length: STREAMS }, () => stream(others, FREE)));
    all.push(...streams.flatMap(({ gapsMs }) => gapsMs));
  }
  return all;
}

/** The p99 gap beside any tool over that beside a plain one. */
const GOAL = 2;

const rows: Row[] = [];
for (const count of HELD) {
  let plain = NaN;
  for (const [what, schema] of Object.entries(CASES)) {
    const over = new AbortController();
    setMaxListeners(count, over.signal);
    const running = Array.from({ length: count }, () => held(schema, over.signal));
    await sidecar.reaches('ra_sidecar_seats_busy', (busy) => busy >= count, { model: CHAT });
    const measured = await gaps();
    over.abort();
    await Promise.all(running);
    await sidecar.reaches('ra_sidecar_seats_busy', (busy) => busy === 0, { model: CHAT });
    const p99 = quantile(measured, 0.99);
    if (what === PLAIN) plain = p99;
    rows.push({
      held: count,
      'their tool': what,
      'gap p50, ms': quantile(measured, 0.5),
      'gap p99, ms': p99,
      'of a plain tool’s': p99 / plain,
      'longest gap, ms': Math.max(...measured),
    });
  }
}
await teardowns.run();
await rm(folder, { recursive: true });

const most = Math.max(...rows.map((row) => Number(row['of a plain tool’s'])));

await keep('grammar-neighbours', {
  title: 'What streams wait beside another account’s tools, over HTTP',
  about: [
    `${STREAMS} streams of ${TOKENS} tokens of one account, ${ROUNDS} times, and beside them as many requests of another account as the row says, each with a tool that it must call, temperature 2, followed by another when it ends. The last ones are cancelled. Llama 3’s vocabulary of 128,256 tokens, two layers of random weights, one compute thread. Gaps between two arrivals of text at the caller; what one read brings is one arrival.`,
  ],
  rows,
  conclusions: [`${most <= GOAL ? 'Held' : 'Missed'}: at most ${GOAL} times a plain tool’s p99 (${most.toFixed(2)}).`],
});
process.exit(0);
