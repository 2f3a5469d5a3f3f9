/**
 * The cost per token of constraining a reply by a grammar with a large vocabulary: each constrained token checks all of
 * it.
 */
import { getLlama, LlamaLogLevel, type Token } from 'node-llama-cpp';
import { BatchDecoder } from '../../engine/llama/batch-decoder.js';
import { grammarText, heldBehind } from '../../engine/grammar/gbnf.js';
import { dataGrammar } from '../../engine/grammar/json.js';
import { schemaGrammar } from '../../engine/grammar/schema.js';
import { Grammars } from '../../engine/llama/grammars.js';
import type { ReplyGrammar } from '../../engine/protocol/reply-format.js';
import type { GenerateJob } from '../../engine/protocol/jobs.js';
import { StepLoop } from '../../engine/scheduler/step-loop.js';
import { random13m } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';

const SEQUENCES = [1, 8];
const TOKENS = 48;
const RUNS = 3;
const THREADS = 1;
const LIMITS = {
  seats: Math.max(...SEQUENCES),
  contextPerSeat: 256,
  prefillTokensPerStep: 512,
  prefillShare: 100,
  prefixReuse: 'off',
  origin: { weights: '', kv: 'f16' },
} as const;

const WEATHER = {
  type: 'object',
  properties: {
    location: { type: 'string', description: 'City and country' },
    unit: { type: 'string', enum: ['celsius', 'fahrenheit'] },
    days: { type: 'integer', minimum: 1, maximum: 14 },
    details: { type: 'array', items: { type: 'string', enum: ['wind', 'rain', 'sun'] } },
  },
  required: ['location'],
};
const WIDE = {
  type: 'object',
  properties: Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`property_${i}`, { type: 'string' }])),
};

function grammarOf(schema: unknown): ReplyGrammar {
  const made = schemaGrammar(schema);
  const text = made.kind === 'ok' ? grammarText(made.rule, [made]) : made;
  if (made.kind !== 'ok' || text.kind !== 'ok') throw new Error('unservable');
  return { gbnf: text.gbnf, stacks: made.stacks };
}

const HELD: readonly (readonly [string, ReplyGrammar | undefined])[] = [
  ['unheld', undefined],
  ['free text before a marker', { gbnf: heldBehind('</think>', dataGrammar) }],
  ['JSON mode', { gbnf: dataGrammar }],
  ['a tool of four parameters', grammarOf(WEATHER)],
  ['a tool of 200 optional parameters', grammarOf(WIDE)],
];

const llama = await getLlama({ gpu: false, build: 'never', logLevel: LlamaLogLevel.error, maxThreads: THREADS });
const model = await llama.loadModel({ modelPath: await random13m() });
const context = await model.createContext({
  sequences: LIMITS.seats,
  contextSize: LIMITS.contextPerSeat,
  batchSize: LIMITS.prefillTokensPerStep + LIMITS.seats,
  threads: THREADS,
});
const decoder = await BatchDecoder.over(context, THREADS);
if (!decoder) throw new Error('this version of node-llama-cpp is not the one that batch-decoder.ts knows');
const used = decoder;
const tokens = {
  isEnd: (token: number) => model.isEogToken(token as Token),
  bytes: () => new Uint8Array(),
  control: () => undefined,
};

/** Milliseconds a token, over replies that may end at different times. */
async function run(sequences: number, grammar: ReplyGrammar | undefined): Promise<number> {
  let made = 0;
  const from = performance.now();
  await new Promise<void>((resolve, reject) => {
    let running = sequences;
    const loop = new StepLoop(used, tokens, LIMITS, (_, outputs) => {
      for (const output of outputs) {
        if (output.kind === 'failed') reject(new Error(output.reason));
        if (output.kind === 'finished') made += output.completionTokens;
        if (output.kind === 'done') running -= 1;
      }
      if (running === 0) resolve();
    });
    for (let id = 0; id < sequences; id++) loop.generate(id, job(id, grammar));
  });
  return (performance.now() - from) / made;
}

function job(id: number, grammar: ReplyGrammar | undefined): GenerateJob {
  const prompt = Uint32Array.from({ length: 16 }, (_, i) => 60 + ((i * 7 + id) % 90));
  const sampling = { temperature: 1, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed: id };
  return {
    prompt: tokenPrompt(prompt),
    n: 1,
    seats: 1,
    maxTokens: TOKENS,
    stops: [],
    scope: ALL_ACCOUNTS,
    ...sampling,
    ...(grammar && { format: { grammar, markers: [] } }),
  };
}

/** Milliseconds until a reply can be constrained: by a grammar not seen before, by one that is kept. */
function compiling(gbnf: string): [first: number, again: number] {
  const times = Array.from({ length: 9 }, () => {
    const grammars = Grammars.of(model);
    const from = performance.now();
    grammars?.take(gbnf, []);
    const between = performance.now();
    grammars?.take(gbnf, []);
    return [between - from, performance.now() - between] as const;
  });
  return [median(times.map(([first]) => first)), median(times.map(([, again]) => again))];
}

const rows: Row[] = [];
for (const [held, grammar] of HELD) {
  const [first, again] = grammar === undefined ? [0, 0] : compiling(grammar.gbnf);
  const row: Record<string, number | string> = { held };
  for (const sequences of SEQUENCES) {
    const times: number[] = [];
    for (let i = 0; i <= RUNS; i++) times.push(await run(sequences, grammar));
    row[`${sequences} side by side, ms/token`] = median(times.slice(1));
  }
  rows.push({ ...row, 'compile, ms': first, 'again, ms': again });
}
await context.dispose();

await keep('grammar', {
  title: 'The cost of constraining a reply by a grammar',
  about: [
    `The 13m model with GPT-2’s vocabulary of 50,257 tokens and random weights, one compute thread, batch decoder; up to ${TOKENS} tokens a reply at temperature 1, fewer where the grammar is finished; medians of ${RUNS} runs after one to warm up. Milliseconds a token over all replies of a run, prefill of 16 tokens included.`,
    'Where few characters may follow, the tokens that may come are known before one is sampled; elsewhere a token is sampled freely first, and once more if the grammar refuses it. Masks are kept by the place in the grammar. A tool of 200 optional parameters has more than 200 stacks: its masks come from a thread, and a reply sits out steps. Random weights want next to nothing that a grammar allows, so nearly every token needs a mask.',
    'Compile: the first reply by a grammar, once; again: each later one, which copies the state that is kept.',
  ],
  rows,
});
process.exit(0);
