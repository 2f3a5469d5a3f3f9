/** Numbers within bounds: what a grammar allows is valid by ajv, and what is valid and plainly written is allowed. */
import { Ajv } from 'ajv';
import fc from 'fast-check';
import t from 'tap';
import { decimalOf } from '../../../engine/grammar/number-rules.js';
import { grammarText } from '../../../engine/grammar/gbnf.js';
import { schemaGrammar } from '../../../engine/grammar/schema.js';
import { MAX_PATTERN_WORK, WorkBudget } from '../../../engine/grammar/work.js';
import { Gbnf, seeded } from '../../support/gbnf.js';
import { rounds } from '../../support/long-form.js';

/** Quotients of large numbers and small steps are inexact doubles. */
const ajv = new Ajv({ strict: false, multipleOfPrecision: 1 });
const exact = new Ajv({ strict: false, multipleOfPrecision: 6 });

function grammarOf(schema: object): Gbnf | undefined {
  const made = schemaGrammar(schema);
  const text = made.kind === 'ok' ? grammarText(made.rule, [made]) : made;
  return text.kind === 'ok' ? new Gbnf(text.gbnf) : undefined;
}

/** [schema, texts it allows, texts it does not]. */
const CASES: readonly (readonly [object, readonly string[], readonly string[]])[] = [
  [{ type: 'integer', minimum: 5 }, ['5', '6', '10', '1234567'], ['4', '0', '-5', '05', '5.0']],
  [{ type: 'integer', maximum: 12 }, ['12', '9', '0', '-1', '-99999'], ['13', '20', '100']],
  [{ type: 'integer', minimum: -12, maximum: 120 }, ['-12', '-9', '0', '119', '120'], ['-13', '-20', '121', '130']],
  [{ type: 'integer', exclusiveMinimum: 0, exclusiveMaximum: 3 }, ['1', '2'], ['0', '3', '-1', '-0']],
  [{ type: 'integer', minimum: 0.5, maximum: 2.5 }, ['1', '2'], ['0', '3']],
  [
    { type: 'integer', minimum: -9007199254740991, maximum: 9007199254740991 },
    ['9007199254740991', '-1'],
    ['9007199254740992'],
  ],
  [
    { type: 'number', minimum: 0, maximum: 1 },
    ['0', '1', '1.0', '0.5', '0.123456', '0.0'],
    ['1.1', '1.01', '2', '-0.1', '1e0'],
  ],
  [{ type: 'number', exclusiveMinimum: 0 }, ['0.1', '0.0001', '1', '250.75'], ['0', '0.0', '-1', '-0']],
  [{ type: 'number', exclusiveMaximum: 100 }, ['99.9', '99.99999', '-1000', '0'], ['100', '100.0', '100.1']],
  [{ type: 'number', minimum: -273.15 }, ['-273.15', '-273.1', '-273', '0', '1000.5'], ['-273.16', '-273.2', '-274']],
  [
    { type: 'number', minimum: 1.25, maximum: 1.75 },
    ['1.25', '1.3', '1.7', '1.75', '1.750'],
    ['1.2', '1.249', '1.76', '1', '2'],
  ],
  [{ type: 'number', maximum: 1e300 }, ['999999', '-1'], []],
  [{ type: 'number', minimum: 1e300 }, ['1', '1e99'], []],
  [{ type: 'integer', multipleOf: 5 }, ['0', '5', '-10', '12345'], ['1', '12', '99']],
  [{ type: 'integer', multipleOf: 7, minimum: 10, maximum: 30 }, ['14', '21', '28'], ['7', '10', '30', '35']],
  [{ type: 'integer', multipleOf: 7 }, ['0', '7', '-21', '9999999999999996'], ['6', '71', '-1', '00']],
  [{ type: 'number', multipleOf: 13, minimum: -26 }, ['-26', '0', '1300', '169'], ['-39', '1', '13.5']],
  [{ type: 'number', multipleOf: 0.11, minimum: 0 }, ['0', '0.11', '12.1', '1100'], ['0.1', '-0.11', '12']],
  [{ type: 'integer', multipleOf: 900 }, ['0', '900', '-8100'], ['90', '1000', '910']],
  [{ type: 'integer', multipleOf: 60 }, ['0', '60', '3600', '86400'], ['30', '61', '100']],
  [{ type: 'integer', multipleOf: 0.5 }, ['1', '2'], ['1.5']],
  [{ type: 'number', multipleOf: 0.01 }, ['1', '1.5', '19.99', '-0.01'], ['0.001', '1.999']],
  [{ type: 'number', multipleOf: 0.25, minimum: 0 }, ['0', '0.25', '0.5', '0.50', '1.75'], ['0.2', '0.3', '-0.25']],
  [{ type: 'number', multipleOf: 97 }, ['1', '0.5'], []],
  [{ type: 'number', minimum: 5, exclusiveMinimum: true }, ['5.1', '6'], ['5', '5.0', '4']],
  [{ minimum: 3 }, ['3', '"x"', '[]', 'null'], ['2']],
  [{ enum: [1, 2, 3, 10, 'a'], minimum: 2, multipleOf: 2 }, ['2', '10', '"a"'], ['1', '3']],
  [
    {
      allOf: [
        { type: 'number', minimum: 1 },
        { type: 'integer', maximum: 2 },
      ],
    },
    ['1', '2'],
    ['0', '3', '1.5'],
  ],
];

t.test('bounds and steps', (t) => {
  for (const [schema, allowed, others] of CASES) {
    const grammar = grammarOf(schema);
    for (const text of allowed) t.equal(grammar?.reads(text), 'whole', `${JSON.stringify(schema)}: ${text}`);
    for (const text of others) t.not(grammar?.reads(text), 'whole', `${JSON.stringify(schema)}: not ${text}`);
  }
  for (const none of [
    { minimum: 2, maximum: 1 },
    { minimum: 0, exclusiveMaximum: 0 },
    { minimum: 6, maximum: 9, multipleOf: 5 },
  ]) {
    t.equal(grammarOf({ type: 'integer', ...none }), undefined, `${JSON.stringify(none)} allows nothing`);
  }
  for (const fine of [
    { multipleOf: 1e-12 },
    { multipleOf: 1e-20, minimum: 1 },
    { multipleOf: 0.01, minimum: 1e11 },
    { multipleOf: 0.01, maximum: -1e11 },
  ]) {
    t.equal(grammarOf({ type: 'number', ...fine })?.reads('0.5'), 'whole', `${JSON.stringify(fine)} is not enforced`);
  }
  t.end();
});

t.test('no number of properties that are multiples is refused', (t) => {
  const properties = (steps: readonly number[]): object =>
    Object.fromEntries(steps.map((multipleOf, i) => [`p${i}`, { type: 'integer', multipleOf }]));
  const object = { type: 'object', properties: properties([7, 9, 11, 13, 14, 70, 130, 900, 7000]) };
  const grammar = grammarOf(object);
  t.equal(grammar?.reads('{"p0":7}'), 'whole');
  t.equal(grammar?.reads('{"p0":8}'), 'no', 'the first is enforced');
  t.equal(grammar?.reads('{"p3":8}'), 'whole', 'a later one is not');
  const work = new WorkBudget();
  schemaGrammar({ type: 'integer', multipleOf: 13 }, 'value', work);
  t.ok(work.spent < 50_000, `the largest takes ${work.spent} steps`);
  t.end();
});

const bound = fc.oneof(
  fc.integer({ min: -1100, max: 1100 }),
  fc.integer({ min: -99_999, max: 99_999 }).map((hundredths) => hundredths / 100),
  fc.constantFrom(0, 1, -1, 1e9, -1e9, 0.1, 1e-7, 123456789.5),
);
const schemas = fc.record(
  {
    type: fc.constantFrom('number', 'integer'),
    minimum: bound,
    maximum: bound,
    exclusiveMinimum: bound,
    exclusiveMaximum: bound,
    multipleOf: fc.constantFrom(1, 2, 3, 5, 7, 10, 12, 25, 0.1, 0.05, 0.5),
  },
  { requiredKeys: ['type'] },
);

t.test('every text that a grammar allows is valid, and every valid number is allowed', (t) => {
  const property = fc.property(schemas, fc.nat(), fc.array(bound), (schema, seed, values) => {
    const valid = ajv.compile(schema);
    const isExact = exact.compile(schema);
    const grammar = grammarOf(schema);
    const random = seeded(seed);
    for (let i = 0; grammar && i < 5; i++) {
      const text = grammar.write(random);
      const value = JSON.parse(text) as number;
      // Larger ones are rounded to a double, which need not be a multiple.
      if (Math.abs(value) <= Number.MAX_SAFE_INTEGER && !valid(value)) throw new Error(`${text} is not valid`);
    }
    for (const value of values) {
      const plain = value.toString();
      if (isExact(value) && !plain.includes('e') && grammar?.reads(plain) !== 'whole')
        throw new Error(`${plain} is not allowed`);
    }
    ajv.removeSchema(schema);
    exact.removeSchema(schema);
  });
  fc.assert(property, { numRuns: rounds({ short: 50, long: 4000 }) });
  t.end();
});

t.test('decimals are those with which a number is written', (t) => {
  t.strictSame(decimalOf(-273.15), { whole: '273', fraction: '15' });
  t.strictSame(decimalOf(1e21), { whole: `1${'0'.repeat(21)}`, fraction: '' });
  t.strictSame(decimalOf(1.5e-7), { whole: '0', fraction: '00000015' });
  t.strictSame(decimalOf(0), { whole: '0', fraction: '' });
  t.strictSame(decimalOf(100), { whole: '100', fraction: '' });
  t.end();
});

t.test('the share of the steps of patterns that a multiple takes (docs/compatible.md)', (t) => {
  for (const [multipleOf, about] of [
    [13, 3 / 4],
    [7, 1 / 3],
    [60, 1 / 16],
  ] as const) {
    const work = new WorkBudget();
    t.equal(schemaGrammar({ type: 'integer', multipleOf }, 'value', work).kind, 'ok');
    const share = work.patterns / MAX_PATTERN_WORK;
    t.ok(Math.abs(share / about - 1) < 0.15, `${multipleOf}: ${share}`);
  }
  t.end();
});
