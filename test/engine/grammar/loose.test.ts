/** Arguments in notations close to JSON: constrained by their schema, and converted to JSON. */
import { Ajv } from 'ajv';
import t from 'tap';
import { callGrammar, callRules } from '../../../engine/grammar/calls.js';
import type { CallSyntax } from '../../../engine/protocol/reply-format.js';
import { LOOSE_SYNTAXES } from '../../support/call-syntaxes.js';
import { Gbnf } from '../../support/gbnf.js';
import { rounds } from '../../support/long-form.js';
import { readCalls, readsAllOf } from '../../support/read-calls.js';

const LOOK = {
  type: 'object',
  properties: {
    city: { type: 'string' },
    unit: { type: 'string', enum: ['celsius', 'fahrenheit', 'o\'clock "x"'] },
    days: { type: 'integer' },
    on: { type: 'boolean' },
    code: { type: 'string', minLength: 2, maxLength: 3 },
    note: { anyOf: [{ type: 'string', minLength: 1 }, { type: 'null' }] },
    mixed: { enum: ['a', 1, null, true, ['b', { c: 'd' }]] },
    pair: { type: 'array', prefixItems: [{ type: 'string' }, { type: 'integer' }], minItems: 1, maxItems: 2 },
    // Nothing may come second.
    single: { type: 'array', prefixItems: [{ type: 'string' }, false], minItems: 1 },
    tags: { type: 'array', items: { type: 'string' }, minItems: 2, maxItems: 3 },
    free: { type: 'object', additionalProperties: { type: 'integer' } },
    where: { $ref: '#/$defs/place' },
    any: {},
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
  { name: 'go', parameters: { type: 'object', properties: {}, additionalProperties: false } },
  { name: 'set', parameters: { type: 'object', additionalProperties: { type: 'string' } } },
];
const NAMES = FUNCTIONS.map(({ name }) => name);
const ajv = new Ajv({ strict: false });
const validate = new Map(FUNCTIONS.map(({ name, parameters }) => [name, ajv.compile(parameters)]));

function grammar(syntax: CallSyntax): Gbnf {
  const made = callRules(syntax, FUNCTIONS, { single: false, answer: false });
  if (made.kind !== 'ok') throw new Error(made.why);
  return new Gbnf(callGrammar(made.gbnf));
}

for (const [model, syntax] of Object.entries<CallSyntax>(LOOSE_SYNTAXES)) {
  t.test(`${model}: everything that the grammar allows is parsed to valid arguments, wherever the text is cut`, (t) => {
    const format = { syntax, functions: NAMES, single: false, gbnf: '' };
    readsAllOf(t, grammar(syntax), { format, validate, texts: rounds({ short: 20, long: 200 }) });
    t.end();
  });
}

const GEMMA = LOOSE_SYNTAXES['Gemma 4'];
const LFM = LOOSE_SYNTAXES.LFM2;

t.test('texts that models write', (t) => {
  for (const [syntax, reply, calls] of [
    [
      GEMMA,
      '<|tool_call>call:look{city:<|"|>Zü "x"\n<|"|>,days:2,tags:[<|"|>a<|"|>,<|"|>b<|"|>],where:{x:1.5}}<tool_call|><|tool_call>call:go{}<tool_call|>',
      [
        ['look', { city: 'Zü "x"\n', days: 2, tags: ['a', 'b'], where: { x: 1.5 } }],
        ['go', {}],
      ],
    ],
    [
      LFM,
      `<|tool_call_start|>[look(city='it\\'s "so"', days=2, on=True, note=None, tags=["a", "b"]), go()]<|tool_call_end|>`,
      [
        ['look', { city: 'it\'s "so"', days: 2, on: true, note: null, tags: ['a', 'b'] }],
        ['go', {}],
      ],
    ],
    [
      LFM,
      '<|tool_call_start|>[look(city="x\\n", days=-3, where={"x": 1, "next": {"x": 2}})]<|tool_call_end|>',
      [['look', { city: 'x\n', days: -3, where: { x: 1, next: { x: 2 } } }]],
    ],
  ] as const) {
    const text = `I look. ${reply}`;
    const format = { syntax, functions: NAMES, single: false, gbnf: '' };
    const hold = { begin: () => true, end: () => undefined };
    t.equal(grammar(syntax).reads(reply), 'whole', reply);
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

t.test('texts that the schema excludes', (t) => {
  const gemma = grammar(GEMMA);
  for (const inner of [
    'city:<|"|>a<|"|>',
    'days:1,city:<|"|>a<|"|>',
    'city:<|"|>a<|"|>,days:1,other:1',
    'city:a,days:1',
  ]) {
    t.equal(gemma.reads(`<|tool_call>call:look{${inner}}<tool_call|>`), 'no', inner);
  }
  const lfm = grammar(LFM);
  for (const inner of ['city="a"', 'city="a", days="1"', 'city="a", days=1, unit="kelvin"', 'city=a, days=1']) {
    t.equal(lfm.reads(`<|tool_call_start|>[look(${inner})]<|tool_call_end|>`), 'no', inner);
  }
  const named = (name: string) =>
    callRules(GEMMA, [{ name: 'f', parameters: { type: 'object', properties: { [name]: {} } } }], {
      single: true,
      answer: false,
    });
  t.match(named('a b'), { kind: 'unservable', why: /cannot be written/ });
  t.match(named('a_b'), { kind: 'ok' });
  t.end();
});
