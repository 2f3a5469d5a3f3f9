/** The whole sidecar over HTTP beside llama-server, on a CPU. */
import { besideRows } from '../support/beside.js';
import { random13m, random150m } from '../support/models.js';
import { keep, keptRows, type Row } from '../support/results.js';

const SEATS = 32;
const CONTEXT = 512;
const RUNS = 5;
const THREADS = 1;
const OPEN = [0.5, 0.8];
const OPEN_SECONDS = 8;

/** `native`: the addon of `make engine-native` is in place; the results are kept beside those of the prebuilt one. */
const build = process.argv[2] === 'native' ? 'native' : 'prebuilt';
/** One model alone: the rows of the other stay as they were. */
const only = process.argv[3];
const name = build === 'native' ? 'llama-server-native' : 'llama-server';

const rows: Row[] = [];
for (const { model, file, tokens, closed, open, temperatures } of [
  {
    model: '150m',
    file: random150m,
    tokens: 64,
    closed: new Map([
      [1, 8],
      [8, 40],
      [32, 96],
    ]),
    open: OPEN,
    temperatures: [0],
  },
  {
    model: '13m',
    file: random13m,
    tokens: 64,
    closed: new Map([
      [1, 64],
      [8, 128],
      [32, 256],
    ]),
    open: OPEN,
    temperatures: [0, 1],
  },
  // A short one is over in some 30 ms when alone: beside that what a request costs by itself is much.
  {
    model: '13m',
    file: random13m,
    tokens: 256,
    closed: new Map([
      [1, 24],
      [8, 64],
      [32, 128],
    ]),
    open: [],
    temperatures: [0],
  },
]) {
  if (only !== undefined && only !== model) {
    const kept = await keptRows(name);
    rows.push(...kept.filter((row) => row['model'] === model && row['tokens a reply'] === tokens));
    continue;
  }
  rows.push(
    ...(await besideRows({
      model,
      file: await file(),
      threads: THREADS,
      gpu: false,
      seats: SEATS,
      context: CONTEXT,
      tokens,
      closed,
      temperatures,
      open,
      openSeconds: OPEN_SECONDS,
      runs: RUNS,
      prompt: (i) => `Tell me about the sea, part ${i}`,
    })),
  );
}

await keep(name, {
  title: `The whole sidecar beside llama-server, ${build} addon`,
  about: [
    `Streaming chat over HTTP: 64 or 256 tokens a reply on average (from half to one and a half times as many), ${SEATS} seats or slots of ${CONTEXT} tokens, ${THREADS} compute thread each, the same model, the same bodies, no prompt reuse on either side. Closed: so many callers, each sends when its last reply ended, three replies or more for each of them; medians of ${RUNS} runs, ours and theirs in turn, each run with processes of its own. A model may have been measured by itself, at another hour. Open: Poisson arrivals at ${OPEN.join(' and ')} of the rate of our closed loop of 32, ${OPEN_SECONDS} s each.`,
    `llama-server is told to sample as our API does by default (no top-k, no min-p). It is the native build with OpenMP of \`make peers\`; ours runs the ${build} addon. The caller is one Node process on the same two cores, so its work is in the figures of both. TTFT: request written to first text; gap: between two arrivals of text of one stream.`,
    'Our engine alone: prompts and replies of the same lengths, as many at once, over the engine protocol, in the same round, with the same settings.',
  ],
  rows,
});
