import t from 'tap';
import { JinjaTemplate } from '../../../engine/prompt/jinja.js';

const render = (source: string, items: Readonly<Record<string, unknown>> = {}): string =>
  new JinjaTemplate(source).render(items);

/** Source, variables, result: what templates of real models ask for and the library alone does not do. */
const CASES: readonly (readonly [string, string, Readonly<Record<string, unknown>>, string])[] = [
  [
    'a method wins over a member when it is called',
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
  ['trim of nothing', '[{{ nothing | trim }}]', {}, '[]'],
  ['joining with nothing', '{{ "a" + nothing }}{{ nothing ~ "b" }}', {}, 'ab'],
  ['a member named by nothing', '{{ o[nothing] is defined }}', { o: { a: 1 } }, 'false'],
  [
    'what can be gone over',
    '{{ o is iterable }}{{ [] is iterable }}{{ nothing is iterable }}{{ 1 is not iterable }}',
    { o: {} },
    'truetruetruetrue',
  ],
  ['a loop over nothing', '[{% for x in nothing %}x{% endfor %}{% for x in nothing if x %}x{% endfor %}]', {}, '[]'],
  ['a loop with a condition', '{% for x in [1, 2, 3] if x != 2 %}{{ x }}{% endfor %}', {}, '13'],
  ['range', '{{ range(3) | join }}{{ range(1, 3) | join }}{{ range(5, 0, -2) | join }}', {}, '01212531'],
];

t.test('what templates ask of Jinja', (t) => {
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

t.test('a template that raises throws, and so does a list without end', (t) => {
  t.throws(() => render('{{ raise_exception("no") }}'), { message: 'no' });
  t.throws(() => render('{{ range(1000000000) }}'));
  t.throws(() => render('{{ range(0, 1, 0) }}'));
  t.throws(() => render('{% if %}'));
  t.end();
});
