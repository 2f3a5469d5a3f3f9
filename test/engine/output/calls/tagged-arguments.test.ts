import { Ajv } from 'ajv';
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import { callGrammar, callRules } from '../../../../engine/grammar/calls.js';
import type { CallFormat, ValueNode } from '../../../../engine/protocol/reply-format.js';
import { TAGGED_SYNTAXES } from '../../../support/call-syntaxes.js';
import { Gbnf } from '../../../support/gbnf.js';
import { readCalls } from '../../../support/read-calls.js';

/** What an argument of this name may be. */
type Argument = ValueNode & { readonly name: string };

/** What arguments may be whose ways of giving them are these. */
function valuesOf(ways: readonly (readonly Argument[])[]): ValueNode[] {
  const all = ways.flat();
  const objects = ways.map((way) => ({
    named: Object.fromEntries(way.map((own) => [own.name, 1 + all.indexOf(own)])),
  }));
  return [{ types: ['object'], objects }, ...all];
}

const LOOK: readonly Argument[] = [
  { name: 'city', types: ['string'] },
  { name: 'days', types: ['integer'] },
  { name: 'note', types: ['string', 'null'] },
  { name: 'at', types: ['string', 'array'] },
  { name: 'deep', types: ['object'] },
  { name: 'sure', types: ['boolean'] },
];

function format(syntax: CallFormat['syntax']): CallFormat {
  return { syntax, functions: ['look', 'go'], single: false, gbnf: '', values: [valuesOf([LOOK]), []] };
}

function valueOf(text: string, types: ValueNode['types'], more: Pick<ValueNode, 'scalars'> = {}): unknown {
  const own = { ...format(TAGGED_SYNTAXES['Qwen3-Coder']), values: [valuesOf([[{ name: 'x', types, ...more }]]), []] };
  const reply = `<tool_call>\n<function=look>\n<parameter=x>\n${text}\n</parameter>\n</function>\n</tool_call>`;
  const [call] = readCalls(own, Array.from(reply)).calls;
  return (JSON.parse(call?.arguments ?? '{}') as { x?: unknown }).x;
}

t.test('a value has the type of its schema', (t) => {
  t.equal(valueOf('42', ['string']), '42');
  t.equal(valueOf('42', ['integer']), 42);
  t.equal(valueOf('42', ['string', 'number']), 42);
  t.equal(valueOf('4.5', ['string', 'integer']), '4.5', 'no integer, so a string');
  t.equal(valueOf('true', ['string', 'null']), 'true');
  t.equal(valueOf('null', ['string', 'null']), null);
  t.equal(valueOf('nullable', ['string', 'null']), 'nullable');
  t.equal(valueOf('{"a": 1}', ['string']), '{"a": 1}');
  t.same(valueOf('{"a": 1}', ['string', 'object']), { a: 1 });
  t.equal(valueOf('True', ['boolean']), true, "Python's notation");
  t.equal(valueOf('', ['string']), '');
  t.equal(valueOf('\n a\n', ['string']), '\n a\n', 'one line end on either side belongs to the notation');
  t.equal(valueOf('-', ['string', 'number']), '-');
  t.end();
});

t.test('a number that a string may be too', (t) => {
  for (const text of ['1e3', '1.0', '-2.50']) {
    t.equal(valueOf(text, ['string', 'integer']), text, 'an integer has no point and no exponent');
    t.equal(valueOf(text, ['string', 'number']), Number(text));
    t.equal(valueOf(text, ['number']), Number(text));
  }
  const bounds = { least: 2, aboveLeast: false, most: 5, belowMost: true, steps: [0.5] };
  const read = (text: string) => valueOf(text, ['string', 'number'], { scalars: [{ types: ['number'], ...bounds }] });
  t.same(['1.5', '2', '3.5', '4.75', '5'].map(read), ['1.5', 2, 3.5, '4.75', '5'], 'within the bounds it is one');
  const values = { scalars: [{ types: ['number', 'boolean', 'null'], values: ['3', 'null'] }] as const };
  const listed = (text: string) => valueOf(text, ['string', 'number', 'boolean', 'null'], values);
  t.same(['3', '3.0', '1', 'true', 'null'].map(listed), [3, 3, '1', 'true', null], 'of an enum, what it lists');
  t.end();
});

t.test('text between arguments that is no argument ends the call', (t) => {
  const reply = '<tool_call>\n<function=look>\n<parameter=city>\nBern\n</parameter>and so on';
  const read = readCalls(format(TAGGED_SYNTAXES['Qwen3-Coder']), Array.from(reply));
  t.same(read, { content: 'and so on', calls: [{ name: 'look', arguments: '{"city": "Bern"}' }], complete: 1 });
  t.end();
});

t.test('text in CDATA is passed on as it comes, but for what may be its end', (t) => {
  const minicpm = format(TAGGED_SYNTAXES.MiniCPM5);
  const call = (value: string): string => `<function name="look"><param name="city">${value}`;
  const reads = (text: string, json: string, name: string): void => {
    for (const pieces of [Array.from(text), [text]]) {
      t.equal(readCalls(minicpm, pieces).calls[0]?.arguments, json, `${name}, ${pieces.length} pieces`);
    }
  };
  for (const end of ['', ']', ']]', ']]>', ']]> \n', ' \n', ']]></par']) {
    reads(call(`\n<![CDATA[a "b" ]]> ]c${end}`), '{"city": "a \\"b\\" ]]> ]c', JSON.stringify(end));
  }
  for (const text of ['', ' a ', '\n', ']', ']]', 'a]]>', ']]>]]>b', '] ]>', ']]> ]', '<![CDATA[', '</para>']) {
    for (const space of ['', ' \n']) {
      const value = `${space}<![CDATA[${text}]]>${space}`;
      reads(call(`${value}</param></function>`), `{"city": ${JSON.stringify(text)}}`, JSON.stringify(value));
    }
  }
  reads(call('<![CDATA[a ]] \n</param></function>'), '{"city": "a ]]"}', 'without its end');
  t.end();
});

t.test('a reply that is cut off has the arguments so far', (t) => {
  const reply = '<tool_call>\n<function=look>\n<parameter=city>\nBer';
  const read = readCalls(format(TAGGED_SYNTAXES['Qwen3-Coder']), Array.from(reply));
  t.same(read, { content: '', calls: [{ name: 'look', arguments: '{"city": "Ber' }], complete: 0 });
  t.end();
});

/** A call of `set` with these arguments. */
function written(syntax: (typeof TAGGED_SYNTAXES)[keyof typeof TAGGED_SYNTAXES], all: object): string {
  const { open, between, close } = syntax.arguments;
  const values = Object.entries(all).map(([name, value]: [string, unknown]) =>
    typeof value === 'string'
      ? `${open}${name}${between.string}${value}${close}`
      : `${open}${name}${between.object}${JSON.stringify(value)}${close}`,
  );
  return `${syntax.open}set${syntax.between}${values.join('\n')}${syntax.close}`;
}

/** An object that has all of these properties and no others. */
function closed(properties: Readonly<Record<string, object>>): object {
  return { type: 'object', properties, required: Object.keys(properties), additionalProperties: false };
}

const STRING = { type: 'string' };
const INTEGER = { type: 'integer' };

/** Two objects that differ by what this says, and arguments that each allows. */
const EITHER: Readonly<Record<string, readonly (readonly [schema: object, value: object])[]>> = {
  'the values of a string': [
    [closed({ kind: { const: 'text' }, value: STRING }), { kind: 'text', value: '42' }],
    [closed({ kind: { enum: ['count', 'sum'] }, value: INTEGER }), { kind: 'sum', value: 42 }],
  ],
  'the values of a number': [
    [closed({ kind: { const: 1 }, value: STRING }), { kind: 1, value: '42' }],
    [closed({ kind: { const: 2.5 }, value: INTEGER }), { kind: 2.5, value: 42 }],
  ],
  'the values of a boolean': [
    [closed({ kind: { const: true }, value: STRING }), { kind: true, value: '42' }],
    [closed({ kind: { const: false }, value: INTEGER }), { kind: false, value: 42 }],
  ],
  'the type of an argument': [
    [closed({ at: STRING, value: STRING }), { at: 'x', value: '42' }],
    [closed({ at: { type: 'array', items: INTEGER }, value: INTEGER }), { at: [1], value: 42 }],
  ],
  'the type of a literal': [
    [closed({ at: { type: 'boolean' }, value: STRING }), { at: false, value: '42' }],
    [closed({ at: { type: 'null' }, value: INTEGER }), { at: null, value: 42 }],
  ],
  'the name of an argument': [
    [closed({ text: STRING, value: STRING }), { text: '7', value: '42' }],
    [closed({ count: INTEGER, value: INTEGER }), { count: 7, value: 42 }],
  ],
  'arguments of any names': [
    [
      { type: 'object', additionalProperties: STRING },
      { a: 'x', b: '42' },
    ],
    [closed({ a: INTEGER, b: INTEGER }), { a: 7, b: 42 }],
  ],
};

const ajv = new Ajv();

for (const [model, syntax] of Object.entries(TAGGED_SYNTAXES)) {
  t.test(`${model}: of several objects, the arguments before a value tell which one it belongs to`, (t) => {
    for (const [says, both] of Object.entries(EITHER)) {
      const schemas = both.map(([schema]) => schema);
      for (const tools of [[{ anyOf: schemas }], schemas]) {
        const functions = tools.map((parameters) => ({ name: 'set', parameters }));
        const made = callRules(syntax, functions, { single: false, answer: false });
        if (made.kind !== 'ok') throw new Error(made.why);
        const { gbnf, values = [] } = made;
        const own = { syntax, functions: functions.map(({ name }) => name), single: false, gbnf: '', values };
        for (const [schema, value] of both) {
          const reply = written(syntax, value);
          t.ok(ajv.validate(schema, value), says);
          t.equal(new Gbnf(callGrammar(gbnf)).reads(reply), 'whole', reply);
          const wrong = new Set<string>();
          for (let at = 0; at < reply.length; at++) {
            const [call] = readCalls(own, [reply.slice(0, at), reply.slice(at)]).calls;
            const read: unknown = JSON.parse(call?.arguments ?? '');
            if (!isDeepStrictEqual(read, value)) wrong.add(JSON.stringify(read));
          }
          t.same([...wrong], [], `${says}: ${JSON.stringify(value)}, wherever it is cut`);
        }
      }
    }
    t.end();
  });
}

t.test('arguments that tell less', (t) => {
  const long = 'x'.repeat(2000);
  const ways: readonly (readonly Argument[])[] = [
    [
      { name: 'kind', types: ['string'], values: [JSON.stringify(long)] },
      { name: 'value', types: ['string'] },
      { name: 'note', types: ['string'] },
    ],
    [
      { name: 'kind', types: ['integer'], values: ['7'] },
      { name: 'value', types: ['integer'] },
      { name: 'note', types: ['string'] },
    ],
  ];
  const syntax = TAGGED_SYNTAXES['Qwen3-Coder'];
  const own = { syntax, functions: ['set'], single: false, gbnf: '', values: [valuesOf(ways)] };
  const read = (all: object): unknown =>
    JSON.parse(readCalls(own, Array.from(written(syntax, all))).calls[0]?.arguments ?? '');
  t.strictSame(
    read({ kind: long, value: '42' }),
    { kind: long, value: '42' },
    'too long to be compared: its type tells',
  );
  for (const name of ['kind', 'other']) {
    const read42 = read({ [name]: 'x', value: '42', note: '42' });
    t.strictSame(read42, { [name]: 'x', value: 42, note: '42' }, 'neither allows it: both remain');
  }
  t.strictSame(read({ value: '42', kind: '7' }), { value: 42, kind: 7 }, 'a value before them is what either may have');
  t.end();
});
