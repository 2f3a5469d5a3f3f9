/**
 * Ten people beside an endless batch on the running product, and without it: `node dist/bench/http/batch-beside.bench.js`. Some five minutes.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import OpenAI, { toFile } from 'openai';
import { chatLine, storeOnDisk } from '../../test/support/batch-client.js';
import { makeKey } from '../../test/support/keys.js';
import { embeddedTestModel } from '../../test/support/models.js';
import { CHAT, Sidecar } from '../../test/support/sidecar.js';
import { keep, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';

const PEOPLE = 10;
const SEATS = 16;
const REPLY = 48;
/** Between a person's requests, ms, at least and at most. */
const THINK_MS = [1000, 5000] as const;
const RUN_MS = 40_000;
/** Requests of a run that only warm up, of each person. */
const WARM_UPS = 1;
const RUNS = 3;
/** More lines than a run answers. */
const LINES = 20_000;

const folder = await mkdtemp(join(tmpdir(), 'ra-batch-beside-'));
const keys = Array.from({ length: PEOPLE + 1 }, (_, i) => makeKey({ id: `k${i}`, account: `a${i}` }));
const [batchKey, ...people] = keys.map(({ key }) => key);
const keyFile = join(folder, 'keys.json');
await writeFile(keyFile, JSON.stringify({ version: 1, keys: keys.map(({ stored }) => stored) }));
const file = await embeddedTestModel();

interface Run {
  /** From a request to its first token, ms. */
  readonly first: readonly number[];
  /** Between tokens, the mean of each reply, ms. */
  readonly gaps: readonly number[];
  readonly linesPerSecond: number;
}

/** One streamed chat. Resolves with its time to the first token, and the mean time between tokens. */
async function ask(
  sidecar: Sidecar,
  key: string,
  text: string,
): Promise<{ readonly first: number; readonly gap: number }> {
  const from = performance.now();
  const messages = [{ role: 'user', content: text }];
  const body = { model: CHAT, messages, max_tokens: REPLY, stream: true };
  const response = await sidecar.post('/chat/completions', body, { key });
  if (response.status !== 200) throw new Error(`${response.status}`);
  let [first, last, tokens] = [0, 0, 0];
  for await (const part of response.body ?? []) {
    const found =
      Buffer.from(part as Uint8Array)
        .toString()
        .split('"content":"').length - 1;
    if (found === 0) continue;
    last = performance.now() - from;
    if (tokens === 0) first = last;
    tokens += found;
  }
  return { first, gap: (last - first) / Math.max(1, tokens - 1) };
}

async function run(withBatch: boolean, seed: number): Promise<Run> {
  const teardowns = new Teardowns();
  const sidecar = await Sidecar.start(teardowns, {
    config: {
      models: [{ id: CHAT, kind: 'chat', file, seats: SEATS, contextPerSeat: 2048, gpu: false }],
      keys: { file: keyFile },
      dataDir: await mkdtemp(join(folder, 'data-')),
      batch: storeOnDisk(folder),
      development: { validateAnswers: false },
    },
  });
  const client = new OpenAI({ apiKey: batchKey ?? '', baseURL: sidecar.base, maxRetries: 0 });
  let batch: OpenAI.Batch | undefined;
  if (withBatch) {
    const lines = Array.from({ length: LINES }, (_, i) =>
      chatLine(`a question of some length, the ${i}th of its kind`, 100),
    );
    const input = await client.files.create({
      file: await toFile(Buffer.from(lines.join('\n')), 'in'),
      purpose: 'batch',
    });
    batch = await client.batches.create({
      input_file_id: input.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
    });
    await sidecar.logged('request', SEATS, ({ route }) => route === 'chat');
  }
  const completed = async (): Promise<number> =>
    batch ? ((await client.batches.retrieve(batch.id)).request_counts?.completed ?? 0) : 0;
  const found = { first: [] as number[], gaps: [] as number[] };
  const [before, from] = [await completed(), performance.now()];
  let state = seed;
  const random = (): number => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647;
  const person = async (key: string, index: number): Promise<void> => {
    for (let turn = 0; performance.now() - from < RUN_MS; turn += 1) {
      await sleep(THINK_MS[0] + random() * (THINK_MS[1] - THINK_MS[0]));
      const { first, gap } = await ask(
        sidecar,
        key,
        `Person ${index} asks for the ${turn}th time about the sea. `.repeat(8),
      );
      if (turn < WARM_UPS) continue;
      found.first.push(first);
      found.gaps.push(gap);
    }
  };
  await Promise.all(people.map(person));
  const linesPerSecond = ((await completed()) - before) / ((performance.now() - from) / 1000);
  await teardowns.run();
  return { ...found, linesPerSecond };
}

const runs = new Map<boolean, Run[]>([
  [false, []],
  [true, []],
]);
for (let round = 1; round <= RUNS; round += 1)
  for (const [withBatch, all] of runs) all.push(await run(withBatch, round));
const rows = [...runs].map(([withBatch, all]): Row => {
  const first = all.flatMap((each) => each.first);
  return {
    batch: withBatch ? 'endless' : 'none',
    requests: first.length,
    'first token p50, ms': median(first),
    'p99, ms': quantile(first, 0.99),
    'p99 of each run, ms': all.map((each) => quantile([...each.first], 0.99).toFixed(0)).join(', '),
    'between tokens, ms': median(all.flatMap(({ gaps }) => gaps)),
    'lines/s': median(all.map(({ linesPerSecond }) => linesPerSecond)),
  };
});
const [without, beside] = rows.map((row) => Number(row['p99, ms']));
await rm(folder, { recursive: true });

await keep('batch-beside', {
  title: 'Ten people beside an endless batch',
  about: [
    `The seedling, ${SEATS} seats of which half stay idle while others are lent, on both cores. Each person, of an account of its own, streams replies of up to ${REPLY} tokens to prompts of some 100, with ${THINK_MS[0] / 1000} to ${THINK_MS[1] / 1000} s between them; ${RUNS} runs of ${RUN_MS / 1000} s each, with and without the batch in turn, each with a sidecar of its own. Lines of the batch have replies of 100 tokens.`,
  ],
  rows,
  conclusions: [
    `First token p99 beside the batch: ${((beside ?? 0) / (without ?? 1)).toFixed(2)} times as without it; goal 1.5.`,
  ],
});
