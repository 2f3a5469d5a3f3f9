/**
 * Calls that a random model is made to write in each family’s format: whatever it fills in is valid by the tools’
 * schemas. The streamed pieces of a call join to its arguments.
 */
import { Ajv } from 'ajv';
import t from 'tap';
import { loadRuntime } from '../../../engine/llama/runtime.js';
import { loadVocabulary } from '../../../engine/llama/vocabulary.js';
import { chatPrompt, type PromptParts } from '../../../engine/prompt/chat-prompt.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';
import type { Output } from '../../../engine/protocol/job-output.js';
import { tokenPrompt } from '../../../engine/protocol/prompt.js';
import type { ReplyFormat } from '../../../engine/protocol/reply-format.js';
import { StepLoop } from '../../../engine/scheduler/step-loop.js';
import { bundleFormats } from '../../support/bundle-formats.js';
import { cases, rounds } from '../../support/long-form.js';
import { testModel } from '../../support/models.js';

/** Calls of each family, half of them by `required` and half by a function’s name. */
const CALLS = rounds({ short: 12, long: 100 });
const SEATS = 16;
const MAX_TOKENS = 400;
/** The most replies per family. */
const MOST_REPLIES = 20 * CALLS;

const FUNCTIONS = [
  {
    name: 'look',
    parameters: {
      type: 'object',
      properties: {
        at: { type: 'string', enum: ['here', '"there" {e}'] },
        deep: {
          type: 'object',
          properties: { on: { type: 'boolean' } },
          required: ['on'],
          additionalProperties: false,
        },
      },
      required: ['at', 'deep'],
      additionalProperties: false,
    },
  },
  { name: 'go', parameters: { type: 'object', properties: {}, additionalProperties: false } },
];
const TOOLS = FUNCTIONS.map((each) => ({ type: 'function', function: { description: 'A tool', ...each } }));

/** Formats of the short form, one or two of each notation. */
const SHORT = [
  'openai-gpt-oss-120b',
  'Qwen3-Coder',
  'GLM-4.7-Flash',
  'deepseek-ai-DeepSeek-V3.1',
  'google-gemma-4-31B-it',
  'LFM2-8B-A1B',
  'muse-glimmer',
  'MiniMax-M3',
  'meetkai-functionary-medium-v3.2',
  'CohereForAI-c4ai-command-r-plus-tool_use',
  'fireworks-ai-llama-3-firefunction-v2',
  'google-gemma-2-2b-it',
];

const ajv = new Ajv({ strict: false });
const valid = new Map(FUNCTIONS.map(({ name, parameters }) => [name, ajv.compile(parameters)]));

const file = await testModel();
const vocabulary = await loadVocabulary(file);
// All families in turn.
t.setTimeout(900_000);

const limits = {
  seats: SEATS,
  contextPerSeat: 512,
  prefillTokensPerStep: 64,
  prefillShare: 100,
  prefixReuse: 'off',
} as const;
const runtime = await loadRuntime({
  ...limits,
  file,
  kind: 'chat',
  threads: 1,
  gpu: false,
  flashAttention: 'auto',
  heartbeatMs: 1000,
});
t.teardown(async () => {
  await runtime.dispose();
  await vocabulary.dispose();
});

const ended = new Map<number, (outputs: readonly Output[]) => void>();
const outputs = new Map<number, Output[]>();
const loop = new StepLoop(
  runtime.decoder,
  runtime.tokens,
  { ...limits, origin: { weights: '', kv: 'f16' } },
  (_, news) => {
    for (const output of news) {
      outputs.get(output.id)?.push(output);
      if (output.kind === 'done' || output.kind === 'failed') ended.get(output.id)?.(outputs.get(output.id) ?? []);
    }
  },
);
let lastId = 0;

/** Runs a reply to its end. Prompts differ, since the first tokens of a random model depend little on the seed. */
function run(format: ReplyFormat): Promise<readonly Output[]> {
  const id = ++lastId;
  outputs.set(id, []);
  return new Promise((resolve) => {
    ended.set(id, resolve);
    loop.generate(id, {
      prompt: tokenPrompt(Uint32Array.from({ length: 8 }, (_, i) => 60 + ((i * id * 7) % 900))),
      n: 1,
      seats: 1,
      maxTokens: MAX_TOKENS,
      temperature: 1,
      topP: 1,
      frequencyPenalty: 0,
      presencePenalty: 0,
      seed: id,
      stops: [],
      scope: ALL_ACCOUNTS,
      format,
    });
  });
}

/** The constraint of such a reply, without a thought that the prompt has begun: random weights end none. */
function formatOf(parts: PromptParts, name: string | undefined): ReplyFormat {
  const made = chatPrompt(
    parts,
    { messages: [{ role: 'user', content: 'Go.' }], tools: TOOLS },
    {
      addGenerationPrompt: true,
      reasoningEffort: 'none',
      calls: { required: true, parallel: name === undefined, ...(name !== undefined && { name }) },
    },
    100_000,
  );
  if (made.kind !== 'prompt' || made.format?.grammar === undefined) throw new Error(made.kind);
  const { thought, grammar, ...more } = made.format;
  const { gbnf, stacks } = grammar;
  return {
    ...more,
    grammar: { gbnf, ...(stacks !== undefined && { stacks }) },
    ...(thought && { thought: { ...thought, open: false } }),
  };
}

interface Call {
  readonly name: string;
  arguments: string;
}

/** The complete calls of a reply, and its content. */
function read(all: readonly Output[]): { readonly calls: readonly Call[]; readonly content: string } {
  const calls: Call[] = [];
  let content = '';
  for (const output of all) {
    if (output.kind === 'piece' && output.channel === 'content') content += output.text;
    if (output.kind !== 'call') continue;
    if (output.name !== undefined) calls.push({ name: output.name, arguments: '' });
    const call = calls[output.index];
    if (call === undefined || output.index !== calls.length - 1) throw new Error('a piece without a call');
    call.arguments += output.arguments;
  }
  const cut = all.some((output) => output.kind === 'finished' && output.reason === 'length');
  return { calls: cut ? calls.slice(0, -1) : calls, content };
}

function problemOf({ name, arguments: text }: Call): string | undefined {
  try {
    const check = valid.get(name);
    return check?.(JSON.parse(text)) === true ? undefined : `${name} ${text}: ${ajv.errorsText(check?.errors)}`;
  } catch {
    return `${name} ${text} is no JSON`;
  }
}

for (const [family, parts] of cases([...(await bundleFormats(vocabulary))], ([name]) => SHORT.includes(name))) {
  t.test(`${family}: ${CALLS} calls`, async (t) => {
    for (const name of [undefined, 'look']) {
      const format = formatOf(parts, name);
      const calls: Call[] = [];
      let several = false;
      for (let tries = 0; calls.length < CALLS / 2 && tries < MOST_REPLIES; tries += CALLS / 2) {
        const replies = await Promise.all(Array.from({ length: CALLS / 2 }, () => run(format)));
        for (const reply of replies.map(read)) {
          calls.push(...reply.calls);
          several ||= reply.calls.length > 1;
          if (reply.content !== '') t.fail(`content beside a call: ${reply.content}`);
        }
      }
      t.ok(calls.length >= CALLS / 2, `${calls.length} calls`);
      t.same(
        calls.flatMap((call) => problemOf(call) ?? []),
        [],
        'all are valid',
      );
      if (name === undefined) t.ok(parts.template.calls?.next !== undefined || !several, 'one in a reply, or several');
      else
        t.ok(
          calls.every((call) => call.name === name),
          'the named function',
        );
    }
  });
}
