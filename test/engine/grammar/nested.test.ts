/** Arguments that are written as nested elements: held to their schema, and read as JSON. */
import { Ajv } from 'ajv';
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import { callGrammar, callRules, type CallRules } from '../../../engine/grammar/calls.js';
import { NESTED_SYNTAXES } from '../../support/call-syntaxes.js';
import { Gbnf } from '../../support/gbnf.js';
import { rounds } from '../../support/long-form.js';
import { readCalls, readsAllOf } from '../../support/read-calls.js';

const SYNTAX = NESTED_SYNTAXES['MiniMax-M3'];

const LOOK = {
  type: 'object',
  properties: {
    city: { type: 'string' },
    unit: { type: 'string', enum: ['celsius', 'fahrenheit', 'o\'clock "x" </unit>'] },
    days: { type: 'integer' },
    on: { type: 'boolean' },
    code: { type: 'string', minLength: 2, maxLength: 3 },
    note: { anyOf: [{ type: 'string', minLength: 1 }, { type: 'null' }] },
    mixed: { enum: ['a', 1, null, true] },
    pair: { type: 'array', prefixItems: [{ type: 'string' }, { type: 'integer' }], minItems: 1, maxItems: 2 },
    tags: { type: 'array', items: { type: 'string' }, minItems: 2, maxItems: 3 },
    rows: { type: 'array', items: { type: 'array', items: { type: 'number' } } },
    free: { type: 'object', additionalProperties: { type: 'integer' }, maxProperties: 3 },
    where: { $ref: '#/$defs/place' },
    either: { anyOf: [{ type: 'array', items: { type: 'boolean' } }, { $ref: '#/$defs/place' }, { type: 'integer' }] },
    any: {},
  },
  required: ['city', 'days'],
  additionalProperties: false,
  $defs: {
    place: {
      type: 'object',
      properties: { x: { type: 'number' }, next: { $ref: '#/$defs/place' }, all: { items: { $ref: '#/$defs/place' } } },
      required: ['x'],
      additionalProperties: false,
    },
  },
};
const FUNCTIONS = [
  { name: 'look', parameters: LOOK },
  { name: 'go', parameters: { type: 'object', properties: {}, additionalProperties: false } },
  { name: 'set', parameters: { type: 'object', additionalProperties: { type: 'string' } } },
];
const NAMES = FUNCTIONS.map(({ name }) => name);
const ajv = new Ajv({ strict: false });
const validate = new Map(FUNCTIONS.map(({ name, parameters }) => [name, ajv.compile(parameters)]));

function rulesOf(functions: readonly { name: string; parameters: unknown }[]): CallRules {
  return callRules(SYNTAX, functions, { single: false, answer: false });
}

const RULES = rulesOf(FUNCTIONS);
if (RULES.kind !== 'ok') throw new Error(RULES.why);
const { gbnf: rules, values = [] } = RULES;
const GRAMMAR = new Gbnf(callGrammar(rules));
const FORMAT = { syntax: SYNTAX, functions: NAMES, single: false, gbnf: '', values };

t.test('whatever the grammar allows is read as valid arguments, wherever it is cut', (t) => {
  readsAllOf(t, GRAMMAR, { format: FORMAT, validate, texts: rounds({ short: 40, long: 400 }) });
  t.end();
});

/** With the prefix in front of each tag, which is `~` here. */
function written(text: string): string {
  return text.replaceAll('~', ']<]minimax[>[');
}

t.test('what the model writes', (t) => {
  for (const [inner, calls] of [
    [
      '~<invoke name="look">~<city>Zü "x" < y\n </city>\n~</city>~<days>2~</days>~<tags>~<item>a~</item>~<item>b~</item>~</tags>~<where>~<x>1.5~</x>~</where>~</invoke>\n~<invoke name="go">~</invoke>\n',
      [
        ['look', { city: 'Zü "x" < y\n </city>\n', days: 2, tags: ['a', 'b'], where: { x: 1.5 } }],
        ['go', {}],
      ],
    ],
    [
      '~<invoke name="look">~<city>~</city>~<days>-3~</days>~<note>null~</note>~<free>~</free>~<any>~<a>1~</a>~<b>~<item>x~</item>~</b>~</any>~</invoke>\n',
      [['look', { city: '', days: -3, note: null, free: {}, any: { a: 1, b: ['x'] } }]],
    ],
    [
      '~<invoke name="look">~<city>1e3~</city>~<days>7~</days>~<either>~<item>true~</item>~</either>~</invoke>',
      [['look', { city: '1e3', days: 7, either: [true] }]],
    ],
    [
      '~<invoke name="look">\n  ~<city>x~</city>\n  ~<days>7~</days>\n  ~<either>\n  ~<x>1~</x>\n  ~</either>\n~</invoke>',
      [['look', { city: 'x', days: 7, either: { x: 1 } }]],
    ],
  ] as const) {
    const reply = written(`~<tool_call>\n${inner}~</tool_call>`);
    const text = `I look. ${reply}`;
    const hold = { begin: () => true, end: () => undefined };
    t.equal(GRAMMAR.reads(reply), 'whole', reply);
    for (let cut = 0; cut <= text.length; cut++) {
      const read = readCalls(FORMAT, [text.slice(0, cut), text.slice(cut)], hold);
      t.same(
        read.calls.map((call) => [call.name, JSON.parse(call.arguments) as unknown]),
        calls,
      );
      t.equal(read.content.trim(), 'I look.');
    }
  }
  t.end();
});

t.test('of several objects, the members before a value tell which one it belongs to', (t) => {
  const string = { type: 'string' };
  const integer = { type: 'integer' };
  const either = {
    type: 'object',
    anyOf: [
      { kind: { const: 'text' }, value: string },
      { kind: { const: 'count' }, value: integer },
      { kind: { const: 1 }, value: string },
      { kind: { const: true }, value: integer },
      { kind: { enum: ['both', 'texts'] }, value: string },
      { kind: { enum: ['both', 'flag'] }, value: { type: 'boolean' } },
      { at: string, value: integer },
      { at: { type: 'object', properties: { x: string } }, value: string },
      { pair: { type: 'array', prefixItems: [{ const: 'text' }, string], minItems: 2, maxItems: 2 } },
      { pair: { type: 'array', prefixItems: [{ const: 'count' }, integer], minItems: 2, maxItems: 2 } },
      { text: string, other: string },
      { count: integer, other: integer },
    ]
      .map((properties): object => ({ properties, required: Object.keys(properties) }))
      .concat([{ x: string }, { y: integer }].map((own) => ({ additionalProperties: { properties: own } }))),
  };
  const parameters = {
    type: 'object',
    properties: { items: { type: 'array', items: either } },
    required: ['items'],
    additionalProperties: false,
  };
  for (const [inner, value] of [
    ['~<kind>text~</kind>~<value>42~</value>', { kind: 'text', value: '42' }],
    ['~<kind>count~</kind>~<value>42~</value>', { kind: 'count', value: 42 }],
    ['~<kind>1~</kind>~<value>42~</value>', { kind: 1, value: '42' }],
    ['~<kind>true~</kind>~<value>42~</value>', { kind: true, value: 42 }],
    ['~<kind>both~</kind>~<value>42~</value>', { kind: 'both', value: '42' }],
    ['~<kind>both~</kind>~<value>true~</value>', { kind: 'both', value: true }],
    ['~<at>~<x>7~</x>~</at>~<value>42~</value>', { at: { x: '7' }, value: '42' }],
    ['~<at>~</at>~<value>42~</value>', { at: {}, value: '42' }],
    ['~<at>7~</at>~<value>42~</value>', { at: '7', value: 42 }],
    ['~<pair>~<item>text~</item>~<item>42~</item>~</pair>', { pair: ['text', '42'] }],
    ['~<pair>~<item>count~</item>~<item>42~</item>~</pair>', { pair: ['count', 42] }],
    ['~<text>7~</text>~<other>42~</other>', { text: '7', other: '42' }],
    ['~<count>7~</count>~<other>42~</other>', { count: 7, other: 42 }],
    ['~<any>~<x>42~</x>~</any>~<name>~<x>42~</x>~</name>', { any: { x: '42' }, name: { x: '42' } }],
  ] as const) {
    t.ok(ajv.validate(either, value), inner);
    const items = `~<items>~<item>${inner}~</item>~<item>~<kind>count~</kind>~<value>1~</value>~</item>~</items>`;
    for (const [schema, within, read] of [
      [either, inner, value],
      [parameters, items, { items: [value, { kind: 'count', value: 1 }] }],
    ] as const) {
      const made = rulesOf([{ name: 'set', parameters: schema }]);
      if (made.kind !== 'ok') throw new Error(made.why);
      const format = { syntax: SYNTAX, functions: ['set'], single: false, gbnf: '', values: made.values ?? [] };
      const reply = written(`~<tool_call>\n~<invoke name="set">${within}~</invoke>\n~</tool_call>`);
      t.equal(new Gbnf(callGrammar(made.gbnf)).reads(reply), 'whole', reply);
      const wrong = new Set<string>();
      for (let cut = 0; cut < reply.length; cut++) {
        const [call] = readCalls(format, [reply.slice(0, cut), reply.slice(cut)]).calls;
        const own: unknown = JSON.parse(call?.arguments ?? '');
        if (!isDeepStrictEqual(own, read)) wrong.add(JSON.stringify(own));
      }
      t.same([...wrong], [], `${JSON.stringify(read)}, wherever it is cut`);
    }
  }
  t.end();
});

t.test('white space before a value is read once', (t) => {
  // Read again with each character, it would take minutes.
  const city = `${' '.repeat(600_000)}x`;
  const reply = written(
    `~<tool_call>~<invoke name="look">~<city>${city}~</city>~<days>1~</days>~</invoke>~</tool_call>`,
  );
  const [call] = readCalls(FORMAT, [reply]).calls;
  t.same(JSON.parse(call?.arguments ?? ''), { city, days: 1 });
  t.end();
});

t.test('what the schema refuses', (t) => {
  for (const inner of [
    '~<city>a~</city>',
    '~<days>1~</days>~<city>a~</city>',
    '~<city>a~</city>~<days>1~</days>~<other>1~</other>',
    '~<city>a~</city>~<days>one~</days>',
    '~<city>a~</days>~<days>1~</days>',
    '~<city>a~<x>~</city>~<days>1~</days>',
    '~<city>a~</city>~<days>1~</days>~<tags>~<item>a~</item>~</tags>',
  ]) {
    t.equal(GRAMMAR.reads(written(`~<tool_call>~<invoke name="look">${inner}~</invoke>~</tool_call>`)), 'no', inner);
  }
  t.end();
});

t.test('what cannot be written', (t) => {
  const named = (name: string, parameters: object) => rulesOf([{ name, parameters }]);
  const object = (properties: object) => ({ type: 'object', properties });
  t.match(named('f', object({ 'a b': {} })), { kind: 'unservable', why: /cannot be written/, at: 0 });
  t.match(named('f', object({ '/a': {} })), { kind: 'unservable', why: /cannot be written/ });
  const items = { anyOf: [{ type: 'array' }, object({ item: {} })] };
  t.match(named('f', object({ list: items })), { kind: 'unservable', why: /cannot be written/ });
  t.match(named('f', { ...object({ a: false }), required: ['a'] }), { kind: 'unservable', why: /no value/ });
  const endless = { $ref: '#' };
  t.match(named('f', { ...object({ a: endless }), required: ['a'] }), { kind: 'unservable', why: /no value/ });
  t.match(rulesOf([...FUNCTIONS, ...FUNCTIONS]), { kind: 'unservable', why: /one name/ });
  t.match(named('f', object({ a: endless })), { kind: 'ok' });
  t.end();
});

t.test('text that no grammar constrained is read to its end', (t) => {
  for (const reply of [
    '~<tool_call>~<invoke name="look">~<x>~<y>~</z>~</x>~</invoke>~</tool_call>',
    '~<tool_call>~<invoke name="go">words',
    '~<tool_call>~<invoke name="go">~</nothing>',
    `~<tool_call>~<invoke name="go">~<${'x'.repeat(2000)}`,
    '~<tool_call>~<invoke name="look">~<days>~</days>~<days>~<x>1~</x>~</days>~</invoke>~</tool_call>',
  ]) {
    const { calls } = readCalls(FORMAT, Array.from(written(reply)), { begin: () => true, end: () => undefined });
    t.equal(calls.length, 1, reply);
  }
  const unknown = '~<tool_call>~<invoke name="look">~<x>~<item>a~</item>~<item>1~</item>~</x>~</invoke>~</tool_call>';
  const [call] = readCalls(FORMAT, [written(unknown)]).calls;
  t.equal(call?.arguments, '{"x": ["a", 1]}', 'a member that the schema does not have');
  t.end();
});
