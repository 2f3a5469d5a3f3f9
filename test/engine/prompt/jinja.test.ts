import t from 'tap';
import { JinjaTemplate } from '../../../engine/prompt/jinja.js';
import { WrittenNumber } from '../../../engine/prompt/written-number.js';

const render = (source: string, items: Readonly<Record<string, unknown>> = {}): string =>
  new JinjaTemplate(source).render(items);

/** Source, variables, result: features that templates of real models use and the library does not have. */
const CASES: readonly (readonly [string, string, Readonly<Record<string, unknown>>, string])[] = [
  [
    'a method has precedence over a member in a call',
    '{% for k, v in o.items() %}{{ k }}={{ v }};{% endfor %}{{ o.items }}',
    { o: { items: 1, a: 2 } },
    'items=1;a=2;1',
  ],
  ['tuples in a loop', '{% for a, b in [("x", 1), ("y", 2)] %}{{ a }}{{ b }}{% endfor %}', {}, 'x1y2'],
  [
    'numbers for keys',
    '{% set m = {16: "b", 2: "a"} %}{% for k, v in m | dictsort %}{{ k + 1 }}{{ v }}{% endfor %}{{ m[16] }}',
    {},
    '3a17bb',
  ],
  ['append and pop', '{% set l = [1, 2] %}{% set _ = l.append(3) %}{{ l.pop(0) }}{{ l.pop() }}{{ l[0] }}', {}, '132'],
  ['format', '{{ "<a{}b{}>".format(":x", 1) }}', {}, '<a:xb1>'],
  ['min and max', '{{ [3, 1, 2] | min }}{{ [3, 1, 2] | max }}', {}, '13'],
  [
    "Python's notation",
    '{{ o | string }}',
    { o: { a: [true, null, 1.5], b: "it's", c: '"it\'s"\n' } },
    `{'a': [True, None, 1.5], 'b': "it's", 'c': '"it\\'s"\\n'}`,
  ],
  [
    'none within arguments and schemas, and in place of a text',
    '{% for m in messages %}[{{ m.content }}|{{ m.calls[0].limit }}|{{ m.calls[0].limit is none }}]{% endfor %}',
    { messages: [{ content: null, calls: [{ limit: null }] }] },
    '[|None|True]',
  ],
  ['trim of nothing', '[{{ nothing | trim }}]', {}, '[]'],
  ['joining with nothing', '{{ "a" + nothing }}{{ nothing ~ "b" }}', {}, 'ab'],
  [
    'none and undefined among other values',
    '{{ none in ["a"] }}{{ nothing in ["a"] }}{{ "a" not in nothing }}',
    {},
    'FalseFalseTrue',
  ],
  [
    'a list in a list',
    '{{ ["a", 1] in [["a", 1]] }}{{ ["a"] in ["a", ["b"]] }}{{ ["a"] not in [] }}',
    {},
    'TrueFalseTrue',
  ],
  ['text filters on undefined', '{{ nothing | upper }}{{ nothing | lower }}|{{ none | string }}', {}, '|None'],
  ['a repeated text', '{{ "ab" * 2 }}{{ 2 * "c" }}{{ "d" * 0 }}', {}, 'ababcc'],
  ['truth in texts', '{{ yes }}{{ "is " ~ no }}{{ yes | string }}', { yes: true, no: false }, 'Trueis FalseTrue'],
  ['a member without a name', '{{ o[nothing] is defined }}', { o: { a: 1 } }, 'False'],
  [
    'what can be iterated',
    '{{ o is iterable }}{{ [] is iterable }}{{ nothing is iterable }}{{ 1 is not iterable }}',
    { o: {} },
    'TrueTrueTrueTrue',
  ],
  ['a loop over nothing', '[{% for x in nothing %}x{% endfor %}{% for x in nothing if x %}x{% endfor %}]', {}, '[]'],
  ['a loop with a condition', '{% for x in [1, 2, 3] if x != 2 %}{{ x }}{% endfor %}', {}, '13'],
  [
    'select and reject without a test',
    '{{ ["a", none, "", "b"] | select | join(",") }}{{ [0, 1, ""] | reject() | list | length }}',
    {},
    'a,b2',
  ],
  [
    'select and reject',
    '{% for k in o.keys() | reject("in", ["b"]) %}{{ k }}{% endfor %}{{ [1, "x"] | select("string") | join }}{{ l | reject("equalto", 2) | join }}{{ l | select("gt", 1) | list | length }}',
    { o: { a: 1, b: 2, c: 3 }, l: [1, 2, 3] },
    'acx132',
  ],
  [
    'tests with an argument',
    '{{ a is eq 1 }}{{ a is not eq 1 }}{{ a is in [1, 2] }}{{ a is not in([1]) }}{{ yes is sameas true and a is lt(2) }}{{ a is not ge 1 }}',
    { a: 1, yes: true },
    'TrueFalseTrueFalseTrueFalse',
  ],
  ['any line end', "a\r\n{% if yes %}\r\n{{ '\\r' }}b\r\n{% endif %}\rc\r\n", { yes: true }, 'a\n\rb\nc'],
  [
    'equal lists and mappings',
    '{{ [] == [] }}{{ l != [1] }}{{ l == [1, [2]] }}{{ {} == {} }}{{ o == {"a": [1]} }}{{ {"b": 1} == {"a": 1} }}{{ l != [1, [2]] }}',
    { l: [1, [2]], o: { a: [1] } },
    'TrueTrueTrueTrueTrueFalseFalse',
  ],
  [
    'values of different types',
    '{{ [] == "" }}{{ "" == false }}{{ 0 == "" }}{{ "1" == 1 }}{{ nothing == none }}{{ nothing != none }}{{ none == none }}{{ nothing == nothing }}{{ {} == [] }}',
    {},
    'FalseFalseFalseFalseFalseTrueTrueTrueFalse',
  ],
  [
    'numbers and truths',
    '{{ 1 == 1.0 }}{{ 1 == true }}{{ 0 != false }}{{ 2 == true }}{{ 1 in [true] }}{{ 1.0 in l }}{{ "1" in l }}',
    { l: [1] },
    'TrueTrueFalseFalseTrueTrueFalse',
  ],
  [
    'what an iteration sets ends with it',
    '{% set first = true %}{% for r in l %}{% if first %}[BOS]{% set first = false %}{% endif %}{{ r }}{{ y is defined }}{% set y = r %};{% endfor %}{{ first }}{{ r is defined }}',
    { l: ['u', 'a'] },
    '[BOS]uFalse;[BOS]aFalse;TrueFalse',
  ],
  [
    'an iteration that counts',
    '{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}',
    {},
    '221',
  ],
  [
    "a macro knows its definition's names",
    '{% set v = "g" %}{% macro m() %}[{{ v }}{{ loop is defined }}{{ caller is defined }}]{% endmacro %}{% for v in l %}{{ m() }}{% call m() %}x{% endcall %}{% endfor %}{% set v = "k" %}{{ m() }}',
    { l: [3] },
    '[gFalseFalse][gFalseTrue][kFalseFalse]',
  ],
  [
    'a caller is that of its own macro',
    '{% macro a(n) %}<{{ caller() }}{{ b() }}{{ n }}>{% endmacro %}{% macro b() %}{{ "C" if caller else "N" }}{% endmacro %}{% set x = "y" %}{% call a(1) %}{{ x }}{% endcall %}',
    {},
    '<yN1>',
  ],
  [
    'breaks and continues keep what was written',
    '{% for x in [1, 2, 3] %}a{% if x == 2 %}b{% continue %}{% endif %}c{% endfor %}|{% for x in [1, 2] %}{{ x }}{% if x == 1 %}{% break %}{% endif %}c{% else %}E{% endfor %}',
    {},
    'acabac|1E',
  ],
  [
    'the position in a loop',
    '{% for x in "abc" if x != "b" %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}',
    {},
    '10212TrueFalsec;21102FalseTruea;',
  ],
  ['nested tuples in a loop', '{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}', {}, '123'],
  [
    'loops over texts and mappings',
    '{% for c in "a😀" %}{{ c }};{% endfor %}{% for k in o %}{{ k }}{% else %}e{% endfor %}',
    { o: {} },
    'a;😀;e',
  ],
  [
    'blocks',
    '{% set x | trim | upper %} {% set y = 1 %}ab {% endset %}{{ x }}{{ y is defined }}{% filter upper %}c{% endfilter %}',
    {},
    'ABFalseC',
  ],
  ['range', '{{ range(3) | join }}{{ range(1, 3) | join }}{{ range(5, 0, -2) | join }}', {}, '01212531'],
];

t.test('features that templates use', (t) => {
  for (const [what, source, items, result] of CASES) t.equal(render(source, items), result, what);
  t.end();
});

t.test('long chains of filters and calls are evaluated once each', (t) => {
  let calls = 0;
  const once = (): string => {
    calls += 1;
    return 'x';
  };
  t.equal(render(`{{ once()${' | trim'.repeat(30)} }}`, { once }), 'x');
  t.equal(render(`{{ once()${'.strip()'.repeat(30)} }}`, { once }), 'x');
  t.equal(render(`{{ once()${' ~ "y"'.repeat(30)} }}`, { once }), `x${'y'.repeat(30)}`);
  t.equal(calls, 3);
  t.end();
});

t.test('a template that raises throws, and so does an endless list', (t) => {
  t.throws(() => render('{{ raise_exception("no") }}'), { message: 'no' });
  t.throws(() => render('{{ range(1000000000) }}'));
  t.throws(() => render('{{ range(0, 1, 0) }}'));
  t.throws(() => render('{% if %}'));
  t.end();
});

t.test('a rendering leaves no state, in its template or in another', async (t) => {
  const source =
    '{% set ns = namespace(n=0) %}{% set list = ["a"] %}{% set _ = list.append("b") %}{% macro m(x) %}<{{ x }}>{% endmacro %}' +
    '{% for i in range(2) %}{% set ns.n = ns.n + 1 %}{{ nobody is defined }}{% endfor %}{{ ns.n }}{{ list | join }}' +
    '{{ m("c") }}{% set none = "set" %}{{ none }}{% set range = 3 %}{{ range }}';
  const text = 'FalseFalse2ab<c>set3';
  const template = new JinjaTemplate(source);
  for (let i = 0; i < 3; i += 1) t.equal(template.render({}), text);
  t.equal(template.render({ nobody: 1 }), text.replaceAll('False', 'True'));
  t.equal(template.render({}), text);
  const other = new JinjaTemplate('{{ none is none }}{{ range(2) | join }}{{ true }}');
  t.equal(other.render({}), 'True01True');
  t.equal(other.render({ true: 'own', range: (n: number) => [n] }), 'True2own', 'a variable with a well-known name');
  t.equal(other.render({}), 'True01True');
});

t.test('numbers are written as Python writes them', (t) => {
  const floats: readonly (readonly [number, string])[] = [
    [1e-7, '1e-07'],
    [0.00001, '1e-05'],
    [0.0001, '0.0001'],
    [1.5e-10, '1.5e-10'],
    [0.1 + 0.2, '0.30000000000000004'],
    [1.5e300, '1.5e+300'],
    [-2.5e-123, '-2.5e-123'],
  ];
  for (const [f, python] of floats) {
    t.equal(
      render("{{ f }} {{ [f] }} {{ [f] | tojson }} {{ f | string }} {{ 'x' ~ f }}", { f }),
      `${python} [${python}] [${python}] ${python} x${python}`,
    );
  }
  for (const [source, python] of [
    ['1e16', '1e+16'],
    ['1e15', '1000000000000000.0'],
    ['123456789012345680.0', '1.2345678901234568e+17'],
    ['-0.0', '-0.0'],
    ['1e22', '1e+22'],
  ] as const) {
    t.equal(render('{{ f }} {{ [f] | tojson }}', { f: new WrittenNumber(source) }), `${python} [${python}]`);
  }
  t.equal(render("{{ 'x' ~ (f + 0.5) }} {{ [f + 0.5] | tojson }}", { f: 2.5 }), 'x3.0 [3.0]');
  const n = new WrittenNumber('12345678901234567890123');
  const ways = [
    'n',
    'n | int',
    'n | string',
    "'%d' % n",
    "'%s' % n",
    "'{:d}'.format(n)",
    '[n] | join',
    '[n] | tojson',
    "'' ~ n",
  ];
  for (const way of ways) t.equal(render(`{{ (${way}) | replace('[', '') | replace(']', '') }}`, { n }), n.source, way);
  t.equal(render("{{ '%d' % 2.5 }}{{ 2.5 | int }}{{ none ~ nothing ~ 1.0 }}"), '22None1.0');
  t.equal(render('{{ [f, 0 - f] | tojson }} {{ f }}', { f: Infinity }), '[Infinity, -Infinity] inf');
  t.end();
});

t.test('the filter tojson is laid out as Python lays it out', (t) => {
  const o = { b: [1, { é: 'x"\u007f' }], a: {}, B: [], n: [true, null] };
  const written = (filter: string): string => render(`{{ o | ${filter} }}`, { o });
  t.equal(written('tojson'), '{"b": [1, {"é": "x\\"\u007f"}], "a": {}, "B": [], "n": [true, null]}');
  t.equal(
    written('tojson(ensure_ascii=true, sort_keys=true)'),
    '{"B": [], "a": {}, "b": [1, {"\\u00e9": "x\\"\\u007f"}], "n": [true, null]}',
  );
  t.equal(
    written('tojson(indent=2)'),
    '{\n  "b": [\n    1,\n    {\n      "é": "x\\"\u007f"\n    }\n  ],\n  "a": {},\n  "B": [],\n  "n": [\n    true,\n    null\n  ]\n}',
  );
  t.equal(written("tojson(separators=(',', ':'))"), '{"b":[1,{"é":"x\\"\u007f"}],"a":{},"B":[],"n":[true,null]}');
  t.end();
});
