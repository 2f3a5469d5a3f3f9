import t from 'tap';
import { areRefused, areRendered, type JinjaCases } from '../../support/jinja-cases.js';

const CASES: JinjaCases = [
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

t.test('operators, tests and `dict`', (t) => areRendered(t, CASES));

t.test('what has no order or no rest is an error', (t) =>
  areRefused(t, [
    '{{ 1 < 2 < 3 }}',
    '{{ 1 < "a" }}',
    '{{ none > 1 }}',
    '{{ 1 % 0 }}',
    '{{ 1 in "a" }}',
    '{{ "a" is odd }}',
  ]),
);
