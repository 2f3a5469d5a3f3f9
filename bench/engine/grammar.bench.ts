/**
 * The cost per token of constraining a reply by a grammar with a large vocabulary: each constrained token checks all of
 * it.
 */
import type { Token } from 'node-llama-cpp';
import { BatchDecoder } from '../../engine/llama/batch-decoder.js';
import { grammarText, grammarAfter } from '../../engine/grammar/gbnf.js';
import { dataGrammar } from '../../engine/grammar/notation.js';
import { schemaGrammar } from '../../engine/grammar/schema.js';
import { GrammarConstraint } from '../../engine/llama/grammar-constraint.js';
import { Grammars } from '../../engine/llama/grammars.js';
import { compileCalls } from '../../engine/prompt/call-format.js';
import { namedSyntax } from '../../engine/prompt/tool-use.js';
import type { ReplyGrammar } from '../../engine/protocol/reply-format.js';
import type { GenerateJob } from '../../engine/protocol/jobs.js';
import { StepLoop } from '../../engine/scheduler/step-loop.js';
import { random13m } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';
import { cpuLlama } from '../../test/support/llama.js';

const SEQUENCES = [1, 8];
/** The longest reply. Each sequence writes so many tokens, in one reply or several, until the time is taken. */
const TOKENS = 128;
const RUNS = 5;
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

/** The same tool with a location that is short enough that replies go on to the other parameters. */
const SHORT = { ...WEATHER, properties: { ...WEATHER.properties, location: { type: 'string', maxLength: 12 } } };

/** A whole call that must be made, in the format that an operator knows by this name. */
function callOf(format: string): ReplyGrammar {
  const syntax = namedSyntax(format);
  const tools = [{ type: 'function', function: { name: 'get_weather', parameters: SHORT } }];
  const made = syntax && compileCalls(syntax, tools, { required: true, parallel: false }, undefined);
  if (made?.kind !== 'ok' || made.grammar === undefined) throw new Error('unservable');
  return made.grammar;
}

const HELD: readonly (readonly [string, ReplyGrammar | undefined])[] = [
  ['unheld', undefined],
  ['free text before a marker', { gbnf: grammarAfter('</think>', dataGrammar) }],
  ['JSON mode', { gbnf: dataGrammar }],
  ['a tool of four parameters', grammarOf(WEATHER)],
  ['a tool of 200 optional parameters', grammarOf(WIDE)],
  ['a call of four parameters, as JSON (Qwen3)', callOf('hermes')],
  ['the same in tags (Qwen3-Coder)', callOf('qwen3-coder')],
  ['the same in tags (GLM)', callOf('glm')],
  ['the same in tags (DeepSeek-V3.2)', callOf('deepseek-v3.2')],
  ['the same in nested tags (MiniMax-M3)', callOf('minimax-m3')],
];

const llama = await cpuLlama(THREADS);
const model = await llama.loadModel({ modelPath: await random13m() });
const context = await model.createContext({
  sequences: LIMITS.seats,
  contextSize: LIMITS.contextPerSeat,
  batchSize: LIMITS.prefillTokensPerStep + LIMITS.seats,
  threads: THREADS,
});
const decoder = await BatchDecoder.create(context, THREADS);
const used = decoder;
const tokens = {
  isEnd: (token: number) => model.isEogToken(token as Token),
  // One character, to count tokens by.
  bytes: () => Uint8Array.of(0x78),
  control: () => undefined,
};

/** Milliseconds a token. A reply that ends is followed by another one, so that the batch is equally wide throughout. */
async function run(sequences: number, grammar: ReplyGrammar | undefined): Promise<number> {
  let made = 0;
  let perToken: number | undefined;
  const from = performance.now();
  await new Promise<void>((resolve, reject) => {
    let begun = 0;
    let running = 0;
    const begin = (): void => {
      running += 1;
      loop.generate(begun, job(begun, grammar));
      begun += 1;
    };
    const loop = new StepLoop(used, tokens, LIMITS, (_, outputs) => {
      for (const output of outputs) {
        if (output.kind === 'failed') reject(new Error(output.reason));
        if (output.kind === 'piece') made += output.text.length;
        if (output.kind !== 'done') continue;
        running -= 1;
        if (made < sequences * TOKENS) begin();
      }
      if (made >= sequences * TOKENS) perToken ??= (performance.now() - from) / made;
      if (running === 0) resolve();
    });
    while (running < sequences) begin();
  });
  return perToken ?? NaN;
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

/** Milliseconds until a reply’s first mask is made: by a grammar not seen before, by one that is kept. */
async function compiling(gbnf: string): Promise<[first: number, again: number]> {
  const times: (readonly [number, number])[] = [];
  for (let i = 0; i < 9; i++) {
    const grammars = await Grammars.of(model);
    const limitAfter = (): number => {
      const from = performance.now();
      const constraint = new GrammarConstraint(grammars);
      constraint.constrain(gbnf, []);
      constraint.limit();
      return performance.now() - from;
    };
    times.push([limitAfter(), limitAfter()]);
  }
  return [median(times.map(([first]) => first)), median(times.map(([, again]) => again))];
}

/** Milliseconds a token, by what holds a reply and by sequences: rounds of all of them, so that what else the machine does is in each. */
const times = HELD.map(() => SEQUENCES.map((): number[] => []));
for (let round = 0; round <= RUNS; round++) {
  for (const [i, [, grammar]] of HELD.entries()) {
    for (const [j, sequences] of SEQUENCES.entries()) {
      const ms = await run(sequences, grammar);
      if (round > 0) times[i]?.[j]?.push(ms);
    }
  }
}
const rows: Row[] = [];
for (const [i, [held, grammar]] of HELD.entries()) {
  const row: Record<string, number | string> = { held };
  for (const [j, sequences] of SEQUENCES.entries()) {
    const [own = [], free = []] = [times[i]?.[j], times[0]?.[j]];
    row[`${sequences} side by side, ms/token`] = median(own);
    row[`${sequences}, over unheld`] = median(own.map((ms, round) => ms / (free[round] ?? NaN)));
  }
  const [first, again] = grammar === undefined ? [0, 0] : await compiling(grammar.gbnf);
  rows.push({ ...row, 'compile, ms': first, 'again, ms': again });
}
await context.dispose();

await keep('grammar', {
  title: 'The cost of constraining a reply by a grammar',
  about: [
    `The 13m model with GPT-2’s vocabulary of 50,257 tokens and random weights, one compute thread, batch decoder; temperature 1; medians of ${RUNS} rounds after one to warm up, each with all rows, and of each round’s ratios. Milliseconds a token until ${TOKENS} tokens a sequence are sampled. A reply has at most as many; one whose grammar ends earlier is followed by another. The prefill of 16 tokens for each reply is included.`,
    'Where few characters may follow, the tokens that may come are known before one is sampled; elsewhere a token is sampled freely first, and once more if the grammar refuses it: within the decode if the mask is known. Masks are kept by the place in the grammar. While a step computes, the tokens of the one before are read. A tool of 200 optional parameters has more than 200 stacks: its masks come from a thread, and a reply sits out steps. Random weights want next to nothing that a grammar allows, so nearly every token needs a mask.',
    'The last rows are whole calls of the same tool, marks and name included, in the formats of the models in brackets; the location has at most 12 characters there, so that replies go on to the other parameters.',
    'Compile: until a reply’s first token can be picked by a grammar that was not seen before; again: by one that is kept.',
  ],
  rows,
});
process.exit(0);
