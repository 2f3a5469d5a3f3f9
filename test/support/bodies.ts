/** Request bodies for tests: complete ones, and functions that change one place in them. */

import type { Parsed } from '../../sidecar/contracts/parse.js';
import { Body } from '../../sidecar/http/body.js';

export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };

export function bytesOf(body: unknown): Uint8Array {
  return new TextEncoder().encode(typeof body === 'string' ? body : JSON.stringify(body));
}

/** A body that was read, in no budget. */
export function received(bytes: Uint8Array): Body {
  return new Body(bytes, bytes.length, 0);
}

/** A refusal’s status, message and param, for exact comparison (tap’s `match` accepts a substring). */
export function verdictOf(parsed: Parsed<unknown>): unknown {
  if (parsed.kind === 'ok') return 'ok';
  const { code, status, message, param } = parsed.error;
  return { code, status, message, param };
}

/** A place in a body: names and indexes. */
export type At = readonly (string | number)[];

/** A copy with `value` at a place; `undefined` removes the place. */
export function withAt(body: Json, at: At, value: Json | undefined): Json {
  const [step, ...rest] = at;
  if (step === undefined) return value ?? null;
  if (Array.isArray(body)) {
    const copy = [...(body as readonly Json[])];
    if (rest.length === 0 && value === undefined) copy.splice(Number(step), 1);
    else copy[Number(step)] = withAt(copy[Number(step)] ?? null, rest, value);
    return copy;
  }
  const fields = { ...(body as Record<string, Json>) };
  if (rest.length > 0) return { ...fields, [step]: withAt(fields[step] ?? {}, rest, value) };
  if (value === undefined) return Object.fromEntries(Object.entries(fields).filter(([name]) => name !== step));
  return { ...fields, [step]: value };
}

/** A place as the contract writes it. */
export function pathText(at: At): string {
  return at.reduce<string>((path, step) => {
    if (typeof step === 'number') return `${path}[${step}]`;
    return path === '' ? step : `${path}.${step}`;
  }, '');
}

/** Of values that cases of several routes share: to write a long one takes longer than to check it. */
const texts = new Map<Json | undefined, string>();

/** A value in a test’s name: short and in ASCII, since TAP breaks at some line separators. */
export function shown(value: Json | undefined): string {
  const text = texts.get(value) ?? textOf(value);
  texts.set(value, text);
  return text;
}

function textOf(value: Json | undefined): string {
  const json = value === undefined ? 'nothing' : JSON.stringify(value);
  const ascii = json
    .slice(0, 60)
    .replace(/[^ -~]/g, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
  return json.length > 60 ? `${ascii}... (${json.length})` : ascii;
}

/** Places of all objects in a body. */
export function objectsIn(body: Json, at: At = []): At[] {
  if (typeof body !== 'object' || body === null) return [];
  if (Array.isArray(body)) return (body as readonly Json[]).flatMap((item, i) => objectsIn(item, [...at, i]));
  return [at, ...Object.entries(body).flatMap(([name, item]) => objectsIn(item, [...at, name]))];
}

/** A chat body that uses every field of the contract. */
export const FULL_CHAT: Json = {
  model: 'chat-1',
  messages: [
    { role: 'system', content: 'Be brief.', name: 'sys' },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'What is this?' },
        { type: 'image_url', image_url: { url: 'https://example.com/a.png', detail: 'low' } },
      ],
      name: 'ann',
    },
    {
      role: 'assistant',
      content: null,
      name: 'bot',
      reasoning_content: 'Hm.',
      tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'look', arguments: '{"x":1}' }, index: 0 }],
    },
    { role: 'tool', content: 'a cat', tool_call_id: 'call_1' },
  ],
  frequency_penalty: 0.5,
  presence_penalty: -0.5,
  max_tokens: 10,
  max_completion_tokens: 20,
  n: 2,
  parallel_tool_calls: true,
  reasoning_effort: 'low',
  response_format: { type: 'json_object' },
  seed: 7,
  stop: ['END', '\n\n'],
  store: true,
  stream: true,
  stream_options: { include_usage: true },
  temperature: 0.7,
  top_p: 0.9,
  tool_choice: { type: 'function', function: { name: 'look' } },
  tools: [
    {
      type: 'function',
      function: {
        name: 'look',
        description: 'Looks.',
        strict: true,
        parameters: {
          type: 'object',
          $schema: 'https://json-schema.org/draft/2020-12/schema',
          properties: {
            chosen: {
              type: 'string',
              description: 'd',
              enum: ['a', 1, true, null],
              const: 'a',
              default: 'a',
              items: { type: 'string' },
              properties: { inner: { type: 'null' } },
              required: ['inner'],
              additionalProperties: { type: 'number' },
              allOf: [{}],
              anyOf: [{}],
              oneOf: [{}],
              minimum: -1,
              maximum: 1,
              minLength: 0,
              maxLength: 5,
              pattern: '^a+$',
            },
          },
          required: ['chosen'],
          additionalProperties: false,
        },
      },
    },
  ],
  user: 'u-1',
};

/** A body of POST /responses that uses every kind of item. */
export const FULL_RESPONSES: Json = {
  model: 'chat-1',
  instructions: 'Be brief.',
  input: [
    { role: 'user', content: 'What is this?' },
    { type: 'message', role: 'developer', content: [{ type: 'input_text', text: 'x' }], id: null, status: null },
    {
      role: 'user',
      content: [
        { type: 'input_text', text: 'And this?' },
        { type: 'input_image', image_url: 'https://example.com/a.png', detail: 'low' },
      ],
    },
    { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 's' }], encrypted_content: null },
    {
      type: 'message',
      role: 'assistant',
      content: [{ type: 'output_text', text: 'y', annotations: [], logprobs: [] }],
    },
    { type: 'function_call', call_id: 'c1', name: 'look', arguments: '{"x":1}', id: 'fc_1', status: 'completed' },
    { type: 'function_call', call_id: 'c2', name: 'look', arguments: '{}' },
    { type: 'function_call_output', call_id: 'c1', output: 'a cat' },
    { type: 'function_call_output', call_id: 'c2', output: [{ type: 'input_text', text: 'a dog' }] },
  ],
  max_output_tokens: 10,
  temperature: 0.5,
  top_p: 0.9,
  stream: true,
  tools: [{ type: 'function', name: 'look', parameters: { type: 'object', properties: {} }, strict: true }],
  tool_choice: { type: 'function', name: 'look' },
  parallel_tool_calls: false,
  reasoning: { effort: 'low', summary: 'auto' },
  text: { format: { type: 'json_schema', name: 'r', schema: { type: 'object' }, strict: true }, verbosity: 'low' },
  store: false,
  include: [],
  metadata: {},
  truncation: 'disabled',
  previous_response_id: null,
};

/** A body of POST /v1/messages that uses every kind of block. */
export const FULL_MESSAGES: Json = {
  model: 'chat-1',
  system: [
    { type: 'text', text: 'x-anthropic-billing-header: cc_version=1; cch=ab;' },
    { type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } },
  ],
  messages: [
    {
      role: 'user',
      content: [
        { type: 'text', text: 'What is this?' },
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' } },
        { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } },
      ],
    },
    { role: 'system', content: 'Later.' },
    {
      role: 'assistant',
      content: [
        { type: 'thinking', thinking: 'Hm.', signature: 's' },
        { type: 'redacted_thinking', data: 'd' },
        { type: 'text', text: 'Look.', citations: null },
        { type: 'server_tool_use', id: 'st1', name: 'web_search', input: { query: 'q' } },
        { type: 'web_search_tool_result', tool_use_id: 'st1', content: [{ title: 't', encrypted_content: 'e' }] },
        { type: 'tool_use', id: 'c1', name: 'look', input: { x: 1 } },
        { type: 'tool_use', id: 'c2', name: 'find', input: {} },
      ],
    },
    {
      role: 'user',
      content: [
        { type: 'tool_result', tool_use_id: 'c2', content: [{ type: 'tool_reference', tool_name: 'late' }] },
        {
          type: 'tool_result',
          tool_use_id: 'c1',
          is_error: true,
          content: [
            { type: 'text', text: 'a cat' },
            { type: 'search_result', source: 's', title: 't', content: [{ type: 'text', text: 'r' }] },
          ],
        },
        { type: 'document', title: 'd', context: null, source: { type: 'text', media_type: 'text/plain', data: 't' } },
        { type: 'document', source: { type: 'content', content: [{ type: 'text', text: 'c' }] } },
        { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'AAAA' } },
      ],
    },
    { role: 'user', content: 'And now?' },
  ],
  max_tokens: 10,
  stop_sequences: ['END'],
  stream: true,
  temperature: 0.5,
  top_p: 0.9,
  top_k: 40,
  tools: [
    { name: 'look', description: 'Looks.', input_schema: { type: 'object', properties: {} }, strict: true },
    { type: 'custom', name: 'late', input_schema: { type: 'object', properties: {} }, defer_loading: true },
    { type: 'custom', name: 'later', input_schema: { type: 'object', properties: {} }, defer_loading: true },
    { type: 'web_search_20250305', name: 'web_search', max_uses: 3 },
  ],
  tool_choice: { type: 'tool', name: 'look', disable_parallel_tool_use: true },
  thinking: { type: 'enabled', budget_tokens: 1024, display: 'omitted' },
  output_config: { effort: 'low' },
  metadata: { user_id: 'u-1' },
  cache_control: { type: 'ephemeral' },
  context_management: { edits: [] },
  service_tier: 'auto',
  thread: null,
  mcp_servers: [],
};

/** A chat body with what the compatible contract accepts in addition. */
export const FULL_COMPATIBLE: Json = {
  ...(FULL_CHAT as Record<string, Json>),
  messages: [
    { role: 'developer', content: [{ type: 'text', text: '' }], name: null },
    { role: 'user', content: '' },
    {
      role: 'assistant',
      content: [{ type: 'refusal', refusal: 'no' }],
      refusal: null,
      parsed: { a: [1] },
      annotations: [],
      audio: null,
      function_call: null,
      reasoning: 'hm',
      tool_calls: [{ id: 'c', index: 0, function: { name: 'f', arguments: '{}', parsed_arguments: {} } }],
    },
    { role: 'tool', content: [{ type: 'text', text: 'r', id: 'lc_1' }], tool_call_id: 'c', name: 'f' },
  ],
  metadata: { a: 'b' },
  service_tier: 'auto',
  prompt_cache_key: 'k',
  verbosity: 'low',
  modalities: ['text'],
  logprobs: false,
  top_logprobs: 0,
  logit_bias: {},
  top_k: 40,
  min_p: 0.1,
  chat_template_kwargs: { enable_thinking: true },
  response_format: {
    type: 'json_schema',
    json_schema: { name: 'r', strict: true, schema: { $ref: '#/$defs/a', $defs: { a: { type: ['object', 'null'] } } } },
  },
  stream_options: { include_usage: true, include_obfuscation: false },
  tools: [
    {
      type: 'function',
      function: {
        name: 'look',
        parameters: {
          type: 'object',
          title: 'T',
          properties: {
            a: { type: 'array', minItems: 1, uniqueItems: true, prefixItems: [{ const: { b: 1 } }], items: false },
            b: { type: 'integer', exclusiveMinimum: 1, multipleOf: 2, examples: [4], default: [] },
          },
          patternProperties: { '^x-': { format: 'uri' } },
          propertyNames: { pattern: '^[a-z]' },
        },
      },
    },
  ],
};

/** A decisions body with one question of each type. */
export const FULL_DECISIONS: Json = {
  model: 'decider-1',
  input: 'I was charged twice.',
  questions: [
    { id: 'a', type: 'yes_no', question: 'Is it about money?', yes: 'it is', no: 'it is not' },
    {
      id: 'b',
      type: 'choice',
      question: 'Which desk?',
      options: [{ name: 'sales', description: 'sells' }, { name: 'billing' }],
    },
    { id: 'c', type: 'score', question: 'How angry?', levels: ['calm', 'cross', 'furious'] },
  ],
  temperature: 2,
  prompt_format_version: 1,
};

/** An embeddings body with every field. */
export const FULL_EMBEDDINGS: Json = {
  model: 'embedder-1',
  input: ['a', 'b'],
  encoding_format: 'base64',
  dimensions: 8,
  user: 'u',
  truncate: true,
};

/** A rerank body with every field. */
export const FULL_RERANK: Json = {
  model: 'ranker-1',
  query: 'q',
  documents: ['a', { text: 'b' }],
  top_n: 1,
  return_documents: true,
  user: 'u',
  truncate: true,
};

/** A systemone body with one question of each type. */
export const FULL_SYSTEMONE: Json = {
  model: 'decider-1',
  state: { note: 'I was charged twice.', tags: [{ a: 1 }] },
  questions: {
    a: { type: 'noul', instructions: 'Is it about money?', criteria: { true: 'it is', false: null } },
    b: { type: 'choice', instructions: { ask: ['Which desk?'] }, criteria: { sales: 'sells', billing: null } },
    c: { type: 'score', instructions: ['How angry?'], criteria: ['calm', { level: 'cross' }, null] },
  },
};
