import type { Effort } from '../../../../engine/prompt/effort.js';
import t from 'tap';
import { chatPrompt, type PromptParts, type ReplyOptions } from '../../../../engine/prompt/chat-prompt.js';
import { makePromptParts } from '../../../../engine/prompt/prompt-parts.js';
import { ReplyText, ThoughtSplitter } from '../../../../engine/output/reply-text.js';
import type { ReplyFormat } from '../../../../engine/protocol/reply-format.js';
import { Gbnf } from '../../../support/gbnf.js';
import { fakeVocabulary } from '../../../support/fake-vocabulary.js';
import { bundleTemplate, partsOf } from '../../../support/prompt-models.js';

const SPECIALS = ['<s>', '<|channel|>', '<|message|>', '<|end|>', '[THINK]', '[/THINK]'];

/** Of each template that was asked for, since they take a tenth of a second to make. */
const PARTS = new Map<string, PromptParts>();

async function formatOf(
  template: string,
  reasoningEffort?: Effort,
  {
    tools,
    ...more
  }: Pick<ReplyOptions, 'calls' | 'jsonObject' | 'thoughtBudget'> & { readonly tools?: readonly object[] } = {},
): Promise<ReplyFormat | undefined> {
  const parts =
    PARTS.get(template) ?? partsOf(fakeVocabulary({ specials: SPECIALS, bos: '<s>' }), await bundleTemplate(template));
  PARTS.set(template, parts);
  const made = chatPrompt(
    parts,
    { messages: [{ role: 'user', content: 'Hello' }], ...(tools && { tools }) },
    { addGenerationPrompt: true, ...(reasoningEffort !== undefined && { reasoningEffort }), ...more },
    100_000,
  );
  if (made.kind !== 'prompt') throw new Error(made.kind);
  return made.format;
}

/**
 * Template; a reply in its format, as it follows the prompt with effort `high`; whether that prompt’s thought is open,
 * and that of `none`.
 */
const REPLIES: readonly (readonly [string, string, boolean, boolean])[] = [
  ['Qwen-Qwen3-0.6B', '<think>\nHm.\n</think>\n\nYes.', false, false],
  ['Qwen3.5-4B', 'Hm.\n</think>\n\nYes.', true, false],
  ['Qwen-QwQ-32B', 'Hm.\n</think>\n\nYes.', true, false],
  ['deepseek-ai-DeepSeek-V3.1', 'Hm.</think>Yes.', true, false],
  ['deepseek-ai-DeepSeek-V3.2', 'Hm.</think>Yes.', true, false],
  ['llama-cpp-deepseek-r1', 'Hm.\n</think>\n\nYes.', true, true],
  ['GLM-4.6', '\n<think>Hm.</think>\nYes.', false, false],
  ['GLM-4.7-Flash', 'Hm.</think>Yes.', true, false],
  ['MiniMax-M2', 'Hm.\n</think>\n\nYes.', true, true],
  ['MiniMax-M3', 'Hm.</mm:think>Yes.', true, false],
  ['ByteDance-Seed-OSS', '<seed:think>Hm.</seed:think>Yes.', false, false],
  ['HuggingFaceTB-SmolLM3-3B', '<think>\nHm.\n</think>\nYes.', false, false],
  ['LFM2.5-Instruct', '<think>Hm.</think>Yes.', false, false],
  ['llama-cpp-rwkv-world', ' Hm.</think>Yes.', true, false],
  ['Reka-Edge', 'Hm.</think>\n\nYes.', true, false],
  ['poolside-Laguna-XS.2', 'Hm.\n</think>\nYes.', true, false],
  ['inclusionai-ling-3.0-flash', 'Hm.</think>Yes.', true, false],
  ['Cohere2MoE', 'Hm.<|END_THINKING|>Yes.', true, false],
  ['CohereForAI-c4ai-command-r7b-12-2024-tool_use', '<|START_THINKING|>Hm.<|END_THINKING|>Yes.', false, false],
  ['Apriel-1.6-15b-Thinker-fixed', 'Hm.\n[BEGIN FINAL RESPONSE]\nYes.', true, true],
  ['mistralai-Ministral-3-14B-Reasoning-2512', '[THINK]Hm.[/THINK]Yes.', false, false],
  ['google-gemma-4-31B-it', '<|channel>thought\nHm.\n<channel|>Yes.', false, false],
  [
    'google-gemma-4-31B-it-interleaved',
    '<|channel>thought\nHm.<channel|>Yes.<|channel>thought\n<channel|>',
    false,
    false,
  ],
  ['ibm-granite-granite-3.3-2B-Instruct', '<think>Hm.</think><response>Yes.</response>', false, false],
  [
    'openai-gpt-oss-120b',
    '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.',
    false,
    false,
  ],
  ['upstage-Solar-Open-100B', '<|think|>Hm.<|end|><|begin|>assistant<|content|>Yes.', false, false],
  ['muse-glimmer', ' to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Yes.', false, false],
  [
    'Kimi-K3',
    'Hm.<|close|>think<|sep|><|open|>response<|sep|>Yes.<|close|>response<|sep|><|close|>message<|sep|>',
    true,
    false,
  ],
];

t.test('thoughts in the formats of real templates', async (t) => {
  for (const [name, reply, open, openWithout] of REPLIES) {
    const format = await formatOf(name, 'high');
    if (format?.thought === undefined) {
      t.fail(`${name} has no thoughts`);
      continue;
    }
    t.equal(format.thought.open, open, `${name}, open`);
    t.equal((await formatOf(name, 'none'))?.thought?.open, openWithout, `${name}, open without effort`);
    const splitter = new ThoughtSplitter(format.thought);
    const [given, end] = [splitter.push(reply), splitter.end()];
    t.equal(given.reasoning + end.reasoning, 'Hm.', `${name}, thought`);
    t.equal((given.content + end.content).trim(), 'Yes.', `${name}, content`);
  }
});

/** What the tokens of {@link fakeVocabulary} with {@link SPECIALS} say. */
const textOf = (tokens: readonly number[]): string =>
  tokens.map((token) => SPECIALS[token - 200_000] ?? String.fromCharCode(token)).join('');

t.test('a budget closes a thought by a sentence and its mark, after which the reply goes on', async (t) => {
  for (const [name, reply] of REPLIES) {
    const { thought, thoughtLimit } = (await formatOf(name, 'high', { thoughtBudget: 100 })) ?? {};
    if (thought === undefined || thoughtLimit === undefined) {
      t.fail(`${name} has no bound`);
      continue;
    }
    t.equal(thoughtLimit.tokens, 100, name);
    const closing = textOf(thoughtLimit.closing);
    const [begun = ''] = reply.split('Hm.');
    // In place of what the model writes between its thought and its answer, but for the header of a part.
    const [mark = ''] = thought.ends;
    const behind = thought.headers.length > 0 ? (reply.split(mark)[1] ?? '') : 'Yes.';
    const splitter = new ThoughtSplitter(thought);
    const [given, end] = [splitter.push(`${begun}Hm.${closing}${behind}`), splitter.end()];
    t.match(given.reasoning + end.reasoning, /^Hm\.\n\nConsidering .* directly now\.\s*$/, `${name}, thought`);
    t.match((given.content + end.content).trim(), /^Yes\./, `${name}, content`);
    t.equal((await formatOf(name, 'high'))?.thoughtLimit, undefined, `${name}, without a budget`);
  }
  t.equal(await formatOf('meta-llama-Llama-3.1-8B-Instruct', 'high', { thoughtBudget: 100 }), undefined);
});

t.test('templates without thoughts', async (t) => {
  for (const name of [
    'Qwen-Qwen2.5-7B-Instruct',
    'fireworks-ai-llama-3-firefunction-v2',
    'meta-llama-Llama-3.1-8B-Instruct',
    'google-gemma-2-2b-it',
  ]) {
    t.equal(await formatOf(name), undefined, name);
  }
});

t.test('control tokens in marks are named', async (t) => {
  t.same((await formatOf('openai-gpt-oss-120b'))?.markers, ['<|channel|>', '<|message|>', '<|end|>']);
  t.same((await formatOf('mistralai-Ministral-3-14B-Reasoning-2512'))?.markers, ['[THINK]', '[/THINK]']);
  t.same((await formatOf('Qwen-Qwen3-0.6B'))?.markers, []);
});

const TOOLS = [{ type: 'function', function: { name: 'look', parameters: { type: 'object', properties: {} } } }];
const AUTO = { tools: TOOLS, calls: { required: false, parallel: true } };

/** Models that begin a thought themselves, and their marks. */
const BEGINNERS = [
  ['Qwen-Qwen3-0.6B', '<think>\nHm.\n</think>\n\n'],
  ['GLM-4.6', '\n<think>Hm.</think>\n'],
  ['google-gemma-4-31B-it', '<|channel>thought\nHm.<channel|>'],
  ['ByteDance-Seed-OSS', '<seed:think>Hm.</seed:think>'],
  ['mistralai-Ministral-3-14B-Reasoning-2512', '[THINK]Hm.[/THINK]'],
  ['MiniMax-M3', '<mm:think>Hm.</mm:think>'],
  ['Kimi-K2-Thinking', '<think>Hm.</think>'],
  ['LFM2.5-Instruct', '<think>Hm.</think>'],
] as const;

t.test('a model that begins its thoughts itself may think before constrained content, if asked to', async (t) => {
  const json = { jsonObject: true };
  const reads = async (name: string, effort: Effort | undefined, text: string): Promise<string> =>
    new Gbnf((await formatOf(name, effort, json))?.grammar?.gbnf ?? '').reads(text);
  for (const [name, thought] of BEGINNERS) {
    t.equal(await reads(name, 'low', `${thought}{"a": 1}`), 'whole', name);
    t.equal(await reads(name, 'low', '{"a": 1}'), 'whole', `${name}: it need not`);
    t.equal(await reads(name, 'low', '\n{"a": 1}'), 'no', `${name}: with nothing in front of it`);
    t.equal(await reads(name, 'low', thought), 'begun', `${name}: the thought is not all`);
    t.equal(await reads(name, 'none', `${thought}{"a": 1}`), 'no', `${name}: without effort`);
    t.equal(await reads(name, undefined, `${thought}{"a": 1}`), 'no', `${name}: not asked for`);
  }
  const required = { tools: TOOLS, calls: { required: true, parallel: true } };
  const forced = new Gbnf((await formatOf('Qwen-Qwen3-0.6B', 'high', required))?.grammar?.gbnf ?? '');
  const call = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>';
  t.equal(forced.reads(`<think>\nHm.\n</think>\n\n${call}`), 'whole');
  t.equal(forced.reads(call), 'whole');
  const wrapped = await formatOf('HuggingFaceTB-SmolLM3-3B', 'high', AUTO);
  const reply = '<think>\nHm.\n</think>\n{"tool_calls": [{"name": "look", "arguments": {}}]}';
  t.equal(new Gbnf(wrapped?.grammar?.gbnf ?? '').reads(reply), 'whole');
  const text = new ReplyText([], wrapped);
  t.match(text.push(Buffer.from(reply)), { reasoning: 'Hm.', content: '', calls: [{ name: 'look' }, {}] });
});

t.test('in JSON mode with tools the answer has its header', async (t) => {
  const cases = [
    [
      'openai-gpt-oss-120b',
      '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant',
      '<|channel|>final<|message|>',
      ' to=functions.look<|channel|>commentary json<|message|>{}',
    ],
    [
      'upstage-Solar-Open-100B',
      '<|think|>Hm.<|end|><|begin|>assistant',
      '<|content|>',
      '<|tool_call:begin|>a1<|tool_call:name|>look<|tool_call:args|>{}<|tool_call:end|>',
    ],
    [
      'muse-glimmer',
      ' to=self<|message|>Hm.<|eom|><|start|>assistant',
      ' to=user<|message|>',
      ' to=look<|message|><atem:function_calls>\n<atem:invoke name="look">\n</atem:invoke>\n</atem:function_calls>',
    ],
  ] as const;
  for (const [name, thought, header, call] of cases) {
    const format = await formatOf(name, 'high', { ...AUTO, jsonObject: true });
    const grammar = new Gbnf(format?.grammar?.gbnf ?? '');
    for (const begin of ['', thought]) {
      t.equal(grammar.reads(`${begin}${header}{"a": 1}`), 'whole', `${name}: an answer`);
      t.equal(grammar.reads(`${begin}${call}`), 'whole', `${name}: a call`);
      t.equal(grammar.reads(`${begin}{"a": 1}`), 'no', `${name}: without a header`);
      const text = new ReplyText([], format);
      const [given, end] = [text.push(Buffer.from(`${begin}${header}{"a": 1}`)), text.end()];
      t.equal(given.content + end.content, '{"a": 1}', `${name}: its text`);
    }
  }
});

t.test('and where the operator names a format whose thoughts the template does not know', async (t) => {
  const chatTemplate = '{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}';
  for (const [toolFormat, header] of [
    ['gpt-oss', '<|channel|>final<|message|>'],
    ['solar', '<|content|>'],
    ['muse', 'to=user<|message|>'],
  ] as const) {
    const made = makePromptParts(fakeVocabulary(), { chatTemplate, toolFormat });
    if (made.kind === 'bad') throw new Error(made.problem);
    const prompt = chatPrompt(
      made.parts,
      { messages: [{ role: 'user', content: 'Hello' }], tools: TOOLS },
      { addGenerationPrompt: true, calls: AUTO.calls, jsonObject: true },
      100_000,
    );
    const text = new ReplyText([], prompt.kind === 'prompt' ? prompt.format : undefined);
    const [given, end] = [text.push(Buffer.from(`${header}{"a": 1}`)), text.end()];
    t.equal(given.content + end.content, '{"a": 1}', toolFormat);
  }
});
