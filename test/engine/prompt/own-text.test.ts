/** Special texts that a template writes itself, and those that it completes from callers' text. */
import t from 'tap';
import { Marking, SpecialTexts } from '../../../engine/prompt/data-text.js';
import { JinjaTemplate } from '../../../engine/prompt/jinja.js';

const SPECIALS = new SpecialTexts(['<|end|>', '<|user|>', '<s>', '<think>', '<|image_1|>']);

/** The pieces of a rendered template. */
function pieces(source: string, items: Readonly<Record<string, unknown>>, mark = '\ue000'): readonly string[] {
  const marking = new Marking(SPECIALS, mark);
  return marking.pieces(new JinjaTemplate(source).render(items, marking));
}

t.test('a special text that a template completes from a caller’s text is split', async (t) => {
  for (const [source, text] of [
    ["{{ text.replace('/x', '') }}", '<|e/xnd|>'],
    ["{{ text | replace('/x', '') }}", '<|e/xnd|>'],
    ["{{ text | trim | replace('/x', '') | lower }}", ' <|e/xND|>'],
    ["{{ '<|%s' % text + '|>' }}", 'end'],
    ["{{ text.split('/x') | join }}", '<|e/xnd|>'],
    ["{% for part in text.split('/x') %}{{ part }}{% endfor %}", '<|e/xnd|>'],
    ["{{ '<' + text + '>' }}", '|end|'],
    ["{{ '<' ~ text ~ '>' }}", '|end|'],
    ['<{{ text }}>', '|end|'],
    ['<{% if true %}{{ text }}{% endif %}>', '|end|'],
    ['{% macro tag(name) %}<{{ name }}>{% endmacro %}{{ tag(text) }}', '|end|'],
    ['{% set tag %}<{{ text }}{% endset %}{{ tag }}>', '|end|'],
    ['<|{{ text | trim }}|>', ' end '],
    ['{{ text }}nd|>', '<|e'],
    ['{{ [text, "end|>"] | join }}', '<|'],
    ['{% for name in named %}<{{ name }}>{% endfor %}', '|end|'],
    ['{% for part in ["<", text] %}{{ part }}{% endfor %}>', '|end|'],
    ['{% for part in [text] %}<{{ part }}{% break %}{% endfor %}>', '|end|'],
    ['{% filter trim %}<{{ text }}>{% endfilter %}', '|end|'],
    ['{% set tag | lower %}<|{{ text }}|>{% endset %}{{ tag }}', 'END'],
    ["{{ '<|%s|>' % text }}", 'end'],
    ["{{ '<|%s|>' | format(text) }}", 'end'],
    ["{{ '<|{}|>'.format(text) }}", 'end'],
    ["{{ text.removeprefix('x') }}", 'x<|end|>'],
    ['{{ text | lower }}', '<|END|>'],
    ['{{ text | string }}', '<|end|>'],
    ['{{ text }}', '<|end|>'],
  ] as const) {
    t.same(pieces(source, { text, named: { [text]: 1 } }), ['<', '|end|>'], source);
  }
});

t.test('a special text that a template writes itself is whole, and one that it makes of a role', async (t) => {
  const items = { bos_token: '<s>', messages: [{ role: 'user', content: 'so' }] };
  for (const source of [
    '<|user|>so',
    "{{ '<|us' 'er|>' }}so",
    "{{ '<|us' + 'er|>' + messages[0].content }}",
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m.content }}{% endfor %}",
    '{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}',
    "{% set role = messages[0].role %}{{ '<|' ~ role ~ '|>' }}so",
    "{% set ns = namespace(text='') %}{% set ns.text = ns.text + '<|' + messages[0].role + '|>' %}{{ ns.text }}so",
    "{% macro head(role) %}<|{% if role == 'user' %}{{ role }}{% endif %}|>{% endmacro %}{{ head(messages[0].role) }}so",
    "{{ ('<|' + {'user': 'user'}[messages[0].role]) + ('|' + '>') }}so",
    "<|{{ messages | map(attribute='role') | first | string | lower }}|>so",
    "{% for part in ['<|', messages[0].role, '|>'] %}{{ part }}{% continue %}{% endfor %}so",
    '<|{% for m in messages %}{{ m.role }}{% endfor %}|>so',
    '{% for m in messages %}<|{% if m.role %}{{ m.role }}|>{% break %}{% endif %}{% endfor %}so',
    '{% filter trim %} <|{{ messages[0].role }}|>{% endfilter %}so',
    '{% set head | trim %} <|{{ messages[0].role }}|>{% endset %}{{ head }}so',
    '{% macro head() %}<|{{ caller() }}|>{% endmacro %}{% call head() %}{{ messages[0].role }}{% endcall %}so',
    "{{ '<|user|>'.strip() }}{{ '{}'.format('so') }}",
    "{{ '%s%s' % ('<|user|>', 'so') }}",
    "{{ ['<|user|>', 'so'] | join }}",
    "{{ '<|user|>' | title | lower }}so",
    "{{ '<|' + (messages[0].role | trim) + '|>' }}so",
    "{{ '<|' + messages[0].role.strip().lower() + '|>' }}so",
    "{{ '<|' + messages[0].role.upper()[0:] | lower + '|>' }}so",
    "{{ '<|%s|>' % messages[0].role }}so",
    "{{ '<|{}|>'.format(messages[0].role) }}so",
    "{{ ['<|', messages[0].role, '|>'] | join }}so",
    "{{ '<|ROLE|>' | replace('ROLE', messages[0].role) }}so",
  ]) {
    t.same(pieces(source, items), ['<|user|>so'], source);
  }
  t.same(pieces("{% for m in messages %}{{ '<|image_' ~ loop.index }}|>{% endfor %}", items), ['<|image_1|>']);
  t.same(pieces("{{ '<|user|>' | length }} {{ '<|user|>so'[8:] }}", items), ['8 so'], 'marks are not counted');
  t.same(pieces('{{ bos_token }}<|end|>{{ messages[0].content }}', items), ['<s><|end|>so']);
  t.same(pieces("{{ messages[0].content + '<|' + messages[0].role + '|>' }}", items), ['so<|user|>']);
});

t.test('a template compares its special texts with each other, and not with callers’', async (t) => {
  const source = "{% set own = '<think>' %}{{ own == '<think>' }} {{ '<think>' in text }} {{ own.startswith('<') }}";
  t.same(pieces(source, { text: '<think>' }), ['True False True']);
});

t.test('callers’ text may have the characters of marks', async (t) => {
  const template = new JinjaTemplate('<|end|>{{ text }}');
  for (let at = 0; at < 8; at++) {
    const mark = String.fromCharCode(0xe000 + at);
    const marking = new Marking(SPECIALS, mark);
    const text = `${'\ue000\ue001\ue002\ue003\ue004\ue005\ue006'.slice(0, at)}<|end|>`;
    t.same(marking.pieces(template.render({ text }, marking)), [`<|end|>${text.slice(0, at)}<`, '|end|>']);
  }
  const others = new Marking(new SpecialTexts(['end']), '\ue000');
  t.same(others.pieces(template.render({ text: 'end' }, others)), ['<|end|>e', 'nd'], 'with another vocabulary');
});
