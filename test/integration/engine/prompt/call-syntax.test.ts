import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { CallParser } from '../../../../engine/output/calls/call-parser.js';
import { callFormatText } from '../../../../engine/prompt/call-format-text.js';
import { WRAPPED } from '../../../../engine/prompt/call-syntax.js';
import type { PromptConversation } from '../../../../engine/prompt/conversation.js';
import { thoughtsOf } from '../../../../engine/prompt/thought-format.js';
import { makeTemplate, type ChatTemplate } from '../../../../engine/prompt/template.js';
import type { CallSyntax } from '../../../../engine/protocol/reply-format.js';
import { bundleCheckout } from '../../../support/models.js';
import { bundleTemplate } from '../../../support/prompt-models.js';
import { sourceRoot } from '../../../support/source-root.js';

const HERMES =
  '<tool_call> {"name": "NAME", "arguments": ARGS … } </tool_call> <tool_call> {"name": " … } </tool_call>';
const LLAMA = '{"name": "NAME", "parameters": ARGS … }';
const PYTHON = '<|tool_call_start|>[NAME(KEY=VALUE … ), … )]<|tool_call_end|>';
const GEMMA = '<|tool_call>call:NAME{KEY:VALUE} … <tool_call|><|tool_call>call: … <tool_call|>';
const WRAPPED_LOOK = 'wrapped';

/** What calls look like, with spaces left out, or that replies are wrapped; by template of the bundle that has tools. */
const EXPECTED: Readonly<Record<string, string>> = {
  'Apertus-8B-Instruct': '<|tools_prefix|>[{"NAME": ARGS … }, {" … }]',
  'Apriel-1.6-15b-Thinker-fixed':
    '<tool_calls>[{"name": "NAME", "arguments": ARGS … , "id": "ID"}, {"name": " … , "id": "ID"}]</tool_calls>',
  'Bielik-11B-v3.0-Instruct': HERMES,
  'ByteDance-Seed-OSS':
    '<seed:tool_call> <function=NAME> <parameter=KEY>VALUE</parameter> … </function> </seed:tool_call> <seed:tool_call> <function= … </function> </seed:tool_call>',
  Cohere2MoE:
    '<|START_ACTION|>[ {"tool_call_id": "ID", "tool_name": "NAME", "parameters": ARGS … }, {"tool_call_id": "ID", "tool_name": " … } ]',
  'CohereForAI-c4ai-command-r-plus-tool_use': WRAPPED_LOOK,
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
  'MiniMax-M3': WRAPPED_LOOK,
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
  'deepseek-ai-DeepSeek-V3.2':
    '<｜DSML｜function_calls> <｜DSML｜invoke name="NAME"> <｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter> … </｜DSML｜invoke> <｜DSML｜invoke name=" … </｜DSML｜invoke> </｜DSML｜function_calls>',
  'deepseek-ai-DeepSeek-V4-Flash-0731':
    '<｜DSML｜tool_calls> <｜DSML｜invoke name="NAME"> <｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter> … </｜DSML｜invoke> <｜DSML｜invoke name=" … </｜DSML｜invoke> </｜DSML｜tool_calls>',
  'deepseek-ai-DeepSeek-V4':
    '<｜DSML｜tool_calls> <｜DSML｜invoke name="NAME"> <｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter> … </｜DSML｜invoke> <｜DSML｜invoke name=" … </｜DSML｜invoke> </｜DSML｜tool_calls>',
  'google-gemma-4-31B-it-interleaved': GEMMA,
  'google-gemma-4-31B-it': GEMMA,
  'ibm-granite-granite-3.3-2B-Instruct': '<|tool_call|>[{"name": "NAME", "arguments": ARGS … }, {"name": " … }]',
  'ibm-granite-granite-4.0': HERMES,
  'ibm-granite-granite-4.1': HERMES,
  'inclusionai-ling-3.0-flash':
    '<tool_call>NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> … </tool_call> <tool_call> … </tool_call>',
  'llama-cpp-deepseek-r1':
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME ```json ARGS … ```<｜tool▁call▁end｜> <｜tool▁call▁begin｜>function<｜tool▁sep｜> … ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
  'meetkai-functionary-medium-v3.1': '<function=NAME>ARGS … </function><function= … </function>',
  'meetkai-functionary-medium-v3.2': WRAPPED_LOOK,
  'meta-llama-Llama-3.1-8B-Instruct': LLAMA,
  'meta-llama-Llama-3.2-3B-Instruct': LLAMA,
  'meta-llama-Llama-3.3-70B-Instruct': LLAMA,
  'mistralai-Ministral-3-14B-Reasoning-2512': '[TOOL_CALLS]NAME[ARGS]ARGS … [TOOL_CALLS] …',
  'mistralai-Mistral-Nemo-Instruct-2407':
    '[TOOL_CALLS][{"name": "NAME", "arguments": ARGS … , "id": "ID"}, {"name": " … , "id": "ID"}]',
  'moonshotai-Kimi-K2':
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:ID<|tool_call_argument_begin|>ARGS … <|tool_call_end|><|tool_call_begin|>functions. … <|tool_call_end|><|tool_calls_section_end|>',
  'muse-glimmer': WRAPPED_LOOK,
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

/** A row of docs/tool-formats.md. */
function rowOf(name: string, syntax: CallSyntax | undefined, source: string): string {
  const { native } = callFormatText(syntax);
  const other = syntax === undefined ? 'none: 422' : 'JSON instruction';
  const tools = syntax && native ? `native, ${NOTATIONS[syntax.arguments?.kind ?? 'json'] ?? ''}` : other;
  const several = syntax && native ? (syntax.next === undefined ? 'one' : 'several') : '';
  const thoughts = thoughtsOf(source, []) === undefined ? 'no' : 'yes';
  return `| ${name} | ${tools} | ${several} | ${thoughts} |`;
}

const NOTATIONS: Readonly<Record<string, string>> = {
  json: 'JSON',
  tagged: 'tags',
  bare: 'bare',
  keywords: 'Python',
};

/** Their earlier calls are not in the prompt, whatever their model writes. */
const UNWRITTEN = ['LFM2-8B-A1B', 'LFM2.5-Instruct', 'ibm-granite-granite-3.3-2B-Instruct'];

/** A syntax written out, NAME and ARGS in their places. */
function look({ open, between, next, close, answer, arguments: notation }: CallSyntax): string {
  if (answer !== undefined) return WRAPPED_LOOK;
  const further = next === undefined ? '' : ` … ${next}`;
  const args =
    notation?.kind === 'tagged'
      ? `${notation.open}KEY${notation.between.string}VALUE${notation.close}`
      : (ARGUMENTS[notation?.kind ?? 'json'] ?? '');
  return `${open}NAME${between}${args}${further} … ${close}`.replace(/\s+/g, ' ').replaceAll('\0', 'ID').trim();
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

/** What the template writes for these calls: all of the prompt behind the user's words. */
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

/** The text from where a call begins. */
function fromCall(text: string, { mark, open }: CallSyntax): string {
  return text.slice(text.indexOf(mark === '' ? open : mark));
}

t.test('the templates of real models', async (t) => {
  const found: Record<string, string> = {};
  const unwritten: string[] = [];
  const rows: string[] = [];
  const names = (await readdir(join(await bundleCheckout(), 'models/templates'))).filter((name) =>
    name.endsWith('.jinja'),
  );
  for (const file of names) {
    const name = file.slice(0, -'.jinja'.length);
    const made = makeTemplate(await bundleTemplate(name), { bos: '<s>', eos: '</s>' });
    if (made.kind === 'bad') continue;
    const syntax = made.template.calls;
    rows.push(rowOf(name, syntax, await bundleTemplate(name)));
    t.equal(syntax !== undefined, made.template.capabilities.tools, name);
    if (syntax === undefined) continue;
    found[name] = look(syntax);
    if (syntax === WRAPPED) continue;
    const calls = syntax.next === undefined ? CALLS.slice(0, 1) : CALLS;
    const text = turnOf(made.template, calls) ?? '';
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
    t.equal(parser.calls, calls.length, `${name}: as many calls as the template was given`);
    const parsed = (list: typeof CALLS) => list.map((call) => [call.name, JSON.parse(call.arguments) as unknown]);
    t.strictSame(parsed(read), parsed(calls), `${name}: the same names and arguments`);
  }
  t.strictSame(found, EXPECTED);
  const page = await readFile(`${sourceRoot}/docs/tool-formats.md`, 'utf8');
  const table = page.split('\n').filter((line) => line.startsWith('| ') && !/^\| (template|-)/.test(line));
  const plain = (lines: readonly string[]): string[] => lines.map((line) => line.replace(/\s+/g, ' '));
  t.strictSame(plain(table), plain(rows), 'the page has the same');
  t.strictSame(unwritten, UNWRITTEN, 'templates that leave earlier calls out of the prompt');
});
