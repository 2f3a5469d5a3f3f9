/**
 * The gaps between tokens of streams while replies beside them are constrained by tools: plain ones, and ones made to
 * be expensive.
 */
import type { Token } from 'node-llama-cpp';
import { BatchDecoder } from '../../engine/llama/batch-decoder.js';
import { grammarText } from '../../engine/grammar/gbnf.js';
import { schemaGrammar } from '../../engine/grammar/schema.js';
import type { ReplyGrammar } from '../../engine/protocol/reply-format.js';
import { gapsBeside } from '../../test/support/stream-gaps.js';
import { wideModel } from '../../test/support/wide-model.js';
import { keep, type Row } from '../support/results.js';
import { cpuLlama } from '../../test/support/llama.js';

const STREAMS = 8;
const HELD = [8, 33];
/** So many that each of the constrained replies gets several masks from the one thread meanwhile. */
const TOKENS = 240;
const THREADS = 1;
const ALTERNATIVES = 150;

function grammarOf(schema: unknown): ReplyGrammar {
  const made = schemaGrammar(schema);
  const text = made.kind === 'ok' ? grammarText(made.rule, [made]) : made;
  if (made.kind !== 'ok' || text.kind !== 'ok') throw new Error('unservable');
  return { gbnf: text.gbnf, stacks: made.stacks };
}

const arrays = (more: (i: number) => object): object => ({
  anyOf: Array.from({ length: ALTERNATIVES }, (_, i) => ({ type: 'array', ...more(i) })),
});
const plain = grammarOf({
  type: 'object',
  properties: { location: { type: 'string' }, unit: { enum: ['celsius', 'fahrenheit'] }, days: { type: 'integer' } },
  required: ['location'],
});
const CASES: readonly (readonly [string, ReplyGrammar])[] = [
  ['a plain tool', plain],
  [`${ALTERNATIVES} arrays, all equal`, grammarOf(arrays(() => ({})))],
  [`${ALTERNATIVES} arrays, all different`, grammarOf(arrays((i) => ({ maxItems: i + 1 })))],
  [
    '200 optional properties',
    grammarOf({
      type: 'object',
      properties: Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`property_${i}`, { type: 'string' }])),
    }),
  ],
];

const llama = await cpuLlama(THREADS);
const model = await llama.loadModel({ modelPath: await wideModel() });
const seats = STREAMS + Math.max(...HELD);
const context = await model.createContext({
  sequences: seats,
  contextSize: 512,
  batchSize: 256 + seats,
  threads: THREADS,
});
const decoder = await BatchDecoder.create(context, THREADS);
const isEnd = (token: number): boolean => model.isEogToken(token as Token);
const at = (gaps: readonly number[], share: number): number => gaps[Math.floor(share * gaps.length)] ?? NaN;

const rows: Row[] = [];
for (const held of HELD) {
  for (const [what, grammar] of CASES) {
    // Once to start the thread and to compile.
    await gapsBeside(decoder, isEnd, { streams: STREAMS, tokens: 8, held, grammar });
    const from = performance.now();
    const { gaps, heldTokens } = await gapsBeside(decoder, isEnd, { streams: STREAMS, tokens: TOKENS, held, grammar });
    rows.push({
      held,
      'their grammar': what,
      stacks: grammar.stacks ?? 1,
      'gap p50, ms': at(gaps, 0.5),
      'longest gap, ms': gaps.at(-1) ?? NaN,
      'held tokens/s': heldTokens / ((performance.now() - from) / 1000),
    });
  }
}
await context.dispose();

await keep('grammar-stall', {
  title: 'Gaps of streams beside replies that a grammar constrains',
  about: [
    `${STREAMS} free replies of ${TOKENS} tokens and as many held ones beside them as the row says, each followed by another when it ends; temperature 2, so that nearly every token is refused at first. Llama 3’s vocabulary of 128,256 tokens, two layers of random weights, one compute thread, batch decoder, prebuilt addon. Gaps between two steps of the free replies, each once.`,
    'Where stacks times vocabulary are 2.5 million or more, what may come is worked out on a thread of its own and the reply sits steps out; below that llama.cpp asks the grammar within the step.',
  ],
  rows,
});
process.exit(0);
