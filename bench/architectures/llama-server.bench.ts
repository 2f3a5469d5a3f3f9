/**
 * The whole sidecar over HTTP beside llama-server with a sliding-window and a hybrid model, on a CPU.
 *
 *     node dist/bench/architectures/llama-server.bench.js [native] [window | hybrid]
 *
 * Runs go on where an earlier start was ended.
 */
import { besideRows } from '../support/beside.js';
import { endless } from '../support/models.js';
import { forget, inPieces, medianRows } from '../support/pieces.js';
import { keep, rowsByModel, type Row } from '../support/results.js';

const SEATS = 32;
const CONTEXT = 512;
const RUNS = 5;
const TOKENS = 64;
const WARM_UP = 64;
/** How many replies a run of so many callers has. */
const CLOSED = new Map([
  [1, 6],
  [8, 24],
  [32, 64],
]);

const build = process.argv[2] === 'native' ? 'native' : 'prebuilt';
const name = build === 'native' ? 'architectures-http-native' : 'architectures-http';
const only = process.argv[3];

const rows = await rowsByModel(name, ['window', 'hybrid'], only, async (model) => {
  const file = await endless(model);
  const shape = { seats: SEATS, context: CONTEXT, tokens: TOKENS, closed: CLOSED, open: [], openSeconds: 0 };
  const run = (): Promise<Row[]> =>
    besideRows({
      model,
      file,
      threads: 1,
      gpu: false,
      runs: 1,
      warmUp: WARM_UP,
      temperatures: [0],
      prompt: (i) => `Tell me about the sea, part ${i}`,
      ...shape,
    });
  return medianRows(await inPieces(`${name}-${model}`, RUNS, run));
});

await keep(name, {
  title: `The whole sidecar beside llama-server, sliding window and hybrid, ${build} addon`,
  about: [
    `Streaming chat over HTTP, ${TOKENS} tokens a reply on average (from half to one and a half times as many), ${SEATS} seats or slots of ${CONTEXT} tokens, 1 compute thread each, the same bodies, no prompt reuse on either side. So many callers, each sends when its last reply ended; medians of ${RUNS} pairs, each with processes of its own, which first make ${WARM_UP} short replies. See llama-server-native.md for the columns, and architectures-limit-native.md for the models.`,
    'Peak: the most memory of the process so far, mapped weights included. The sidecar has two prompt hosts besides, which hold vocabularies alone.',
  ],
  rows,
});
for (const model of ['window', 'hybrid']) await forget(`${name}-${model}`);
