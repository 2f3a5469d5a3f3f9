import { Ajv } from 'ajv';
import t from 'tap';
import { callGrammar, callRules } from '../../../engine/grammar/calls.js';
import type { CallSyntax } from '../../../engine/protocol/reply-format.js';
import { TAGGED_SYNTAXES } from '../../support/call-syntaxes.js';
import { Gbnf } from '../../support/gbnf.js';
import { readCalls, readsAllOf } from '../../support/read-calls.js';
import { rounds } from '../../support/long-form.js';

const QWEN = TAGGED_SYNTAXES['Qwen3-Coder'];

const LOOK = {
  type: 'object',
  properties: {
    city: { type: 'string' },
    unit: { type: 'string', enum: ['celsius', 'fahrenheit', 'cels'] },
    days: { type: 'integer' },
    code: { type: 'string', minLength: 2, maxLength: 3 },
    note: { anyOf: [{ type: 'string', minLength: 1 }, { type: 'null' }] },
    at: { anyOf: [{ type: 'string' }, { type: 'array', items: { type: 'integer' } }] },
    mixed: { enum: ['a', 1, null, 'b c'] },
    where: { $ref: '#/$defs/place' },
  },
  required: ['city', 'days'],
  additionalProperties: false,
  $defs: {
    place: {
      type: 'object',
      properties: { x: { type: 'number' }, next: { $ref: '#/$defs/place' } },
      required: ['x'],
      additionalProperties: false,
    },
  },
};
const FUNCTIONS = [
  { name: 'look', parameters: LOOK },
  { name: 'go', parameters: { type: 'object', properties: {} } },
];

function grammar(syntax: CallSyntax, functions: Parameters<typeof callRules>[1] = FUNCTIONS) {
  const made = callRules(syntax, functions, { single: false, answer: false });
  if (made.kind !== 'ok') throw new Error(made.why);
  const { gbnf, values = [] } = made;
  return { gbnf: new Gbnf(callGrammar(gbnf)), values, stacks: made.stacks };
}

function called(inner: string): string {
  return `<tool_call>\n<function=look>\n${inner}</function>\n</tool_call>`;
}

function parameter(name: string, value: string): string {
  return `<parameter=${name}>\n${value}\n</parameter>\n`;
}

t.test('arguments in the order of the schema, with and without optional ones', (t) => {
  const { gbnf } = grammar(QWEN);
  const city = parameter('city', 'Zürich <b>\n"HB"');
  const days = parameter('days', '3');
  for (const [text, verdict] of [
    [called(city + days), 'whole'],
    [called(city + parameter('unit', 'cels') + days), 'whole'],
    [called(city + parameter('unit', 'kelvin') + days), 'no'],
    [called(city), 'no'],
    [called(days + city), 'no'],
    [called(city + parameter('days', 'three')), 'no'],
    [called(city + days + parameter('code', 'abc')), 'whole'],
    [called(city + days + parameter('code', 'abcd')), 'no'],
    [called(city + days + parameter('code', 'a')), 'no'],
    [called(city + days + parameter('note', 'null')), 'whole'],
    [called(city + days + parameter('at', '[1, 2]')), 'whole'],
    [called(city + days + parameter('at', '["a"]')), 'no'],
    [called(city + days + parameter('at', 'anywhere')), 'whole'],
    [called(city + days + parameter('at', '\t["a"]')), 'no'],
    [called(city + days + parameter('mixed', '1')), 'whole'],
    [called(city + days + parameter('mixed', 'c')), 'no'],
    [called(city + days + parameter('where', '{"x": 1, "next": {"x": 2}}')), 'whole'],
    [called(city + days + parameter('where', '{"next": {"x": 2}}')), 'no'],
    [called(city + days + parameter('other', '1')), 'no'],
  ] as const) {
    t.equal(gbnf.reads(text), verdict, text);
  }
  t.end();
});

const ajv = new Ajv({ strict: false });
const validate = new Map(FUNCTIONS.map(({ name, parameters }) => [name, ajv.compile(parameters)]));

for (const [model, syntax] of Object.entries(TAGGED_SYNTAXES)) {
  t.test(`${model}: everything that the grammar allows is parsed to valid arguments, wherever the text is cut`, (t) => {
    const { gbnf, values } = grammar(syntax);
    const format = { syntax, functions: ['look', 'go'], single: false, gbnf: '', values };
    readsAllOf(t, gbnf, { format, validate, texts: rounds({ short: 30, long: 100 }) });
    t.end();
  });
}

t.test('schemas that cannot be written so are refused', (t) => {
  const refused = (parameters: object): string | undefined => {
    const made = callRules(QWEN, [{ name: 'look', parameters }], { single: true, answer: false });
    return made.kind === 'unservable' ? made.why : undefined;
  };
  t.match(refused({ type: 'object', properties: { 'a>b': {} } }), /name cannot be written/);
  t.match(refused({ type: 'object', properties: { a: false }, required: ['a'] }), /allows no value/);
  t.equal(refused({ type: 'object', properties: { a: false } }), undefined, 'it never occurs');
  t.match(refused({ type: 'string' }), /allows no value/);
  t.end();
});

t.test('a schema that allows one of several objects', (t) => {
  const either = ['a', 'b'].map((name) => ({
    type: 'object',
    properties: { [name]: { type: 'integer' } },
    required: [name],
  }));
  const { gbnf } = grammar(QWEN, [{ name: 'look', parameters: { anyOf: either } }]);
  t.equal(gbnf.reads(called(parameter('a', '1'))), 'whole');
  t.equal(gbnf.reads(called(parameter('b', '1'))), 'whole');
  t.equal(gbnf.reads(called('')), 'no');
  const never = { type: 'object', properties: { a: { type: 'integer' }, b: false }, required: ['b'] };
  const text = { type: 'object', properties: { a: { type: 'string' } } };
  const { values } = grammar(QWEN, [{ name: 'look', parameters: { anyOf: [never, text] } }]);
  const [[all, a] = []] = values;
  t.same([all?.objects, a], [[{ named: { a: 1 } }], { types: ['string'] }], 'an object that cannot be is no way');
  t.end();
});

t.test('a free map has arguments with any names, constrained and parsed by its schema', (t) => {
  const free = (more: object): Parameters<typeof callRules>[1] => [
    { name: 'look', parameters: { type: 'object', ...more } },
  ];
  const texts = grammar(QWEN, free({ additionalProperties: { type: 'string', maxLength: 9 }, maxProperties: 2 }));
  const two = called(parameter('a', '42') + parameter('b_2', 'true'));
  t.equal(texts.gbnf.reads(two), 'whole');
  t.equal(texts.gbnf.reads(called('')), 'whole');
  t.equal(texts.gbnf.reads(called(parameter('a', 'longer than nine'))), 'no');
  t.equal(texts.gbnf.reads(called(['a', 'b', 'c'].map((name) => parameter(name, '1')).join(''))), 'no', 'too many');
  const read = (made: ReturnType<typeof grammar>): unknown => {
    const format = { syntax: QWEN, functions: ['look'], single: false, gbnf: '', values: made.values };
    return JSON.parse(readCalls(format, Array.from(two)).calls[0]?.arguments ?? '');
  };
  t.same(read(texts), { a: '42', b_2: 'true' }, 'texts that look like numbers and literals are texts');
  const numbers = grammar(QWEN, free({ additionalProperties: { type: ['integer', 'boolean'] } }));
  t.equal(numbers.gbnf.reads(two), 'whole');
  t.equal(numbers.gbnf.reads(called(parameter('a', 'x'))), 'no');
  t.same(read(numbers), { a: 42, b_2: true });
  t.equal(grammar(QWEN, free({})).gbnf.reads(two), 'whole', 'members are not mentioned');
  t.equal(grammar(QWEN, free({ properties: {} })).gbnf.reads(two), 'no', 'a tool without parameters');
  t.equal(grammar(QWEN, free({ properties: {}, additionalProperties: true })).gbnf.reads(two), 'whole');
  t.equal(grammar(QWEN, free({ additionalProperties: false })).gbnf.reads(two), 'no');
  t.end();
});
