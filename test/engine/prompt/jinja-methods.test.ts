import t from 'tap';
import { areRefused, areRendered, type JinjaCases } from '../../support/jinja-cases.js';

const CASES: JinjaCases = [
  [
    '{{ "{0}{1}{0}{{}}".format("a", 1) }}|{{ "{:02d}{:>4}{:.1f}{x}".format(5, "r", 2.25, x=none) }}|{{ "%s-%d-%.2f%%" | format("a", 3, 2.346) }}|{{ "%02d" % 5 }}{{ "%s/%s" % ("a", true) }}{{ "%(n)s" % {"n": 1} }}',
    'a1a{}|05   r2.2None|a-3-2.35%|05a/True1',
  ],
  [
    '{{ "a😀b"[1] }}{{ "a😀b"[-1] }}{{ "a😀b" | length }}{{ "😀b".find("b") }}{{ "😀" | reverse }}{{ "ab"[5] is defined }}',
    '😀b31😀False',
  ],
  [
    '{{ ", ".join(["a", "b"]) }}|{{ "abca".find("c") }}{{ "abca".find("q") }}{{ "abca".rfind("a") }}{{ "abca".index("b") }}{{ "abca".count("a") }}|{{ "a,b,c".rsplit(",", 1) }}{{ "a,b,c".split(",", maxsplit=1) }}{{ " a  b c ".split() }}{{ " a  b  c ".rsplit(none, 1) }}{{ " a  b  c ".split(none, 1) }}{{ "".split() }}',
    "a, b|2-1312|['a,b', 'c']['a', 'b,c']['a', 'b', 'c'][' a  b', 'c']['a', 'b  c '][]",
  ],
  [
    '{{ "a\\nb\\r\\n".splitlines() }}{{ "abc".removeprefix("a") }}{{ "abc".removesuffix("c") }}{{ "12".isdigit() }}{{ "".isdigit() }}{{ ["a", "b"].index("b") }}{{ [1, 1].count(1) }}',
    "['a', 'b']bcabTrueFalse12",
  ],
];

t.test("Python's methods and formats", (t) => areRendered(t, CASES));

t.test('what a method does not take is an error', (t) =>
  areRefused(t, [
    '{{ "a".index("b") }}',
    '{{ ["a"].index("b") }}',
    '{{ [].pop() }}',
    '{{ ",".join([1]) }}',
    '{{ "a".split("") }}',
    '{{ "{".format(1) }}',
    '{{ "{:x}".format(1) }}',
    '{{ "{:02d}".format("a") }}',
    '{{ "{}{}".format(1) }}',
    '{{ "%q" % 1 }}',
    '{{ "%d" % "a" }}',
  ]),
);
