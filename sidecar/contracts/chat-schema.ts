/** POST /chat/completions (docs/contract.md#chat-completion-request). */
import { CALL_ID, MAX_TEXT, MODEL_ID, NON_EMPTY_TEXT, TEXT, TEXT_OR_NULL, TOOL_NAME, closed } from './common-schema.js';
import { PROPERTY_SCHEMA, TOOL, TOOL_CALL } from './tool-schema.js';

const PENALTY = { type: 'number', minimum: -2, maximum: 2 } as const;

const MAX_TOKENS = { type: 'integer', minimum: 1, maximum: 1_048_576 } as const;

const STOP = { type: 'string', minLength: 1, maxLength: 4096 } as const;

const CONTENT_PART = {
  type: 'object',
  required: ['type'],
  discriminator: { propertyName: 'type' },
  oneOf: [
    closed(['type', 'text'], { type: { const: 'text' }, text: NON_EMPTY_TEXT }),
    closed(['type', 'image_url'], {
      type: { const: 'image_url' },
      image_url: closed(['url'], {
        url: { ...NON_EMPTY_TEXT, format: 'image-url' },
        detail: { enum: ['auto', 'low', 'high'] },
      }),
    }),
  ],
} as const;

const MESSAGE = {
  type: 'object',
  required: ['role'],
  discriminator: { propertyName: 'role' },
  oneOf: [
    closed(['role', 'content'], { role: { const: 'system' }, content: NON_EMPTY_TEXT, name: TOOL_NAME }),
    closed(['role', 'content'], {
      role: { const: 'user' },
      content: {
        type: ['string', 'array'],
        minLength: 1,
        maxLength: MAX_TEXT,
        minItems: 1,
        maxItems: 4096,
        items: CONTENT_PART,
      },
      name: TOOL_NAME,
    }),
    {
      ...closed(['role'], {
        role: { const: 'assistant' },
        content: TEXT_OR_NULL,
        name: TOOL_NAME,
        reasoning_content: TEXT_OR_NULL,
        tool_calls: { type: 'array', minItems: 1, maxItems: 128, items: TOOL_CALL },
      }),
      allOf: [
        {
          anyOf: [{ required: ['content'] }, { required: ['tool_calls'] }],
          'x-message': 'must have content or tool_calls',
        },
      ],
    },
    closed(['role', 'content', 'tool_call_id'], { role: { const: 'tool' }, content: TEXT, tool_call_id: CALL_ID }),
  ],
} as const;

export const TOOL_CHOICE = {
  type: ['string', 'object'],
  if: { type: 'string' },
  then: { enum: ['none', 'auto', 'required'] },
  else: closed(['type', 'function'], {
    type: { const: 'function' },
    function: closed(['name'], { name: TOOL_NAME }),
  }),
} as const;

export const CHAT_SCHEMA = {
  ...closed(['model', 'messages'], {
    model: MODEL_ID,
    messages: { type: 'array', minItems: 1, maxItems: 4096, items: MESSAGE },
    frequency_penalty: PENALTY,
    presence_penalty: PENALTY,
    max_tokens: MAX_TOKENS,
    max_completion_tokens: MAX_TOKENS,
    n: { type: 'integer', minimum: 1, maximum: 16 },
    parallel_tool_calls: { type: 'boolean' },
    reasoning_effort: { enum: ['none', 'minimal', 'low', 'medium', 'high'] },
    response_format: closed(['type'], { type: { enum: ['text', 'json_object'] } }),
    // As written in the contract; past 2^53 both these bounds and a caller's seed are the nearest double.
    seed: { type: 'integer', minimum: -9_223_372_036_854_776_000, maximum: 9_223_372_036_854_776_000 },
    stop: {
      type: ['string', 'array'],
      minLength: STOP.minLength,
      maxLength: STOP.maxLength,
      minItems: 1,
      maxItems: 4,
      items: STOP,
    },
    store: { type: 'boolean' },
    stream: { type: 'boolean' },
    stream_options: closed(['include_usage'], { include_usage: { type: 'boolean' } }),
    temperature: { type: 'number', minimum: 0, maximum: 2 },
    top_p: { type: 'number', minimum: 0, maximum: 1 },
    tool_choice: TOOL_CHOICE,
    tools: { type: 'array', minItems: 1, maxItems: 128, items: TOOL },
    user: { type: 'string', minLength: 1, maxLength: 256 },
  }),
  $defs: { property: PROPERTY_SCHEMA },
} as const;

/** Names of maps in this schema whose keys callers choose. */
export const CHAT_OPEN_MAPS: ReadonlySet<string> = new Set(['properties']);
