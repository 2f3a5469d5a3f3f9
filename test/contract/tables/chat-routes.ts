/** The routes of chat: how requests to each and their answers are written. */
import { canary } from '../../support/canaries.js';
import type { Usage } from '../../support/priced-sidecar.js';

export type Fields = Readonly<Record<string, unknown>>;

/** A route of chat: how a request to it and its answer are written. */
export interface ChatRoute {
  readonly path: string;
  body(more?: Fields): Fields;
  tool(name: string, parameters?: object): object;
  /** A history that ends with the result of a tool. */
  result(text: string): Fields;
  /** Texts of the caller in every field that accepts text. */
  readonly marked: Fields;
  usageOf(whole: string): Usage;
  /** The usage of a stream that requested it. */
  usageOfStream(data: readonly string[]): Usage;
  /** Statuses of its own, by code. */
  readonly statuses?: Readonly<Record<string, number>>;
  readonly mostTools: number;
  /** Fields past their bounds under either contract, and the refusal’s text. `most`: messages that the contract accepts. */
  past(most: number): readonly (readonly [more: Fields, message: RegExp])[];
}

const HELLO = [{ role: 'user', content: 'Hello.' }];
const EMPTY = { type: 'object', properties: {} };
const hello = (count: number): readonly object[] => Array.from({ length: count }, () => HELLO[0] as object);

export const CHAT: ChatRoute = {
  path: '/v1/chat/completions',
  body: (more = {}) => ({ model: 'chat', messages: HELLO, ...more }),
  tool: (name, parameters = EMPTY) => ({ type: 'function', function: { name, parameters } }),
  result: (text) => ({
    messages: [
      ...HELLO,
      { role: 'assistant', tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } }] },
      { role: 'tool', tool_call_id: 'a', content: text },
    ],
  }),
  marked: {
    messages: [
      { role: 'system', content: canary(), name: canary() },
      { role: 'user', content: [{ type: 'text', text: canary() }] },
    ],
    stop: [canary()],
    user: canary(),
  },
  usageOf: (whole) => (JSON.parse(whole) as { usage: Usage }).usage,
  usageOfStream: (data) => CHAT.usageOf(data.at(-2) ?? ''),
  mostTools: 128,
  past: (most) => [
    [{ user: 'u'.repeat(257) }, /^user must have at most 256 characters$/],
    [{ messages: hello(16_385) }, new RegExp(`^messages must have at most ${most} items$`)],
    [{ stop: ['a', 'b', 'c', 'd', 'e'] }, /^stop must have at most 4 items$/],
  ],
};

/** What `compatible` accepts in addition, on the same route. */
export const MARKED_BESIDES: Fields = {
  messages: [
    { role: 'developer', content: [{ type: 'text', text: canary() }] },
    { role: 'assistant', content: canary(), refusal: canary(), parsed: { [canary()]: canary() } },
    { role: 'user', content: canary() },
  ],
  metadata: { [canary()]: canary() },
  service_tier: canary(),
  prompt_cache_key: canary(),
  chat_template_kwargs: { [canary()]: canary() },
  response_format: {
    type: 'json_schema',
    json_schema: { name: canary(), schema: { ...EMPTY, title: canary(), description: canary() } },
  },
};

interface InputUsage {
  readonly input_tokens: number;
  readonly output_tokens: number;
}

export const RESPONSES: ChatRoute = {
  path: '/v1/responses',
  body: (more = {}) => ({ model: 'chat', input: 'Hello.', ...more }),
  tool: (name, parameters = EMPTY) => ({ type: 'function', name, parameters }),
  result: (text) => ({
    input: [
      ...HELLO,
      { type: 'function_call', call_id: 'a', name: 'f', arguments: '{}' },
      { type: 'function_call_output', call_id: 'a', output: text },
    ],
  }),
  marked: {
    instructions: canary(),
    input: [
      { role: 'user', content: [{ type: 'input_text', text: canary() }] },
      { type: 'function_call', call_id: 'a', name: canary(), arguments: JSON.stringify({ [canary()]: canary() }) },
      { type: 'function_call_output', call_id: 'a', output: canary() },
    ],
    metadata: { [canary()]: canary() },
    user: canary(),
  },
  usageOf: (whole) => {
    const { usage } = JSON.parse(whole) as { usage: InputUsage };
    return { prompt_tokens: usage.input_tokens, completion_tokens: usage.output_tokens };
  },
  usageOfStream: (data) => {
    const { response } = JSON.parse(data.at(-1) ?? '') as { response: object };
    return RESPONSES.usageOf(JSON.stringify(response));
  },
  mostTools: 128,
  past: (most) => [
    [{ user: 'u'.repeat(257) }, /^user must have at most 256 characters$/],
    [{ input: hello(16_385) }, new RegExp(`^input must have at most ${most} items$`)],
  ],
};

interface MessageUsage {
  readonly input_tokens: number;
  readonly cache_read_input_tokens: number;
  readonly output_tokens: number;
}

export const MESSAGES: ChatRoute = {
  path: '/v1/messages',
  body: (more = {}) => ({ model: 'chat', messages: HELLO, ...more }),
  tool: (name, schema = EMPTY) => ({ name, input_schema: schema }),
  result: (text) => ({
    messages: [
      ...HELLO,
      { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'f', input: {} }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', content: text }] },
    ],
  }),
  marked: {
    system: [{ type: 'text', text: canary(), cache_control: { type: canary() } }],
    messages: [
      { role: 'user', content: [{ type: 'text', text: canary(), [canary()]: canary() }] },
      { role: 'system', content: canary() },
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: canary(), signature: canary() },
          { type: 'text', text: canary() },
          { type: 'server_tool_use', id: canary(), name: canary(), input: { [canary()]: canary() } },
          { type: 'tool_use', id: 'a', name: canary(), input: { [canary()]: canary() } },
        ],
      },
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: 'a', is_error: true, content: [{ type: 'text', text: canary() }] },
          { type: 'document', title: canary(), source: { type: 'text', data: canary() } },
        ],
      },
    ],
    stop_sequences: [canary()],
    metadata: { user_id: canary() },
    context_management: { [canary()]: canary() },
  },
  usageOf: (whole) => {
    const { usage } = JSON.parse(whole) as { usage: MessageUsage };
    const prompt = usage.input_tokens + usage.cache_read_input_tokens;
    return { prompt_tokens: prompt, completion_tokens: usage.output_tokens };
  },
  usageOfStream: (data) => {
    const start = JSON.parse(data[0] ?? '') as { message: { usage: MessageUsage } };
    const end = JSON.parse(data.at(-2) ?? '') as { usage: Pick<MessageUsage, 'output_tokens'> };
    return MESSAGES.usageOf(JSON.stringify({ usage: { ...start.message.usage, ...end.usage } }));
  },
  statuses: { capacity_exceeded: 529, unprocessable: 400 },
  mostTools: 512,
  past: (most) => [
    [{ messages: hello(16_385) }, new RegExp(`^messages must have at most ${most} items$`)],
    [{ metadata: { user_id: 'u'.repeat(1025) } }, /^metadata has an entry that must have at most 1024 characters$/],
  ],
};
