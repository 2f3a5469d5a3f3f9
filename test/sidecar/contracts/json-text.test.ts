import assert from 'node:assert/strict';
import fc from 'fast-check';
import t from 'tap';
import { type Span, compactText, elementsOf, membersOf, rootOf } from '../../../sidecar/contracts/json-text.js';

const slice = (text: string, { from, to }: Span): string => text.slice(from, to);

/** Rebuilds a value from its text with the functions under test. */
function rebuilt(text: string, span: Span): unknown {
  if (text.charAt(span.from) === '[') return elementsOf(text, span).map((element) => rebuilt(text, element));
  if (text.charAt(span.from) !== '{') return JSON.parse(slice(text, span));
  return Object.fromEntries(membersOf(text, span).map((member) => [member.name, rebuilt(text, member)]));
}

t.test('the text has the values of JSON.parse', (t) => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.constantFrom('', ' ', '\t\n'), (value, space) => {
      const text = space + JSON.stringify(value, undefined, space) + space;
      assert.deepEqual(rebuilt(text, rootOf(text)), JSON.parse(text));
      assert.equal(compactText(text, rootOf(text)), JSON.stringify(value));
    }),
    { numRuns: 500 },
  );
  t.end();
});

t.test('order and unusual names are kept', (t) => {
  const text = '{ "z": 1, "10": 2, "__proto__": 3, "2": 4, "\\u0061": 5, "": 6 }';
  t.same(
    membersOf(text, rootOf(text)).map((member) => [member.name, slice(text, member)]),
    [
      ['z', '1'],
      ['10', '2'],
      ['__proto__', '3'],
      ['2', '4'],
      ['a', '5'],
      ['', '6'],
    ],
  );
  t.end();
});

t.test('numbers and strings stay as written', (t) => {
  const text = '[ 1.0 , 12345678901234567890 , 1e+3 , "a \\u0062 \\" ] , " , { } , [ ] ]';
  t.equal(compactText(text, rootOf(text)), '[1.0,12345678901234567890,1e+3,"a \\u0062 \\" ] , ",{},[]]');
  t.equal(elementsOf(text, rootOf(text)).length, 6);
  t.same(elementsOf('[ ]', { from: 0, to: 3 }), []);
  t.same(membersOf('{ }', { from: 0, to: 3 }), []);
  t.end();
});
