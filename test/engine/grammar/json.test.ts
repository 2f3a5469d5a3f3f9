import * as fc from 'fast-check';
import assert from 'node:assert/strict';
import t from 'tap';
import { dataGrammar } from '../../../engine/grammar/notation.js';
import { Gbnf, seeded } from '../../support/gbnf.js';
import { rounds } from '../../support/long-form.js';
import { anyText } from '../../support/texts.js';

const grammar = new Gbnf(dataGrammar);

t.test('every text that it allows is one well-formed JSON object with finite numbers', (t) => {
  fc.assert(
    fc.property(fc.integer(), (seed) => {
      const text = grammar.write(seeded(seed));
      const parsed: unknown = JSON.parse(text, (_, value: unknown) => {
        if (typeof value === 'number') assert.ok(Number.isFinite(value));
        return value;
      });
      const again = JSON.stringify(parsed);
      return again.startsWith('{') && !/\\ud[89a-f]/.test(again) && text === text.trim();
    }),
    { numRuns: rounds({ short: 60, long: 1000 }) },
  );
  t.end();
});

t.test('it allows any object, compact or indented', (t) => {
  fc.assert(
    fc.property(fc.dictionary(anyText(), fc.jsonValue()), (value) => {
      // Texts past the bounds on digits and white space are not needed by any model.
      const written = JSON.stringify(value);
      const short = !/\d{16}|e[+-]\d{3}/.test(written) && !written.includes('\x7f');
      fc.pre(short && !/\n {21}/.test(JSON.stringify(value, null, 2)));
      return grammar.reads(written) === 'whole' && grammar.reads(JSON.stringify(value, null, 2)) === 'whole';
    }),
    { numRuns: rounds({ short: 30, long: 300 }) },
  );
  t.end();
});

t.test('it begins and ends with the object', (t) => {
  for (const text of [
    '{}',
    '{"a":{"b":[1,-0.5e+3,null]}}',
    '{\n\t"a" : 1}'.replace(' :', ':'),
    '{"\\ud83c\\udf89": true }',
  ]) {
    t.equal(grammar.reads(text), 'whole', text);
  }
  for (const text of ['', '{', '{"a"', '{"a":1', '{"a":"\\u12', '{"a":[[['])
    t.equal(grammar.reads(text), 'begun', text);
  for (const text of [
    ...[
      '[]',
      ' {}',
      '{} ',
      '{}{}',
      '"a"',
      '1',
      '{"a":1,}',
      '{,}',
      '{a:1}',
      "{'a':1}",
      '{"a":01}',
      '{"a":.5}',
      '{"a":1.}',
    ],
    ...['{"a":+1}', '{"a":NaN}', '{"a":"\n"}', '{"a":"\u0001"}', '{"a":"\\x41"}', '{"a":"\\ud83c"}', '{"a":"\\udf89"}'],
    `{${'\n'.repeat(2)}`,
    `{\n${' '.repeat(21)}`,
    `{"a":${'1'.repeat(17)}`,
    `{"a":1.${'1'.repeat(17)}`,
    '{"a":1e100',
  ]) {
    t.equal(grammar.reads(text), 'no', JSON.stringify(text));
  }
  t.end();
});
