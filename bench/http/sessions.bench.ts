/**
 * Agents on fewer seats than agents, with kept seats and without, with a host cache and without, on the running product:
 * `node dist/bench/http/sessions.bench.js`. Some minutes.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { makeKey } from '../../test/support/keys.js';
import { embeddedTestModel } from '../../test/support/models.js';
import { CHAT, Sidecar } from '../../test/support/sidecar.js';
import { keep, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';

const SEATS = 4;
const TURNS = 10;
const ACCOUNTS = ['a', 'b', 'c', 'd'];
const KEEP_MAX_MS = 60_000;
const REPLY = 16;
const RUNS = 3;

const folder = await mkdtemp(join(tmpdir(), 'ra-sessions-'));
const keys = ACCOUNTS.map((account) => makeKey({ id: account, account }));
const keyFile = join(folder, 'keys.json');
await writeFile(keyFile, JSON.stringify({ version: 1, keys: keys.map(({ stored }) => stored) }));
const file = await embeddedTestModel();

interface Usage {
  readonly prompt_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
}

interface Run {
  readonly reused: number;
  readonly turnsPerSecond: number;
  readonly turnP50: number;
  readonly turnP99: number;
}

async function run(agents: number, keepMaxMs: number, cache: boolean): Promise<Run> {
  const teardowns = new Teardowns();
  const model = { id: CHAT, kind: 'chat', file, seats: SEATS, contextPerSeat: 4096, gpu: false };
  const sidecar = await Sidecar.start(teardowns, {
    config: {
      models: [cache ? model : { ...model, prefixCache: { bytes: 0 } }],
      keys: { file: keyFile },
      sessions: { keepMaxMs },
      development: { validateAnswers: false },
    },
  });
  const sums = { prompt: 0, cached: 0 };
  const times: number[] = [];
  const start = performance.now();
  const agent = async (index: number): Promise<void> => {
    const key = keys[index % keys.length]?.key ?? null;
    const messages: object[] = [{ role: 'system', content: `You are agent ${index * 7919}. `.repeat(80) }];
    for (let turn = 0; turn < TURNS; turn += 1) {
      messages.push({ role: 'user', content: `Result ${turn} of tool ${index}: nothing to see. `.repeat(4) });
      const asked = performance.now();
      const body = { model: CHAT, messages, max_tokens: REPLY, temperature: 0 };
      let response = await sidecar.post('/chat/completions', body, { key });
      while (response.status === 429) {
        await response.text();
        await sleep(Number(response.headers.get('retry-after-ms')));
        response = await sidecar.post('/chat/completions', body, { key });
      }
      if (response.status !== 200) throw new Error(`${String(response.status)} ${await response.text()}`);
      const { choices, usage } = (await response.json()) as {
        readonly choices: readonly [{ readonly message: object }];
        readonly usage: Usage;
      };
      messages.push(choices[0].message);
      if (turn === 0) continue;
      times.push(performance.now() - asked);
      sums.prompt += usage.prompt_tokens;
      sums.cached += usage.prompt_tokens_details.cached_tokens;
    }
  };
  await Promise.all(Array.from({ length: agents }, async (_, index) => agent(index)));
  const seconds = (performance.now() - start) / 1000;
  await teardowns.run();
  return {
    reused: sums.cached / sums.prompt,
    turnsPerSecond: (agents * TURNS) / seconds,
    turnP50: median(times),
    turnP99: quantile(times, 0.99),
  };
}

const rows: Row[] = [];
for (const cache of [false, true]) {
  for (const agents of [4, 12]) {
    const found = new Map<number, Run[]>([
      [0, []],
      [KEEP_MAX_MS, []],
    ]);
    for (let round = 0; round < RUNS; round += 1)
      for (const [keepMaxMs, runs] of found) runs.push(await run(agents, keepMaxMs, cache));
    for (const [keepMaxMs, runs] of found) {
      const of = (value: (run: Run) => number): number => median(runs.map(value));
      rows.push({
        'host cache': cache ? 'default' : 'none',
        agents,
        seats: keepMaxMs > 0 ? 'kept' : 'not kept',
        'prompt tokens reused from the second turn on': of(({ reused }) => reused).toFixed(3),
        'turns/s': of(({ turnsPerSecond }) => turnsPerSecond).toFixed(2),
        'turn p50, ms': of(({ turnP50 }) => turnP50).toFixed(0),
        'p99, ms': of(({ turnP99 }) => turnP99).toFixed(0),
      });
      process.stdout.write(`${JSON.stringify(rows.at(-1))}\n`);
    }
  }
}
await rm(folder, { recursive: true });

await keep('sessions-http', {
  title: 'Agents on four seats over HTTP, with seats that are kept for them and without',
  about: [
    `The seedling, ${SEATS} seats, ${ACCOUNTS.length} accounts. Each agent makes ${TURNS} turns, one after the other without a pause: some 700 prompt tokens at first, 60 more a turn, replies of up to ${REPLY}. Refused turns return after Retry-After. Medians of ${RUNS} runs, with kept seats and without in turn, each with a sidecar of its own. Times of a turn include its refusals, without the first turns.`,
  ],
  rows,
});
