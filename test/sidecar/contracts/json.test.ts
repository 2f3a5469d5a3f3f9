import assert from 'node:assert/strict';
import fc from 'fast-check';
import t from 'tap';
import {
  MAX_NESTING,
  MAX_VALUES,
  readJson,
  type Span,
  compactText,
  elementsOf,
  membersOf,
  rootOf,
} from '../../../sidecar/contracts/json.js';
import { bytesOf } from '../../support/bodies.js';
import { rounds } from '../../support/long-form.js';

const read = (text: string) => readJson(bytesOf(text));

function faultOf(text: string | Uint8Array): string | undefined {
  const result = typeof text === 'string' ? read(text) : readJson(text);
  return result.ok ? undefined : result.fault;
}

t.test('values equal those of JSON.parse', async () => {
  fc.assert(
    fc.property(fc.json(), (text) => {
      const result = read(text);
      assert.ok(result.ok);
      assert.deepEqual(result.value, JSON.parse(text));
      assert.equal(result.text, text);
    }),
    { numRuns: rounds({ short: 20, long: 200 }) },
  );
});

t.test('syntax', async (t) => {
  for (const text of [
    ...['', ' ', '{', '{"a":1,}', "{'a':1}", 'NaN', '[Infinity]', '{"a":01}', '"\u0001"', '1 2', '"abc', '"\\"'],
    '//x\n1',
  ])
    t.equal(faultOf(text), 'syntax', JSON.stringify(text));
});

t.test('bytes', async (t) => {
  t.equal(faultOf(new Uint8Array([0x22, 0xff, 0x22])), 'encoding', 'not UTF-8');
  t.equal(faultOf(new Uint8Array([0x22, 0xed, 0xa0, 0x80, 0x22])), 'encoding', 'a surrogate as UTF-8');
  t.equal(faultOf(new Uint8Array([0x22, 0xc0, 0x80, 0x22])), 'encoding', 'overlong');
  t.equal(faultOf(new Uint8Array([0x22, 0xe2, 0x82])), 'encoding', 'cut short');
  t.equal(faultOf(new Uint8Array([0xef, 0xbb, 0xbf, 0x31])), 'byte-order-mark');
  t.equal(faultOf(new Uint8Array([0xff, 0xfe, 0x31, 0x00])), 'encoding', 'UTF-16');
});

t.test('values are counted before they are created', async (t) => {
  const list = (count: number, value: string): string => `[${Array<string>(count).fill(value).join(',')}]`;
  for (const value of ['0', '{}', '"a,["']) {
    // The list is one value too.
    t.equal(faultOf(list(MAX_VALUES - 1, value)), undefined, value);
    t.equal(faultOf(list(MAX_VALUES, value)), 'values', value);
  }
  const members = (count: number): string => `{${Array.from({ length: count }, (_, i) => `"${i}":[0]`).join(',')}}`;
  t.equal(faultOf(members((MAX_VALUES - 2) / 2)), undefined);
  t.equal(faultOf(members(MAX_VALUES / 2)), 'values');
  t.equal(faultOf('{},'.repeat(2_000_000)), 'values', 'which is refused without being parsed: it is no JSON');
});

t.test('nesting', async (t) => {
  const nested = (depth: number, open: string, close: string) => open.repeat(depth) + '1' + close.repeat(depth);
  t.equal(faultOf(nested(MAX_NESTING, '[', ']')), undefined);
  t.equal(faultOf(nested(MAX_NESTING + 1, '[', ']')), 'nesting');
  t.equal(faultOf(nested(MAX_NESTING, '{"a":', '}')), undefined);
  t.equal(faultOf(nested(MAX_NESTING + 1, '{"a":', '}')), 'nesting');
  t.equal(faultOf('['.repeat(1_000_000)), 'nesting', 'refused before any parser recurses');
  t.equal(faultOf(`[${'[],'.repeat(1000)}[]]`), undefined, 'width is not depth');
  t.equal(faultOf(JSON.stringify('['.repeat(100))), undefined, 'brackets in strings do not nest');
  t.equal(faultOf(`"\\\\\\"${'['.repeat(100)}"`), undefined, 'an escaped quote does not end a string');
  t.equal(
    faultOf(`["\\\\",${nested(MAX_NESTING, '[', ']')}]`),
    'nesting',
    'an escaped backslash does not hide its end',
  );
});

t.test('a name twice in one object', async (t) => {
  for (const text of [
    ...['{"a":1,"a":1}', '[{"b":{"a":1,"c":2,"a":3}}]', '{"a":1,"\\u0061":2}', '{"__proto__":1,"__proto__":2}'],
    ...['{"1":1,"1":2}', '{"":1,"":2}'],
  ])
    t.equal(faultOf(text), 'repeated-name', text);
  for (const text of ['{"a":{"a":1}}', '[{"a":1},{"a":1}]', '{"a":":","b":"::"}', '{"a":1,"A":1}', '{"__proto__":1}'])
    t.equal(faultOf(text), undefined, text);
});

t.test('lone surrogates', async (t) => {
  for (const text of ['"\\ud800"', '"\\uDFFF"', '{"\\ud83d":1}', '["\\ude00\\ud83d"]', '"😀\\ud83d"'])
    t.equal(faultOf(text), 'lone-surrogate', text);
  for (const text of ['"\\ud83d\\ude00"', '"😀"', '"\\\\ud800"']) t.equal(faultOf(text), undefined, text);
  t.equal(faultOf('[null, 1, true, {"a": "\\ud83d\\ude00"}]'), undefined, 'other values beside an escape');
  t.match(
    readJson(Buffer.from('[null, 1, true, {"a": ["", "\\ud83d"]}]')),
    { fault: 'lone-surrogate', segments: ['3', 'a', '1'] },
    'where the first one is',
  );
  const replaced = (text: string): unknown => {
    const read = readJson(Buffer.from(text), { replaceSurrogates: true });
    return read.ok ? JSON.parse(read.text) : read.fault;
  };
  t.strictSame(replaced('{"\\ud83d": ["x\\uDE00", "\\ud83d\\ud83d\\ude00"]}'), { '\ufffd': ['x\ufffd', '\ufffd😀'] });
  t.equal(replaced('"\\\\ud83d\\n"'), '\\ud83d\n', 'the text of an escape is none');
  t.equal(replaced('{"\\ud800":1,"\\ud801":1}'), 'repeated-name');
});

t.test('__proto__ is a name, not a prototype', async (t) => {
  const result = read('{"__proto__":{"polluted":true}}');
  t.ok(result.ok && Object.hasOwn(result.value as object, '__proto__'));
  t.equal(({} as { polluted?: boolean }).polluted, undefined);
});

const slice = (text: string, { from, to }: Span): string => text.slice(from, to);

/** Rebuilds a value from its text with the functions under test. */
function rebuilt(text: string, span: Span): unknown {
  if (text.charAt(span.from) === '[') return elementsOf(text, span).map((element) => rebuilt(text, element));
  if (text.charAt(span.from) !== '{') return JSON.parse(slice(text, span));
  return Object.fromEntries(membersOf(text, span).map((member) => [member.name, rebuilt(text, member)]));
}

t.test('the text has the values of JSON.parse', async () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.constantFrom('', ' ', '\t\n'), (value, space) => {
      const text = space + JSON.stringify(value, undefined, space) + space;
      assert.deepEqual(rebuilt(text, rootOf(text)), JSON.parse(text));
      assert.equal(compactText(text, rootOf(text)), JSON.stringify(value));
    }),
    { numRuns: rounds({ short: 30, long: 500 }) },
  );
});

t.test('order and unusual names are kept', async (t) => {
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
});

t.test('numbers and strings stay as written', async (t) => {
  const text = '[ 1.0 , 12345678901234567890 , 1e+3 , "a \\u0062 \\" ] , " , { } , [ ] ]';
  t.equal(compactText(text, rootOf(text)), '[1.0,12345678901234567890,1e+3,"a \\u0062 \\" ] , ",{},[]]');
  t.equal(elementsOf(text, rootOf(text)).length, 6);
  t.same(elementsOf('[ ]', { from: 0, to: 3 }), []);
  t.same(membersOf('{ }', { from: 0, to: 3 }), []);
});
