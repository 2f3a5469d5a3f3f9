import t from 'tap';
import { callGrammar, callRules } from '../../../engine/grammar/calls.js';
import { anyObject } from '../../../engine/grammar/notation.js';
import { WRAPPED } from '../../../engine/prompt/call-syntax.js';
import type { CallSyntax } from '../../../engine/protocol/reply-format.js';
import { Gbnf } from '../../support/gbnf.js';

const HERMES: CallSyntax = {
  mark: '<tool_call>',
  open: '<tool_call>\n{"name": "',
  between: '", "arguments": ',
  next: '}\n</tool_call>\n<tool_call>\n{"name": "',
  close: '}\n</tool_call>',
};
const MISTRAL: CallSyntax = {
  mark: '[TOOL_CALLS]',
  open: '[TOOL_CALLS][{"name": "',
  between: '", "arguments": ',
  next: ', "id": "\0"}, {"name": "',
  close: ', "id": "\0"}]',
};
const FUNCTIONS = [
  {
    name: 'look',
    parameters: {
      type: 'object',
      properties: { at: { type: 'integer' } },
      required: ['at'],
      additionalProperties: false,
    },
  },
  { name: 'go', parameters: { type: 'object', properties: {}, additionalProperties: false } },
];

function rules(
  syntax: CallSyntax,
  options: Partial<Parameters<typeof callRules>[2]> = {},
  functions = FUNCTIONS,
): string {
  const made = callRules(syntax, functions, { single: false, answer: false, ...options });
  if (made.kind !== 'ok') throw new Error(made.why);
  return made.gbnf;
}

const LOOK = '<tool_call>\n{"name": "look", "arguments": {"at": 1}}\n</tool_call>';
const GO = '<tool_call>\n{"name": "go", "arguments": {}}\n</tool_call>';

function verdicts(t: Tap, gbnf: string, cases: Readonly<Record<string, 'whole' | 'begun' | 'no'>>): void {
  const grammar = new Gbnf(gbnf);
  for (const [text, verdict] of Object.entries(cases)) t.equal(grammar.reads(text), verdict, text);
}

type Tap = Pick<typeof t, 'equal'>;

t.test('calls as models write them, with valid arguments', (t) => {
  verdicts(t, callGrammar(rules(HERMES)), {
    [LOOK]: 'whole',
    [`${LOOK}\n${GO}`]: 'whole',
    [LOOK.replace(/\s/g, '')]: 'whole',
    [LOOK.slice(0, -1)]: 'begun',
    [`${LOOK} and`]: 'no',
    '': 'begun',
    'I call': 'no',
    '<tool_call>\n{"name": "loo"': 'no',
    '<tool_call>\n{"name": "look", "arguments": {}': 'no',
    '<tool_call>\n{"name": "go", "arguments": {"at"': 'no',
  });
  verdicts(t, callGrammar(rules(MISTRAL)), {
    '[TOOL_CALLS][{"name": "go", "arguments": {}, "id": "abc123xyz"}]': 'whole',
    '[TOOL_CALLS][{"name": "go", "arguments": {}, "id": "abc"}, {"name": "go", "arguments": {}, "id": "x"}]': 'whole',
    '[TOOL_CALLS][{"name": "go", "arguments": {}, "id": "a-b': 'no',
  });
  const llama = {
    mark: '',
    open: '{"name": "',
    alsoOpen: ['{"type": "function", "name": "'],
    between: '", "parameters": ',
  };
  verdicts(t, callGrammar(rules({ ...llama, close: '}' })), {
    '{"name": "go", "parameters": {}}': 'whole',
    '{"type": "function", "name": "go", "parameters": {}}': 'whole',
    '{"type": "name"': 'no',
  });
  t.end();
});

t.test('arguments are an object, whatever else the schema allows', (t) => {
  const properties = { at: { type: 'integer' } };
  for (const more of [{ nullable: true }, { type: ['object', 'null'] }]) {
    const parameters = { type: 'object', properties, ...more };
    verdicts(t, callGrammar(rules(HERMES, {}, [{ name: 'look', parameters }] as never)), {
      [LOOK]: 'whole',
      [LOOK.replace('{"at": 1}', 'null')]: 'no',
    });
  }
  t.end();
});

t.test('one call and no more', (t) => {
  const { mark, open, between, close } = HERMES;
  const alone = { mark, open, between, close };
  for (const gbnf of [rules(HERMES, { single: true }), rules(alone)]) {
    verdicts(t, callGrammar(gbnf), { [LOOK]: 'whole', [`${LOOK}\n`]: 'no' });
  }
  t.end();
});

t.test('white space at the end of a function’s name is kept', (t) => {
  const syntax = { mark: 'to=', open: ' to=', between: ' json<|message|>', alsoBetween: [' <|message|>'], close: '' };
  verdicts(t, callGrammar(rules(syntax, { single: true })), {
    ' to=look json<|message|>{"at": 1}': 'whole',
    'to=look<|message|>{"at": 1}': 'whole',
    'to=lookjson<|message|>{"at": 1}': 'no',
  });
  t.end();
});

t.test('what may follow instead of calls', (t) => {
  const call = '{"tool_calls": [{"name": "go", "arguments": {}}, {"name": "go", "arguments": {}}]}';
  const answer = '{"response": "a \\"b\\" \\u00e9"}';
  verdicts(t, callGrammar(rules(WRAPPED, { answer: true })), { [call]: 'whole', [answer]: 'whole', '{"x"': 'no' });
  verdicts(t, callGrammar(rules(WRAPPED)), { [call]: 'whole', [answer]: 'no' });
  const object = callGrammar(rules(HERMES), { or: anyObject });
  verdicts(t, object, { [LOOK]: 'whole', '{"any": [1]}': 'whole', '[1]': 'no', word: 'no' });
  t.end();
});

t.test('text that exists already comes first', (t) => {
  verdicts(t, callGrammar(rules(HERMES), { before: 'é".' }), { [`é".${LOOK}`]: 'whole', [LOOK]: 'no' });
  t.end();
});

t.test('schemas without a grammar', (t) => {
  const never = { name: 'f', parameters: { allOf: [{ type: 'string' }, { type: 'number' }] } };
  t.match(callRules(HERMES, [never], { single: true, answer: false }), { kind: 'unservable' });
  const alike = (depth: number): object =>
    depth === 0
      ? { type: 'null' }
      : { anyOf: [1, 2].map((minItems) => ({ type: 'array', minItems, items: alike(depth - 1) })) };
  const parameters = { type: 'object', properties: { a: alike(7) } };
  const named = (name: (i: number) => string) => Array.from({ length: 2 }, (_, i) => ({ name: name(i), parameters }));
  const twins = callRules(
    HERMES,
    named(() => 'f'),
    { single: true, answer: false },
  );
  t.match(twins, { kind: 'unservable', why: /own name/ });
  t.match(
    callRules(
      HERMES,
      named((i) => `f${i}`),
      { single: true, answer: false },
    ),
    { kind: 'ok' },
  );
  const properties = Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`${i}${'x'.repeat(200)}`, {}]));
  const large = Array.from({ length: 128 }, (_, i) => ({ name: `f${i}`, parameters: { type: 'object', properties } }));
  t.match(callRules(HERMES, large, { single: true, answer: false }), { kind: 'unservable', why: /too large/ });
  t.end();
});
