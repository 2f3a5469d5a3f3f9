/** Strings without quotes or between other marks than JSON's are held to all that their schema says, in each notation. */
import { Ajv } from 'ajv';
import t from 'tap';
import { callGrammar, callRules } from '../../../engine/grammar/calls.js';
import type { CallFormat, CallSyntax } from '../../../engine/protocol/reply-format.js';
import { LOOSE_SYNTAXES, NESTED_SYNTAXES, TAGGED_SYNTAXES } from '../../support/call-syntaxes.js';
import { Gbnf, seeded } from '../../support/gbnf.js';
import { rounds } from '../../support/long-form.js';
import { readCalls } from '../../support/read-calls.js';

const SYNTAXES: Readonly<Record<string, CallSyntax>> = { ...TAGGED_SYNTAXES, ...NESTED_SYNTAXES, ...LOOSE_SYNTAXES };

/** Marks that end strings in one of the notations or another. */
const ENDS = ['x </parameter> y', '</arg_value>', '</｜DSML｜parameter>', ']]></param>', '<|"|>', ']<]minimax[>[</a>'];

const PROPERTIES = {
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
};
const PARAMETERS = {
  type: 'object',
  properties: PROPERTIES,
  required: Object.keys(PROPERTIES),
  additionalProperties: false,
};

const ajv = new Ajv({ strict: false, formats: { date: /^\d{4}-\d\d-\d\d$/ } });
const valid = ajv.compile(PARAMETERS);

/** The grammar of one call of `look`, and its format. */
function made(syntax: CallSyntax, parameters: object): { readonly gbnf: Gbnf; readonly format: CallFormat } {
  const rules = callRules(syntax, [{ name: 'look', parameters }], { single: true, answer: false });
  if (rules.kind !== 'ok') throw new Error(rules.why);
  const { values } = rules;
  return {
    gbnf: new Gbnf(callGrammar(rules.gbnf)),
    format: {
      syntax,
      functions: ['look'],
      single: true,
      gbnf: '',
      ...(values && { values }),
    },
  };
}

for (const [model, syntax] of Object.entries(SYNTAXES)) {
  t.test(`${model}: patterns, formats, enums, and numbers beside strings`, (t) => {
    const { gbnf, format } = made(syntax, PARAMETERS);
    const random = seeded(7);
    const wrong: string[] = [];
    for (let i = 0; i < rounds({ short: 20, long: 200 }); i++) {
      const reply = gbnf.write(random);
      const [call, ...others] = readCalls(format, [reply]).calls;
      const inPieces = readCalls(format, Array.from(reply)).calls;
      if (JSON.stringify(inPieces) !== JSON.stringify([call, ...others])) wrong.push(`cut: ${reply}`);
      if (others.length > 0 || !valid(JSON.parse(call?.arguments ?? '')))
        wrong.push(`${call?.arguments ?? ''} of ${reply}: ${ajv.errorsText(valid.errors)}`);
    }
    t.same(wrong, []);
    t.end();
  });
}

t.test('arguments of which there must be one at least', (t) => {
  const flag = { type: 'boolean' };
  const parameters = {
    type: 'object',
    properties: { a: flag, b: flag },
    minProperties: 1,
    additionalProperties: false,
  };
  for (const [model, syntax] of Object.entries(SYNTAXES)) {
    const { gbnf, format } = made(syntax, parameters);
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
