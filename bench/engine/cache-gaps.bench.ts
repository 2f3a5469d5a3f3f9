/**
 * How long running replies are held up by saving and restoring prefixes beside them, and how many copies there are between two
 * of their steps.
 *
 *     node dist/bench/engine/cache-gaps.bench.js
 */
import type { Decoder } from '../../engine/scheduler/decoder.js';
import { loadRuntime } from '../../engine/llama/runtime.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import { StepLoop } from '../../engine/scheduler/step-loop.js';
import { endless, random150m } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';

const REPLIES = 4;
/** Seats for the conversations, of which there is one more: each turn overwrites one and brings another back. */
const SEATS = 1;
const TURNS = 8;
const CONTEXT = 4096;
/** What a turn adds. */
const NEW = 100;
const BYTES = 2 ** 30;

const MODELS = {
  '150m, 1,000 tokens': { make: random150m, tokens: 1000 },
  '150m, 2,000 tokens': { make: random150m, tokens: 2000 },
  '150m, 3,500 tokens': { make: random150m, tokens: 3500 },
  'hybrid, 1,000 tokens': { make: () => endless('hybrid'), tokens: 1000 },
  'window, 1,000 tokens': { make: () => endless('window'), tokens: 1000 },
} as const;

/** Between two decodes. */
interface Between {
  readonly saves: number;
  readonly restores: number;
  readonly ms: number;
}

/** Watches a decoder: what there is between its decodes, and what these take where only replies are in them. */
function watched(decoder: Decoder): { readonly between: Between[]; readonly steps: number[] } {
  const between: Between[] = [];
  const steps: number[] = [];
  let [saves, restores, ended] = [0, 0, performance.now()];
  const save = decoder.states.saveWhole?.bind(decoder.states);
  const restore = decoder.states.restoreWhole?.bind(decoder.states);
  if (!save || !restore) throw new Error('nothing can be saved');
  const step = decoder.step.bind(decoder);
  // No runs: a step is a step.
  decoder.step = async function* (parts) {
    const from = performance.now();
    between.push({ saves, restores, ms: from - ended });
    const results = (await step(parts).next()).value;
    ended = performance.now();
    if (parts.length === REPLIES && parts.every(({ kind, tokens }) => kind === 'sample' && tokens.length === 1))
      steps.push(ended - from);
    [saves, restores] = [0, 0];
    return results;
  };
  decoder.states.saveWhole = (...given) => {
    saves += 1;
    return save(...given);
  };
  decoder.states.restoreWhole = (...given) => {
    restores += 1;
    return restore(...given);
  };
  return { between, steps };
}

const rows: Row[] = [];
for (const [model, { make, tokens }] of Object.entries(MODELS)) {
  const seats = REPLIES + SEATS;
  const runtime = await loadRuntime({
    file: await make(),
    kind: 'chat',
    seats,
    contextPerSeat: CONTEXT,
    threads: 1,
    gpu: false,
    flashAttention: 'auto',
    prefillTokensPerStep: 0,
    prefillShare: 100,
    prefixReuse: 'any',
    heartbeatMs: 1000,
  });
  const { between, steps } = watched(runtime.decoder);
  const done = new Map<number, () => void>();
  const loop = new StepLoop(
    runtime.decoder,
    runtime.tokens,
    {
      seats,
      contextPerSeat: CONTEXT,
      prefillTokensPerStep: runtime.prefillTokensPerStep,
      prefillShare: 100,
      prefixReuse: 'any',
      origin: { weights: '', kv: runtime.kv },
      checkpointBytes: BYTES,
      prefixCache: { bytes: BYTES, maxAgeMs: 3_600_000 },
    },
    (_, outputs) => {
      for (const { id, kind } of outputs) if (kind === 'started' || kind === 'done') done.get(id)?.();
    },
  );
  let lastId = 0;
  const ask = (prompt: readonly number[], maxTokens: number, until: 'started' | 'done'): Promise<void> => {
    const id = ++lastId;
    let left = until === 'started' ? 1 : 2;
    const ended = new Promise<void>((resolve) => done.set(id, () => --left === 0 && resolve()));
    const sampling = { temperature: 0, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed: 1 };
    const job = { n: 1, seats: 1, stops: [], scope: 'one', maxTokens, ...sampling };
    loop.generate(id, { prompt: tokenPrompt(Uint32Array.from(prompt)), ...job });
    return ended;
  };
  const words = (salt: number, length: number): number[] =>
    Array.from({ length }, (_, i) => 60 + ((i * 7 + salt * 13 + ((i * i) % 11)) % 90));
  const chats = Array.from({ length: SEATS + 1 }, (_, salt) => words(salt, tokens));
  for (const chat of chats) await ask(chat, 1, 'done');
  for (let reply = 0; reply < REPLIES; reply += 1) await ask(words(50 + reply, 16), CONTEXT - 32, 'started');
  const turn = (number: number): Promise<void> => {
    const chat = chats[number % chats.length] ?? [];
    chat.push(...words(100 + number, NEW));
    return ask(chat, 1, 'done');
  };
  // Afterwards no sequence has what the next turn goes on from.
  for (let number = 0; number < chats.length; number += 1) await turn(number);
  between.length = 0;
  const { hits: before } = loop.report.cache;
  for (let number = 0; number < TURNS; number += 1) await turn(chats.length + number);
  const { hits, evictions } = loop.report.cache;
  if (hits - before !== TURNS || evictions.failed > 0) throw new Error(`${hits - before} of ${TURNS} were restored`);
  await loop.close();
  await runtime.dispose();
  const held = between.filter(({ saves, restores }) => saves + restores > 0);
  const plain = between.filter(({ saves, restores }) => saves + restores === 0).map(({ ms }) => ms);
  rows.push({
    'model, tokens of a prefix': model,
    'a step of the replies p50, ms': median(steps),
    'between two decodes p50, ms': median(plain),
    'with copies p50, ms': median(held.map(({ ms }) => ms)),
    'with copies, most, ms': quantile(
      held.map(({ ms }) => ms),
      1,
    ),
    'copies at once, most': Math.max(...held.map(({ saves, restores }) => saves + restores)),
    'in steps, p50': median(held.map(({ ms }) => ms)) / median(steps),
    'in steps, most':
      quantile(
        held.map(({ ms }) => ms),
        1,
      ) / median(steps),
  });
  process.stdout.write(`${JSON.stringify(rows.at(-1))}\n`);
}

await keep('cache-gaps', {
  title: 'Running replies beside saved and restored prefixes',
  about: [
    `${REPLIES} greedy replies run on 1 compute thread. Beside them the turns of ${SEATS + 1} conversations come on ${SEATS} more sequence: each of ${TURNS} turns adds ${NEW} tokens, saves the state of the other conversation and restores its own. What the replies wait between two decodes, without and with copies, and how many copies there are at once. No runs of steps.`,
  ],
  rows,
});
