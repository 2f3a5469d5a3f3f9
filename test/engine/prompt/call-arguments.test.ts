import t from 'tap';
import { JinjaTemplate } from '../../../engine/prompt/jinja.js';
import { WrittenNumber } from '../../../engine/prompt/written-number.js';
import {
  CallArguments,
  MAX_ARGUMENT_NESTING,
  MAX_ARGUMENT_VALUES,
  OversizedArguments,
} from '../../../engine/prompt/call-arguments.js';

const list = (count: number): string => `[${Array<string>(count).fill('0').join(',')}]`;
const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth);

/** The class of the error that parsing throws. */
function thrown(given: CallArguments, text: string): string | undefined {
  try {
    given.parse(text);
    return undefined;
  } catch (error) {
    return error instanceof OversizedArguments ? 'oversized' : String(error instanceof SyntaxError);
  }
}

t.test('numbers that are not values of JavaScript stay as they are written', (t) => {
  const text =
    '{"a":1e3,"b":[-1.0,{"c":2.5}],"d":"1.0 \\" 1e3","e":10,"f":true,"g":-0.0,"h":1234567890123456789,"i":[-0,9007199254740991]}';
  const parsed = new CallArguments().parse(text) as Record<string, unknown>;
  t.strictSame(parsed, {
    a: new WrittenNumber('1e3'),
    b: [new WrittenNumber('-1.0'), { c: 2.5 }],
    d: '1.0 " 1e3',
    e: 10,
    f: true,
    g: new WrittenNumber('-0.0'),
    h: new WrittenNumber('1234567890123456789'),
    i: [-0, 9007199254740991],
  });
  const template = new JinjaTemplate(
    '{{ a }} {{ b[0] }} {{ b | tojson }} {{ e }} {{ a | string }} {{ a + 1 }} {{ g }}',
  );
  t.equal(template.render(parsed), '1000.0 -1.0 [-1.0, {"c": 2.5}] 10 1000.0 1001.0 -0.0');
  const long = new JinjaTemplate(
    "{{ h }} {{ i | tojson }} {{ [h] }} {{ [h] | tojson }} {{ h | string }} {{ 'x' ~ h }}",
  );
  const digits = '1234567890123456789';
  t.equal(long.render(parsed), `${digits} [0, 9007199254740991] [${digits}] [${digits}] ${digits} x${digits}`);
  t.equal(new JinjaTemplate('{{ h is number }} {{ h is integer }} {{ h > 1 }}').render(parsed), 'True True True');
  t.throws(() => new CallArguments().parse('{"a":1.0.0}'), SyntaxError);
  t.throws(() => new CallArguments().parse('{"a":1e3'), SyntaxError);
  t.end();
});

t.test('arguments are parsed, and empty ones are an empty object', (t) => {
  const given = new CallArguments();
  t.same(given.parse('{"a":[1,"[{,\\"",{}]}'), { a: [1, '[{,"', {}] });
  t.same(given.parse(' '), {});
  t.throws(() => given.parse('{"a"'), SyntaxError);
  t.throws(() => given.parse('"\\'), SyntaxError);
  t.end();
});

t.test('arguments past the bounds are refused before they are parsed', (t) => {
  t.same(new CallArguments().parse(nested(MAX_ARGUMENT_NESTING)), JSON.parse(nested(MAX_ARGUMENT_NESTING)));
  t.equal(thrown(new CallArguments(), nested(MAX_ARGUMENT_NESTING + 1)), 'oversized');
  t.equal(thrown(new CallArguments(), '['.repeat(8_000_000)), 'oversized', 'not a SyntaxError');
  t.equal((new CallArguments().parse(list(MAX_ARGUMENT_VALUES)) as unknown[]).length, MAX_ARGUMENT_VALUES);
  t.equal(thrown(new CallArguments(), list(MAX_ARGUMENT_VALUES + 1)), 'oversized');
  t.same(
    new CallArguments().parse(JSON.stringify(['[,'.repeat(1_000_000)])),
    ['[,'.repeat(1_000_000)],
    'a text is one value',
  );
  t.end();
});

t.test('values of all calls are counted together', (t) => {
  const given = new CallArguments();
  for (let i = 0; i < 4; i++) given.parse(list(MAX_ARGUMENT_VALUES / 4));
  t.equal(thrown(given, '[0,1]'), 'oversized');
  t.end();
});
