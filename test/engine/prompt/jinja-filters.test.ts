import t from 'tap';
import { areRefused, areRendered, type JinjaCases } from '../../support/jinja-cases.js';

const CASES: JinjaCases = [
  [
    '{{ "userID hello-wORLD o\'neil" | title }}|{{ "hello wORLD" | capitalize }}|{{ "userID o\'neil".title() }}|{{ "éA B".capitalize() }}|{{ nothing | title }}',
    "Userid Hello-World O'neil|Hello world|Userid O'Neil|Éa b|",
  ],
  [
    '{{ ["b", "A", "c", "a"] | max }}{{ ["b", "A"] | min }}{{ ["b", "A"] | min(case_sensitive=true) }}{{ [] | max is defined }}{{ rows | max(attribute="n") }}',
    "cAAFalse{'n': 3, 'calls': [1], 'f': {'name': 'y'}}",
  ],
  [
    '{{ rows | join(",", attribute="n") }}|{{ [1.5, true, none] | join(",") }}|{{ "ab" | join("-") }}',
    '1,3|1.5,True,None|a-b',
  ],
  [
    '{{ rows | selectattr("calls", "undefined") | list | length }}{{ rows | selectattr("calls", "defined") | list | length }}{{ rows | selectattr("n", "in", [1, 2]) | list | length }}{{ rows | rejectattr("n", "==", 1) | list | length }}{{ rows | selectattr("f.name", "ne", "x") | list | length }}{{ rows | selectattr("calls") | list | length }}',
    '111111',
  ],
  [
    '{{ ["b", "A", "c", "a"] | unique | join }}{{ [1, 1.0, "1", true] | unique | list | length }}|{{ ["b", "A", "c"] | sort | join }}{{ ["b", "A", "c"] | sort(true, true) | join }}{{ rows | sort(attribute="n", reverse=true) | map(attribute="n") | join }}',
    'bAc2|AbccbA31',
  ],
  ['{{ {"b": {"d": 1, "C": 2}, "A": 3} | tojson(sort_keys=true) }}', '{"A": 3, "b": {"C": 2, "d": 1}}'],
  [
    '{{ -7 % 3 }}{{ 7 % -3 }}{{ -7.5 % 2 }}|{{ -3.7 | int }}{{ "3.7" | int }}{{ "x" | int(5) }}{{ " 4 " | int }}{{ "3a" | int }}{{ none | int(default=2) }}|{{ "1e2" | float }}{{ true | float }}',
    '2-20.5|-335402|100.01.0',
  ],
  [
    '{{ ["a ", "b"] | map("trim") | map("upper") | join }}{{ [{"a": 1}] | map("tojson") | join }}{{ ["a"] | map("replace", "a", "z") | first }}{{ [1, none] | map("string") | join(",") }}{{ rows | map(attribute="calls", default="-") | join }}',
    'AB{"a": 1}z1,None-[1]',
  ],
  [
    '{{ [] | first is defined }}{{ [] | last is defined }}{{ "ab" | first }}{{ "ab" | last }}{{ o | first }}{{ nothing | first is defined }}',
    'FalseFalseabaFalse',
  ],
  [
    '{{ "ab" | list }}{{ o | list }}{{ nothing | list }}{{ nothing | join }}|{{ [1, 2] | count }}{{ nothing | d("y") }}{{ "" | default("z", true) }}|{{ 2.5 | round }}{{ 3.5 | round }}{{ 2.567 | round(1) }}{{ 2.3 | round(0, "ceil") }}{{ 5 | round }}|{{ [1, 2] | sum }}{{ rows | sum(attribute="n") }}{{ [0.5, 1] | sum }}|{{ "<a>&" | e }}',
    "['a', 'b']['a'][]|2yz|2.04.02.63.05|341.5|&lt;a&gt;&amp;",
  ],
  [
    '{{ none | upper }}{{ 5 | trim }}{{ "xax" | trim("x") }}|{{ "\\u00a0\\u3000a\\x1c" | trim }}|{{ "\\ufeffa".strip() | length }}|{{ "abc" | replace("b", "") }}{{ "aaa" | replace("a", "b", 2) }}|{{ "a\\n\\nb" | indent(2, true) }}|{{ "a\\nb" | indent("> ") }}',
    'NONE5a|a|2|acbba|  a\n\n  b|a\n> b',
  ],
];

t.test("Jinja's filters", (t) => areRendered(t, CASES));

t.test('what a filter does not take is an error', (t) =>
  areRefused(t, [
    '{{ 1 | list }}',
    '{{ [1] | groupby("a") }}',
    '{{ ["a", 1] | max }}',
    '{{ ["a"] | sum }}',
    '{{ "a" | trim(1, 2) }}',
    '{{ "a" | trim(no=1) }}',
    '{{ [1] | select("no") }}',
  ]),
);
