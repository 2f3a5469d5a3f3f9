/** Replies constrained by masks, as those with expensive grammars are, on real decoders. */
import type { Token } from 'node-llama-cpp';
import t from 'tap';
import { BatchDecoder } from '../../../engine/llama/batch-decoder.js';
import { GrammarConstraint } from '../../../engine/llama/grammar-constraint.js';
import { Grammars } from '../../../engine/llama/grammars.js';
import { decodeOnce, type Decoder, type Sampling } from '../../../engine/scheduler/decoder.js';
import { grammarText, grammarAfter } from '../../../engine/grammar/gbnf.js';
import { dataGrammar } from '../../../engine/grammar/notation.js';
import { schemaGrammar } from '../../../engine/grammar/schema.js';
import { testModel } from '../../support/models.js';
import { cpuLlama } from '../../support/llama.js';

const GREEDY: Sampling = { temperature: 0, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed: 1, maxTokens: 400 };
/** Expensive with any vocabulary. */
const MANY = 1e9;

const llama = await cpuLlama(1);
const model = await llama.loadModel({ modelPath: await testModel() });
t.teardown(() => llama.dispose());

async function withDecoder(script: (decoder: Decoder) => Promise<void>): Promise<void> {
  const context = await model.createContext({ sequences: 2, contextSize: 512, batchSize: 128, threads: 1 });
  await script(await BatchDecoder.create(context, 1));
  await context.dispose();
}

const PROMPT = Uint32Array.from({ length: 20 }, (_, i) => 60 + ((i * 7) % 90));
const isEnd = (token: number): boolean => model.isEogToken(token as Token);
const textOf = (tokens: readonly number[]): string =>
  model.detokenize(tokens.filter((token) => !isEnd(token)) as Token[], true);

interface Reply {
  readonly tokens: readonly number[];
  readonly fault?: string;
  /** Tokens that waited for their mask. */
  readonly waits: number;
}

/** A reply of at most `count` tokens, constrained by `gbnf` from its token `at` on. */
async function reply(
  decoder: Decoder,
  sampling: Sampling,
  gbnf: string,
  stacks: number,
  { count = 80, at = 0, read = [] as readonly number[] } = {},
): Promise<Reply> {
  const sampler = decoder.sampler(sampling);
  await decoder.states.truncate(0, 0);
  const made: number[] = [];
  let waits = 0;
  let fault: string | undefined;
  for (let tokens = PROMPT; made.length < count; tokens = Uint32Array.of(made.at(-1) ?? 0)) {
    if (made.length === at && !sampler.constrain(gbnf, read, stacks)) break;
    if (sampler.pending) waits += 1;
    await sampler.pending;
    const [result] = await decodeOnce(decoder, [{ kind: 'sample', sequence: 0, tokens, sampler }]);
    if (result?.kind === 'fault') fault = result.reason;
    if (result?.kind !== 'token') break;
    made.push(result.token);
    if (isEnd(result.token)) break;
  }
  sampler.dispose();
  return { tokens: made, waits, ...(fault !== undefined && { fault }) };
}

function grammarOf(schema: unknown): string {
  const made = schemaGrammar(schema);
  const text = made.kind === 'ok' ? grammarText(made.rule, [made]) : made;
  if (text.kind !== 'ok') throw new Error(text.why);
  return text.gbnf;
}

const SCHEMA = grammarOf({
  type: 'object',
  properties: {
    é: { enum: ['ja', 'jein'] },
    n: { type: 'integer' },
    all: { type: 'array', items: { type: 'boolean' } },
  },
  required: ['é', 'all'],
});

t.test('the most likely reply equals llama.cpp’s with the same grammar', async (t) => {
  await withDecoder(async (decoder) => {
    for (const gbnf of [dataGrammar, SCHEMA, grammarAfter('\u2028', SCHEMA)]) {
      const plain = await reply(decoder, GREEDY, gbnf, 1);
      const masked = await reply(decoder, GREEDY, gbnf, MANY);
      const again = await reply(decoder, GREEDY, gbnf, MANY);
      t.same([masked.tokens, again.tokens], [plain.tokens, plain.tokens]);
      t.equal(plain.waits, 0, 'no token waits within the step');
      t.ok(
        masked.waits >= again.waits && again.waits > 0,
        `${masked.waits} tokens waited for a mask, then ${again.waits}`,
      );
    }
  });
});

t.test('a reply that switches to masks in its middle has the same constraint', async (t) => {
  await withDecoder(async (decoder) => {
    const { tokens } = await reply(decoder, GREEDY, SCHEMA, 1);
    const constraint = new GrammarConstraint(await Grammars.of(model));
    t.ok(constraint.constrain(SCHEMA, []));
    for (const [i, token] of tokens.entries()) {
      await constraint.pending;
      t.equal(constraint.refused(token), undefined, `token ${i}`);
      constraint.read([token], i < 5 ? 0 : 100);
      constraint.relieve();
    }
    t.notOk(constraint.inline);
    constraint.release();
  });
});

t.test('a seed reproduces the reply, and the grammar allows it', async (t) => {
  await withDecoder(async (decoder) => {
    const texts = new Set<string>();
    for (const seed of [1, 2, 3, 4]) {
      for (const more of [{}, { topP: 0.9 }, { frequencyPenalty: 1 }]) {
        const sampling = { ...GREEDY, temperature: 2, seed, ...more };
        const [one, again] = [
          await reply(decoder, sampling, SCHEMA, MANY),
          await reply(decoder, sampling, SCHEMA, MANY),
        ];
        t.same(again.tokens, one.tokens);
        const text = textOf(one.tokens);
        texts.add(text);
        if (isEnd(one.tokens.at(-1) ?? -1)) t.match(JSON.parse(text), { é: /^(ja|jein)$/, all: Array });
      }
    }
    t.ok(texts.size > 4, 'and another seed gives another one');
  });
});

t.test('a seed draws the same tokens by masks and within the step', async (t) => {
  await withDecoder(async (decoder) => {
    for (const seed of [1, 2, 3, 4, 5, 6]) {
      for (const more of [{}, { topP: 0.9 }, { frequencyPenalty: 1 }]) {
        const sampling = { ...GREEDY, temperature: 2, seed, ...more };
        const { tokens } = await reply(decoder, sampling, SCHEMA, 1);
        t.same((await reply(decoder, sampling, SCHEMA, MANY)).tokens, tokens);
      }
    }
  });
});

t.test('a reply that cannot continue fails alone, and the next one is served', async (t) => {
  await withDecoder(async (decoder) => {
    const cases = { 'root ::= [': /cannot be used/, 'root ::= "ab" [\\x00-\\x00]': /no token goes on/ };
    for (const [gbnf, fault] of Object.entries(cases)) t.match((await reply(decoder, GREEDY, gbnf, MANY)).fault, fault);
    t.match(textOf((await reply(decoder, GREEDY, 'root ::= "ab"', MANY)).tokens), 'ab');
  });
});

t.test('a reply may be constrained from its middle, after existing text', async (t) => {
  await withDecoder(async (decoder) => {
    const { tokens } = await reply(decoder, GREEDY, 'root ::= .', 1, { count: 4, at: 9 });
    const read = tokens.slice(-2);
    const begun = textOf(tokens).slice(textOf(tokens.slice(0, -2)).length);
    const gbnf = `root ::= ${JSON.stringify(begun)} "!" [0-9] "!"`;
    const held = await reply(decoder, GREEDY, gbnf, MANY, { at: 4, read });
    t.same(held.tokens.slice(0, 4), tokens);
    t.match(textOf(held.tokens).slice(textOf(tokens).length), /^![0-9]!$/);
    const other = await reply(decoder, GREEDY, `root ::= "x" ${JSON.stringify(begun)}`, MANY, { at: 4, read });
    t.equal(other.tokens.length, 4, 'and not after other text');
  });
});
