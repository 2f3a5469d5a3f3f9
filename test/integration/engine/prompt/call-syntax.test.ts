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

const PYTHON = '<|tool_call_start|>[NAME(KEY=VALUE … ), … )]<|tool_call_end|>';

/** Templates that omit earlier calls from the prompt, and how their models write one: nothing else here would show it. */
const UNWRITTEN = {
  'LFM2-8B-A1B': PYTHON,
  'LFM2.5-Instruct': PYTHON,
  'ibm-granite-granite-3.3-2B-Instruct': '<|tool_call|>[{"name": "NAME", "arguments": ARGS … }, {"name": " … }]',
};

/** A syntax as text, with NAME and ARGS in their places. */
function look({ open, between, next = '', close, arguments: notation }: CallSyntax): string {
  const args = notation?.kind === 'keywords' ? 'KEY=VALUE' : 'ARGS';
  return `${open}NAME${between}${args} … ${next} … ${close}`.replace(/\s+/g, ' ');
}

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
  const unwritten: Record<string, string> = {};
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
    if (syntax === undefined || syntax === WRAPPED) continue;
    const calls = syntax.next === undefined ? CALLS.slice(0, 1) : CALLS;
    const text = turnOf(template, calls) ?? '';
    if (!text.includes(syntax.mark)) {
      unwritten[name] = look(syntax);
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
  t.strictSame(unwritten, UNWRITTEN);
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
