/**
 * One caller’s expensive grammars do not delay another’s streams: compares the gaps between tokens beside tools whose
 * schemas have hundreds of alternatives with a common beginning, and beside an ordinary tool. If such a tool were
 * sampled in the step, the ratio would be 20 and more.
 */
import type { Token } from 'node-llama-cpp';
import t from 'tap';
import { BatchDecoder } from '../../../engine/llama/batch-decoder.js';
import { grammarText } from '../../../engine/grammar/gbnf.js';
import { schemaGrammar } from '../../../engine/grammar/schema.js';
import type { ReplyGrammar } from '../../../engine/protocol/reply-format.js';
import { gapsBeside } from '../../support/stream-gaps.js';
import { wideModel } from '../../support/wide-model.js';
import { cpuLlama } from '../../support/llama.js';

const STREAMS = 4;
const HELD = 4;
const TOKENS = 40;
/** 2 is the goal; the machine runs other work too. */
const RATIO = 5;
/** Pairs of runs, one after the other, whose median is compared. */
const PAIRS = 5;

const llama = await cpuLlama(1);
const model = await llama.loadModel({ modelPath: await wideModel() });
const seats = STREAMS + HELD;
const context = await model.createContext({ sequences: seats, contextSize: 512, batchSize: 256 + seats, threads: 1 });
t.teardown(() => llama.dispose());

function grammarOf(schema: unknown): ReplyGrammar {
  const made = schemaGrammar(schema);
  const text = made.kind === 'ok' ? grammarText(made.rule, [made]) : made;
  if (made.kind !== 'ok' || text.kind !== 'ok') throw new Error('unservable');
  return { gbnf: text.gbnf, stacks: made.stacks };
}

const arrays = (more: (i: number) => object): object => ({
  anyOf: Array.from({ length: 150 }, (_, i) => ({ type: 'array', ...more(i) })),
});
const HARMLESS = grammarOf({
  type: 'object',
  properties: { location: { type: 'string' }, unit: { enum: ['celsius', 'fahrenheit'] }, days: { type: 'integer' } },
  required: ['location'],
});
const HOSTILE = {
  'equal alternatives': grammarOf(arrays(() => ({}))),
  'alternatives that differ': grammarOf(arrays((i) => ({ maxItems: i + 1 }))),
};

t.test('streams beside expensive grammars have the same gaps as beside cheap ones', async (t) => {
  const decoder = await BatchDecoder.create(context, 1);
  const beside = async (grammar: ReplyGrammar): Promise<{ readonly high: number; readonly heldTokens: number }> => {
    const isEnd = (token: number): boolean => model.isEogToken(token as Token);
    const { gaps, heldTokens } = await gapsBeside(decoder, isEnd, {
      streams: STREAMS,
      tokens: TOKENS,
      held: HELD,
      grammar,
    });
    return { high: gaps[Math.floor(0.95 * gaps.length)] ?? NaN, heldTokens };
  };
  // The first of each starts what is started once.
  await beside(HARMLESS);
  await beside(HOSTILE['alternatives that differ']);
  for (const [what, grammar] of Object.entries(HOSTILE)) {
    const ratios: number[] = [];
    for (let i = 0; i < PAIRS; i++) {
      const harmless = await beside(HARMLESS);
      const hostile = await beside(grammar);
      ratios.push(hostile.high / harmless.high);
      t.ok(hostile.heldTokens > 0, 'they are served too');
    }
    const ratio = ratios.sort((one, other) => one - other)[(PAIRS - 1) / 2] ?? NaN;
    t.ok(ratio < RATIO, `${what}: the gaps are ${ratio.toFixed(2)} times those beside cheap ones`);
  }
});
