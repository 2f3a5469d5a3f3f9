import * as fc from 'fast-check';
import type { Token } from 'node-llama-cpp';
import t from 'tap';
import { BatchDecoder } from '../../../engine/llama/batch-decoder.js';
import { decodeOnce, type Sampler, type Sampling } from '../../../engine/scheduler/decoder.js';
import { grammarText, grammarAfter, MAX_GRAMMAR_CHARACTERS } from '../../../engine/grammar/gbnf.js';
import { dataGrammar } from '../../../engine/grammar/notation.js';
import { schemaGrammar } from '../../../engine/grammar/schema.js';
import { Gbnf, seeded } from '../../support/gbnf.js';
import { schemas } from '../../support/json-schemas.js';
import { testModel } from '../../support/models.js';
import { cpuLlama } from '../../support/llama.js';
import { rounds } from '../../support/long-form.js';

const GREEDY: Sampling = { temperature: 0, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed: 1, maxTokens: 400 };
const THREADS = 1;
/** Two texts that the model would not write by itself. */
const CHOICE = 'root ::= "{\\"verdict\\":" ("true" | "false") "}"';

const llama = await cpuLlama(THREADS);
const model = await llama.loadModel({ modelPath: await testModel() });

const CONTEXT = 512;
const context = await model.createContext({ sequences: 2, contextSize: CONTEXT, batchSize: 128, threads: THREADS });
const decoder = await BatchDecoder.create(context, THREADS);
t.teardown(async () => {
  await context.dispose();
  await llama.dispose();
});

const PROMPT = Uint32Array.from({ length: 20 }, (_, i) => 60 + ((i * 7) % 90));

/**
 * Tokens of one reply, to the end token or `count`; `before(i)` is called before token i. A fault ends it with its
 * reason. `past`: an end token does not.
 */
async function reply(
  sampling: Sampling,
  count: number,
  before: (sampler: Sampler, i: number) => void = () => undefined,
  past = false,
): Promise<(number | string)[]> {
  const sampler = decoder.sampler(sampling);
  await decoder.states.truncate(0, 0);
  const made: (number | string)[] = [];
  let tokens = PROMPT;
  while (made.length < count) {
    before(sampler, made.length);
    await sampler.pending;
    const [result] = await decodeOnce(decoder, [{ kind: 'sample', sequence: 0, tokens, sampler }]);
    if (result?.kind === 'token') made.push(result.token);
    if (result?.kind !== 'token') {
      made.push(result?.kind === 'fault' ? result.reason : 'nothing');
      break;
    }
    if (isEnd(result.token) && !past) break;
    tokens = Uint32Array.of(result.token);
  }
  sampler.dispose();
  return made;
}

const isEnd = (token: number | string | undefined): boolean =>
  typeof token === 'number' && model.isEogToken(token as Token);

/** Their text without the end token, decoded byte by byte. */
function textOf(tokens: readonly (number | string)[]): string {
  return model.detokenize(tokens.filter((token) => !isEnd(token)) as Token[], true);
}

const from = (gbnf: string) => (sampler: Sampler, i: number) => {
  if (i === 0) sampler.constrain(gbnf, []);
};

t.test('JSON mode: the reply is an object or the beginning of one', async (t) => {
  const grammar = new Gbnf(dataGrammar);
  const ended: string[] = [];
  for (const temperature of [0, 1, 2]) {
    for (const seed of [1, 2, 3]) {
      const tokens = await reply({ ...GREEDY, temperature, seed }, 150, from(dataGrammar));
      const text = textOf(tokens);
      const whole = isEnd(tokens.at(-1));
      t.equal(grammar.reads(text), whole ? 'whole' : 'begun', `temperature ${temperature}, seed ${seed}`);
      if (whole) ended.push(text);
    }
  }
  for (const text of ended) t.type(JSON.parse(text), 'object');
});

t.test('after a finished grammar the reply may only end', async (t) => {
  for (const sampling of [GREEDY, { ...GREEDY, temperature: 2 }, { ...GREEDY, frequencyPenalty: 2, temperature: 1 }]) {
    const tokens = await reply(sampling, 100, from(CHOICE));
    t.ok(isEnd(tokens.at(-1)));
    t.match(textOf(tokens), /^\{"verdict":(true|false)\}$/);
  }
});

t.test('a reply is constrained after a given text, and free before it', async (t) => {
  const plain = await reply(GREEDY, 30);
  // Made of whole tokens, and not at the reply’s beginning: after a part of a token the constraint would apply already.
  const marker = textOf(plain.slice(0, 3));
  const tokens = await reply(GREEDY, 100, from(grammarAfter(marker, CHOICE)));
  t.ok(isEnd(tokens.at(-1)));
  t.same(tokens.slice(0, 3), plain.slice(0, 3), 'the same as without a constraint');
  t.match(textOf(tokens.slice(3)), /^[ \n]{0,2}\{"verdict":(true|false)\}$/);
  const never = await reply(GREEDY, 30, from(grammarAfter('\u2028', CHOICE)));
  t.same(never, plain, 'and without that text it is not constrained');
});

t.test('a grammar reads what was sampled before', async (t) => {
  const plain = await reply(GREEDY, 40);
  const begun = textOf(plain.slice(0, 10));
  const grammar = (text: string): string => `root ::= ${JSON.stringify(text)} "!"`;
  for (const [what, text, holds] of [
    ['as a whole', begun, true],
    ['in part', begun.slice(0, -1), false],
    ['not at all', 'x', false],
  ] as const) {
    let held: boolean | undefined;
    const tokens = await reply(GREEDY, 40, (sampler, i) => {
      if (i === 10) held = sampler.constrain(grammar(text), plain.slice(0, 10) as number[]);
    });
    t.equal(held, holds, what);
    if (holds) t.same([textOf(tokens), isEnd(tokens.at(-1))], [`${begun}!`, true]);
    else t.same(tokens, plain, 'and the reply continues without it');
  }
  const sampler = decoder.sampler(GREEDY);
  const end = [...model.iterateAllTokens()].find(isEnd) ?? -1;
  t.equal(sampler.constrain('root ::= ""', [end]), false, 'an end token is no text');
  sampler.dispose();
});

t.test('a released reply is free, and may be constrained again', async (t) => {
  const plain = await reply(GREEDY, 20);
  const tokens = await reply(GREEDY, 20, (sampler, i) => {
    if (i === 0) sampler.constrain(CHOICE, []);
    if (i === 0) sampler.release();
    if (i === 15) sampler.constrain('root ::= "a"', []);
    if (i === 15) sampler.constrain('root ::= "b"', []);
  });
  t.same(tokens.slice(0, 15), plain.slice(0, 15));
  t.equal(textOf(tokens.slice(15)), 'b');
});

t.test('penalties count over the whole reply, constrained for a while or not', async (t) => {
  const anything = 'root ::= [^\\x00]*';
  const constrain = (sampler: Sampler, i: number): void => {
    if (i === 3) sampler.constrain(anything, []);
    if (i === 10) sampler.release();
  };
  for (const frequencyPenalty of [0.3, 1, -0.5]) {
    const penalized = { ...GREEDY, frequencyPenalty };
    const free = await reply(penalized, 40, undefined, true);
    t.same(await reply(penalized, 40, constrain, true), free, `penalized by ${frequencyPenalty}`);
    t.equal(free.length, 40);
  }
});

t.test('a constrained reply does not affect the next one', async (t) => {
  for (const sampling of [GREEDY, { ...GREEDY, temperature: 1 }, { ...GREEDY, frequencyPenalty: 1 }]) {
    const first = await reply(sampling, 20);
    const held = await reply(sampling, 20, from(CHOICE));
    t.same(await reply(sampling, 20), first);
    t.same(await reply(sampling, 20, from(CHOICE)), held, 'nor the next one with the same constraint');
  }
});

t.test('an invalid grammar fails its own reply only', async (t) => {
  for (const bad of [
    ...['', 'root ::= "a', 'root ::= x', 'other ::= "a"', 'root ::= root "a" | "b"', '\0'],
    `root ::= ${'('.repeat(20)}`,
    `root ::= ${'('.repeat(MAX_GRAMMAR_CHARACTERS / 2)}`,
    'root ::= "a"{5,2}',
    `root ::= "${'x'.repeat(2 * MAX_GRAMMAR_CHARACTERS)}"`,
    `a ::= "x"{0,2000}\nroot ::= ${'a{0,2000} '.repeat(2000)}`,
  ]) {
    const [token, reason, ...more] = await reply(GREEDY, 3, (sampler, i) => {
      if (i === 1) t.ok(sampler.constrain(bad, []));
    });
    const next = await reply(GREEDY, 3);
    t.same([token, more], [next[0], []], encodeURIComponent(bad.slice(0, 30)));
    t.match(reason, /^(GrammarError|the grammar takes too much work)$/);
    t.equal(next.length, 3);
  }
});

t.test('a constrained reply has no tokens without text', async (t) => {
  const control = [...model.iterateAllTokens()].find(
    (token) => model.getTokenAttributes(token).control && !isEnd(token),
  );
  const text = model.detokenize([control as Token], true);
  // Penalized more each time, the tokens that spell it become less likely than it in the end.
  const penalized = { ...GREEDY, frequencyPenalty: 2, presencePenalty: 2 };
  const times = 20;
  const tokens = await reply(penalized, 400, from(`root ::= ${JSON.stringify(text)}{${times}}`));
  t.equal(textOf(tokens), text.repeat(times));
  t.notOk(tokens.includes(control as number));
});

t.test('llama.cpp reads the grammars as the sidecar’s reader does', (t) => {
  const { _bindings: bindings } = llama as unknown as {
    _bindings: { AddonGrammar: new (gbnf: string, options: object) => { isTextCompatible(text: string): boolean } };
  };
  const open = (gbnf: string): { isTextCompatible(text: string): boolean } =>
    new bindings.AddonGrammar(gbnf, { addonExports: bindings, rootRuleName: 'root' });
  fc.assert(
    fc.property(schemas, fc.integer(), (schema, seed) => {
      const made = schemaGrammar(schema);
      fc.pre(made.kind === 'ok');
      const text = grammarText(made.rule, [made]);
      fc.pre(text.kind === 'ok');
      const [ours, theirs] = [new Gbnf(text.gbnf), open(text.gbnf)];
      const random = seeded(seed);
      for (let i = 0; i < 3; i++) {
        const written = ours.write(random);
        const cut = Math.floor(random() * written.length);
        const changed = `${written.slice(0, cut)}${'"x,}'.charAt(cut % 4)}${written.slice(cut + (i % 2))}`;
        if (!theirs.isTextCompatible(written)) throw new Error(written);
        if (theirs.isTextCompatible(changed) !== (ours.reads(changed) === 'whole')) throw new Error(changed);
      }
    }),
    { numRuns: rounds({ short: 15, long: 200 }) },
  );
  t.end();
});
