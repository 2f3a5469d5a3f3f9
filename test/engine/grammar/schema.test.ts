import { Ajv } from 'ajv';
import * as fc from 'fast-check';
import t from 'tap';
import { grammarText } from '../../../engine/grammar/gbnf.js';
import { MAX_COUNTED } from '../../../engine/grammar/scalar-rules.js';
import { schemaGrammar } from '../../../engine/grammar/schema.js';
import { MAX_VALUES } from '../../../engine/grammar/choice.js';
import { MAX_STACKS, TEXT_STACKS } from '../../../engine/grammar/stacks.js';
import { Gbnf, seeded } from '../../support/gbnf.js';
import { schemas, valueOf, type TestSchema } from '../../support/json-schemas.js';
import { rounds } from '../../support/long-form.js';

const ajv = new Ajv({ strict: false });

function grammarOf(schema: unknown): Gbnf | undefined {
  const made = schemaGrammar(schema);
  if (made.kind === 'unservable') return undefined;
  const text = grammarText(made.rule, [made]);
  return text.kind === 'ok' ? new Gbnf(text.gbnf) : undefined;
}

const object = (properties: object, rest: object = {}): object => ({ type: 'object', properties, ...rest });
const NODE = object({ value: { type: 'integer' }, next: { $ref: '#/$defs/node' } }, { required: ['value'] });

/** [name, schema, texts it allows, texts it does not]. */
const CASES: readonly (readonly [string, unknown, readonly string[], readonly string[]])[] = [
  ['anything', {}, ['1', '{"a":[null]}', '"x"', 'true'], ['', 'x', '1 ']],
  ['anything, said otherwise', true, ['{}'], ['x']],
  ['anything described', { description: 'any', title: 'x' }, ['1', '[]'], []],
  ['string', { type: 'string' }, ['""', '"é\\n\\u00e9"'], ['1', '"\n"', 'null']],
  ['integer', { type: 'integer' }, ['0', '-12', '3'], ['1.0', '01', '1e3', '"1"']],
  ['number', { type: 'number' }, ['0', '-1.5e-3', '10'], ['.5', '--1', 'NaN']],
  ['boolean, null', { type: ['boolean', 'null'] }, ['true', 'false', 'null'], ['0', '"true"']],
  ['enum', { enum: ['a"b\n', 'é', 1, null, '\ud83c'] }, ['"a\\"b\\n"', '"é"', '1', 'null', '"\\ud83c"'], ['"a"', '2']],
  [
    'an enum whose values begin alike',
    { enum: ['a', 'ab', 'abc', '🎉', '🎊', '', 1, 12, 1.5, true] },
    ['"a"', '"ab"', '"abc"', '"🎉"', '"🎊"', '""', '1', '12', '1.5', 'true'],
    ['"abcd"', '"b"', '"', '1.', '2', '"🎉🎊"'],
  ],
  ['enum of a type', { type: 'string', enum: ['1', 1] }, ['"1"'], ['1']],
  ['enum of a length', { enum: ['a', 'bb', '🎉'], maxLength: 1 }, ['"a"', '"🎉"'], ['"bb"']],
  ['const', { const: { a: [1] } }, ['{"a":[1]}'], ['{"a": [1]}', '{}']],
  ['lengths', { type: 'string', minLength: 1, maxLength: 3 }, ['"a"', '"🎉\\n\\ud83c\\udf89"'], ['""', '"aaaa"']],
  ['a least length', { type: 'string', minLength: 2 }, ['"ab"', `"${'a'.repeat(600)}"`], ['"a"']],
  ['a long length', { type: 'string', maxLength: 1000 }, [`"${'a'.repeat(1001)}"`], []],
  [
    'pattern, and a format that is not known',
    { type: 'string', pattern: '^[a"\\n]+$', format: 'x' },
    ['"a"', '"\\"\\na"'],
    ['1', '"b"', '""', '"\\u0061"'],
  ],
  ['a pattern anywhere', { type: 'string', pattern: 'b' }, ['"abc\\u0000"', '"b"'], ['"a"', '""']],
  ['an enum of a pattern', { enum: ['a', 'b', 1], pattern: '^a$' }, ['"a"', '1'], ['"b"']],
  [
    'an enum of a format, whose grammar has the usual forms alone',
    { type: 'string', format: 'uri-reference', enum: ['/docs', '/blog'] },
    ['"/docs"', '"/blog"'],
    ['"/other"'],
  ],
  ['nothing', object({ a: { not: {} } }), ['{}', '{"b":1}'], ['{"a":1}']],
  [
    'names by pattern',
    {
      ...object({ 'x-a': {}, b: { type: 'null' } }),
      patternProperties: { '^x-': { type: 'integer' } },
      additionalProperties: { type: 'boolean' },
    },
    ['{"x-a":1,"b":null,"x-b":2,"c":true}', '{"x-":1}', '{"c":false}'],
    ['{"x-a":""}', '{"x-b":""}', '{"c":1}', '{"x-b":true}'],
  ],
  [
    'names of an enum',
    { type: 'object', propertyNames: { enum: ['a', 'b'] }, additionalProperties: { type: 'integer' } },
    ['{"a":1,"b":2}', '{}'],
    ['{"c":1}', '{"a":""}'],
  ],
  [
    'names of a length and a pattern',
    { type: 'object', propertyNames: { minLength: 2, pattern: '^[a-z]+$' } },
    ['{"ab":1}'],
    ['{"a":1}', '{"A":1}', '{"aB":1}'],
  ],
  [
    'numbers of properties',
    { type: 'object', minProperties: 1, maxProperties: 2 },
    ['{"a":1}', '{"a":1,"b":2}'],
    ['{}', '{"a":1,"b":2,"c":3}'],
  ],
  [
    'at least one property, some of them declared',
    object({ a: {}, b: {} }, { minProperties: 1, additionalProperties: false }),
    ['{"a":1}', '{"b":1}'],
    ['{}'],
  ],
  ['references by $id', { $id: 'T', ...object({ a: { $ref: 'T' } }) }, ['{"a":{"a":{}}}'], ['{"a":1}']],
  ['array', { type: 'array', items: { type: 'integer' } }, ['[]', '[1]', '[1,2, 3\n]'], ['[1,]', '["a"]', '[,1]']],
  ['any array', { type: 'array' }, ['[]', '[{},1]'], ['{}']],
  ['array by its items', { items: { type: 'null' } }, ['[null]'], ['1', '[1]']],
  ['items', { type: 'array', minItems: 1, maxItems: 2 }, ['[1]', '[1,2]'], ['[]', '[1,2,3]']],
  ['one item', { type: 'array', maxItems: 1 }, ['[1]', '[]'], ['[1,2]']],
  ['no items', { type: 'array', maxItems: 0 }, ['[]', '[ ]'], ['[1]']],
  ['no possible item', { type: 'array', items: false }, ['[]'], ['[1]']],
  [
    'a prefix',
    { prefixItems: [{ type: 'string' }, { type: 'integer' }], items: { type: 'null' }, minItems: 1, maxItems: 4 },
    ['["a"]', '["a",1]', '["a",1,null]', '["a",1,null,null]'],
    ['[]', '[1]', '["a","b"]', '["a",1,null,null,null]'],
  ],
  ['a prefix and no more', { prefixItems: [{}], items: false }, ['[]', '[1]'], ['[1,2]']],
  ['a prefix cut', { prefixItems: [{}, {}, {}], maxItems: 2, minItems: 2 }, ['[1,2]'], ['[1]', '[1,2,3]']],
  [
    'object in order, optional or not',
    object({ a: { type: 'integer' }, b: { type: 'string' }, c: {} }, { required: ['b'], additionalProperties: false }),
    ['{"b":""}', '{"a":1,"b":""}', '{"b":"","c":[]}', '{\n  "a": 1,\n  "b": "",\n  "c": null\n}'],
    ['{}', '{"a":1}', '{"b":1}', '{"b":"","a":1}', '{"b":"","d":1}', '{"b":"","b":""}', '{"b":"",}', '{,"b":""}'],
  ],
  [
    'all optional',
    object({ a: {}, b: {} }, { additionalProperties: false }),
    ['{}', '{ }', '{"a":1}', '{"b":1}', '{"a":1,"b":2}'],
    ['{"b":1,"a":2}', '{"a":1 "b":2}'],
  ],
  [
    'other names by default, and no declared name twice or spelled differently',
    object({ ab: { type: 'integer' }, abc: { type: 'integer' } }),
    ['{"ab":1,"x":[]}', '{"x":1}', '{"a":1,"abcd":2,"":3,"b":4}', '{"ab":1,"abc":2,"é":1}'],
    ['{"ab":""}', '{"x":1,"ab":1}', '{"x":1,"ab":""}', '{"abc":""}', '{"\\u0061b":""}', '{"x":1,}'],
  ],
  [
    'other properties with a schema',
    object({ a: {} }, { additionalProperties: { type: 'integer' } }),
    ['{"b":1,"c":2}', '{"a":"","b":1}'],
    ['{"b":""}'],
  ],
  ['a map', { type: 'object', additionalProperties: { type: 'null' } }, ['{}', '{"a":null,"\\n":null}'], ['{"a":1}']],
  ['any object', { type: 'object' }, ['{}', '{"a":{}}'], ['[]']],
  ['required and not declared', object({}, { required: ['a'] }), ['{"a":1}', '{"a":1,"b":2}'], ['{}', '{"b":2}']],
  [
    'odd names',
    object({ 'a"\n\ud83c': {}, '🎉': {} }, { additionalProperties: false }),
    ['{"a\\"\\n\\ud83c":1,"🎉":1}'],
    [],
  ],
  ['a property that cannot exist', object({ a: false, b: {} }), ['{"b":1}', '{}'], ['{"a":1}', '{"b":1,"a":1}']],
  [
    'anyOf',
    { anyOf: [{ type: 'string' }, { type: 'array', items: { type: 'null' } }] },
    ['""', '[null]'],
    ['1', '[1]'],
  ],
  ['oneOf', { oneOf: [{ const: 'a' }, { const: 'b' }] }, ['"a"', '"b"'], ['"c"']],
  [
    'anyOf beside properties',
    { ...object({ a: {}, b: {} }, { additionalProperties: false }), anyOf: [{ required: ['a'] }, { required: ['b'] }] },
    ['{"a":1}', '{"b":1}', '{"a":1,"b":1}'],
    ['{}'],
  ],
  [
    'allOf',
    { allOf: [object({ a: { type: 'number' } }, { required: ['a'] }), object({ a: { type: 'integer' }, b: {} })] },
    ['{"a":1,"b":2}', '{"a":1}'],
    ['{"a":1.5}', '{"b":1}'],
  ],
  [
    'allOf that closes',
    { allOf: [object({ a: {} }, { additionalProperties: false }), object({ b: {} })] },
    ['{"a":1}', '{}'],
    ['{"b":1}', '{"c":1}'],
  ],
  [
    'types in common',
    { allOf: [{ type: ['integer', 'string'] }, { type: ['number', 'null'] }] },
    ['1'],
    ['1.5', '""', 'null'],
  ],
  ['values in common', { allOf: [{ enum: [1, 2] }, { enum: [2, 3] }] }, ['2'], ['1', '3']],
  [
    'a reference to any place',
    object({ a: { type: 'integer' }, b: { $ref: '#/properties/a' }, c: { $ref: '#/anyOf/0' } }, { anyOf: [{}] }),
    ['{"a":1,"b":2}'],
    ['{"b":"x"}'],
  ],
  [
    'items of draft 4',
    { type: 'array', items: [{ type: 'null' }], additionalItems: false },
    ['[null]', '[]'],
    ['[1]', '[null,1]'],
  ],
  ['null as OpenAPI writes it', { type: 'string', nullable: true }, ['null', '"a"'], ['1']],
  [
    'properties by pattern',
    { type: 'object', patternProperties: { '^x': { type: 'integer' } }, additionalProperties: false },
    ['{}', '{"x":1}'],
    ['{"x":"a"}'],
  ],
  [
    'a declared name that the names exclude',
    object({ a: { type: 'integer' }, b: {} }, { propertyNames: { enum: ['b', 'c'] } }),
    ['{"b":1}', '{"c":1}', '{}'],
    ['{"a":1}'],
  ],
  [
    'patterns of names beside a pattern of all names',
    object({}, { patternProperties: { '^x-': { type: 'string' } }, propertyNames: { pattern: '^[a-z-]+$' } }),
    ['{"x-a":""}', '{"a":1}'],
    ['{"x-a":1}', '{"x-A":""}', '{"A":1}'],
  ],
  [
    'patterns of names beside a list of all names',
    object({}, { patternProperties: { '^x-': { type: 'string' } }, propertyNames: { enum: ['x-a', 'b'] } }),
    ['{"x-a":""}', '{"b":1}'],
    ['{"x-a":1}', '{"x-b":""}'],
  ],
  [
    'patterns of names beside a list of all names, and no others',
    {
      type: 'object',
      patternProperties: { '^x': { type: 'integer' } },
      additionalProperties: false,
      propertyNames: { enum: ['x1', 'y'] },
    },
    ['{"x1":1}', '{}'],
    ['{"y":1}', '{"x1":""}'],
  ],
  [
    'an enum of arrays, beside counts and items',
    { type: 'array', enum: [[], [1], ['a'], [[1]]], minItems: 1, items: { type: ['integer', 'array'], maxItems: 0 } },
    ['[1]'],
    ['[]', '["a"]', '[[1]]'],
  ],
  [
    'an enum of objects, beside properties',
    {
      enum: [{ a: 1 }, { b: 1 }, { b: 'x' }, { b: 1, c: 1 }, { b: 1, c: { d: 1 } }, { b: 1, D: 1 }],
      ...object(
        { b: { type: 'integer' }, c: { $ref: '#/$defs/c' } },
        { required: ['b'], propertyNames: { pattern: '^[a-z]' }, $defs: { c: { enum: [{ d: 1 }] } } },
      ),
    },
    ['{"b":1}', '{"b":1,"c":{"d":1}}'],
    ['{"a":1}', '{"b":"x"}', '{"b":1,"c":1}', '{"b":1,"D":1}'],
  ],
  [
    'property counts in the wrong order',
    { type: ['object', 'null'], minProperties: 3, maxProperties: 1 },
    ['null'],
    ['{}', '{"a":1}'],
  ],
  ['definitions', { $ref: '#/definitions/a~1b', definitions: { 'a/b': { type: 'integer' } } }, ['1'], ['""']],
  [
    'a list that refers to itself',
    { $ref: '#/$defs/node', $defs: { node: NODE } },
    ['{"value":1}', '{"value":1,"next":{"value":2,"next":{"value":3}}}'],
    ['{"value":1,"next":{}}', '{"value":1,"next":{"value":2,"next":3}}'],
  ],
  ['itself', { type: 'array', items: { $ref: '#' } }, ['[]', '[[],[[]]]'], ['[1]']],
];

t.test('a schema’s grammar allows what it describes and nothing else', (t) => {
  for (const [what, schema, allowed, refused] of CASES) {
    const grammar = grammarOf(schema);
    for (const text of allowed) t.equal(grammar?.reads(text), 'whole', `${what}: ${encodeURIComponent(text)}`);
    for (const text of refused) t.not(grammar?.reads(text), 'whole', `${what}: not ${encodeURIComponent(text)}`);
  }
  t.end();
});

t.test('refusals name the reason', (t) => {
  const deep = (depth: number): unknown => (depth === 0 ? {} : { allOf: [deep(depth - 1)] });
  const SELF = { $ref: '#' };
  const LIST = { type: 'array', items: SELF };
  const either = (...all: readonly object[]): object => ({
    anyOf: [...all.map((properties) => object(properties, { required: Object.keys(properties) })), { type: 'null' }],
  });
  /** Places are as many as the ways to choose the levels at which a text continues in the next definition. */
  const stairs = (steps: number): object => {
    const next = (i: number): object => ({ $ref: `#/$defs/n${i}` });
    const $defs = Array.from(
      { length: steps },
      (_, i) => [`n${i}`, either({ a: next(i) }, { a: next(i + 1) })] as const,
    );
    return { ...next(0), $defs: { ...Object.fromEntries($defs), [`n${steps}`]: { type: 'object' } } };
  };
  const alike = (depth: number): unknown =>
    depth === 0
      ? { type: 'null' }
      : { anyOf: [1, 2].map((minItems) => ({ type: 'array', minItems, items: alike(depth - 1) })) };
  for (const [what, schema, why] of [
    ['nothing', false, /no value/],
    ['no value at all', { enum: [] }, /no value/],
    ['no common type', { allOf: [{ type: 'string' }, { type: 'null' }] }, /no value/],
    ['required and impossible', object({ a: false }, { required: ['a'] }), /no value/],
    ['required and closed', object({}, { required: ['a'], additionalProperties: false }), /no value/],
    ['without end', object({ a: { $ref: '#' } }, { required: ['a'] }), /no value/],
    ['bounds in the wrong order', { type: 'string', minLength: 2, maxLength: 1 }, /no value/],
    ['item counts in the wrong order', { prefixItems: [{}], minItems: 2, maxItems: 1 }, /no value/],
    ['property counts in the wrong order', { minProperties: 3, maxProperties: 2 }, /no value/],
    ['required and no name', { required: ['UPPER'], propertyNames: { pattern: '^[a-z]+$' } }, /no value/],
    ['a reference to a place that does not exist', { $ref: '#/$defs/a' }, /`\$ref` to what/],
    ['a reference to another document', { $ref: 'https://example.com/a' }, /`\$ref` to what/],
    ['a reference to itself', { $ref: '#' }, /too deeply/],
    ['a reference around', { $ref: '#/$defs/a', $defs: { a: { anyOf: [{ $ref: '#/$defs/a' }] } } }, /too deeply/],
    ['deep combinations', deep(70), /too deeply/],
    ['no schema', { items: 3 }, /neither/],
    ['not even that', null, /neither/],
    ['many alternatives', { anyOf: Array.from({ length: 300 }, () => ({ type: 'null' })) }, /alternatives/],
    [
      'alternatives multiplied',
      { allOf: Array.from({ length: 20 }, () => ({ anyOf: [{ type: 'null' }, { const: null }] })) },
      /alternatives/,
    ],
    ['two ways back', either({ a: SELF }, { a: SELF, b: {} }), /common prefix/],
    ['two ways back through arrays', { anyOf: [LIST, { ...LIST, minItems: 2 }] }, /common prefix/],
    ['what differs after the recursion', either({ a: LIST, b: { const: 1 } }, { a: LIST, b: { const: 2 } }), /common/],
    [
      'values of which one is common',
      either({ a: { enum: [1, 2] }, b: SELF }, { a: { enum: [2, 3] }, b: SELF }),
      /common/,
    ],
    [
      'what differs, but may be left out',
      { anyOf: [1, 2].map((value) => object({ a: { const: value }, b: SELF }, { required: ['b'] })) },
      /common prefix/,
    ],
    [
      'a name beside any name',
      { anyOf: [object({ a: SELF }), { type: 'object', additionalProperties: SELF }] },
      /common/,
    ],
    ['recursions that continue in one another', stairs(3), /common prefix/],
    ['the same at each level', alike(9), /common prefix/],
    ['many items', { type: 'array', minItems: MAX_COUNTED + 1 }, /minItems/],
  ] as const) {
    t.match(schemaGrammar(schema), { kind: 'unservable', why }, what);
  }
  const wide = (length: number, required = false): object => {
    const names = Array.from({ length }, (_, i) => `p${i}`);
    return object(Object.fromEntries(names.map((name) => [name, {}])), required ? { required: names } : {});
  };
  t.match(schemaGrammar(wide(5000, true)), { kind: 'unservable', why: /too many values/ });
  t.match(schemaGrammar(wide(MAX_STACKS)), { kind: 'unservable', why: /too many values/ });
  t.ok(grammarOf(wide(256)));
  const values = (length: number): object => ({ enum: Array.from({ length }, (_, i) => i) });
  t.match(schemaGrammar(values(MAX_VALUES + 1)), { kind: 'unservable', why: /enum/ });
  t.equal(grammarOf(values(MAX_VALUES))?.reads(`${MAX_VALUES - 1}`), 'whole');
  t.ok(grammarOf(alike(5)), 'schemas within the bounds are served');
  const texts = (length: number): object => ({
    anyOf: Array.from({ length }, (_, i) => ({ type: 'string', maxLength: i })),
  });
  t.match(schemaGrammar(texts(MAX_STACKS + 1)), { kind: 'unservable', why: /too many alternatives/ });
  t.match(schemaGrammar(texts(100)), { kind: 'ok', stacks: 100 * TEXT_STACKS });
  t.end();
});

t.test('rule names begin with the prefix, and shared rules are equal', (t) => {
  const [a, b] = ['a', 'b'].map((prefix) => schemaGrammar(object({ x: { enum: [prefix] } }), prefix));
  if (a?.kind !== 'ok' || b?.kind !== 'ok') throw new Error('unservable');
  const text = grammarText(`${a.rule} "," ${b.rule}`, [a, b]);
  if (text.kind !== 'ok') throw new Error('unservable');
  const grammar = new Gbnf(text.gbnf);
  t.equal(grammar.reads('{"x":"a"},{"x":"b"}'), 'whole');
  t.equal(grammar.reads('{"x":"a"},{"x":"a"}'), 'no');
  const names = text.gbnf.split('\n').map((line) => line.split(' ::= ')[0]);
  t.equal(new Set(names).size, names.length);
  t.end();
});

t.test('every text that a schema’s grammar allows is JSON that is valid against it', (t) => {
  fc.assert(
    fc.property(schemas, fc.integer(), (schema, seed) => {
      const grammar = grammarOf(schema);
      fc.pre(grammar !== undefined);
      const valid = ajv.compile(schema);
      const random = seeded(seed);
      for (let i = 0; i < 5; i++) {
        const text = grammar.write(random);
        if (!valid(JSON.parse(text))) throw new Error(text);
      }
    }),
    { numRuns: rounds({ short: 30, long: 400 }) },
  );
  t.end();
});

/** Of each schema a value that is valid with its properties in another order than the grammar’s, where parts of it declare others. */
const ORDERED_OTHERWISE: [TestSchema, number][] = [
  [
    {
      allOf: [
        {
          anyOf: [
            {
              type: 'object',
              properties: { 'é"\n': { type: 'string' } },
              required: ['a'],
              additionalProperties: false,
            },
            { anyOf: [{ type: 'object' }] },
          ],
        },
        { type: 'object', properties: { a: { type: 'string' } } },
      ],
    },
    -877086081,
  ],
  [
    {
      allOf: [
        { type: 'object', properties: {}, required: ['a', 'b'] },
        { type: 'object', properties: { b: {} } },
      ],
    },
    0,
  ],
];

t.test('every value that is valid against a schema is allowed by its grammar', (t) => {
  let values = 0;
  fc.assert(
    fc.property(schemas, fc.integer(), (schema: TestSchema, seed) => {
      const valid = ajv.compile(schema);
      const random = seeded(seed);
      for (let i = 0; i < 5; i++) {
        const value = valueOf(schema, random);
        if (value === undefined || !valid(value)) continue;
        values += 1;
        const text = JSON.stringify(value);
        if (grammarOf(schema)?.reads(text) !== 'whole') throw new Error(text);
      }
    }),
    { numRuns: rounds({ short: 30, long: 400 }), examples: ORDERED_OTHERWISE },
  );
  t.ok(values > rounds({ short: 80, long: 350 }), `${values} values`);
  t.end();
});

/** Each would occupy a prompt worker for seconds, while an answer is due in 2 s (prompts.silenceMs). */
t.test('schemas that are expensive to compile are refused before the work, or are cheap', (t) => {
  const numbers = (from: number): number[] => Array.from({ length: 5000 }, (_, i) => from + i);
  const disjoint = { allOf: [{ enum: numbers(0) }, { enum: numbers(5000) }] };
  const stairs = { enum: Array.from({ length: 2000 }, (_, i) => 'a'.repeat(i + 1)) };
  const crossed = {
    allOf: Array.from({ length: 400 }, (_, i) =>
      object(Object.fromEntries(Array.from({ length: 50 }, (_, j) => [`p${i}_${j}`, {}]))),
    ),
  };
  t.match(schemaGrammar(stairs), { kind: 'unservable', why: /characters|too many values/ });
  t.match(schemaGrammar(crossed), { kind: 'unservable', why: /too many/ });
  t.match(schemaGrammar({ enum: numbers(0).slice(0, 2) }), { kind: 'ok' });
  // Counted, not timed: instead of 25 million pairs each value is read once.
  let looks = 0;
  const counted = { toJSON: () => (looks += 1) };
  schemaGrammar({ allOf: [{ enum: numbers(0).map(() => counted) }, { enum: numbers(5000) }] });
  t.ok(looks <= 2 * 5000, `${looks} looks`);
  t.equal(schemaGrammar(disjoint).kind, 'unservable');
  t.end();
});
