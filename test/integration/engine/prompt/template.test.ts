import { readFile } from 'node:fs/promises';
import t from 'tap';
import type { Effort } from '../../../../engine/prompt/effort.js';
import type { PromptConversation } from '../../../../engine/prompt/conversation.js';
import { makeTemplate, type ChatTemplate } from '../../../../engine/prompt/template.js';
import { withEfforts } from '../../../generate/effort-docs.js';
import { bundleTemplate } from '../../../support/prompt-models.js';
import { sourceRoot } from '../../../support/source-root.js';

const ANSWER = { addGenerationPrompt: true };
const TOOLS = [
  {
    type: 'function',
    function: {
      name: 'get_weather',
      description: 'Tells the weather',
      parameters: {
        type: 'object',
        properties: { city: { type: 'string', description: 'A city' } },
        required: ['city'],
      },
    },
  },
];
const PLAIN: PromptConversation = {
  messages: [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'Hello' },
    { role: 'assistant', content: 'Yes?' },
    { role: 'user', content: 'Goodbye' },
  ],
};
const OFFER: PromptConversation = { messages: [{ role: 'user', content: 'Hello' }], tools: TOOLS };
const LOOP: PromptConversation = {
  messages: [
    { role: 'user', content: 'Weather in Paris?' },
    {
      role: 'assistant',
      content: null,
      tool_calls: [
        { id: 'call00001', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Paris"}' } },
      ],
    },
    { role: 'tool', tool_call_id: 'call00001', content: 'sunny' },
    { role: 'assistant', content: 'It is sunny.' },
    { role: 'user', content: 'Thanks' },
  ],
  tools: TOOLS,
};

function template(source: string): ChatTemplate {
  const made = makeTemplate(source, { bos: '<s>', eos: '</s>' });
  if (made.kind === 'bad') throw new Error(made.problem);
  return made.template;
}

t.test('arguments that a template writes unchanged are passed as text', async (t) => {
  const raw = template(
    '{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ "(" ~ c.function.arguments ~ ")" }}{% endfor %}{% endfor %}',
  );
  t.match(raw.render({ messages: LOOP.messages }, ANSWER), { text: /\(\{"city":"Paris"\}\)/ });
});

t.test('a template that cannot render a conversation returns that and never throws', async (t) => {
  t.match(makeTemplate('{% if %}', { bos: '', eos: '' }), { kind: 'bad', problem: /does not parse/ });
  t.match(makeTemplate('fixed text', { bos: '', eos: '' }), { kind: 'bad', problem: /cannot render/ });
  const strict = template(
    '{% for m in messages %}{% if m.role == "tool" %}{{ raise_exception(m.content) }}{% endif %}{{ m.content }}{% endfor %}',
  );
  t.same(strict.render({ messages: [{ role: 'tool', content: 'x' }] }, ANSWER), {
    kind: 'failed',
    why: 'conversation',
  });
  const hermes = template(await bundleTemplate('Qwen-Qwen2.5-7B-Instruct'));
  const broken = { id: 'call00001', type: 'function', function: { name: 'f', arguments: '{"city":' } };
  t.same(
    hermes.render(
      {
        messages: [
          { role: 'user', content: 'x' },
          { role: 'assistant', tool_calls: [broken] },
        ],
      },
      ANSWER,
    ),
    {
      kind: 'failed',
      why: 'arguments',
    },
  );
});

t.test('name, description and parameters of a tool reach the template, in this order', (t) => {
  const chat = template(
    '{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}',
  );
  const parameters = { type: 'object', properties: {} };
  const tools = [{ function: { strict: true, parameters, name: 'go' }, type: 'function' }];
  t.same(chat.render({ messages: [{ role: 'user', content: 'x' }], tools }, ANSWER), {
    kind: 'text',
    text: 'x[{"type": "function", "function": {"name": "go", "description": "", "parameters": {"type": "object", "properties": {}}}}]',
  });
  t.end();
});

t.test('a turn of the model begins after the results of a call with words beside it', async (t) => {
  const [question, call, result] = LOOP.messages;
  const said = { role: 'assistant', ...call, content: 'I look.' };
  const messages = [question, said, result].flatMap((message) => message ?? []);
  const gemma = template(await bundleTemplate('google-gemma-4-31B-it'));
  const end = (effort: object, addGenerationPrompt = true) => {
    const rendered = gemma.render({ messages, tools: TOOLS }, { addGenerationPrompt, ...effort });
    return rendered.kind === 'text' ? rendered.text.replace(/^[^]*<tool_response\|>/, '') : rendered;
  };
  t.equal(end({}), 'I look.<turn|>\n<|turn>model\n');
  t.equal(end({ reasoningEffort: 'none' }), 'I look.<turn|>\n<|turn>model\n<|channel>thought\n<channel|>');
  t.equal(end({}, false), 'I look.<turn|>\n');
});

t.test('a call of which the template writes the id alone has its function in the id', (t) => {
  // As in Moonshot's own template of Kimi K2. The one in llama.cpp's bundle writes the name.
  const kimi = template(`{% if tools %}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>{% endif -%}
{% for m in messages %}<|im_{{ m.role }}|>{{ m.role }}<|im_middle|>
{%- if m.tool_call_id %}## Return of {{ m.tool_call_id }}
{% endif %}{{ m.content or '' }}
{%- if m.tool_calls %}<|tool_calls_section_begin|>{% for c in m.tool_calls %}<|tool_call_begin|>{{ c.id -}}
<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}<|tool_call_end|>{% endfor -%}
<|tool_calls_section_end|>{% endif %}<|im_end|>{% endfor %}
{%- if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}`);
  const call = (id: string, name: string) => ({
    id,
    type: 'function',
    function: { name, arguments: '{"city":"Bern"}' },
  });
  const result = (id: string, content: string) => ({ role: 'tool', tool_call_id: id, content });
  const messages = [
    { role: 'user', content: 'Weather?' },
    { role: 'assistant', content: null, tool_calls: [call('a', 'get_weather'), call('b', 'go')] },
    result('b', 'gone'),
    result('a', 'sunny'),
    { role: 'assistant', content: null, tool_calls: [call('a', 'get_weather')] },
    result('a', 'rain'),
    result('c', 'of no call'),
  ];
  const rendered = kimi.render({ messages, tools: TOOLS }, ANSWER);
  const text = rendered.kind === 'text' ? rendered.text : '';
  const written = text.match(/(?<=<.tool_call_begin.>).*?(?=<.tool_call_arg)|(?<=## Return of )[^<]*/g);
  t.same(written, [
    'functions.get_weather:0',
    'functions.go:1',
    'functions.go:1\ngone',
    'functions.get_weather:0\nsunny',
    'functions.get_weather:2',
    'functions.get_weather:2\nrain',
    'c\nof no call',
  ]);
  t.match(kimi.calls, { mark: '<|tool_calls_section_begin|><|tool_call_begin|>functions.', arguments: undefined });
  t.end();
});

t.test('tools that are not offered are none, as in transformers, unless the template throws at it', (t) => {
  const messages = [{ role: 'user', content: 'x' }];
  const text = (source: string) => template(source + '{{ messages[0].content }}').render({ messages }, ANSWER);
  // As in Olmo 3's own template, which lists what is not none.
  t.same(text('{% if tools is none %}no{% else %}{{ tools | tojson }}{% endif %}:'), { kind: 'text', text: 'no:x' });
  t.same(text('{% if tools is defined %}{{ tools | length }}{% endif %}:'), { kind: 'text', text: ':x' });
  t.same(text('{% for tool in tools + [] %}{% endfor %}:'), { kind: 'text', text: ':x' });
  t.end();
});

t.test('text parts become one text', async (t) => {
  const chat = template('{% for m in messages %}[{{ m.content }}]{% endfor %}');
  const content = [
    { type: 'text', text: 'one' },
    { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
    { type: 'text', text: 'two' },
  ];
  t.same(chat.render({ messages: [{ role: 'user', content }] }, ANSWER), { kind: 'text', text: '[one\ntwo]' });
  const typed = template('{% for m in messages %}{% for c in m.content %}<{{ c.text }}>{% endfor %}{% endfor %}');
  t.same(typed.render({ messages: [{ role: 'user', content }] }, ANSWER), { kind: 'text', text: '<one\ntwo>' });
});

t.test('reasoning effort reaches the template, and its absence too', async (t) => {
  const chat = template(
    '{% for m in messages %}{{ m.content }}{% endfor %}|{{ enable_thinking is defined }}|{{ enable_thinking }}|{{ reasoning_effort }}',
  );
  const of = (reasoningEffort?: Effort) =>
    chat.render(
      { messages: [{ role: 'user', content: 'x' }] },
      { addGenerationPrompt: true, ...(reasoningEffort === undefined ? {} : { reasoningEffort }) },
    );
  t.match(of('none'), { text: 'x|True|False|' });
  t.match(of('high'), { text: 'x|True|True|high' });
  t.match(of(), { text: 'x|True|False|' }, 'a model that does not think');
  const thinker = template('{{ messages[0].content }}{{ enable_thinking }}{# <think> #}');
  t.match(thinker.render({ messages: [{ role: 'user', content: 'x' }] }, ANSWER), { text: 'xTrue' }, 'one that does');
  const named = template(
    '{{ messages[0].content }}<think>{% if reasoning_effort == "none" %}</think>{{ reasoning_effort }}</think>{% endif %}',
  );
  t.match(
    named.render({ messages: [{ role: 'user', content: 'x' }] }, { ...ANSWER, reasoningEffort: 'none' }),
    { text: 'x<think></think>none</think>' },
    'a model that thinks unless the effort’s name prevents it',
  );
  const picky = template(
    '{{ messages[0].content }}{% if reasoning_effort == "medium" %}{{ raise_exception("no") }}{% endif %}{{ enable_thinking }}',
  );
  t.match(
    picky.render({ messages: [{ role: 'user', content: 'x' }] }, { ...ANSWER, reasoningEffort: 'medium' }),
    { text: 'xTrue' },
    'an effort at which the template throws is omitted',
  );
  const qwen = template(await bundleTemplate('Qwen-Qwen3-0.6B'));
  t.match(qwen.render(OFFER, { addGenerationPrompt: true, reasoningEffort: 'none' }), {
    text: /<think>\n\n<\/think>\n\n$/,
  });
});

t.test('each level of effort gives each template of the bundle what the page says, in order', async (t) => {
  const page = await readFile(`${sourceRoot}/test/goldens/README.md`, 'utf8');
  const cells = (text: string): string => text.replaceAll(/[\s-]+/g, ' ');
  t.equal(cells(page), cells(await withEfforts(page)), '`make docs` writes it');
  const end = async (name: string, reasoningEffort: Effort): Promise<string> => {
    const rendered = template(await bundleTemplate(name)).render(
      { messages: [{ role: 'user', content: 'Hello' }] },
      { addGenerationPrompt: true, reasoningEffort },
    );
    return rendered.kind === 'text' ? rendered.text : '';
  };
  t.match(await end('Kimi-K3', 'low'), 'thinking_effort=low');
  t.match(await end('Kimi-K3', 'medium'), 'thinking_effort=high', 'the next level above');
  t.match(await end('Kimi-K3', 'xhigh'), 'thinking_effort=max');
  t.notMatch(await end('Kimi-K3', 'none'), /thinking_effort=|think<\|sep\|>$/);
  t.match(await end('upstage-Solar-Open-100B', 'none'), /<\|think\|><\|end\|><\|begin\|>assistant$/);
  t.match(
    await end('openai-gpt-oss-120b', 'none'),
    'Reasoning: low',
    'the lowest level, where thought cannot be turned off',
  );
  t.match(await end('openai-gpt-oss-120b', 'max'), 'Reasoning: high', 'a level that the model knows');
  t.match(await end('tencent-Hy3', 'medium'), /<think:opensource>$/);
  t.match(await end('ByteDance-Seed-OSS', 'low'), 'which is 1024.');
  t.match(await end('deepseek-ai-DeepSeek-V4', 'xhigh'), await end('deepseek-ai-DeepSeek-V4', 'max'));
  t.not(await end('deepseek-ai-DeepSeek-V4', 'high'), await end('deepseek-ai-DeepSeek-V4', 'max'));
});

t.test('of a call only what templates know reaches a template', async (t) => {
  const all = template('{% for m in messages %}{{ m.content }}{{ m.tool_calls | tojson }}{% endfor %}');
  const call = { id: 'a', type: 'function', function: { name: 'f', arguments: '{}' }, index: 0 };
  const rendered = all.render({ messages: [{ role: 'assistant', tool_calls: [call] }] }, ANSWER);
  t.match(rendered, { kind: 'text', text: /"name": "f"/ });
  t.notMatch(rendered, { text: /index/ });
});

t.test(
  'a caller’s switches reach the template, but not under the names of the conversation and its marks',
  async (t) => {
    const qwen = template(await bundleTemplate('Qwen-Qwen3-0.6B'));
    const text = (switches?: Readonly<Record<string, boolean | string>>): string => {
      const rendered = qwen.render(LOOP, { addGenerationPrompt: true, ...(switches && { switches }) });
      if (rendered.kind !== 'text') throw new Error('not rendered');
      return rendered.text;
    };
    const plain = text();
    t.notMatch(plain, /<think>\n\n<\/think>\n\n$/);
    t.match(text({ enable_thinking: false }), /<think>\n\n<\/think>\n\n$/, 'another switch');
    const ours = { messages: 'x', tools: 'x', bos_token: 'x', eos_token: 'x', add_generation_prompt: false };
    t.equal(text(ours), plain, 'names of the conversation');
    const marks = template('{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ mood }}');
    t.match(marks.render(PLAIN, { ...ANSWER, switches: { ...ours, mood: '!' } }), { text: '<s>Be brief.</s>!' });
  },
);
