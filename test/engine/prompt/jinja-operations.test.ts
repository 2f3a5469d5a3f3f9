import t from 'tap';
import { JinjaTemplate } from '../../../engine/prompt/jinja.js';

const ITEMS = {
  yes: true,
  o: { a: 1 },
  rows: [
    { n: 1, f: { name: 'x' } },
    { n: 3, calls: [1], f: { name: 'y' } },
  ],
};

/** Sources, with what Jinja2 makes of them. */
const CASES: readonly (readonly [string, string])[] = [
  [
    '{{ "a" < "b" }}{{ "B" >= "a" }}{{ [1, 2] < [1, 3] }}{{ 1 < 1.5 }}{{ "a" in o }}{{ 2 in o }}{{ "b" in "abc" }}',
    'TrueFalseTrueTrueTrueFalseTrue',
  ],
  [
    '{{ 4 is divisibleby 2 }}{{ 1.5 is float }}{{ true is number }}{{ 1 is sameas true }}{{ yes is sameas true }}{{ "a" is lower }}{{ "1" is lower }}{{ nothing is sequence }}{{ [1] is in [[1]] }}{{ 3 is not odd }}',
    'TrueTrueTrueFalseTrueTrueFalseTrueTrueFalse',
  ],
  [
    '{{ dict(a=1) }}{{ dict(o, z=2) | tojson }}{{ dict([("k", 1)]) }}{{ dict(o, **{"y": 3}) | length }}',
    '{\'a\': 1}{"a": 1, "z": 2}{\'k\': 1}2',
  ],
];

t.test('operators, tests and `dict`', (t) => {
  for (const [source, text] of CASES) t.equal(new JinjaTemplate(source).render(ITEMS), text, source);
  t.end();
});

t.test('what has no order or no rest is an error', (t) => {
  for (const source of [
    '{{ 1 < 2 < 3 }}',
    '{{ 1 < "a" }}',
    '{{ none > 1 }}',
    '{{ 1 % 0 }}',
    '{{ 1 in "a" }}',
    '{{ "a" is odd }}',
  ])
    t.throws(() => new JinjaTemplate(source).render({}), source);
  t.end();
});
