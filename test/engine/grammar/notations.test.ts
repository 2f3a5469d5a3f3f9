/**
 * Calls whose arguments are not JSON: as tags, nested elements, and in notations close to JSON. Each is held to all that its schema
 * says, also strings without quotes, and is read as JSON.
 */
import { Ajv } from 'ajv';
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import { callGrammar, callRules } from '../../../engine/grammar/calls.js';
import type { CallFormat, CallSyntax } from '../../../engine/protocol/reply-format.js';
import { LOOSE_SYNTAXES, NESTED_SYNTAXES, TAGGED_SYNTAXES } from '../../support/call-syntaxes.js';
import { Gbnf, seeded } from '../../support/gbnf.js';
import { rounds } from '../../support/long-form.js';
import { readCalls, readsAllOf } from '../../support/read-calls.js';

const SYNTAXES: Readonly<Record<string, CallSyntax>> = { ...TAGGED_SYNTAXES, ...NESTED_SYNTAXES, ...LOOSE_SYNTAXES };
const QWEN = TAGGED_SYNTAXES['Qwen3-Coder'];
const MINIMAX = NESTED_SYNTAXES['MiniMax-M3'];
const GEMMA = LOOSE_SYNTAXES['Gemma 4'];
const LFM = LOOSE_SYNTAXES.LFM2;

/** Marks that end strings in one of the notations or another. */
const ENDS = ['x </parameter> y', '</arg_value>', '</｜DSML｜parameter>', ']]></param>', '<|"|>', ']<]minimax[>[</a>'];

const LOOK = {
  type: 'object',
  properties: {
    city: { type: 'string' },
    unit: { type: 'string', enum: ['celsius', 'fahrenheit', 'cels', 'o\'clock "x" </unit>'] },
    days: { type: 'integer' },
    on: { type: 'boolean' },
    code: { type: 'string', minLength: 2, maxLength: 3 },
    note: { anyOf: [{ type: 'string', minLength: 1 }, { type: 'null' }] },
    at: { anyOf: [{ type: 'string' }, { type: 'array', items: { type: 'integer' } }] },
    mixed: { enum: ['a', 1, null, true, 'b c'] },
    pair: { type: 'array', prefixItems: [{ type: 'string' }, { type: 'integer' }], minItems: 1, maxItems: 2 },
    // Nothing may come second.
    single: { type: 'array', prefixItems: [{ type: 'string' }, false], minItems: 1 },
    tags: { type: 'array', items: { type: 'string' }, minItems: 2, maxItems: 3 },
    rows: { type: 'array', items: { type: 'array', items: { type: 'number' } } },
    free: { type: 'object', additionalProperties: { type: 'integer' }, maxProperties: 3 },
    where: { $ref: '#/$defs/place' },
    either: { anyOf: [{ type: 'array', items: { type: 'boolean' } }, { $ref: '#/$defs/place' }, { type: 'integer' }] },
    any: {},
    day: { type: 'string', format: 'date' },
    id: { type: 'string', pattern: '^[a-z]{2,4}$' },
    angle: { type: 'string', pattern: '<' },
    lines: { type: 'string', pattern: '^\\n?a\\n?$' },
    short: { type: 'string', enum: ['a', 'bb', 'ccc'], maxLength: 2 },
    digits: { enum: ['1', '2', 3, 'true', 'null'] },
    ends: { enum: ['ok', ...ENDS] },
    ref: {
      anyOf: [
        { type: 'string', pattern: '^\\d{2}$' },
        { type: 'integer', minimum: 100 },
      ],
    },
    map: {
      type: 'object',
      additionalProperties: { type: 'string', pattern: '^[ab]$' },
      minProperties: 1,
      maxProperties: 2,
    },
    list: {
      anyOf: [
        { type: 'string', pattern: '^.{3}$' },
        { type: 'array', items: { type: 'integer' }, maxItems: 2 },
      ],
    },
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
const FUNCTIONS: Parameters<typeof callRules>[1] = [
  { name: 'look', parameters: LOOK },
  { name: 'go', parameters: { type: 'object', properties: {}, additionalProperties: false } },
  { name: 'set', parameters: { type: 'object', additionalProperties: { type: 'string' } } },
];
const ajv = new Ajv({ strict: false, formats: { date: /^\d{4}-\d\d-\d\d$/ } });
const validate = new Map(FUNCTIONS.map(({ name, parameters }) => [name, ajv.compile(parameters as object)]));

interface Made {
  readonly gbnf: Gbnf;
  readonly format: CallFormat;
}

function made(syntax: CallSyntax, functions = FUNCTIONS, single = false): Made {
  const rules = callRules(syntax, functions, { single, answer: false });
  if (rules.kind !== 'ok') throw new Error(rules.why);
  const { gbnf, values } = rules;
  const format = { syntax, functions: functions.map(({ name }) => name), single, gbnf: '', ...(values && { values }) };
  return { gbnf: new Gbnf(callGrammar(gbnf)), format };
}

for (const [model, syntax] of Object.entries(SYNTAXES)) {
  t.test(`${model}: whatever the grammar allows is read as valid arguments, wherever it is cut`, (t) => {
    const { gbnf, format } = made(syntax);
    readsAllOf(t, gbnf, { format, validate, texts: rounds({ short: 15, long: 400 }) });
    t.end();
  });
}

/** With MiniMax's prefix in front of each tag, which is `~` here. */
function written(text: string): string {
  return text.replaceAll('~', ']<]minimax[>[');
}

const minimax = (inner: string): string => written(`~<tool_call>\n${inner}~</tool_call>`);

t.test('what models write', (t) => {
  const look = (args: object): [string, object] => ['look', args];
  for (const [syntax, reply, calls] of [
    [
      MINIMAX,
      minimax(
        '~<invoke name="look">~<city>Zü "x" < y\n </city>\n~</city>~<days>2~</days>~<tags>~<item>a~</item>~<item>b~</item>~</tags>~<where>~<x>1.5~</x>~</where>~</invoke>\n~<invoke name="go">~</invoke>\n',
      ),
      [look({ city: 'Zü "x" < y\n </city>\n', days: 2, tags: ['a', 'b'], where: { x: 1.5 } }), ['go', {}]],
    ],
    [
      MINIMAX,
      minimax(
        '~<invoke name="look">~<city>~</city>~<days>-3~</days>~<note>null~</note>~<free>~</free>~<any>~<a>1~</a>~<b>~<item>x~</item>~</b>~</any>~</invoke>\n',
      ),
      [look({ city: '', days: -3, note: null, free: {}, any: { a: 1, b: ['x'] } })],
    ],
    [
      MINIMAX,
      minimax(
        '~<invoke name="look">~<city>1e3~</city>~<days>7~</days>~<either>~<item>true~</item>~</either>~</invoke>',
      ),
      [look({ city: '1e3', days: 7, either: [true] })],
    ],
    [
      MINIMAX,
      minimax(
        '~<invoke name="look">\n  ~<city>x~</city>\n  ~<days>7~</days>\n  ~<either>\n  ~<x>1~</x>\n  ~</either>\n~</invoke>',
      ),
      [look({ city: 'x', days: 7, either: { x: 1 } })],
    ],
    [
      GEMMA,
      '<|tool_call>call:look{city:<|"|>Zü "x"\n<|"|>,days:2,tags:[<|"|>a<|"|>,<|"|>b<|"|>],where:{x:1.5}}<tool_call|><|tool_call>call:go{}<tool_call|>',
      [look({ city: 'Zü "x"\n', days: 2, tags: ['a', 'b'], where: { x: 1.5 } }), ['go', {}]],
    ],
    [
      LFM,
      `<|tool_call_start|>[look(city='it\\'s "so"', days=2, on=True, note=None, tags=["a", "b"]), go()]<|tool_call_end|>`,
      [look({ city: 'it\'s "so"', days: 2, on: true, note: null, tags: ['a', 'b'] }), ['go', {}]],
    ],
    [
      LFM,
      '<|tool_call_start|>[look(city="x\\n", days=-3, where={"x": 1, "next": {"x": 2}})]<|tool_call_end|>',
      [look({ city: 'x\n', days: -3, where: { x: 1, next: { x: 2 } } })],
    ],
  ] as const) {
    const text = `I look. ${reply}`;
    const { gbnf, format } = made(syntax);
    const hold = { begin: () => true, end: () => undefined };
    t.equal(gbnf.reads(reply), 'whole', reply);
    for (let cut = 0; cut <= text.length; cut++) {
      const read = readCalls(format, [text.slice(0, cut), text.slice(cut)], hold);
      t.same(
        read.calls.map((call) => [call.name, JSON.parse(call.arguments) as unknown]),
        calls,
      );
      t.equal(read.content.trim(), 'I look.');
    }
  }
  t.end();
});

function called(inner: string): string {
  return `<tool_call>\n<function=look>\n${inner}</function>\n</tool_call>`;
}

function parameter(name: string, value: string): string {
  return `<parameter=${name}>\n${value}\n</parameter>\n`;
}

t.test('arguments in the order of the schema, with and without optional ones, and no others', (t) => {
  const city = parameter('city', 'Zürich <b>\n"HB"');
  const days = parameter('days', '3');
  const gemma = (inner: string): string => `<|tool_call>call:look{${inner}}<tool_call|>`;
  const lfm = (inner: string): string => `<|tool_call_start|>[look(${inner})]<|tool_call_end|>`;
  const look = (inner: string): string => minimax(`~<invoke name="look">${inner}~</invoke>`);
  for (const [syntax, whole, no] of [
    [
      QWEN,
      [
        city + days,
        city + parameter('unit', 'cels') + days,
        ...[
          ['code', 'abc'],
          ['note', 'null'],
          ['at', '[1, 2]'],
          ['at', 'anywhere'],
          ['mixed', '1'],
          ['where', '{"x": 1, "next": {"x": 2}}'],
        ].map(([name = '', value = '']) => city + days + parameter(name, value)),
      ].map(called),
      [
        city,
        days + city,
        city + parameter('unit', 'kelvin') + days,
        city + parameter('days', 'three'),
        ...[
          ['code', 'abcd'],
          ['code', 'a'],
          ['at', '["a"]'],
          ['at', '\t["a"]'],
          ['mixed', 'c'],
          ['where', '{"next": {"x": 2}}'],
          ['other', '1'],
        ].map(([name = '', value = '']) => city + days + parameter(name, value)),
      ].map(called),
    ],
    [
      MINIMAX,
      ['~<city>a~</city>~<days>1~</days>'].map(look),
      [
        '~<city>a~</city>',
        '~<days>1~</days>~<city>a~</city>',
        '~<city>a~</city>~<days>1~</days>~<other>1~</other>',
        '~<city>a~</city>~<days>one~</days>',
        '~<city>a~</days>~<days>1~</days>',
        '~<city>a~<x>~</city>~<days>1~</days>',
        '~<city>a~</city>~<days>1~</days>~<tags>~<item>a~</item>~</tags>',
      ].map(look),
    ],
    [
      GEMMA,
      ['city:<|"|>a<|"|>,days:1'].map(gemma),
      ['city:<|"|>a<|"|>', 'days:1,city:<|"|>a<|"|>', 'city:<|"|>a<|"|>,days:1,other:1', 'city:a,days:1'].map(gemma),
    ],
    [
      LFM,
      ['city="a", days=1'].map(lfm),
      ['city="a"', 'city="a", days="1"', 'city="a", unit="kelvin", days=1', 'city=a, days=1'].map(lfm),
    ],
  ] as const) {
    const { gbnf } = made(syntax);
    for (const text of whole) t.equal(gbnf.reads(text), 'whole', text);
    for (const text of no) t.equal(gbnf.reads(text), 'no', text);
  }
  t.end();
});

t.test('schemas that cannot be written', (t) => {
  const object = (properties: object, more: object = {}): object => ({ type: 'object', properties, ...more });
  const endless = { $ref: '#' };
  for (const [syntax, parameters, why] of [
    [QWEN, object({ 'a>b': {} }), /name cannot be written/],
    [QWEN, object({ a: false }, { required: ['a'] }), /allows no value/],
    [QWEN, object({ a: false }), undefined],
    [QWEN, { type: 'string' }, /allows no value/],
    [GEMMA, object({ 'a b': {} }), /cannot be written/],
    [GEMMA, object({ a_b: {} }), undefined],
    [MINIMAX, object({ 'a b': {} }), /cannot be written/],
    [MINIMAX, object({ '/a': {} }), /cannot be written/],
    [MINIMAX, object({ list: { anyOf: [{ type: 'array' }, object({ item: {} })] } }), /cannot be written/],
    [MINIMAX, object({ a: false }, { required: ['a'] }), /no value/],
    [MINIMAX, object({ a: endless }, { required: ['a'] }), /no value/],
    [MINIMAX, object({ a: endless }), undefined],
  ] as const) {
    const rules = callRules(syntax, [{ name: 'f', parameters }], { single: true, answer: false });
    t.match(rules, why === undefined ? { kind: 'ok' } : { kind: 'unservable', why }, JSON.stringify(parameters));
  }
  const twice = callRules(MINIMAX, [...FUNCTIONS, ...FUNCTIONS], { single: false, answer: false });
  t.match(twice, { kind: 'unservable', why: /one name/ });
  t.end();
});

t.test('nested: of several objects, the members before a value tell which one it belongs to', (t) => {
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
      const { gbnf, format } = made(MINIMAX, [{ name: 'set', parameters: schema }]);
      const reply = written(`~<tool_call>\n~<invoke name="set">${within}~</invoke>\n~</tool_call>`);
      t.equal(gbnf.reads(reply), 'whole', reply);
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
  const [call] = readCalls(made(MINIMAX).format, [reply]).calls;
  t.same(JSON.parse(call?.arguments ?? ''), { city, days: 1 });
  t.end();
});

t.test('text that no grammar constrained is read to its end', (t) => {
  const { format } = made(MINIMAX);
  for (const reply of [
    '~<tool_call>~<invoke name="look">~<x>~<y>~</z>~</x>~</invoke>~</tool_call>',
    '~<tool_call>~<invoke name="go">words',
    '~<tool_call>~<invoke name="go">~</nothing>',
    `~<tool_call>~<invoke name="go">~<${'x'.repeat(2000)}`,
    '~<tool_call>~<invoke name="look">~<days>~</days>~<days>~<x>1~</x>~</days>~</invoke>~</tool_call>',
  ]) {
    const { calls } = readCalls(format, Array.from(written(reply)), { begin: () => true, end: () => undefined });
    t.equal(calls.length, 1, reply);
  }
  const unknown = '~<tool_call>~<invoke name="look">~<x>~<item>a~</item>~<item>1~</item>~</x>~</invoke>~</tool_call>';
  const [call] = readCalls(format, [written(unknown)]).calls;
  t.equal(call?.arguments, '{"x": ["a", 1]}', 'a member that the schema does not have');
  t.end();
});
t.test('a schema that allows one of several objects', (t) => {
  const either = ['a', 'b'].map((name) => ({
    type: 'object',
    properties: { [name]: { type: 'integer' } },
    required: [name],
  }));
  const { gbnf } = made(QWEN, [{ name: 'look', parameters: { anyOf: either } }]);
  t.equal(gbnf.reads(called(parameter('a', '1'))), 'whole');
  t.equal(gbnf.reads(called(parameter('b', '1'))), 'whole');
  t.equal(gbnf.reads(called('')), 'no');
  const never = { type: 'object', properties: { a: { type: 'integer' }, b: false }, required: ['b'] };
  const text = { type: 'object', properties: { a: { type: 'string' } } };
  const { format } = made(QWEN, [{ name: 'look', parameters: { anyOf: [never, text] } }]);
  const [[all, a] = []] = format.values ?? [];
  t.same([all?.objects, a], [[{ named: { a: 1 } }], { types: ['string'] }], 'an object that cannot be is no way');
  t.end();
});

t.test('a free map has arguments with any names, constrained and parsed by its schema', (t) => {
  const free = (more: object): Parameters<typeof callRules>[1] => [
    { name: 'look', parameters: { type: 'object', ...more } },
  ];
  const texts = made(QWEN, free({ additionalProperties: { type: 'string', maxLength: 9 }, maxProperties: 2 }));
  const two = called(parameter('a', '42') + parameter('b_2', 'true'));
  t.equal(texts.gbnf.reads(two), 'whole');
  t.equal(texts.gbnf.reads(called('')), 'whole');
  t.equal(texts.gbnf.reads(called(parameter('a', 'longer than nine'))), 'no');
  t.equal(texts.gbnf.reads(called(['a', 'b', 'c'].map((name) => parameter(name, '1')).join(''))), 'no', 'too many');
  const read = ({ format }: Made): unknown => JSON.parse(readCalls(format, Array.from(two)).calls[0]?.arguments ?? '');
  t.same(read(texts), { a: '42', b_2: 'true' }, 'texts that look like numbers and literals are texts');
  const numbers = made(QWEN, free({ additionalProperties: { type: ['integer', 'boolean'] } }));
  t.equal(numbers.gbnf.reads(two), 'whole');
  t.equal(numbers.gbnf.reads(called(parameter('a', 'x'))), 'no');
  t.same(read(numbers), { a: 42, b_2: true });
  t.equal(made(QWEN, free({})).gbnf.reads(two), 'whole', 'members are not mentioned');
  t.equal(made(QWEN, free({ properties: {} })).gbnf.reads(two), 'no', 'a tool without parameters');
  t.equal(made(QWEN, free({ properties: {}, additionalProperties: true })).gbnf.reads(two), 'whole');
  t.equal(made(QWEN, free({ additionalProperties: false })).gbnf.reads(two), 'no');
  t.end();
});
t.test('arguments of which there must be one at least', (t) => {
  const flag = { type: 'boolean' };
  const parameters = {
    type: 'object',
    properties: { a: flag, b: flag },
    minProperties: 1,
    additionalProperties: false,
  };
  for (const [model, syntax] of Object.entries(SYNTAXES)) {
    const { gbnf, format } = made(syntax, [{ name: 'look', parameters }], true);
    const random = seeded(1);
    const counts = Array.from({ length: 20 }, () => {
      const [call] = readCalls(format, [gbnf.write(random)]).calls;
      return Object.keys(JSON.parse(call?.arguments ?? '') as object).length;
    });
    t.same([...new Set(counts)].sort(), [1, 2], model);
  }
  t.end();
});

t.test('a pattern that many parameters have is written once', (t) => {
  const day = { type: 'string', format: 'date' };
  const of = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`day_${i}`, day] as const));
  for (const [model, syntax] of Object.entries(SYNTAXES)) {
    const sizes = [1, 40].map((count) => {
      const rules = callRules(syntax, [{ name: 'look', parameters: { type: 'object', properties: of(count) } }], {
        single: true,
        answer: false,
      });
      return rules.kind === 'ok' ? rules.gbnf.split('\n').filter((rule) => /\[0-9\]/.test(rule)).length : NaN;
    });
    t.equal(sizes[0], sizes[1], model);
  }
  t.end();
});
