/**
 * Embeddings of the whole sidecar beside llama-server of the same commit, on one file; single inputs of one account beside another's
 * endless lists, and the shares of two accounts with such lists. Needs `make peers`; about nine minutes.
 *
 *     node dist/bench/embeddings/beside.bench.js [TOKENS]
 *
 * TOKENS (16, 128 or 512): only compares inputs of so many with llama-server, and records nothing: 1, 2 or 4 minutes. Each pair is written
 * with the processor time of the engine and of llama-server, which other work on the machine changes less than it changes tokens a second.
 */
import { writeFileSync, mkdtempSync, rmSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeKey } from '../../test/support/keys.js';
import { POOLING_CONTEXT, poolingModel, SMALL } from '../../test/support/pooling-models.js';
import { Sidecar } from '../../test/support/sidecar.js';
import { cpuOf } from '../support/cpu.js';
import { LlamaServer } from '../support/peers.js';
import { keep, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';

const MODEL = 'embed';
const INPUTS = 64;
const SHORTEST = 16;
/** Tokens of the inputs that are compared on both builds of llama.cpp. A list of them has a body for the host of long bodies. */
const MIDDLE = 128;
/** Runs of inputs of so many tokens: short ones vary more, and one of the longest takes a minute on both servers. */
const RUNS = new Map([
  [SHORTEST, 15],
  [MIDDLE, 4],
  [512, 2],
]);
/** Of the command line. */
const only = process.argv[2];
/** Inputs of an endless list: as many as a request may have. */
const LIST = 2048;
/** Tokens of each: together fewer than the values that a body may have. */
const LIST_TOKENS = 32;
/** Of a step on a CPU. */
const STEP_TOKENS = 256;
/** Lists at once of one account. */
const AT_ONCE = 4;
/** A part of a list takes a tenth of a second, so that the shares of so long are known to less than a percent. */
const SHARES_MS = 40_000;
/** A standard account has so many times the weight of a batch one. */
const WEIGHTS = 4;
const GOALS = { ratio: 1, steps: 2, share: 0.02 } as const;

const teardowns = new Teardowns();
const file = await poolingModel('mean', SMALL);
/** For shares: of 40 seconds of the larger one too few parts would be seen. */
const QUICK = 'quick';
const quickFile = await poolingModel('mean', { width: 128, layers: 2, heads: 4, feedForward: 512 });
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
    models: [
      { id: MODEL, kind: 'embedding', file, seats: 64, contextPerSeat: POOLING_CONTEXT, threads: 1 },
      { id: QUICK, kind: 'embedding', file: quickFile, seats: 64, contextPerSeat: POOLING_CONTEXT, threads: 1 },
    ],
  },
});
const serverOn = (libraries: 'npm' | 'peers'): Promise<LlamaServer> =>
  LlamaServer.start(file, {
    threads: 1,
    slots: INPUTS,
    contextPerSlot: POOLING_CONTEXT,
    more: ['--embedding', '-ub', String(POOLING_CONTEXT), '-b', '2048'],
    libraries,
  });
const server = await serverOn('npm');
teardowns.teardown(() => server.close());

const agent = new Agent({ keepAlive: true });

interface PostOptions {
  readonly model?: string;
  /** Told of the answer's bytes as they come. */
  readonly reads?: (bytes: number) => void;
  /** Ends the request. */
  readonly signal?: AbortSignal;
}

/** Posts inputs, and settles once the whole answer is read. Sent again where the server had closed the connection that was to be used again. */
function post(port: number, key: string, input: unknown, options: PostOptions = {}): Promise<void> {
  const { model = MODEL, reads = () => undefined, signal } = options;
  const body = JSON.stringify({ model, input, encoding_format: 'base64' });
  return new Promise((resolve, reject) => {
    const sent = request(
      { port, path: '/v1/embeddings', method: 'POST', agent, headers: headersOf(key, body), ...(signal && { signal }) },
      (response) => {
        const { statusCode = 0 } = response;
        let start = '';
        response.on('data', (bytes: Buffer) => {
          if (statusCode !== 200) start += bytes.toString().slice(0, 200);
          reads(bytes.length);
        });
        response.once('end', () =>
          statusCode === 200 && response.complete ? resolve() : reject(new Error(`${statusCode} ${start}`)),
        );
        response.once('error', reject);
      },
    );
    const failed = (fault: Error & { readonly code?: string }): void => {
      if (sent.reusedSocket && fault.code === 'ECONNRESET') post(port, key, input, options).then(resolve, reject);
      else reject(fault);
    };
    sent.once('error', failed).end(body);
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

interface Measured {
  readonly rate: number;
  /** Of the process that computes. */
  readonly cpuSeconds: number;
}

async function measured(
  { port }: { readonly port: number },
  pid: number,
  length: number,
  how: 'list' | 'requests',
): Promise<Measured> {
  const { all: before } = await cpuOf(pid);
  const tokens = await rate(port, length, how);
  return { rate: tokens, cpuSeconds: (await cpuOf(pid)).all - before };
}

const rows: Row[] = [];
const ratios: number[] = [];
for (const how of ['list', 'requests'] as const) {
  // These only warm up: the sidecar forks its host of long bodies for the first of them.
  for (const { port } of [server, sidecar]) await rate(port, how === 'list' ? MIDDLE : SHORTEST, how);
  for (const [length, runs] of RUNS) {
    if (only !== undefined && length !== Number(only)) continue;
    const pairs: { readonly ours: number; readonly theirs: number }[] = [];
    for (let run = 0; run < runs; run += 1) {
      const ofTheirs = (): Promise<Measured> => measured(server, server.pid, length, how);
      const ofOurs = (): Promise<Measured> => measured(sidecar, sidecar.enginePid(MODEL), length, how);
      // Each is first in every second pair.
      const first = run % 2 === 0 ? await ofTheirs() : undefined;
      const { rate: ours, cpuSeconds: engine } = await ofOurs();
      const { rate: theirs, cpuSeconds: llamaServer } = first ?? (await ofTheirs());
      process.stdout.write(`${JSON.stringify({ how, length, ours, theirs, cpuSeconds: { engine, llamaServer } })}\n`);
      pairs.push({ ours, theirs });
    }
    const ratio = median(pairs.map(({ ours, theirs }) => ours / theirs));
    ratios.push(ratio);
    rows.push({
      what: how === 'list' ? 'one list of 64' : '64 requests',
      'tokens of an input': length,
      'ra-sidecar, tokens/s': median(pairs.map(({ ours }) => ours)),
      'llama-server, tokens/s': median(pairs.map(({ theirs }) => theirs)),
      ratio,
    });
  }
}
await server.close();
if (only !== undefined) {
  await teardowns.run();
  process.exit(0);
}

const ownBuild = await serverOn('peers');
teardowns.teardown(() => ownBuild.close());
const ownRates = [];
for (let i = 0; i < 4; i += 1) ownRates.push(await rate(ownBuild.port, MIDDLE, 'list'));
await ownBuild.close();
rows.push({
  what: "one list of 64, llama-server on llama.cpp's libraries as built on this machine",
  'tokens of an input': MIDDLE,
  'llama-server, tokens/s': median(ownRates),
});

/** Endless lists of an account, {@link AT_ONCE} of them. `bytes`: read so far, which are as many for each vector. */
interface Lists {
  readonly bytes: number;
  /** Leaves the lists: their ends would take minutes. */
  stop(): Promise<void>;
}

function lists(key: string, model: string): Lists {
  const leaving = new AbortController();
  const { signal } = leaving;
  let bytes = 0;
  const all = Array.from({ length: AT_ONCE }, async () => {
    while (!signal.aborted) {
      const inputs = Array.from({ length: LIST }, () => inputOf(LIST_TOKENS));
      const posted = post(sidecar.port, key, inputs, { model, reads: (more) => (bytes += more), signal });
      await posted.catch((fault: unknown) => {
        if (!signal.aborted) throw fault;
      });
    }
  });
  return {
    get bytes() {
      return bytes;
    },
    stop: async () => {
      leaving.abort();
      await Promise.all(all);
    },
  };
}

/** Settles once some of the lists' vectors have come. */
async function begun(...all: readonly Lists[]): Promise<void> {
  while (all.some(({ bytes }) => bytes === 0)) await new Promise((again) => setTimeout(again, 50));
}

/** Times of single inputs, one after another, ms. */
async function singles(count: number): Promise<number[]> {
  const times = [];
  for (let i = 0; i < count; i += 1) times.push(await timed(() => post(sidecar.port, one.key, [inputOf(16)])));
  return times;
}

const rates = [];
for (let i = 0; i < 5; i += 1) rates.push(await rate(sidecar.port, LIST_TOKENS, 'list'));
const stepMs = 1000 * (STEP_TOKENS / median(rates));
const idle = await singles(150);
const endless = lists(other.key, MODEL);
await begun(endless);
const beside = await singles(150);
await endless.stop();
for (const [name, times] of [
  ['idle', idle],
  [`beside ${AT_ONCE} endless lists of ${LIST} inputs of another account`, beside],
] as const) {
  rows.push({
    what: `single inputs of 16 tokens, ${name}`,
    'p50, ms': quantile(times, 0.5),
    'p99, ms': quantile(times, 0.99),
    'a step, ms': stepMs,
  });
}
const late = (quantile(beside, 0.99) - quantile(idle, 0.99)) / stepMs;

const shares = [lists(other.key, QUICK), lists(half.key, QUICK)] as const;
await begun(...shares);
const before = shares.map(({ bytes }) => bytes);
await new Promise((resolve) => setTimeout(resolve, SHARES_MS));
const [standard = NaN, batch = NaN] = shares.map(({ bytes }, i) => bytes - (before[i] ?? 0));
await Promise.all(shares.map((each) => each.stop()));
const part = standard / (standard + batch);
const off = Math.abs(part / (WEIGHTS / (WEIGHTS + 1)) - 1);
rows.push({
  what: 'vectors of a standard account to those of a batch one, both with endless lists',
  ratio: standard / batch,
});

const verdict = (held: boolean): string => (held ? 'Held' : 'Missed');
const worst = Math.min(...ratios);
await keep('embeddings', {
  title: 'Embeddings beside llama-server, and fairness between accounts',
  about: [
    `A BERT of ${SMALL.layers} layers, ${SMALL.width} wide, random float32 weights, mean pooling; one compute thread each; llama-server with ${INPUTS} slots, \`-b 2048 -ub ${POOLING_CONTEXT}\`, both on the npm package's libraries of llama.cpp unless a row says otherwise. Both get the same tokens and answer base64, one after the other; medians, and the median ratio of the pairs.`,
    `A step has ${STEP_TOKENS} tokens. A single input waits for the step that computes when it comes, and is in the next one. An endless list has ${LIST} inputs of ${LIST_TOKENS} tokens. The shares are those of a smaller model, of which more parts are computed in the time; by weights a standard account gets ${WEIGHTS} times as much as a batch one.`,
  ],
  rows,
  conclusions: [
    `${verdict(worst >= GOALS.ratio)}: at least ${GOALS.ratio} of llama-server's tokens a second (${worst.toFixed(2)} at worst).`,
    `${verdict(late <= GOALS.steps)}: single inputs beside endless lists at p99 within ${GOALS.steps} steps of idle (${late.toFixed(2)}).`,
    `${verdict(off <= GOALS.share)}: shares within ${GOALS.share * 100} % of the weights (${(off * 100).toFixed(1)} %).`,
  ],
});
await teardowns.run();
process.exit(0);
