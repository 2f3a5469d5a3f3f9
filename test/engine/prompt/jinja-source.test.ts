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
  ["{{ '\\d\\.\\w' }}{{ \"\\\"\\\\\" }}{{ 'é\\/' }}", '\\d\\.\\w"\\é\\/'],
  ["a\n{% raw %}\n  {{ x }}'\\n\n  {% endraw %}\nb", "a\n\n  {{ x }}'\\n\nb"],
  ['  {%- raw -%}  {% y %}  {%- endraw -%}  c', '{% y %}c'],
  ['a\n  {%+ if yes %}\n  b\n  {% endif +%}\nc', 'a\n    b\n\nc'],
  ['  {% raw %}{% endraw %}x', 'x'],
];

t.test("what Jinja's lexer reads", (t) => {
  for (const [source, text] of CASES) t.equal(new JinjaTemplate(source).render(ITEMS), text, source);
  t.end();
});

t.test('an escape sequence that is not known is an error', (t) => {
  for (const source of ["{{ '\\a' }}", "{{ '\\033' }}"]) t.throws(() => new JinjaTemplate(source), source);
  t.end();
});
