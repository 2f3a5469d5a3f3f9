/**
 * Calls that a random model writes in each family’s format, because they are required or because it has begun one: whatever it fills
 * in is valid by the tools’ schemas. The streamed pieces of a call join to its arguments.
 */
import { Ajv } from 'ajv';
import t from 'tap';
import { loadRuntime } from '../../../engine/llama/runtime.js';
import { loadVocabulary } from '../../../engine/llama/vocabulary.js';
import { chatPrompt, type PromptParts } from '../../../engine/prompt/chat-prompt.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';
import type { Output } from '../../../engine/protocol/jobs.js';
import { tokenPrompt } from '../../../engine/protocol/prompt.js';
import type { CallSyntax, ReplyFormat } from '../../../engine/protocol/reply-format.js';
import { BatchSampler } from '../../../engine/llama/batch-sampler.js';
import { tokenizeParts } from '../../../engine/prompt/tokens.js';
import { StepLoop } from '../../../engine/scheduler/step-loop.js';
import { bundleFormats } from '../../support/bundle-formats.js';
import { cases, rounds } from '../../support/long-form.js';
import { testModel } from '../../support/models.js';
import { ANSWER, replyOf, THOUGHT, USER, WORDS, writtenTurn } from '../../support/template-replies.js';

/** Calls of each family, half of them by `required` and half by a function’s name. */
const CALLS = rounds({ short: 6, long: 100 });
const SEATS = 16;
const MAX_TOKENS = 400;
const TEMPERATURE = 10;
/** The most replies per family. */
const MOST_REPLIES = 20 * CALLS;

const FUNCTIONS = [
  {
    name: 'look',
    parameters: {
      type: 'object',
      properties: {
        at: { type: 'string', enum: ['here', '"there" {e}'] },
        day: { type: 'string', format: 'date' },
        note: { type: 'string', maxLength: 6 },
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

/** Formats whose whole reply is constrained, whatever the model writes. */
const CONSTRAINED = ['HuggingFaceTB-SmolLM3-3B', 'google-gemma-2-2b-it', 'meetkai-functionary-medium-v3.2'];

const ajv = new Ajv({ strict: false, formats: { date: /^\d{4}-\d\d-\d\d$/ } });
const valid = new Map(FUNCTIONS.map(({ name, parameters }) => [name, ajv.compile(parameters)]));

const file = await testModel();
const vocabulary = await loadVocabulary(file);
// All families in turn.
t.setTimeout(900_000);

const limits = {
  seats: SEATS,
  contextPerSeat: 1024,
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

/** Tokens that a reply begins with in place of sampled ones, by its seed. */
const scripts = new Map<number, number[]>();
const newSampler = runtime.decoder.sampler.bind(runtime.decoder);
runtime.decoder.sampler = (sampling) => {
  const sampler = newSampler(sampling);
  if (!(sampler instanceof BatchSampler)) throw new Error('a sampler of another decoder');
  const script = scripts.get(sampling.seed) ?? [];
  const choice = sampler.choice.bind(sampler);
  const chosen = sampler.chosen.bind(sampler);
  sampler.choice = () => {
    const [token] = script;
    if (token === undefined) return choice();
    const first = new Uint32Array(1 << 14);
    first[token >> 5] = 1 << (token & 31);
    return { ...sampler.freely, kind: 'held', limit: { first, checked: true } };
  };
  sampler.chosen = async (...given) => script.shift() ?? (await chosen(...given));
  return sampler;
};

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

/**
 * Runs a reply to its end. Prompts differ, since the first tokens of a random model depend little on the seed. The temperature makes
 * rare tokens about as likely as others. `begin`: its first tokens.
 */
function run(format: ReplyFormat, begin: Uint32Array = new Uint32Array(0)): Promise<readonly Output[]> {
  const id = ++lastId;
  scripts.set(id, [...begin]);
  outputs.set(id, []);
  return new Promise((resolve) => {
    ended.set(id, resolve);
    loop.generate(id, {
      prompt: tokenPrompt(Uint32Array.from({ length: 8 }, (_, i) => 60 + ((i * id * 7) % 900))),
      n: 1,
      seats: 1,
      maxTokens: begin.length === 0 ? MAX_TOKENS : begin.length + 2 * MAX_TOKENS,
      temperature: TEMPERATURE,
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

interface Reply {
  /** The complete ones. */
  readonly calls: readonly Call[];
  readonly content: string;
  readonly reasoning: string;
}

function read(all: readonly Output[]): Reply {
  const calls: Call[] = [];
  const text = { content: '', reasoning: '' };
  for (const output of all) {
    if (output.kind === 'piece') text[output.channel] += output.text;
    if (output.kind !== 'call') continue;
    if (output.name !== undefined) calls.push({ name: output.name, arguments: '' });
    const call = calls[output.index];
    if (call === undefined || output.index !== calls.length - 1) throw new Error('a piece without a call');
    call.arguments += output.arguments;
  }
  const cut = all.some((output) => output.kind === 'finished' && output.reason === 'length');
  const last = calls.at(-1)?.arguments ?? '';
  return { calls: cut && !isJson(last) ? calls.slice(0, -1) : calls, ...text };
}

function isJson(text: string): boolean {
  try {
    return JSON.parse(text) !== undefined;
  } catch {
    return false;
  }
}

function problemOf({ name, arguments: text }: Call): string | undefined {
  if (!isJson(text)) return `${name} ${text} is no JSON`;
  const check = valid.get(name);
  return check?.(JSON.parse(text)) === true ? undefined : `${name} ${text}: ${ajv.errorsText(check?.errors)}`;
}

/** What a reply begins with that then calls: a thought and words, as the template writes them, and the call's first text. */
function beginning(parts: PromptParts, format: ReplyFormat, { mark, ambiguous, open, between }: CallSyntax): string {
  const call = { name: 'look', arguments: { at: 'here', deep: { on: true } } };
  const turn = writtenTurn(parts, TOOLS, [call], 'here');
  // Without a mark a call is certain once its name is known, and with an ambiguous one once all of `open` is there.
  const begun = mark === '' ? between : ambiguous === true ? open.trimEnd() : mark;
  const written = turn === undefined ? '' : replyOf(format, turn);
  // Some templates omit earlier calls.
  const reply = written.includes(begun) ? written : replyOf(format, `${WORDS}\n${open}`);
  return reply.slice(0, reply.indexOf(begun) + begun.length);
}

const families = cases([...(await bundleFormats(vocabulary))], ([name]) => SHORT.includes(name));

t.test('calls that the model begins behind a thought and words', async (t) => {
  const constrained: string[] = [];
  const replies = families.map(async ([family, parts]) => {
    const made = chatPrompt(
      parts,
      { messages: [USER], tools: TOOLS },
      { ...ANSWER, calls: { required: false, parallel: false } },
      100_000,
    );
    const { calls: syntax } = parts.template;
    if (made.kind !== 'prompt' || made.format === undefined || syntax === undefined) throw new Error(family);
    const { format } = made;
    if (format.grammar !== undefined) {
      constrained.push(family);
      return;
    }
    const begin = tokenizeParts(vocabulary, [beginning(parts, format, syntax)]);
    const { calls, content, reasoning } = read(await run(format, begin));
    t.ok(calls.length > 0, `${family}: ${calls.length} calls`);
    t.same(
      calls.flatMap((call) => problemOf(call) ?? []),
      [],
      `${family}: all are valid`,
    );
    t.ok(
      [THOUGHT, ''].some((text) => reasoning.startsWith(text)),
      `${family}: the thought`,
    );
    t.ok(
      !content.includes(THOUGHT) && !content.includes(syntax.mark === '' ? syntax.open : syntax.mark),
      `${family}: the words`,
    );
  });
  await Promise.all(replies);
  t.same(
    constrained,
    CONSTRAINED.filter((name) => families.some(([family]) => family === name)),
  );
});

for (const [family, parts] of families) {
  t.test(`${family}: ${CALLS} calls`, async (t) => {
    for (const name of [undefined, 'look']) {
      const format = formatOf(parts, name);
      const calls: Call[] = [];
      const maySeveral = name === undefined && parts.template.calls?.next !== undefined;
      let several = false;
      const isEnough = (): boolean => calls.length >= CALLS / 2 && several === maySeveral;
      for (let tries = 0; !isEnough() && tries < MOST_REPLIES; tries += CALLS / 2) {
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
      t.equal(several, maySeveral, 'one in a reply, or several');
      if (name === undefined) continue;
      t.ok(
        calls.every((call) => call.name === name),
        'the named function',
      );
    }
  });
}
