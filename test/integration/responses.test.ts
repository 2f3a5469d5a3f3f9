/** POST /v1/responses with OpenAI’s own client, on the embedded model. */
import { join } from 'node:path';
import OpenAI from 'openai';
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import t from 'tap';
import { z } from 'zod';
import { testModel } from '../support/models.js';
import { bundleTemplate } from '../support/prompt-models.js';
import { CHAT, Sidecar } from '../support/sidecar.js';

const chat = { id: CHAT, kind: 'chat', file: await testModel(), seats: 2, contextPerSeat: 4096 };
const folder = t.testdir({ 'mistral.jinja': await bundleTemplate('mistralai-Mistral-Nemo-Instruct-2407') });
// A seat has more than what it was trained for.
const mistral = {
  ...chat,
  id: 'mistral',
  load: 'lazy',
  contextPerSeat: 8448,
  chatTemplate: join(folder, 'mistral.jinja'),
};
const sidecar = await Sidecar.start(t, { config: { models: [chat, mistral], contract: 'compatible' } });
const client = new OpenAI({ apiKey: sidecar.key, baseURL: sidecar.base, maxRetries: 0 });
const request = { model: CHAT, input: 'Hello', temperature: 0, max_output_tokens: 64 } as const;
const LOOK = {
  type: 'function',
  name: 'look',
  strict: true,
  parameters: {
    type: 'object',
    properties: { at: { enum: ['x', 'y'] } },
    required: ['at'],
    additionalProperties: false,
  },
} as const;

t.test('whole and streamed are equal, and the parts add up', async (t) => {
  const whole = await client.responses.create(request);
  t.equal(whole.object, 'response');
  t.not(whole.output_text, '');
  const { completed_at: at = null } = whole as { completed_at?: number | null };
  t.equal(at === null, whole.status === 'incomplete', 'the time of its end, if it was completed');
  t.ok(at === null || at >= whole.created_at);
  t.ok(whole.usage && whole.usage.total_tokens === whole.usage.input_tokens + whole.usage.output_tokens);
  const types: string[] = [];
  const numbers: number[] = [];
  let text = '';
  let last: OpenAI.Responses.Response | undefined;
  for await (const event of await client.responses.create({ ...request, stream: true })) {
    types.push(event.type);
    numbers.push(event.sequence_number);
    if (event.type === 'response.output_text.delta') text += event.delta;
    if (event.type === 'response.completed' || event.type === 'response.incomplete') last = event.response;
  }
  t.equal(text, whole.output_text);
  t.same(last?.usage, whole.usage);
  t.equal(last?.status, whole.status);
  t.strictSame(types.slice(0, 4), [
    'response.created',
    'response.in_progress',
    'response.output_item.added',
    'response.content_part.added',
  ]);
  t.strictSame(numbers, [...numbers.keys()], 'numbered from 0 on');
});

t.test('each frame of a stream has its type as its name', async (t) => {
  const response = await sidecar.post('/responses', { ...request, stream: true });
  t.equal(response.headers.get('content-type'), 'text/event-stream; charset=utf-8');
  const body = await response.text();
  const named = [...body.matchAll(/^event: (.*)\ndata: \{"type":"(.*?)"/gm)];
  t.equal(named.length, body.match(/^data: /gm)?.length);
  t.ok(named.length > 4 && named.every(([, name, type]) => name === type));
});

t.test('a call; its result is sent back with the items as they came', async (t) => {
  const first = await client.responses.create({ ...request, tools: [LOOK], tool_choice: 'required' });
  const call = first.output.find((item) => item.type === 'function_call');
  t.match(JSON.parse(call?.arguments ?? ''), { at: /^[xy]$/ });
  const second = await client.responses.create({
    ...request,
    input: [
      { role: 'user', content: 'Hello' },
      ...(first.output as OpenAI.Responses.ResponseInputItem[]),
      { type: 'function_call_output', call_id: call?.call_id ?? '', output: 'a cat' },
    ],
    tools: [LOOK],
  });
  t.ok(second.output.length > 0);
  const streamed = client.responses.stream({
    ...request,
    tools: [LOOK],
    tool_choice: { type: 'function', name: 'look' },
  });
  const done: string[] = [];
  for await (const event of streamed)
    if (event.type === 'response.function_call_arguments.done') done.push(event.arguments);
  t.match(JSON.parse(done[0] ?? ''), { at: /^[xy]$/ });
});

t.test(
  'a function of a namespace is called by both names, whole and streamed, and the call is taken back',
  async (t) => {
    const tools = [{ type: 'namespace', name: 'mcp__demo', description: 'Demo.', tools: [LOOK] }];
    const asked = { ...request, tools, tool_choice: 'required', parallel_tool_calls: false };
    const called = { type: 'function_call', name: 'look', namespace: 'mcp__demo', arguments: /"[xy]"/ };
    const whole = await sidecar.post('/responses', asked);
    const { output } = (await whole.json()) as { output: { call_id?: string }[] };
    t.match(output.at(-1), called);
    const streamed = await (await sidecar.post('/responses', { ...asked, stream: true })).text();
    const done = [...streamed.matchAll(/^event: response\.output_item\.done\ndata: (.*)$/gm)];
    t.match((JSON.parse(done.at(-1)?.[1] ?? '{}') as { item?: object }).item, called);
    const result = { type: 'function_call_output', call_id: output.at(-1)?.call_id, output: 'a cat' };
    const input = [{ role: 'user', content: 'Hello' }, ...output, result];
    t.equal((await sidecar.post('/responses', { ...request, tools, input })).status, 200);
  },
);

t.test('structured output is constrained by its schema', async (t) => {
  const Answer = z.object({ verdict: z.enum(['yes', 'no']), score: z.union([z.literal(1), z.literal(2)]) });
  const response = await client.responses.parse({
    ...request,
    max_output_tokens: 64,
    text: { format: zodTextFormat(Answer, 'answer') },
  });
  t.ok(Answer.safeParse(response.output_parsed).success);
});

t.test('chat: a schema constrains the reply, and the client’s own message is accepted back unchanged', async (t) => {
  const Answer = z.object({ verdict: z.enum(['yes', 'no']) });
  const chat = { model: CHAT, temperature: 0, max_tokens: 64 } as const;
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'developer', content: 'Hello' }];
  const first = await client.chat.completions.parse({
    ...chat,
    messages,
    response_format: zodResponseFormat(Answer, 'answer'),
  });
  const reply = first.choices[0]?.message;
  t.match(reply?.parsed, { verdict: /^(?:yes|no)$/ });
  if (reply) messages.push(reply, { role: 'user', content: 'And now?' });
  const second = await client.chat.completions.create({ ...chat, messages });
  t.equal(second.choices.length, 1);
});

t.test('a request that needs a stored response is refused by the field’s name', async (t) => {
  await t.rejects(client.responses.create({ ...request, previous_response_id: 'resp_1' }), {
    status: 400,
    code: 'bad_request',
    param: 'previous_response_id',
    message: /no response is stored/,
  });
  const cut = await client.responses.create({ ...request, max_output_tokens: 1_000_000 });
  t.match(cut.status, /^(?:in)?complete/, 'a maximum over the context is cut to what the input leaves');
  await t.rejects(client.responses.create({ ...request, input: 'word '.repeat(5000) }), {
    message: /maximum context length is \d+ tokens.*reduce the length of the messages.*context_length_exceeded/,
    code: 'context_length_exceeded',
    param: 'input',
  });
});

t.test('a result of no call, arguments that are not JSON, and roles in any order are served', async (t) => {
  const post = async (path: string, body: object): Promise<unknown> => {
    const headers = { authorization: `Bearer ${sidecar.key}`, 'content-type': 'application/json' };
    const answer = await fetch(`${sidecar.base}/${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    return { body: await answer.json(), status: answer.status };
  };
  const asked = { role: 'user', content: 'Look.' };
  const called = (id: string, given: string) => ({
    id,
    type: 'function',
    function: { name: 'look', arguments: given },
  });
  const chat = (given: string, id: string) => [
    asked,
    { role: 'assistant', content: null, tool_calls: [called('a', '{}'), called('b', given)] },
    { role: 'tool', tool_call_id: id, content: 'x' },
  ];
  const items = (given: string, id: string) => [
    asked,
    { type: 'function_call', call_id: 'a', name: 'look', arguments: '{}' },
    { type: 'function_call', call_id: 'b', name: 'look', arguments: given },
    { type: 'function_call_output', call_id: id, output: 'x' },
  ];
  const served = { status: 200 };
  for (const [given, id] of [
    ['{}', 'c'],
    ['{"at', 'b'],
  ] as const) {
    const short = { max_tokens: 1 };
    t.match(await post('chat/completions', { model: CHAT, messages: chat(given, id), ...short }), served);
    t.match(await post('responses', { ...request, input: items(given, id), max_output_tokens: 16 }), served);
  }
  const reply = { role: 'assistant', content: 'Yes.' };
  const orders = [
    [reply],
    [asked, asked, reply, reply],
    [reply, { role: 'system', content: 'Be brief.' }, asked],
    chat('{}', 'b').slice(1),
  ];
  for (const messages of orders) {
    t.match(await post('chat/completions', { model: 'mistral', messages, max_tokens: 1 }), served);
  }
});

t.test('a call that max_tokens has cut does not end the session: it can be sent back as it came', async (t) => {
  const parameters = {
    type: 'object',
    properties: { path: { type: 'string', minLength: 80 } },
    required: ['path'],
    additionalProperties: false,
  };
  const asked = { role: 'user', content: 'Write.' } as const;
  const stream = client.chat.completions.stream({
    model: CHAT,
    messages: [asked],
    tools: [{ type: 'function', function: { name: 'write_file', parameters } }],
    tool_choice: 'required',
    max_tokens: 60,
  });
  const pieces: string[] = [];
  let id = '';
  for await (const { choices } of stream) {
    for (const call of choices[0]?.delta.tool_calls ?? []) {
      id ||= call.id ?? '';
      pieces.push(call.function?.arguments ?? '');
    }
  }
  const cut = pieces.join('');
  t.throws(() => JSON.parse(cut) as unknown, SyntaxError);
  const call = { id, type: 'function' as const, function: { name: 'write_file', arguments: cut } };
  const messages: OpenAI.ChatCompletionMessageParam[] = [
    asked,
    { role: 'assistant', content: null, tool_calls: [call] },
    { role: 'tool', tool_call_id: id, content: 'Error: the arguments are cut' },
    { role: 'user', content: 'Go on.' },
  ];
  for (const model of [CHAT, 'mistral']) {
    const reply = await client.chat.completions.create({ model, messages, max_completion_tokens: 1 });
    t.ok((reply.usage?.prompt_tokens ?? 0) > 30);
  }
});

t.test('a conversation that ends with the assistant begins a new turn', async (t) => {
  const turns = [
    { role: 'user', content: 'Hello' },
    { role: 'assistant', content: 'It is' },
  ];
  for (const [path, body] of [
    ['/chat/completions', { messages: turns, max_tokens: 4 }],
    ['/responses', { input: turns, max_output_tokens: 16 }],
  ] as const) {
    for (const model of ['mistral', CHAT]) {
      const answer = await sidecar.post(path, { ...body, model });
      t.equal(answer.status, 200);
      t.match(await answer.json(), { model });
    }
  }
});

t.test('a thought ends at its budget by a sentence, and leaves room for an answer', async (t) => {
  // This model’s template begins the thought if an effort is named, and random weights never end it.
  const said = 'I have to give the solution based on the thinking directly now.';
  const post = async (path: string, body: object): Promise<unknown> => {
    const answer = await sidecar.post(path, { model: CHAT, temperature: 0, ...body });
    t.equal(answer.status, 200);
    return answer.json();
  };
  const { messages } = { messages: [{ role: 'user', content: 'Hello' }] };
  for (const budget of [8, 4000]) {
    const most = 160;
    const thinking = { type: 'enabled', budget_tokens: budget };
    const chat = (await post('/chat/completions', {
      ...{ messages, max_tokens: most, thinking_token_budget: budget, reasoning_effort: 'low' },
    })) as OpenAI.ChatCompletion;
    const { message } = chat.choices[0] as { message: { content: string; reasoning_content?: string } };
    const { completion_tokens: all = 0, completion_tokens_details: details } = chat.usage ?? {};
    const thought = details?.reasoning_tokens ?? 0;
    t.match(message.reasoning_content?.trimEnd().slice(-said.length), said, `${budget}`);
    t.not(message.content, '', 'an answer follows');
    t.ok(thought > Math.min(budget, most / 2) && thought <= most - most / 4, `${thought} of ${all} tokens are thought`);
    const response = (await post('/responses', {
      ...{ input: messages, max_output_tokens: most, reasoning: { effort: 'low', max_tokens: budget } },
    })) as OpenAI.Responses.Response;
    t.equal(response.usage?.output_tokens_details.reasoning_tokens, thought, 'by Responses as many');
    const written = (await post('/messages', { messages, max_tokens: most, thinking })) as {
      readonly content: readonly { readonly type: string; readonly thinking?: string }[];
    };
    t.strictSame(
      written.content.map(({ type }) => type),
      ['thinking', 'text'],
    );
    t.match(written.content[0]?.thinking?.trimEnd().slice(-said.length), said, 'by Messages');
  }
});

t.test('a billing line that changes does not keep a prompt from being reused', async (t) => {
  const texts = (turn: number) => [
    { type: 'text', text: `x-anthropic-billing-header: cc_version=1; cch=${turn};` },
    { type: 'text', text: 'Be brief and kind. '.repeat(150) },
  ];
  const hello = { role: 'user', content: 'Hello' };
  const usageOf = async (path: string, body: object): Promise<Record<string, number | Record<string, number>>> =>
    ((await (await sidecar.post(path, { model: CHAT, max_tokens: 1, ...body })).json()) as { usage: never }).usage;
  await usageOf('/messages', { system: texts(1), messages: [hello] });
  const messages = await usageOf('/messages', { system: texts(2), messages: [hello] });
  const [fresh = 0, reused = 0] = [messages['input_tokens'], messages['cache_read_input_tokens']].map(Number);
  t.ok(reused > 2 * fresh, `${reused} tokens are reused, ${fresh} are not`);
  const chat = await usageOf('/chat/completions', {
    messages: [{ role: 'system', content: texts(3) }, hello],
    reasoning_effort: 'none',
  });
  t.equal((chat['prompt_tokens_details'] as Record<string, number>)['cached_tokens'], reused, 'as a gateway sends it');
});

t.test('the Messages API: whole and streamed are equal, and a call goes round', async (t) => {
  const hello = { model: CHAT, max_tokens: 64, top_k: 1, messages: [{ role: 'user', content: 'Hello' }] };
  const ask = async (more: object): Promise<string> => (await sidecar.post('/messages', { ...hello, ...more })).text();
  interface Message {
    readonly content: readonly {
      readonly type: string;
      readonly text?: string;
      readonly id?: string;
      readonly input?: object;
    }[];
    readonly stop_reason: string;
    readonly usage: { readonly output_tokens: number };
  }
  const whole = JSON.parse(await ask({})) as Message;
  const events = [...(await ask({ stream: true })).matchAll(/^data: (.*)$/gm)].map(
    ([, data = '']) => JSON.parse(data) as { delta?: { text?: string; stop_reason?: string }; usage?: object },
  );
  const [said] = whole.content;
  t.equal(events.map(({ delta }) => delta?.text ?? '').join(''), said?.text);
  t.match(events.at(-2), {
    delta: { stop_reason: whole.stop_reason },
    usage: { output_tokens: whole.usage.output_tokens },
  });
  const text = said?.text ?? '';
  // Of a model of random weights, which may repeat itself.
  const at = Array.from(text).findIndex((_, i) => i > 2 && text.indexOf(text.slice(i, i + 3)) === i);
  const sequence = text.slice(at, at + 3);
  const ended = { stop_reason: 'stop_sequence', stop_sequence: sequence };
  const stopped = JSON.parse(await ask({ stop_sequences: [sequence] })) as Message;
  t.match(stopped, { ...ended, content: [{ text: text.slice(0, at) }] });
  t.match(await ask({ stop_sequences: [sequence], stream: true }), JSON.stringify(ended).slice(1, -1));
  const tools = [{ name: 'look', input_schema: LOOK.parameters }];
  const called = JSON.parse(
    await ask({ tools, tool_choice: { type: 'any', disable_parallel_tool_use: true } }),
  ) as Message;
  t.equal(called.stop_reason, 'tool_use');
  const calls = called.content.filter(({ type }) => type === 'tool_use');
  for (const { input } of calls) t.match(input, { at: /^[xy]$/ });
  const results = calls.map(({ id }) => ({ type: 'tool_result', tool_use_id: id, content: 'a cat' }));
  const messages = [
    ...hello.messages,
    { role: 'assistant', content: called.content },
    { role: 'user', content: results },
  ];
  t.ok((JSON.parse(await ask({ tools, messages })) as Message).stop_reason);
});

t.test('an engine that has loaded says that its context is longer than what the model was trained for', async (t) => {
  const { model, reason } = await sidecar.logged('engine should be set up otherwise');
  t.equal(model, 'mistral');
  t.equal(
    reason,
    'contextPerSeat is 8,448 tokens, and the model was trained for 8,192: replies past these may be useless',
  );
});

t.test('a line that connects OpenAI’s clients is printed, and why there is none for coding agents', (t) => {
  const lines = sidecar.printed.split('\n');
  t.ok(lines.includes(`export OPENAI_BASE_URL=${sidecar.base} OPENAI_API_KEY=${sidecar.key}   # OpenAI clients`));
  t.ok(lines.includes('# coding agents need a chat model with a contextPerSeat of 32768 or more: docs/clients.md'));
  t.end();
});

t.test('top_k and min_p leave only the most likely token', async (t) => {
  const said = async (sampling: object): Promise<string> => {
    const body = { model: CHAT, messages: [{ role: 'user', content: 'Hello' }], max_tokens: 24, ...sampling };
    const reply = (await (await sidecar.post('/chat/completions', body)).json()) as OpenAI.ChatCompletion;
    return reply.choices[0]?.message.content ?? '';
  };
  const greedy = await said({ temperature: 0 });
  t.not(greedy, '');
  t.not(await said({ temperature: 2, seed: 1 }), greedy);
  t.equal(await said({ temperature: 2, seed: 1, top_k: 1 }), greedy);
  t.equal(await said({ temperature: 2, seed: 1, min_p: 1 }), greedy);
});
