/** Patterns, formats and lengths of strings in the tools of one request: written once, and given up before the request is refused. */
import t from 'tap';
import { callGrammar, callRules } from '../../../engine/grammar/calls.js';
import { MAX_GRAMMAR_CHARACTERS } from '../../../engine/grammar/gbnf.js';
import { replyRules } from '../../../engine/grammar/schema.js';
import { MAX_PATTERN_WORK, WorkBudget } from '../../../engine/grammar/work.js';
import type { CallSyntax } from '../../../engine/protocol/reply-format.js';
import { LOOSE_SYNTAXES, NESTED_SYNTAXES, TAGGED_SYNTAXES } from '../../support/call-syntaxes.js';
import { Gbnf } from '../../support/gbnf.js';

type Schema = Readonly<Record<string, unknown>>;

const SYNTAX = { mark: '<tool_call>', open: '<tool_call>{"name":"', between: '","arguments":', close: '}</tool_call>' };
const ONE_CALL = { single: true, answer: false };

const times = <T>(count: number, item: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => item(i));
const text = (keywords: Schema): Schema => ({ type: 'string', ...keywords });
const object = (properties: Schema): Schema => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});
const call = (args: unknown, name = 'tool_0'): string =>
  `<tool_call>{"name":"${name}","arguments":${JSON.stringify(args)}}</tool_call>`;

/** The rules of such tools, with the budget of their request. */
function compiled(
  tools: readonly Schema[],
  syntax: CallSyntax = SYNTAX,
  options: Parameters<typeof callRules>[2] = ONE_CALL,
  work = new WorkBudget(),
): { readonly gbnf: string; readonly work: WorkBudget } {
  work.weigh(tools);
  const functions = tools.map((parameters, i) => ({ name: `tool_${i}`, parameters }));
  const made = callRules(syntax, functions, options, work);
  if (made.kind === 'unservable') throw new Error(made.why);
  return { gbnf: made.gbnf, work };
}

const USUAL = {
  id: text({ format: 'uuid' }),
  at: text({ format: 'date-time' }),
  mail: text({ format: 'email' }),
  url: text({ format: 'uri' }),
  title: text({ maxLength: 255 }),
  label: text({ pattern: '^[^<>]{0,255}$' }),
};
const VALID = {
  id: '01234567-89ab-cdef-0123-456789abcdef',
  at: '2026-11-24T06:33:00Z',
  mail: 'ada@example.org',
  url: 'https://example.org/a',
  title: 'T',
  label: 'L',
};
const INVALID = { id: '1', at: 'now', mail: 'ada', url: 'a b', title: 'x'.repeat(256), label: '<' };

t.test('128 tools with formats, a pattern and a length', (t) => {
  const { gbnf } = compiled(times(128, () => object(USUAL)));
  t.ok(gbnf.length < MAX_GRAMMAR_CHARACTERS, `${gbnf.length} characters`);
  const grammar = new Gbnf(callGrammar(gbnf));
  for (const name of ['tool_0', 'tool_127']) {
    t.equal(grammar.reads(call(VALID, name)), 'whole', name);
    for (const [key, value] of Object.entries(INVALID))
      t.equal(grammar.reads(call({ ...VALID, [key]: value }, name)), 'no', `${name}: ${key}`);
  }
  const one = new Set(compiled([object(USUAL)]).gbnf.split('\n'));
  const texts = gbnf.split('\n').filter((line) => line.startsWith('text-'));
  t.ok(texts.length > 50 && texts.every((line) => one.has(line)), 'the rules of strings are those of one tool');
  t.end();
});

t.test('the same in every notation of arguments', (t) => {
  const syntaxes: Readonly<Record<string, CallSyntax>> = { ...TAGGED_SYNTAXES, ...NESTED_SYNTAXES, ...LOOSE_SYNTAXES };
  for (const [model, syntax] of Object.entries(syntaxes))
    t.doesNotThrow(
      () =>
        compiled(
          times(64, () => object(USUAL)),
          syntax,
        ),
      model,
    );
  t.end();
});

t.test('lengths for which there are no repetitions left are not enforced', (t) => {
  const lengths = times(200, (i) => 255 - i);
  const properties = Object.fromEntries(lengths.map((maxLength) => [`p${maxLength}`, text({ maxLength })]));
  const values = Object.fromEntries(lengths.map((length) => [`p${length}`, '']));
  const grammar = new Gbnf(callGrammar(compiled([object(properties)]).gbnf));
  const reads = (length: number): string => grammar.reads(call({ ...values, [`p${length}`]: 'x'.repeat(length + 1) }));
  t.equal(grammar.reads(call(values)), 'whole');
  t.same([reads(255), reads(60)], ['no', 'whole']);
  t.end();
});

/** Of some hundred states, which share nothing with those of others. */
const large = (i: number): Schema => text({ pattern: `^x${i}(?=.*[a-z])(?=.*[A-Z]).{0,48}$` });

t.test('patterns for which there is no room in the grammar are not enforced', (t) => {
  const free = (tool: Schema): number =>
    [...compiled([tool]).gbnf.matchAll(/^text-\d+ ::= json-char\* "\\""$/gm)].length;
  const patterns = Object.fromEntries(times(4, (i) => [`p${i}`, large(i)]));
  const values = { a: { const: 'a'.repeat(58_000) }, b: { const: 'b'.repeat(58_000) } };
  t.equal(free(object(patterns)), 0);
  t.equal(free(object({ ...values, ...patterns })), 3, 'there is room for the first one');
  t.end();
});

t.test('patterns for which there is no work left are not enforced', (t) => {
  const count = 40;
  const { gbnf, work } = compiled([object(Object.fromEntries(times(count, (i) => [`p${i}`, large(i)])))]);
  t.ok(work.patterns > 0.9 * MAX_PATTERN_WORK, `${work.patterns} steps`);
  const grammar = new Gbnf(callGrammar(gbnf));
  const values = Object.fromEntries(times(count, (i) => [`p${i}`, `x${i}aA`]));
  t.equal(grammar.reads(call(values)), 'whole');
  t.equal(grammar.reads(call({ ...values, p0: 'x' })), 'no');
  t.equal(grammar.reads(call({ ...values, [`p${count - 1}`]: 'x' })), 'whole');
  t.end();
});

t.test('a reply’s own schema and tools share rules, and their room', (t) => {
  const work = new WorkBudget();
  const both = (schema: Schema, tool: Schema): string => {
    const reply = replyRules(schema, work);
    if (reply.kind === 'unservable') throw new Error(reply.why);
    const { gbnf } = compiled([tool], SYNTAX, { ...ONE_CALL, beside: reply.part.rules }, work);
    return callGrammar(gbnf, { or: reply.part });
  };
  const schema = object({ id: text({ format: 'uuid' }), code: text({ pattern: '^[^<>]{3}$' }) });
  const gbnf = both(schema, object(USUAL));
  const constant = (length: number): Schema => ({ const: 'x'.repeat(length) });
  const givenUp = both(object({ p: large(0) }), object({ a: constant(55_000), b: constant(56_000), p: large(0) }));
  t.match(givenUp, /^text-\d+ ::= json-char\* "\\""$/m, 'there is no second room for it');
  for (const rules of [gbnf, givenUp]) {
    const names = rules.split('\n').map((line) => line.slice(0, line.indexOf(' ')));
    t.equal(new Set(names).size, names.length, 'each rule is there once');
  }
  const grammar = new Gbnf(gbnf);
  t.equal(grammar.reads(call(VALID)), 'whole');
  t.equal(grammar.reads(JSON.stringify({ id: VALID.id, code: 'abc' })), 'whole');
  t.equal(grammar.reads(JSON.stringify({ id: VALID.id, code: 'ab' })), 'no');
  const tool = object({ a: constant(64_000), b: constant(10_000) });
  t.throws(() => both(tool, tool), /too large/);
  t.end();
});
