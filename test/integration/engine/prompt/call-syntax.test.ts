/**
 * The call formats of the bundle’s templates. docs/models.md has them as a list, which `node
 * dist/test/integration/engine/prompt/call-syntax.test.js write` writes.
 */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { CallParser } from '../../../../engine/output/calls/call-parser.js';
import { callFormatText, type ToolUse } from '../../../../engine/prompt/tool-use.js';
import { WRAPPED } from '../../../../engine/prompt/call-syntax.js';
import type { PromptConversation } from '../../../../engine/prompt/conversation.js';
import { chatPrompt, promptPieces, type PromptParts } from '../../../../engine/prompt/chat-prompt.js';
import { namedSyntax, TOOL_FORMATS } from '../../../../engine/prompt/tool-use.js';
import { makePromptParts } from '../../../../engine/prompt/prompt-parts.js';
import { TOOL_FORMATS as CONFIGURED } from '../../../../sidecar/config/model-schema.js';
import { makeTemplate, type ChatTemplate } from '../../../../engine/prompt/template.js';
import type { CallSyntax } from '../../../../engine/protocol/reply-format.js';
import { bundleCheckout } from '../../../support/models.js';
import { fakeVocabulary } from '../../../support/fake-vocabulary.js';
import { bundleTemplate } from '../../../support/prompt-models.js';
import { sourceRoot } from '../../../support/source-root.js';

const VOCABULARY = { ...fakeVocabulary({ bos: '<s>', specials: ['<s>'] }), eosText: '</s>' };
const PAGE = `${sourceRoot}/docs/models.md`;
const [BEGIN, END] = ['<!-- templates: begin -->', '<!-- templates: end -->'];

const HERMES =
  '<tool_call> {"name": "NAME", "arguments": ARGS … } </tool_call> <tool_call> {"name": " … } </tool_call>';
const LLAMA = '{"name": "NAME", "parameters": ARGS … }';
const PYTHON = '<|tool_call_start|>[NAME(KEY=VALUE … ), … )]<|tool_call_end|>';
const GEMMA = '<|tool_call>call:NAME{KEY:VALUE} … <tool_call|><|tool_call>call: … <tool_call|>';
const R1 =
  '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME ```json ARGS … ```<｜tool▁call▁end｜> <｜tool▁call▁begin｜>function<｜tool▁sep｜> … ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>';
const WRAPPED_LOOK = 'wrapped';

/** The form of calls, without spaces, or that replies are wrapped; by template of the bundle. */
const EXPECTED: Readonly<Record<string, string>> = {
  'Apertus-8B-Instruct': '<|tools_prefix|>[{"NAME": ARGS … }, {" … }]',
  'Apriel-1.6-15b-Thinker-fixed':
    '<tool_calls>[{"name": "NAME", "arguments": ARGS … , "id": "ID"}, {"name": " … , "id": "ID"}]</tool_calls>',
  'Bielik-11B-v3.0-Instruct': HERMES,
  'ByteDance-Seed-OSS':
    '<seed:tool_call> <function=NAME> <parameter=KEY>VALUE</parameter> … </function> </seed:tool_call> <seed:tool_call> <function= … </function> </seed:tool_call>',
  Cohere2MoE:
    '<|START_ACTION|>[ {"tool_call_id": "ID", "tool_name": "NAME", "parameters": ARGS … }, {"tool_call_id": "ID", "tool_name": " … } ]',
  'CohereForAI-c4ai-command-r-plus-tool_use':
    'Action: ```json [ { "tool_name": "NAME", "parameters": ARGS … }, { "tool_name": " … } ]```',
  'CohereForAI-c4ai-command-r7b-12-2024-tool_use':
    '<|START_ACTION|>[ {"tool_call_id": "ID", "tool_name": "NAME", "parameters": ARGS … }, {"tool_call_id": "ID", "tool_name": " … } ]',
  'GLM-4.6':
    '<tool_call>NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> … </tool_call> <tool_call> … </tool_call>',
  'GLM-4.7-Flash':
    '<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value> … </tool_call><tool_call> … </tool_call>',
  'GigaChat3-10B-A1.8B': 'function call<|role_sep|> {"name": "NAME", "arguments": ARGS … }',
  'GigaChat3.1-10B-A1.8B': '<|function_call|>{"name": "NAME", "arguments": ARGS … }',
  'Kimi-K2-Instruct':
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:ID<|tool_call_argument_begin|>ARGS … <|tool_call_end|><|tool_call_begin|>functions. … <|tool_call_end|><|tool_calls_section_end|>',
  'Kimi-K2-Thinking':
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:ID<|tool_call_argument_begin|>ARGS … <|tool_call_end|><|tool_call_begin|>functions. … <|tool_call_end|><|tool_calls_section_end|>',
  'Kimi-K3':
    '<|open|>tools<|sep|><|open|>call tool="NAME" index="ID"<|sep|><|open|>argument key="KEY" type="string"<|sep|>VALUE<|close|>argument<|sep|> … <|close|>call<|sep|><|open|>call tool=" … <|close|>call<|sep|><|close|>tools<|sep|>',
  'LFM2-8B-A1B': PYTHON,
  'LFM2.5-8B-A1B': PYTHON,
  'LFM2.5-Instruct': PYTHON,
  'MiMo-VL': HERMES,
  'MiniMax-M1': '<tool_calls> {"name": "NAME", "arguments": ARGS … } {"name": " … } </tool_calls>',
  'MiniMax-M2':
    '<minimax:tool_call> <invoke name="NAME"> <parameter name="KEY">VALUE</parameter> … </invoke> <invoke name=" … </invoke> </minimax:tool_call>',
  'MiniMax-M3':
    ']<]minimax[>[<tool_call> ]<]minimax[>[<invoke name="NAME">]<]minimax[>[<KEY>VALUE]<]minimax[>[</KEY> … ]<]minimax[>[</invoke> ]<]minimax[>[<invoke name=" … ]<]minimax[>[</invoke> ]<]minimax[>[</tool_call>',
  'Mistral-Small-3.2-24B-Instruct-2506': '[TOOL_CALLS]NAME[CALL_ID]ID[ARGS]ARGS … [TOOL_CALLS] …',
  'NVIDIA-Nemotron-3-Nano-30B-A3B-BF16':
    '<tool_call> <function=NAME> <parameter=KEY> VALUE </parameter> … </function> </tool_call> <tool_call> <function= … </function> </tool_call>',
  'NVIDIA-Nemotron-Nano-v2': '<TOOLCALL>[{"name": "NAME", "arguments": ARGS … }, {"name": " … }]</TOOLCALL>',
  'NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use': HERMES,
  'NousResearch-Hermes-3-Llama-3.1-8B-tool_use': HERMES,
  'Qwen-QwQ-32B': HERMES,
  'Qwen-Qwen2.5-7B-Instruct': HERMES,
  'Qwen-Qwen3-0.6B': HERMES,
  'Qwen3-Coder':
    '<tool_call> <function=NAME> <parameter=KEY> VALUE </parameter> … </function> </tool_call> <tool_call> <function= … </function> </tool_call>',
  'Qwen3.5-4B':
    '<tool_call> <function=NAME> <parameter=KEY> VALUE </parameter> … </function> </tool_call> <tool_call> <function= … </function> </tool_call>',
  'Reka-Edge': '<tool_call> {"name": "NAME", "arguments": ARGS … } </tool_call><tool_call> {"name": " … } </tool_call>',
  'Spark2.5':
    '<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value> … </tool_call><tool_call> … </tool_call>',
  'StepFun3.5-Flash':
    '<tool_call> <function=NAME> <parameter=KEY> VALUE </parameter> … </function> </tool_call><tool_call> <function= … </function> </tool_call>',
  'HuggingFaceTB-SmolLM3-3B': WRAPPED_LOOK,
  'deepseek-ai-DeepSeek-R1-Distill-Llama-8B': R1,
  'deepseek-ai-DeepSeek-R1-Distill-Qwen-32B': R1,
  'deepseek-ai-DeepSeek-V3.1':
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGS … <｜tool▁call▁end｜><｜tool▁call▁begin｜> … <｜tool▁call▁end｜><｜tool▁calls▁end｜>',
  'deepseek-ai-DeepSeek-V3.2':
    '<｜DSML｜function_calls> <｜DSML｜invoke name="NAME"> <｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter> … </｜DSML｜invoke> <｜DSML｜invoke name=" … </｜DSML｜invoke> </｜DSML｜function_calls>',
  'deepseek-ai-DeepSeek-V4-Flash-0731':
    '<｜DSML｜tool_calls> <｜DSML｜invoke name="NAME"> <｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter> … </｜DSML｜invoke> <｜DSML｜invoke name=" … </｜DSML｜invoke> </｜DSML｜tool_calls>',
  'deepseek-ai-DeepSeek-V4':
    '<｜DSML｜tool_calls> <｜DSML｜invoke name="NAME"> <｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter> … </｜DSML｜invoke> <｜DSML｜invoke name=" … </｜DSML｜invoke> </｜DSML｜tool_calls>',
  'fireworks-ai-llama-3-firefunction-v2': 'functools[{"name": "NAME", "arguments": ARGS … }, {"name": " … }]',
  'google-gemma-2-2b-it': WRAPPED_LOOK,
  'llama-cpp-rwkv-world': WRAPPED_LOOK,
  'microsoft-Phi-3.5-mini-instruct': WRAPPED_LOOK,
  'google-gemma-4-31B-it-interleaved': GEMMA,
  'google-gemma-4-31B-it': GEMMA,
  'ibm-granite-granite-3.3-2B-Instruct': '<|tool_call|>[{"name": "NAME", "arguments": ARGS … }, {"name": " … }]',
  'ibm-granite-granite-4.0': HERMES,
  'ibm-granite-granite-4.1': HERMES,
  'inclusionai-ling-3.0-flash':
    '<tool_call>NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> … </tool_call> <tool_call> … </tool_call>',
  'llama-cpp-deepseek-r1': R1,
  'meetkai-functionary-medium-v3.1': '<function=NAME>ARGS … </function><function= … </function>',
  'meetkai-functionary-medium-v3.2': '>>>NAME ARGS … >>> …',
  'meta-llama-Llama-3.1-8B-Instruct': LLAMA,
  'meta-llama-Llama-3.2-3B-Instruct': LLAMA,
  'meta-llama-Llama-3.3-70B-Instruct': LLAMA,
  'mistralai-Ministral-3-14B-Reasoning-2512': '[TOOL_CALLS]NAME[ARGS]ARGS … [TOOL_CALLS] …',
  'mistralai-Mistral-Nemo-Instruct-2407':
    '[TOOL_CALLS][{"name": "NAME", "arguments": ARGS … , "id": "ID"}, {"name": " … , "id": "ID"}]',
  'moonshotai-Kimi-K2':
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:ID<|tool_call_argument_begin|>ARGS … <|tool_call_end|><|tool_call_begin|>functions. … <|tool_call_end|><|tool_calls_section_end|>',
  'muse-glimmer':
    '<atem:function_calls> <atem:invoke name="NAME"> <atem:parameter name="KEY">VALUE</atem:parameter> … </atem:invoke> </atem:function_calls><|eom|><|start|>assistant to=NAME<|message|><atem:function_calls> <atem:invoke name=" … </atem:invoke> </atem:function_calls>',
  'openai-gpt-oss-120b': 'to=functions.NAME<|channel|>commentary json<|message|>ARGS …',
  'openbmb-MiniCPM5-1B':
    '<function name="NAME"><param name="KEY">VALUE</param> … </function> <function name=" … </function>',
  'poolside-Laguna-S-2.1':
    '<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value> … </tool_call><tool_call> … </tool_call>',
  'poolside-Laguna-XS-2.1':
    '<tool_call>NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> … </tool_call> <tool_call> … </tool_call>',
  'poolside-Laguna-XS.2':
    '<tool_call>NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> … </tool_call> <tool_call> … </tool_call>',
  'tencent-Hy3':
    '<tool_calls:opensource> <tool_call:opensource>NAME<tool_sep:opensource> <arg_key:opensource>KEY</arg_key:opensource> <arg_value:opensource>VALUE</arg_value:opensource> … </tool_call:opensource> <tool_call:opensource> … </tool_call:opensource> </tool_calls:opensource>',
  'unsloth-Apriel-1.5':
    '<tool_calls>[{"name": "NAME", "arguments": ARGS … , "id": "ID"}, {"name": " … , "id": "ID"}]</tool_calls>',
  'unsloth-mistral-Devstral-Small-2507': '[TOOL_CALLS]NAME[ARGS]ARGS … [TOOL_CALLS] …',
  'upstage-Solar-Open-100B':
    '<|tool_call:begin|>ID<|tool_call:name|>NAME<|tool_call:args|>ARGS … <|tool_call:end|><|tool_call:begin|>ID<|tool_call:name|> … <|tool_call:end|>',
};

/** What docs/models.md has of a template before its name. */
function cellsOf(parts: PromptParts): string {
  const { calls, lists } = parts.template.tools;
  const { native } = callFormatText(parts.template.tools);
  const format = native ? `native, ${NOTATIONS[calls?.arguments?.kind ?? 'json'] ?? ''}` : 'JSON instruction';
  const json = jsonMode(parts);
  return [
    `${format}${lists ? '' : ' (listed by the sidecar)'}`,
    calls?.next === undefined ? 'one call' : 'several calls',
    ...(parts.thoughts === undefined ? [] : ['thoughts']),
    ...(json === 'constrained' ? [] : [`JSON mode ${json}`]),
  ].join(', ');
}

/** Whether a reply is constrained by a schema, and whether the template writes the schema. */
function jsonMode(parts: PromptParts): string {
  const conversation = { messages: [{ role: 'user', content: 'x' }] };
  const replySchema = { type: 'object', properties: { probe_member: { type: 'string' } } };
  const options = { addGenerationPrompt: true, jsonObject: true, replySchema };
  const made = chatPrompt(parts, conversation, options, 1e6);
  if (made.kind !== 'prompt' || made.format?.grammar === undefined) return 'no';
  const rendered = promptPieces(parts, conversation, options);
  return rendered.kind === 'pieces' && rendered.pieces.join('').includes('probe_member')
    ? 'constrained, in the prompt'
    : 'constrained';
}

const NOTATIONS: Readonly<Record<string, string>> = {
  json: 'JSON',
  tagged: 'tags',
  nested: 'nested tags',
  bare: 'bare',
  keywords: 'Python',
};

/** A template for each format that the configuration names. */
const NAMED_BY: Readonly<Record<string, string>> = {
  hermes: 'Qwen-Qwen3-0.6B',
  llama: 'meta-llama-Llama-3.1-8B-Instruct',
  mistral: 'mistralai-Mistral-Nemo-Instruct-2407',
  'mistral-args': 'unsloth-mistral-Devstral-Small-2507',
  'qwen3-coder': 'Qwen3-Coder',
  glm: 'GLM-4.6',
  'minimax-m2': 'MiniMax-M2',
  'deepseek-v3.1': 'deepseek-ai-DeepSeek-V3.1',
  'deepseek-v3.2': 'deepseek-ai-DeepSeek-V3.2',
  'kimi-k2': 'Kimi-K2-Instruct',
  'kimi-k3': 'Kimi-K3',
  'gemma-4': 'google-gemma-4-31B-it',
  lfm2: 'LFM2-8B-A1B',
  'gpt-oss': 'openai-gpt-oss-120b',
  muse: 'muse-glimmer',
  solar: 'upstage-Solar-Open-100B',
  granite: 'ibm-granite-granite-3.3-2B-Instruct',
  gigachat: 'GigaChat3-10B-A1.8B',
  'minimax-m3': 'MiniMax-M3',
  'functionary-v3.2': 'meetkai-functionary-medium-v3.2',
  'command-r-plus': 'CohereForAI-c4ai-command-r-plus-tool_use',
  firefunction: 'fireworks-ai-llama-3-firefunction-v2',
};

/** Their earlier calls are not in the prompt, whatever their model writes. */
const UNWRITTEN = ['LFM2-8B-A1B', 'LFM2.5-Instruct', 'ibm-granite-granite-3.3-2B-Instruct'];

/** A syntax as text, with NAME and ARGS in their places. */
function look({ open, between, next, close, answer, arguments: notation }: CallSyntax): string {
  if (answer !== undefined) return WRAPPED_LOOK;
  const further = next === undefined ? '' : ` … ${next}`;
  const args =
    notation?.kind === 'tagged'
      ? `${notation.open}KEY${notation.between.string}VALUE${notation.close}`
      : notation?.kind === 'nested'
        ? `${notation.prefix}<KEY>VALUE${notation.prefix}</KEY>`
        : (ARGUMENTS[notation?.kind ?? 'json'] ?? '');
  return `${open}NAME${between}${args}${further} … ${close}`
    .replace(/\s+/g, ' ')
    .replaceAll('\0', 'ID')
    .replaceAll('\x01', 'NAME')
    .trim();
}

const ARGUMENTS: Readonly<Record<string, string>> = { json: 'ARGS', bare: '{KEY:VALUE}', keywords: 'KEY=VALUE' };

const CALLS = [
  { name: 'get_weather', arguments: '{"city":"Zürich","days":[1,2],"note":"a \\"b\\" </tool_call> }"}' },
  { name: 'go', arguments: '{}' },
];
const TOOLS = ['get_weather', 'go', 'probe_other'].map((name) => ({
  type: 'function',
  function: {
    name,
    description: 'A tool',
    parameters: { type: 'object', properties: { city: { type: 'string', description: 'A city' } } },
  },
}));

/** What the template writes for these calls: the prompt after the user’s text. */
function turnOf(template: ChatTemplate, calls: typeof CALLS): string | undefined {
  const turn: PromptConversation = {
    tools: TOOLS,
    messages: [
      { role: 'user', content: 'user-words' },
      {
        role: 'assistant',
        content: null,
        tool_calls: calls.map((call, i) => ({ id: `call0000${i}`, type: 'function', function: call })),
      },
      ...calls.map((_, i) => ({ role: 'tool', tool_call_id: `call0000${i}`, content: 'tool-result' })),
    ],
  };
  const rendered = template.render(turn, { addGenerationPrompt: false });
  if (rendered.kind === 'failed') return undefined;
  return rendered.text.slice(rendered.text.lastIndexOf('user-words'), rendered.text.indexOf('tool-result'));
}

/** The text from the beginning of a call, or behind what the prompt has of it already. */
function fromCall(text: string, { mark, open, userRecipient }: CallSyntax): string {
  const at = text.indexOf(mark === '' ? open : mark);
  return text.slice(userRecipient === undefined ? at : at + open.length);
}

t.test('the templates of real models', async (t) => {
  const found: Record<string, string> = {};
  const unwritten: string[] = [];
  /** Names of templates by their cells. */
  const same = new Map<string, string[]>();
  const names = (await readdir(join(await bundleCheckout(), 'models/templates'))).filter((name) =>
    name.endsWith('.jinja'),
  );
  for (const file of names) {
    const name = file.slice(0, -'.jinja'.length);
    const made = makePromptParts(VOCABULARY, { chatTemplate: await bundleTemplate(name) });
    if (made.kind === 'bad') continue;
    const { template } = made.parts;
    const syntax = template.calls;
    const cells = cellsOf(made.parts);
    same.set(cells, [...(same.get(cells) ?? []), name]);
    if (syntax === undefined) continue;
    found[name] = look(syntax);
    if (syntax === WRAPPED) continue;
    const calls = syntax.next === undefined ? CALLS.slice(0, 1) : CALLS;
    const text = turnOf(template, calls) ?? '';
    if (!text.includes(syntax.mark)) {
      unwritten.push(name);
      continue;
    }
    const parser = new CallParser({ syntax, functions: CALLS.map(({ name }) => name), single: false });
    const read = calls.map(() => ({ name: '', arguments: '' }));
    for (const piece of parser.push(fromCall(text, syntax)).calls) {
      const call = read[piece.index] ?? { name: '', arguments: '' };
      call.name += piece.name ?? '';
      call.arguments += piece.arguments;
    }
    t.equal(parser.calls, calls.length, `${name}: as many calls as the template got`);
    const parsed = (list: typeof CALLS) => list.map((call) => [call.name, JSON.parse(call.arguments) as unknown]);
    t.strictSame(parsed(read), parsed(calls), `${name}: the same names and arguments`);
  }
  t.strictSame(found, EXPECTED);
  t.strictSame(unwritten, UNWRITTEN, 'templates that omit earlier calls from the prompt');
  const count = (formats: [string, string[]][]): number => formats.reduce((sum, [, { length }]) => sum + length, 0);
  const all = count([...same]);
  const native = count([...same].filter(([cells]) => cells.startsWith('native, ')));
  const claims = [
    ['docs/comparison.md', `for ${native} of ${all} templates, a JSON instruction for the ${all - native} `],
    ['CHANGELOG.md', `for ${native} of the bundled llama.cpp's ${all} templates`],
  ] as const;
  for (const [file, claim] of claims) t.match(await readFile(`${sourceRoot}/${file}`, 'utf8'), claim, file);
  const rows = [...same].sort().map(([cells, templates]) => `- ${cells}: ${templates.sort().join(', ')}`);
  const list = [BEGIN, '', ...rows, '', END].join('\n');
  const page = await readFile(PAGE, 'utf8');
  const there = page.slice(page.indexOf(BEGIN), page.indexOf(END) + END.length);
  const cells = (text: string): string[] => text.split('\n').map((line) => line.replaceAll(/[\s-]+/g, ' '));
  if (process.argv.includes('write')) await writeFile(PAGE, page.replace(there, list));
  else t.same(cells(there), cells(list), 'the page has these results');
});

t.test('the configuration names the formats that templates have', async (t) => {
  t.strictSame([...TOOL_FORMATS], [...CONFIGURED], 'the configuration has the same names');
  for (const [format, name] of Object.entries(NAMED_BY)) {
    const made = makeTemplate(await bundleTemplate(name), { bos: '<s>', eos: '</s>' });
    const named = namedSyntax(format);
    if (made.kind === 'bad' || named === undefined) {
      t.fail(format);
      continue;
    }
    const squeezed = (syntax: CallSyntax | undefined): string => JSON.stringify(syntax).replace(/\\n|\s/g, '');
    t.equal(squeezed(named), squeezed(made.template.calls), format);
  }
  t.strictSame(['auto', 'json', 'none', ...Object.keys(NAMED_BY)].sort(), [...TOOL_FORMATS].sort(), 'each is compared');
});

t.test('an operator’s format is used whatever the template has', async (t) => {
  const source = await bundleTemplate('Qwen3-Coder');
  const made = (format: string): ToolUse | undefined => {
    const template = makeTemplate(source, { bos: '', eos: '' }, format);
    return template.kind === 'ok' ? template.template.tools : undefined;
  };
  t.match(made('auto'), { chosen: false, calls: { arguments: { kind: 'tagged' } } });
  t.match(made('hermes'), { chosen: true, lists: true, calls: namedSyntax('hermes') });
  t.match(made('json'), { chosen: true, calls: WRAPPED });
  t.equal(made('none')?.calls, undefined);
});

t.test('an empty text between marks in front of a call is no mark of calls', (t) => {
  // As in Llama 4's own template, whose model writes the call alone.
  const source = `{{ tools | tojson }}{% for m in messages %}<|header_start|>{{ m.role }}<|header_end|>
{% if m.tool_calls %}<|python_start|>{{ m.content }}<|python_end|>{% for c in m.tool_calls -%}
{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}
{%- endfor %}{% else %}{{ m.content }}{% endif %}<|eot|>{% endfor %}
{%- if add_generation_prompt %}<|header_start|>assistant<|header_end|>
{% endif %}`;
  const made = makeTemplate(source, { bos: '', eos: '' });
  t.match(made, { kind: 'ok', template: { calls: namedSyntax('llama') } });
  t.end();
});
