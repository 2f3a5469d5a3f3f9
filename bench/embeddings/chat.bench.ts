/**
 * The gaps of chat streams beside an embedding model that always has work, on the same machine: `node
 * dist/bench/embeddings/chat.bench.js`. Each of the two models has a core of its own (`cores`), or both share one, with the default step
 * of an embedding model and with a short one (`prefillTokensPerStep`). About two minutes on two cores.
 */
import { Agent, request } from 'node:http';
import { availableParallelism } from 'node:os';
import { POOLING_CONTEXT, poolingModel, SMALL } from '../../test/support/pooling-models.js';
import { CHAT, Sidecar } from '../../test/support/sidecar.js';
import { endlessEmbedded } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { stream } from '../support/streaming.js';
import { Teardowns } from '../support/teardowns.js';

const EMBED = 'embed';
const STREAMS = 4;
const TOKENS = 600;
const ROUNDS = 3;
/** Endless lists beside the streams, and the inputs of each. */
const LISTS = 4;
const INPUTS = 64;
/** Of gaps at p99 beside the embedding model to those without. */
const GOAL = 1.5;

/** How the operator divides the machine. The first one is what the goal is for. */
const CASES = [
  { name: 'a core for each', chat: { cores: '0' }, embed: { cores: '1' } },
  { name: 'one core for both', chat: { cores: '0' }, embed: { cores: '0' } },
  {
    name: 'one core for both, steps of 32 tokens',
    chat: { cores: '0' },
    embed: { cores: '0', prefillTokensPerStep: 32 },
  },
] as const;

if (availableParallelism() < 2) throw new Error('two cores are needed, one for each model');
const [chatFile, embedFile] = [await endlessEmbedded(), await poolingModel('mean', SMALL)];

/** Posts lists until `stop` is called, which resolves when the last ones are answered. */
function lists({ port, key }: Sidecar): { readonly begun: Promise<void>; readonly stop: () => Promise<void> } {
  const agent = new Agent({ keepAlive: true });
  let over = false;
  let begin = (): void => undefined;
  const begun = new Promise<void>((resolve) => (begin = resolve));
  const input = Array.from({ length: INPUTS }, (_, i) =>
    Array.from({ length: 64 }, (__, at) => 5 + ((i * 7 + at * 3) % 300)),
  );
  const body = JSON.stringify({ model: EMBED, input, encoding_format: 'base64' });
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${key}`, 'content-length': body.length };
  const post = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const sent = request({ port, path: '/v1/embeddings', method: 'POST', agent, headers }, (response) => {
        if (response.statusCode !== 200) reject(new Error(`answered ${String(response.statusCode)}`));
        response.once('data', () => begin()).resume();
        response.once('end', resolve).once('error', reject);
      });
      sent.once('error', reject).end(body);
    });
  const all = Array.from({ length: LISTS }, async () => {
    while (!over) await post();
  });
  return {
    begun,
    stop: async () => {
      over = true;
      await Promise.all(all);
      agent.destroy();
    },
  };
}

const rows: Row[] = [];
for (const { name, chat, embed } of CASES) {
  const teardowns = new Teardowns();
  const common = { gpu: false, threads: 1 };
  const sidecar = await Sidecar.start(teardowns, {
    config: {
      models: [
        { id: CHAT, kind: 'chat', file: chatFile, seats: STREAMS, contextPerSeat: 1024, ...common, ...chat },
        {
          id: EMBED,
          kind: 'embedding',
          file: embedFile,
          seats: 64,
          contextPerSeat: POOLING_CONTEXT,
          ...common,
          ...embed,
        },
      ],
      development: { validateAnswers: false },
    },
  });
  const target = { agent: new Agent({ keepAlive: true }), port: sidecar.port, key: sidecar.key };
  const body = { model: CHAT, messages: [{ role: 'user', content: 'What is known of the sea?' }], max_tokens: TOKENS };
  /** The gaps of streams at once, ms. */
  const gaps = async (): Promise<number[]> => {
    const streams = await Promise.all(Array.from({ length: STREAMS }, () => stream(target, body)));
    return streams.flatMap(({ gapsMs }) => gapsMs);
  };
  await gaps();
  const pairs: { readonly alone: number[]; readonly beside: number[] }[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const alone = await gaps();
    const work = lists(sidecar);
    await work.begun;
    pairs.push({ alone, beside: await gaps() });
    await work.stop();
  }
  await teardowns.run();
  const of = (which: 'alone' | 'beside', share: number): number =>
    median(pairs.map((pair) => quantile(pair[which], share)));
  rows.push({
    'the two models have': name,
    'gaps p50, alone, ms': of('alone', 0.5),
    'beside, ms': of('beside', 0.5),
    'gaps p99, alone, ms': of('alone', 0.99),
    'p99 beside, ms': of('beside', 0.99),
    'p99 ratio': median(pairs.map(({ alone, beside }) => quantile(beside, 0.99) / quantile(alone, 0.99))),
  });
}

const [divided] = rows;
const ratio = Number(divided?.['p99 ratio']);
await keep('embeddings-chat', {
  title: 'Chat streams beside an embedding model',
  about: [
    `${STREAMS} streams of ${TOKENS} tokens at once of a small random model, without and with ${LISTS} endless lists of ${INPUTS} inputs of 64 tokens for a BERT of ${SMALL.layers} layers, ${SMALL.width} wide; one compute thread each, ${ROUNDS} pairs of rounds. Gaps are those between arrivals of text at the caller, which runs on the same cores, as the sidecar does.`,
    'Where both share a core, the operating system divides it: a longer step of the embedding model keeps it for longer at a time.',
  ],
  rows,
  conclusions: [
    `${ratio <= GOAL ? 'Held' : 'Missed'}: with a core for each, gaps at p99 at most ${GOAL} times as long as without (${ratio.toFixed(2)}).`,
  ],
});
process.exit(0);
