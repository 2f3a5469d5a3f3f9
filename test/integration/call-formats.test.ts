/**
 * Calls over HTTP from models with other call formats than the embedded one: the templates are real, the weights are
 * random.
 */
import t, { type Test } from 'tap';
import { join } from 'node:path';
import { bundleTemplate, modelWithTemplate } from '../support/prompt-models.js';
import { cases } from '../support/long-form.js';
import { Sidecar } from '../support/sidecar.js';

const TEMPLATES = {
  llama: 'meta-llama-Llama-3.1-8B-Instruct',
  mistral: 'mistralai-Mistral-Nemo-Instruct-2407',
  named: 'Mistral-Small-3.2-24B-Instruct-2506',
  tagged: 'Qwen3-Coder',
  keyed: 'GLM-4.6',
  typed: 'deepseek-ai-DeepSeek-V3.2',
  channels: 'openai-gpt-oss-120b',
  wrapped: 'meetkai-functionary-medium-v3.2',
  unlisted: 'deepseek-ai-DeepSeek-V3.1',
  unknown: 'google-gemma-2-2b-it',
} as const;

/** Of each way in which calls are parsed; engine/prompt/replies.test.ts has every format, and `make test-long` all of these. */
const SHORT: readonly string[] = ['llama', 'tagged', 'channels', 'unknown'];
const formats = cases(Object.entries(TEMPLATES), ([id]) => SHORT.includes(id));

const models = await Promise.all(
  formats.map(async ([id, template]) => ({
    id,
    kind: 'chat',
    file: await modelWithTemplate(template),
    seats: 1,
    contextPerSeat: 2048,
  })),
);
const folder = t.testdir({ 'own.jinja': await bundleTemplate('Qwen3-Coder') });
// No reply is asked of these.
const lazy = { ...models[0], chatTemplate: join(folder, 'own.jinja'), load: 'lazy' };
models.push({ ...lazy, id: 'given' } as never, { ...lazy, id: 'chosen', toolFormat: 'hermes' } as never);
models.push({ ...lazy, id: 'toolless', toolFormat: 'none' } as never);
const sidecar = await Sidecar.start(t, { config: { models } });

const TOOLS = ['look', 'go'].map((name) => ({
  type: 'function',
  function: {
    name,
    description: 'A tool',
    parameters: {
      type: 'object',
      properties: { at: { type: 'string', enum: ['here', '"there"'] } },
      required: ['at'],
      additionalProperties: false,
    },
  },
}));

interface Completion {
  readonly choices: readonly {
    readonly finish_reason: string;
    readonly message: { readonly content: string | null; readonly tool_calls?: readonly Call[] };
  }[];
}

interface Call {
  readonly id: string;
  readonly type: string;
  readonly index?: number;
  readonly function: { readonly name: string; readonly arguments: string };
}

async function ask(model: string, more: object): Promise<Response> {
  return sidecar.post('/chat/completions', {
    model,
    messages: [{ role: 'user', content: 'Go.' }],
    tools: TOOLS,
    max_completion_tokens: 300,
    // A random model does not end a thought.
    reasoning_effort: 'none',
    ...more,
  });
}

async function reply(t: Test, model: string, more: object): Promise<Completion['choices'][number]> {
  const response = await ask(model, more);
  t.equal(response.status, 200);
  const [choice] = ((await response.json()) as Completion).choices;
  if (choice === undefined) throw new Error('no choice');
  for (const call of choice.message.tool_calls ?? []) {
    t.match(call.function.name, /^(look|go)$/);
    t.match(JSON.parse(call.function.arguments), { at: /^(here|"there")$/ });
  }
  return choice;
}

/** The calls of a streamed reply, joined from their pieces. */
async function joined(model: string, more: object): Promise<Call['function'][]> {
  const response = await ask(model, { ...more, stream: true });
  const calls: { name: string; arguments: string }[] = [];
  for (const [, data = ''] of (await response.text()).matchAll(/^data: (\{.*)$/gm)) {
    const { choices } = JSON.parse(data) as {
      readonly choices: readonly { readonly delta: { readonly tool_calls?: readonly Call[] } }[];
    };
    for (const { index = 0, function: piece } of choices[0]?.delta.tool_calls ?? []) {
      const call = (calls[index] ??= { name: piece.name, arguments: '' });
      call.arguments += piece.arguments;
    }
  }
  return calls;
}

for (const [model] of formats) {
  t.test(`${model}: a required call, and the next turn`, async (t) => {
    const { finish_reason: reason, message } = await reply(t, model, { tool_choice: 'required', seed: 1 });
    t.match(reason, /^(tool_calls|length)$/, 'a random model may continue to call');
    const calls = message.tool_calls ?? [];
    t.ok(calls.length > 0);
    t.equal(message.content, null);
    const results = calls.map(({ id }) => ({ role: 'tool', tool_call_id: id, content: 'done' }));
    const messages = [{ role: 'user', content: 'Go.' }, message, ...results];
    const next = await ask(model, { messages, max_completion_tokens: 4 });
    t.equal(next.status, 200, 'the calls are rendered by the template, with their ids');
    await next.body?.cancel();
  });

  t.test(`${model}: one call, of the named function`, async (t) => {
    const named = { type: 'function', function: { name: 'go' } };
    for (const seed of cases([1, 2], (_, index) => index === 0)) {
      const { message } = await reply(t, model, { tool_choice: named, seed });
      t.same(
        message.tool_calls?.map((call) => call.function.name),
        ['go'],
      );
      t.same(
        await joined(model, { tool_choice: named, seed }),
        message.tool_calls?.map((call) => call.function),
        'streamed pieces join to the same',
      );
    }
  });

  t.test(`${model}: text that is no call is content`, async (t) => {
    for (const seed of cases([1, 2, 3], (_, index) => index === 0)) {
      const { message } = await reply(t, model, { seed });
      t.not(message.content ?? message.tool_calls, '');
      t.notMatch(message.content ?? '', /"response"|tool_calls/, 'without its wrapping');
    }
  });
}

t.test('the start logs the model whose own format is not known, and no other', (t) => {
  const warned = sidecar.lines.filter(({ event }) => event === 'tools without a native format');
  t.match(warned, [{ level: 40, model: 'unknown', reason: /^calls by a JSON instruction in the prompt/ }]);
  t.equal(warned.length, 1);
  t.end();
});

t.test('a model that is served without tools', async (t) => {
  const response = await ask('toolless', {});
  t.equal(response.status, 422);
  t.match(await response.json(), { error: { code: 'unprocessable', param: 'tools' } });
});
