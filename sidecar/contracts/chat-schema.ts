/** POST /chat/completions (docs/contract.md#chat-completion-request). */
import {
  CALL_ID,
  CALL_INDEX,
  MAX_TEXT,
  TEXT,
  TOOL_NAME,
  closed,
  oneOfBy,
  MODEL_ID,
  NON_EMPTY_TEXT,
  TEXT_OR_NULL,
  exactly,
} from './common-schema.js';

/**
 * `tools[]` and the recursive property schema inside `parameters` (docs/contract.md#tools). The caller's schema is data here: it is
 * checked against this contract, never run; a grammar is made of it where calls are constrained (engine/grammar, with bounds of its
 * own). Depth is bounded by the nesting of the body.
 */
const PROPERTY = { $ref: '#/$defs/property' } as const;

/** A number that is an integer past 2^53 is still a number, so the contract's integer range narrows nothing. */
const SCALAR = { type: ['string', 'number', 'boolean', 'null'], maxLength: MAX_TEXT } as const;

const BOUND = { type: 'number', minimum: -1e308, maximum: 1e308 } as const;

const LENGTH = { type: 'integer', minimum: 0 } as const;

const VARIANTS = { type: 'array', minItems: 1, items: PROPERTY } as const;

/** `__proto__` is refused where callers choose names: code further in would lose it without a word. */
const NO_PROTO = { not: { const: '__proto__' }, 'x-message': 'must not be __proto__' } as const;

const PROPERTIES = { type: 'object', propertyNames: NO_PROTO, additionalProperties: PROPERTY } as const;

/** Names of parameters. The items' type stands right here: ajv then compares them in linear time. */
const REQUIRED = {
  type: 'array',
  uniqueItems: true,
  items: { type: 'string', minLength: 1, maxLength: 256, allOf: [NO_PROTO] },
} as const;

const ADDITIONAL = { type: ['boolean', 'object'], if: { type: 'object' }, then: PROPERTY } as const;

/** What `$defs` must hold under `property` in a schema that uses {@link TOOL}. */
const PROPERTY_SCHEMA = closed([], {
  type: { enum: ['string', 'number', 'integer', 'boolean', 'array', 'object', 'null'] },
  description: TEXT,
  enum: { type: 'array', minItems: 1, items: SCALAR },
  const: SCALAR,
  default: SCALAR,
  items: PROPERTY,
  properties: PROPERTIES,
  required: REQUIRED,
  additionalProperties: ADDITIONAL,
  allOf: VARIANTS,
  anyOf: VARIANTS,
  oneOf: VARIANTS,
  minimum: BOUND,
  maximum: BOUND,
  minLength: LENGTH,
  maxLength: LENGTH,
  pattern: { type: 'string', minLength: 1, maxLength: 1024 },
});

const PARAMETERS = closed(['type', 'properties'], {
  type: { const: 'object' },
  properties: PROPERTIES,
  required: REQUIRED,
  additionalProperties: ADDITIONAL,
  $schema: { type: 'string', minLength: 1, maxLength: 256, pattern: '^https?://json-schema\\.org/', format: 'uri' },
});

const TOOL = exactly({
  type: { const: 'function' },
  function: closed(['name', 'parameters'], {
    name: TOOL_NAME,
    description: TEXT,
    parameters: PARAMETERS,
    strict: { type: 'boolean' },
  }),
});

/** An assistant's call of a tool, in a request. Clients send back what they were answered, `index` and all. */
const TOOL_CALL = closed(['id', 'type', 'function'], {
  id: CALL_ID,
  type: { const: 'function' },
  function: exactly({ name: TOOL_NAME, arguments: TEXT }),
  index: CALL_INDEX,
});

const PENALTY = { type: 'number', minimum: -2, maximum: 2 } as const;

const MAX_TOKENS = { type: 'integer', minimum: 1, maximum: 1_048_576 } as const;

const STOP = { type: 'string', minLength: 1, maxLength: 4096 } as const;

const CONTENT_PART = oneOfBy('type', [
  exactly({ type: { const: 'text' }, text: NON_EMPTY_TEXT }),
  exactly({
    type: { const: 'image_url' },
    image_url: closed(['url'], {
      url: { ...NON_EMPTY_TEXT, format: 'image-url' },
      detail: { enum: ['auto', 'low', 'high'] },
    }),
  }),
]);

const MESSAGE = oneOfBy('role', [
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
  exactly({ role: { const: 'tool' }, content: TEXT, tool_call_id: CALL_ID }),
]);

export const TOOL_CHOICE = {
  type: ['string', 'object'],
  if: { type: 'string' },
  then: { enum: ['none', 'auto', 'required'] },
  else: exactly({
    type: { const: 'function' },
    function: exactly({ name: TOOL_NAME }),
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
    response_format: exactly({ type: { enum: ['text', 'json_object'] } }),
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
    stream_options: exactly({ include_usage: { type: 'boolean' } }),
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
