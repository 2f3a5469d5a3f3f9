import { Ajv } from 'ajv';
import OpenAI from 'openai';
import t, { type Test } from 'tap';
import { cases } from '../support/long-form.js';
import { sharedSidecar, WIDE_CHAT as CHAT } from '../support/shared-sidecar.js';

const sidecar = await sharedSidecar();
const client = new OpenAI({ apiKey: sidecar.key, baseURL: sidecar.base, maxRetries: 0 });

/** Small answers, since random weights fill whatever a grammar leaves open. */
const TOOLS = [
  {
    type: 'function',
    function: {
      name: 'get_weather',
      description: 'Tells the weather',
      parameters: {
        type: 'object',
        properties: {
          city: { type: 'string', enum: ['Paris', 'Zürich "North"', '</tool_call>'] },
          days: { type: 'integer' },
        },
        required: ['city'],
        additionalProperties: false,
      },
    },
  },
  {
    type: 'function',
    function: {
      name: 'switch',
      parameters: {
        type: 'object',
        properties: { on: { type: 'boolean' } },
        required: ['on'],
        additionalProperties: false,
      },
    },
  },
] satisfies OpenAI.ChatCompletionFunctionTool[];

const request = {
  model: CHAT,
  messages: [{ role: 'user', content: 'Weather?' }],
  tools: TOOLS,
  max_completion_tokens: 600,
} satisfies OpenAI.ChatCompletionCreateParams;

const REQUIRED = { ...request, tool_choice: 'required' } as const;
const NAMED = { ...request, tool_choice: { type: 'function', function: { name: 'switch' } } } as const;
const SEEDS = cases([1, 2, 3, 4], (_, index) => index < 2);

/** The client’s types mark it as deprecated. */
const seeded = (seed: number) => ({ seed });

const ajv = new Ajv();
const accepts = new Map(TOOLS.map(({ function: { name, parameters } }) => [name, ajv.compile(parameters)]));

type Call = Pick<OpenAI.ChatCompletionMessageFunctionToolCall, 'id' | 'type' | 'function'>;

/** Asserts that these are calls of the offered tools, with arguments that their parameters allow. */
function checkCalls(t: Test, calls: readonly Call[]): void {
  for (const { id, type, function: called } of calls) {
    t.match(id, /^[A-Za-z0-9]{9}$/);
    t.equal(type, 'function');
    t.equal(accepts.get(called.name)?.(JSON.parse(called.arguments)), true, called.name);
  }
  t.equal(new Set(calls.map(({ id }) => id)).size, calls.length, 'ids are distinct');
}

function only<T>([first]: readonly T[]): T {
  if (first === undefined) throw new Error('no choice');
  return first;
}

/** A streamed reply, collected by the client’s own helper, with the raw call pieces. */
async function streamed(body: OpenAI.ChatCompletionCreateParams) {
  const pieces: OpenAI.ChatCompletionChunk.Choice.Delta.ToolCall[] = [];
  const stream = client.chat.completions.stream({ ...body, stream: true });
  stream.on('chunk', ({ choices }) => pieces.push(...(choices[0]?.delta.tool_calls ?? [])));
  return { choice: (await stream.finalChatCompletion()).choices[0], pieces };
}

t.test('required: one call or several, with valid arguments', async (t) => {
  const counts = new Set<number>();
  for (const seed of SEEDS) {
    const { choices } = await client.chat.completions.create({ ...REQUIRED, ...seeded(seed) });
    const { message, finish_reason: reason } = only(choices);
    const calls = message.tool_calls as Call[];
    t.ok(calls.length > 0);
    checkCalls(t, calls);
    t.equal(message.content, null);
    t.match(reason, /^(tool_calls|length)$/);
    t.same(
      (calls as unknown as { index: number }[]).map(({ index }) => index),
      [...calls.keys()],
    );
    counts.add(calls.length);
  }
  t.ok(Math.max(...counts) > 1, `${[...counts].join(', ')} calls`);
});

t.test('parallel_tool_calls false: exactly one', async (t) => {
  for (const seed of SEEDS) {
    const { choices } = await client.chat.completions.create({
      ...REQUIRED,
      ...seeded(seed),
      parallel_tool_calls: false,
    });
    const { message, finish_reason: reason } = only(choices);
    t.equal(reason, 'tool_calls');
    t.equal(message.tool_calls?.length, 1);
    checkCalls(t, message.tool_calls as Call[]);
  }
});

t.test('streamed: id, type and name on the first piece alone, and the arguments in pieces', async (t) => {
  for (const seed of SEEDS) {
    const whole = await client.chat.completions.create({ ...REQUIRED, ...seeded(seed) });
    const { choice, pieces } = await streamed({ ...REQUIRED, ...seeded(seed) });
    const calls = choice?.message.tool_calls as Call[];
    t.equal(choice?.finish_reason, whole.choices[0]?.finish_reason);
    const expected = whole.choices[0]?.message.tool_calls as Call[];
    // A reply that is cut off within a call has streamed its beginning already; a whole reply omits it.
    t.same(
      calls.slice(0, expected.length).map((call) => call.function),
      expected.map((call) => call.function),
    );
    checkCalls(t, calls.slice(0, expected.length));
    for (const index of calls.keys()) {
      const [first, ...rest] = pieces.filter((piece) => piece.index === index);
      t.match(first, { id: String, type: 'function', function: { name: String, arguments: '' } });
      if (index < expected.length) t.ok(rest.length > 1, 'in more than one piece');
      for (const piece of rest) t.same(Object.keys(piece), ['index', 'function']);
      for (const piece of rest) t.same(Object.keys(piece.function ?? {}), ['arguments']);
    }
  }
});

t.test('a reply cut off within its call', async (t) => {
  const cut = { ...NAMED, max_completion_tokens: 12, ...seeded(1) };
  const whole = only((await client.chat.completions.create(cut)).choices);
  t.equal(whole.finish_reason, 'length');
  t.equal(whole.message.tool_calls, undefined, 'an incomplete call would be misleading');
  t.equal(whole.message.content, '', 'and its marks are no content');
  let reason: string | null = null;
  for await (const { choices } of await client.chat.completions.create({ ...cut, stream: true })) {
    reason = choices[0]?.finish_reason ?? reason;
    t.equal(choices[0]?.delta.content ?? '', '');
  }
  t.equal(reason, 'length');
});

t.test('several choices each have their calls', async (t) => {
  const { choices } = await client.chat.completions.create({ ...NAMED, n: 3, ...seeded(1) });
  t.equal(choices.length, 3);
  for (const { message } of choices) checkCalls(t, message.tool_calls as Call[]);
});

t.test('none: the prompt has no tools', async (t) => {
  const { model, messages } = request;
  const plain = await client.chat.completions.create({ model, messages, max_completion_tokens: 4, ...seeded(1) });
  const none = await client.chat.completions.create({
    ...request,
    tool_choice: 'none',
    max_completion_tokens: 4,
    ...seeded(1),
  });
  t.equal(none.usage?.prompt_tokens, plain.usage?.prompt_tokens);
  t.equal(none.choices[0]?.message.tool_calls, undefined);
});

t.test('the client’s own loop runs the named function', async (t) => {
  const switched: unknown[] = [];
  const runner = client.chat.completions.runTools({
    ...NAMED,
    ...seeded(1),
    tools: [
      {
        type: 'function',
        function: {
          name: 'switch',
          description: 'Turns it on or off',
          parameters: TOOLS[1]?.function.parameters ?? {},
          parse: (text: string) => JSON.parse(text) as { on: boolean },
          function: (given: { on: boolean }) => {
            switched.push(given);
            return 'done';
          },
        },
      },
    ],
  });
  await runner.done();
  t.match(switched, [{ on: Boolean }]);
});
