/** The whole sidecar over HTTP beside llama-server, on a CPU. */
import { ANYWHERE, besideRows, type BesideCase } from '../support/beside.js';
import { random13m, random150m } from '../support/models.js';
import { keep, keptRows, type Row } from '../support/results.js';

const SEATS = 32;
const CONTEXT = 512;
const RUNS = 3;
const THREADS = 1;
const OPEN = [0.5, 0.8];
const OPEN_SECONDS = 8;
const FILES = { '150m': random150m, '13m': random13m } as const;
/** A slow model’s prompts take long. */
const WARM_UP = { '150m': 64, '13m': 512 } as const;
/** One of the machine’s cores, on which all compute in some rows. */
const CORE = '0';

/** `native`: the addon of `make engine-native` is in place; the results are kept beside those of the prebuilt one. */
const build = process.argv[2] === 'native' ? 'native' : 'prebuilt';
/** One model alone: the rows of the other stay as they were. */
const only = process.argv[3];
const name = build === 'native' ? 'llama-server-native' : 'llama-server';

/** How many replies a closed run of so many callers has: some seconds of work. */
const CLOSED = {
  slow: new Map([
    [1, 8],
    [8, 24],
    [32, 64],
  ]),
  fast: new Map([
    [1, 64],
    [8, 96],
    [32, 160],
  ]),
  long: new Map([
    [1, 16],
    [8, 32],
    [32, 64],
  ]),
  eight: new Map([[8, 96]]),
};

type Case = Pick<BesideCase, 'tokens' | 'cores' | 'closed' | 'open' | 'temperatures'> & {
  readonly model: keyof typeof FILES;
};

const CASES: readonly Case[] = [
  { model: '150m', tokens: 64, closed: CLOSED.slow, open: OPEN, temperatures: [0] },
  { model: '13m', tokens: 64, closed: CLOSED.fast, open: OPEN, temperatures: [0, 1] },
  { model: '13m', tokens: 64, cores: CORE, closed: CLOSED.eight, open: [], temperatures: [0] },
  // A short one takes some 30 ms alone, so the fixed cost of a request is large in comparison.
  { model: '13m', tokens: 256, closed: CLOSED.long, open: [], temperatures: [0] },
];

const rows: Row[] = [];
for (const { model, ...options } of CASES) {
  if (only !== undefined && only !== model) {
    const kept = await keptRows(name);
    const ours = { model, 'tokens a reply': options.tokens, cores: options.cores ?? ANYWHERE };
    rows.push(...kept.filter((row) => Object.entries(ours).every(([column, value]) => row[column] === value)));
    continue;
  }
  rows.push(
    ...(await besideRows({
      ...options,
      model,
      file: await FILES[model](),
      threads: THREADS,
      gpu: false,
      seats: SEATS,
      context: CONTEXT,
      openSeconds: OPEN_SECONDS,
      runs: RUNS,
      warmUp: WARM_UP[model],
      prompt: (i) => `Tell me about the sea, part ${i}`,
    })),
  );
}

await keep(name, {
  title: `The whole sidecar beside llama-server, ${build} addon`,
  about: [
    `Streaming chat over HTTP: 64 or 256 tokens a reply on average (from half to one and a half times as many), ${SEATS} seats or slots of ${CONTEXT} tokens, ${THREADS} compute thread each, the same model, the same bodies, no prompt reuse on either side. Closed: so many callers, each sends when its last reply ended, two replies or more for each of them; medians of ${RUNS} runs, ours and theirs in turn, each run with processes of its own, which first make ${WARM_UP['13m']} replies of 8 tokens for 32 callers (${WARM_UP['150m']} with 150m). A model may have been measured by itself, at another hour. Open: greedy, Poisson arrivals at ${OPEN.join(' and ')} of the rate of our closed loop of 32, ${OPEN_SECONDS} s each; tokens a second are those of replies that ended within these seconds, and have no ratio, since a server that keeps up gives what was asked for.`,
    `llama-server is configured to sample as our API does by default (no top-k, no min-p). It is the native build with OpenMP of \`make peers\`; ours runs the ${build} addon. The caller is one Node process on the same two cores, so its work is in the figures of both. TTFT: request written to first text, under open loads from when the request was due; the p99 of fewer than 100 replies is that of the slowest one; gap: between two arrivals of text of one stream.`,
    'Our engine alone: prompts and replies of the same lengths, as many at once, over the engine protocol, in the same round, with the same settings.',
    'Cores: where the thread that computes is kept in all three; ours by the setting of that name, of llama-server the main thread, by taskset. All else runs anywhere.',
  ],
  rows,
});
