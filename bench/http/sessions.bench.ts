/**
 * Agents on fewer seats than agents, with kept seats and without, with a host cache and without, on the running product:
 *
 *     node dist/bench/http/sessions.bench.js [CELLS] [RUNS] [SECONDS]
 *
 * CELLS: a part of the names of the cells that are run and printed; all are kept among bench/results. Twenty minutes.
 */
import { setMaxListeners } from 'node:events';
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
const only = process.argv[2] ?? '';
const RUNS = Number(process.argv[3] ?? 3);
/** Counted time of a run, after a time in which sessions begin that is not. */
const SECONDS = Number(process.argv[4] ?? 20);
const WARM_UP_SECONDS = 10;
/** How often the seats are counted, ms. */
const LOOK_MS = 50;

const folder = await mkdtemp(join(tmpdir(), 'ra-sessions-'));
const keys = ACCOUNTS.map((account) => makeKey({ id: account, account }));
const keyFile = join(folder, 'keys.json');
await writeFile(keyFile, JSON.stringify({ version: 1, keys: keys.map(({ stored }) => stored) }));
const file = await embeddedTestModel();

interface Usage {
  readonly prompt_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
}

interface Load {
  readonly agents: number;
  readonly cache: boolean;
  /** An agent begins its next session 1 to 5 s after the end of one, else at once. */
  readonly rests: boolean;
}

interface Run {
  readonly reused: number;
  readonly turnsPerSecond: number;
  readonly turnP50: number;
  readonly turnP99: number;
  /** Mean seats that serve turns, and that are kept between two turns. */
  readonly busy: number;
  readonly kept: number;
}

async function run({ agents, cache, rests }: Load, keepMaxMs: number): Promise<Run> {
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
  let turns = 0;
  const from = performance.now() + 1000 * WARM_UP_SECONDS;
  const end = AbortSignal.timeout(1000 * (WARM_UP_SECONDS + SECONDS));
  setMaxListeners(0, end);
  const counts = (): boolean => performance.now() >= from;
  let sessions = 0;
  const session = async (key: string | null): Promise<void> => {
    const number = (sessions += 1);
    const messages: object[] = [{ role: 'system', content: `You are agent ${number * 7919}. `.repeat(80) }];
    for (let turn = 0; turn < TURNS; turn += 1) {
      messages.push({ role: 'user', content: `Result ${turn} of tool ${number}: nothing to see. `.repeat(4) });
      const asked = performance.now();
      const body = { model: CHAT, messages, max_tokens: REPLY, temperature: 0 };
      let response = await sidecar.post('/chat/completions', body, { key, signal: end });
      while (response.status === 429) {
        await response.text();
        await sleep(Number(response.headers.get('retry-after-ms')), undefined, { signal: end });
        response = await sidecar.post('/chat/completions', body, { key, signal: end });
      }
      if (response.status !== 200) throw new Error(`${String(response.status)} ${await response.text()}`);
      const { choices, usage } = (await response.json()) as {
        readonly choices: readonly [{ readonly message: object }];
        readonly usage: Usage;
      };
      messages.push(choices[0].message);
      if (!counts()) continue;
      turns += 1;
      if (turn === 0) continue;
      times.push(performance.now() - asked);
      sums.prompt += usage.prompt_tokens;
      sums.cached += usage.prompt_tokens_details.cached_tokens;
    }
  };
  const agent = async (index: number): Promise<void> => {
    while (!end.aborted) {
      await session(keys[index % keys.length]?.key ?? null);
      if (rests) await sleep(1000 + ((sessions * 7919) % 4000), undefined, { signal: end });
    }
  };
  const seats = { looks: 0, busy: 0, kept: 0 };
  const look = async (): Promise<void> => {
    for (;;) {
      await sleep(LOOK_MS, undefined, { signal: end });
      const page = await fetch(`http://127.0.0.1:${sidecar.operatorsPort}/admission`, { signal: end });
      const { models } = (await page.json()) as { readonly models: readonly [{ busy: number; kept: number }] };
      if (!counts()) continue;
      seats.looks += 1;
      seats.busy += models[0].busy;
      seats.kept += models[0].kept;
    }
  };
  try {
    await Promise.all([look(), ...Array.from({ length: agents }, (_, index) => agent(index))]);
  } catch (error) {
    if (!end.aborted) throw error;
  }
  await teardowns.run();
  return {
    reused: sums.cached / sums.prompt,
    turnsPerSecond: turns / SECONDS,
    turnP50: median(times),
    turnP99: quantile(times, 0.99),
    busy: seats.busy / seats.looks,
    kept: seats.kept / seats.looks,
  };
}

const LOADS: readonly Load[] = [
  { cache: false, rests: false },
  { cache: false, rests: true },
  { cache: true, rests: false },
].flatMap((load) => [4, 12].map((agents) => ({ ...load, agents })));

const rows: Row[] = [];
for (const load of LOADS) {
  const { agents, cache, rests } = load;
  const names = {
    'host cache': cache ? 'default' : 'none',
    'between sessions': rests ? '1 to 5 s' : 'nothing',
    agents,
  };
  if (!Object.values(names).join(', ').includes(only)) continue;
  const found = new Map<number, Run[]>([
    [0, []],
    [KEEP_MAX_MS, []],
  ]);
  for (let round = 0; round < RUNS; round += 1)
    for (const [keepMaxMs, runs] of found) runs.push(await run(load, keepMaxMs));
  for (const [keepMaxMs, runs] of found) {
    const of = (value: (run: Run) => number): number => median(runs.map(value));
    rows.push({
      ...names,
      seats: keepMaxMs > 0 ? 'kept' : 'not kept',
      'prompt tokens reused from the second turn on': of(({ reused }) => reused).toFixed(3),
      'turns/s': of(({ turnsPerSecond }) => turnsPerSecond).toFixed(2),
      least: Math.min(...runs.map(({ turnsPerSecond }) => turnsPerSecond)).toFixed(2),
      most: Math.max(...runs.map(({ turnsPerSecond }) => turnsPerSecond)).toFixed(2),
      'turn p50, ms': of(({ turnP50 }) => turnP50).toFixed(0),
      'p99, ms': of(({ turnP99 }) => turnP99).toFixed(0),
      'seats busy': of(({ busy }) => busy).toFixed(2),
      'seats kept': of(({ kept }) => kept).toFixed(2),
    });
    process.stdout.write(`${JSON.stringify(rows.at(-1))}\n`);
  }
}
await rm(folder, { recursive: true });

if (only === '')
  await keep('sessions-http', {
    title: 'Agents on four seats over HTTP, with seats that are kept for them and without',
    about: [
      `The seedling, ${SEATS} seats, ${ACCOUNTS.length} accounts. Each agent works on one session after the other, each of ${TURNS} turns without a pause between them: some 700 prompt tokens at first, 60 more a turn, replies of up to ${REPLY}. Refused turns return after Retry-After. ${SECONDS} s after ${WARM_UP_SECONDS} s that are not counted: medians of ${RUNS} runs, with kept seats and without in turn, each with a sidecar of its own. Times of a turn include its refusals, without the first turns. Seats: means of looks at \`/admission\` each ${LOOK_MS} ms. With nothing between sessions as many agents as seats use all seats already.`,
    ],
    rows,
  });
