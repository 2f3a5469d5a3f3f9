/** The routes of chat: how requests to each and their answers are written. */
import { canary } from '../../support/canaries.js';
import type { Usage } from '../../support/priced-sidecar.js';

export type Fields = Readonly<Record<string, unknown>>;

/** A route of chat: how a request to it and its answer are written. */
export interface ChatRoute {
  readonly path: string;
  body(more?: Fields): Fields;
  tool(name: string, parameters?: object): object;
  /** Texts of the caller in every field that accepts text. */
  readonly marked: Fields;
  usageOf(whole: string): Usage;
  /** The usage of a stream that requested it. */
  usageOfStream(data: readonly string[]): Usage;
  /** Fields past their bounds, and the refusal’s text. */
  readonly past: readonly (readonly [more: Fields, message: RegExp])[];
}

const HELLO = [{ role: 'user', content: 'Hello.' }];
const EMPTY = { type: 'object', properties: {} };
const hello = (count: number): readonly object[] => Array.from({ length: count }, () => HELLO[0] as object);

export const CHAT: ChatRoute = {
  path: '/v1/chat/completions',
  body: (more = {}) => ({ model: 'chat', messages: HELLO, ...more }),
  tool: (name, parameters = EMPTY) => ({ type: 'function', function: { name, parameters } }),
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
  past: [
    [{ user: 'u'.repeat(257) }, /^user must have at most 256 characters$/],
    [{ messages: hello(4097) }, /^messages must have at most 4096 items$/],
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
  past: [
    [{ user: 'u'.repeat(257) }, /^user must have at most 256 characters$/],
    [{ input: hello(4097) }, /^input must have at most 4096 items$/],
  ],
};
