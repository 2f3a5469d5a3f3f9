/** The gain of reuse: questions with one input, replies to one prompt, and the cost of a copy of a sequence. */
import { decodeOnce } from '../../engine/scheduler/decoder.js';
import type { LlamaModel } from 'node-llama-cpp';
import { BatchDecoder } from '../../engine/llama/batch-decoder.js';
import type { GenerateJob, ScoreJob } from '../../engine/protocol/jobs.js';
import { RealLoop, type RealLoopOptions } from '../../test/support/real-loop.js';
import { endlessEmbedded, random13m } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';
import { cpuLlama } from '../../test/support/llama.js';

const INPUT = 1000;
const TAIL = 40;
const QUESTIONS = 10;
const REPLIES = 8;
const RUNS = 3;
const THREADS = 1;
const CHUNK = 256;
const CONTEXT = 2048;
const COPY_CONTEXTS = [2048, 8192] as const;

const words = (length: number, salt = 0): Uint32Array =>
  Uint32Array.from({ length }, (_, i) => 60 + ((i * 7 + salt * 13 + ((i * i) % 11)) % 90));

function ask(count: number, more: Partial<ScoreJob> = {}): ScoreJob {
  const questions = Array.from({ length: count }, (_, i) => ({
    tail: words(TAIL, i + 1),
    labels: Uint32Array.of(70, 71),
    temperature: 1,
  }));
  return { input: words(INPUT), questions, temperature: 1, scope: ALL_ACCOUNTS, isolate: true, seats: 1, ...more };
}

function reply(seats: number): GenerateJob {
  const sampling = { temperature: 1, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed: 1 };
  return {
    prompt: tokenPrompt(words(INPUT)),
    n: REPLIES,
    seats,
    maxTokens: 32,
    stops: [],
    scope: ALL_ACCOUNTS,
    ...sampling,
  };
}

/** Seconds that jobs take one after another, each time on a loop that has only what `before` left. */
async function seconds(
  model: LlamaModel,
  jobs: readonly (ScoreJob | GenerateJob)[],
  options: RealLoopOptions = {},
  before: readonly ScoreJob[] = [],
): Promise<number> {
  const taken: number[] = [];
  for (let run = 0; run < RUNS; run++) {
    const loop = await RealLoop.make(model, {
      seats: REPLIES,
      contextPerSeat: CONTEXT,
      prefillTokensPerStep: CHUNK,
      ...options,
    });
    for (const job of before) await loop.run(job);
    const from = performance.now();
    for (const job of jobs) await loop.run(job);
    taken.push((performance.now() - from) / 1000);
    await loop.dispose();
  }
  return median(taken);
}

/** Milliseconds of a copy, and of a prompt token. A copy is made by the decode after it, which is timed with and without. */
async function copyCost(model: LlamaModel, contextSize: number): Promise<{ copy: number; token: number }> {
  const context = await model.createContext({
    sequences: 2,
    contextSize,
    batchSize: CHUNK + 2,
    threads: THREADS,
  });
  const decoder = await BatchDecoder.create(context, THREADS);
  const [plain, copying, prompts]: [number[], number[], number[]] = [[], [], []];
  for (let run = 0; run <= 3 * RUNS; run++) {
    await decoder.states.truncate(0, 0);
    let from = performance.now();
    await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: words(CHUNK) }]);
    prompts.push((performance.now() - from) / CHUNK);
    from = performance.now();
    await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: words(1) }]);
    plain.push(performance.now() - from);
    from = performance.now();
    await decoder.states.copy(1, 0);
    await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: words(1) }]);
    copying.push(performance.now() - from);
  }
  await context.dispose();
  return { copy: median(copying) - median(plain), token: median(prompts) };
}

/** Milliseconds of one question’s decode after the input: the fastest of some, since the others were disturbed. */
async function tailCost(model: LlamaModel, flashAttention: boolean): Promise<number> {
  const context = await model.createContext({
    sequences: 1,
    contextSize: CONTEXT,
    batchSize: INPUT,
    threads: THREADS,
    flashAttention,
  });
  const decoder = await BatchDecoder.create(context, THREADS);
  await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: words(INPUT) }]);
  const taken: number[] = [];
  for (let run = 0; run < 3 * RUNS; run++) {
    const from = performance.now();
    await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: words(TAIL) }]);
    taken.push(performance.now() - from);
    await decoder.states.truncate(0, INPUT);
  }
  await context.dispose();
  return Math.min(...taken);
}

const llama = await cpuLlama(THREADS);
const rows: Row[] = [];
const notes: string[] = [];
for (const [name, file] of [
  ['embedded', await endlessEmbedded()],
  ['13m, GPT-2 vocabulary', await random13m()],
] as const) {
  const model = await llama.loadModel({ modelPath: file });
  const single = ask(QUESTIONS).questions.map((question) => ({ ...ask(1), questions: [question] }));
  const together = ask(QUESTIONS, { scope: ALL_ACCOUNTS, isolate: false, seats: REPLIES });
  const add = (what: string, base: number, s: number): void => {
    rows.push({ model: name, what, seconds: s, 'times faster': base / s });
  };
  const oneByOne = await seconds(model, single, { prefixReuse: 'off' });
  add('10 questions, one request each, nothing reused', oneByOne, oneByOne);
  add('10 questions, one request each', oneByOne, await seconds(model, single));
  add('10 questions in one request', oneByOne, await seconds(model, [ask(QUESTIONS)], { prefixReuse: 'off' }));
  add('10 questions in one request, not isolated', oneByOne, await seconds(model, [together], { prefixReuse: 'off' }));
  add('10 questions in one request, their input held', oneByOne, await seconds(model, [ask(QUESTIONS)], {}, [ask(1)]));
  const inTurn = await seconds(model, [reply(1)]);
  add('8 replies in turn', inTurn, inTurn);
  add('8 replies, forked', inTurn, await seconds(model, [reply(REPLIES)]));
  for (const size of COPY_CONTEXTS) {
    const { copy, token } = await copyCost(model, size);
    notes.push(
      `${name}, ${size} tokens of context: ${copy.toFixed(2)} ms a copy, ${token.toFixed(3)} ms a prompt token, so a copy costs ${(copy / token).toFixed(0)} tokens.`,
    );
  }
  notes.push(
    `${name}: one question’s ${TAIL} tokens behind the input take ${(await tailCost(model, true)).toFixed(1)} ms with llama.cpp’s flash attention, which is what a chat model gets, and ${(await tailCost(model, false)).toFixed(1)} without, which is what a decision model gets on a CPU. There flash attention is quick from 64 tokens a decode on, and slow below that, the more so the narrower the heads (64 in embedded, 32 in 13m).`,
  );
  await model.dispose();
}

await keep('reuse', {
  title: 'What reuse saves',
  about: [
    `An input or prompt of ${INPUT} tokens, questions of ${TAIL}, replies of 32; prompts split at ${CHUNK}, ${REPLIES} seats of ${CONTEXT} tokens, ${THREADS} compute thread, in one process without messages or HTTP. Medians of ${RUNS}, each on a fresh context.`,
    'A copy of a sequence moves all that it could hold, whatever it holds (engine/scheduler/sequences.ts).',
  ],
  rows,
  conclusions: notes,
});
process.exit(0);
