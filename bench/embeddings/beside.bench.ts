/**
 * Embeddings of the whole sidecar beside llama-server of the same commit, on one file, and single inputs of one account beside another's
 * endless lists. Needs `make peers`.
 */
import { writeFileSync, mkdtempSync, rmSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeKey } from '../../test/support/keys.js';
import { POOLING_CONTEXT, poolingModel, SMALL } from '../../test/support/pooling-models.js';
import { Sidecar } from '../../test/support/sidecar.js';
import { LlamaServer } from '../support/peers.js';
import { keep, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';

const MODEL = 'embed';
const INPUTS = 64;
const LENGTHS = [16, 128, 512] as const;
const RUNS = 7;
/** Rounds of each that only warm up. */
const WARM_UPS = 2;

const teardowns = new Teardowns();
const file = await poolingModel('mean', SMALL);
const dir = mkdtempSync(join(tmpdir(), 'ra-embeddings-'));
teardowns.teardown(() => rmSync(dir, { recursive: true, force: true }));
const [one, other, half] = [
  makeKey({ id: 'one', account: 'one', class: 'standard' }),
  makeKey({ id: 'other', account: 'other', class: 'standard' }),
  makeKey({ id: 'half', account: 'half', class: 'batch' }),
];
const keys = join(dir, 'keys.json');
writeFileSync(keys, JSON.stringify({ version: 1, keys: [one.stored, other.stored, half.stored] }));
const sidecar = await Sidecar.start(teardowns, {
  config: {
    keys: { file: keys },
    development: { validateAnswers: false },
    models: [{ id: MODEL, kind: 'embedding', file, seats: 64, contextPerSeat: POOLING_CONTEXT, threads: 1 }],
  },
});
const server = await LlamaServer.start(file, {
  threads: 1,
  slots: INPUTS,
  contextPerSlot: POOLING_CONTEXT,
  more: ['--embedding', '-ub', String(POOLING_CONTEXT), '-b', '2048'],
});
teardowns.teardown(() => server.close());

const agent = new Agent({ keepAlive: true });

/** Posts inputs, and settles once the whole answer is read. */
function post(port: number, key: string, input: unknown): Promise<void> {
  const body = JSON.stringify({ model: MODEL, input, encoding_format: 'base64' });
  return new Promise((resolve, reject) => {
    const sent = request(
      { port, path: '/v1/embeddings', method: 'POST', agent, headers: headersOf(key, body) },
      (response) => {
        response.resume();
        response.once('end', () =>
          response.statusCode === 200 && response.complete ? resolve() : reject(new Error(String(response.statusCode))),
        );
        response.once('error', reject);
      },
    );
    sent.once('error', reject).end(body);
  });
}

function headersOf(key: string, body: string): Readonly<Record<string, string | number>> {
  return {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    Authorization: `Bearer ${key}`,
  };
}

/** Different tokens for each input: the servers could keep what they know of one. */
let last = 0;
const inputOf = (length: number): number[] => {
  last += 1;
  return Array.from({ length }, (_, i) => 5 + ((last * 31 + i * 7) % 300));
};

async function timed(work: () => Promise<unknown>): Promise<number> {
  const from = performance.now();
  await work();
  return performance.now() - from;
}

/** Tokens a second of 64 inputs at once. */
async function rate(port: number, length: number, how: 'list' | 'requests'): Promise<number> {
  const inputs = Array.from({ length: INPUTS }, () => inputOf(length));
  const ms = await timed(() =>
    how === 'list' ? post(port, one.key, inputs) : Promise.all(inputs.map((input) => post(port, one.key, [input]))),
  );
  return (INPUTS * length * 1000) / ms;
}

const rows: Row[] = [];
for (const how of ['list', 'requests'] as const) {
  for (const length of LENGTHS) {
    const pairs: { readonly ours: number; readonly theirs: number }[] = [];
    for (let run = 0; run < WARM_UPS + RUNS; run += 1) {
      const theirs = await rate(server.port, length, how);
      const ours = await rate(sidecar.port, length, how);
      if (run >= WARM_UPS) pairs.push({ ours, theirs });
    }
    rows.push({
      what: how === 'list' ? 'one list of 64' : '64 requests',
      'tokens of an input': length,
      'ra-sidecar, tokens/s': median(pairs.map(({ ours }) => ours)),
      'llama-server, tokens/s': median(pairs.map(({ theirs }) => theirs)),
      ratio: median(pairs.map(({ ours, theirs }) => ours / theirs)),
    });
  }
}
await server.close();

/** An account's lists without end, `at once` of them; `stop` returns how many inputs were answered. */
function lists(key: string, length: number, atOnce: number): { readonly stop: () => Promise<number> } {
  let over = false;
  let done = 0;
  const all = Array.from({ length: atOnce }, async () => {
    while (!over) {
      await post(
        sidecar.port,
        key,
        Array.from({ length: 512 }, () => inputOf(length)),
      );
      done += 512;
    }
  });
  return {
    stop: async () => {
      over = true;
      const counted = done;
      await Promise.all(all);
      return counted;
    },
  };
}

/** Times of single inputs, one after another, ms. */
async function singles(count: number): Promise<number[]> {
  const times = [];
  for (let i = 0; i < count; i += 1) times.push(await timed(() => post(sidecar.port, one.key, [inputOf(16)])));
  return times;
}

const stepMs = 1000 * (POOLING_CONTEXT / (await rate(sidecar.port, 128, 'list')));
const idle = await singles(200);
const endless = lists(other.key, 128, 4);
await singles(20);
const beside = await singles(200);
await endless.stop();
for (const [name, times] of [
  ['idle', idle],
  ['beside four endless lists of another account', beside],
] as const) {
  rows.push({
    what: `single inputs of 16 tokens, ${name}`,
    'p50, ms': quantile(times, 0.5),
    'p99, ms': quantile(times, 0.99),
    'a step, ms': stepMs,
  });
}

const shares = [lists(other.key, 64, 2), lists(half.key, 64, 4)];
await new Promise((resolve) => setTimeout(resolve, 20_000));
const [standard = 0, batch = 0] = await Promise.all(shares.map((each) => each.stop()));
rows.push({
  what: 'inputs of a standard account to those of a batch one, both with endless lists',
  ratio: standard / batch,
});

await keep('embeddings', {
  title: 'Embeddings beside llama-server, and fairness between accounts',
  about: [
    `A BERT of ${SMALL.layers} layers, ${SMALL.width} wide, random float32 weights, mean pooling; one compute thread each; llama-server with ${INPUTS} slots, \`-b 2048 -ub ${POOLING_CONTEXT}\`. Both get the same tokens and answer base64, one after the other, ${RUNS} times; medians, and the median ratio of the pairs.`,
    'A single input waits for the step that computes when it comes, and is in the next one. By weights a standard account gets four times as much as a batch one.',
  ],
  rows,
});
await teardowns.run();
process.exit(0);
