import t from 'tap';
import { areRefused, areRendered, type JinjaCases } from '../../support/jinja-cases.js';

const CASES: JinjaCases = [
  ["{{ '\\d\\.\\w' }}{{ \"\\\"\\\\\" }}{{ 'é\\/' }}", '\\d\\.\\w"\\é\\/'],
  ["a\n{% raw %}\n  {{ x }}'\\n\n  {% endraw %}\nb", "a\n\n  {{ x }}'\\n\nb"],
  ['  {%- raw -%}  {% y %}  {%- endraw -%}  c', '{% y %}c'],
  ['a\n  {%+ if yes %}\n  b\n  {% endif +%}\nc', 'a\n    b\n\nc'],
  ['  {% raw %}{% endraw %}x', 'x'],
];

t.test("what Jinja's lexer reads", (t) => areRendered(t, CASES));

t.test('an escape sequence that is not known is an error', (t) => areRefused(t, ["{{ '\\a' }}", "{{ '\\033' }}"]));
