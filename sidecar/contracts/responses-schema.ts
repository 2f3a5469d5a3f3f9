/**
 * POST /responses, served under `contract: compatible` without state (docs/contract.md#responses). Closed: what needs a stored
 * response or a tool that runs here is refused by name.
 */
import { CHAT_SCHEMA } from './chat-schema.js';
import {
  CACHE_MARK,
  EFFORT,
  IGNORED,
  JSON_SCHEMA_FORMAT,
  NO_MODERATION,
  USER,
  orNull,
  ROOT_SCHEMA,
  WIDE_SCHEMA,
} from './compatible-schema.js';
import {
  CALL_ID,
  MAX_TEXT,
  NON_EMPTY_TEXT,
  OTHER_CHOICE,
  OTHER_TOOL,
  TEXT,
  TOOL_NAME,
  closed,
  functionsOnly,
} from './common-schema.js';

type Schemas = Readonly<Record<string, object>>;

const CHAT = (CHAT_SCHEMA as unknown as { readonly properties: Schemas }).properties;

const ANYTHING = {} as const;
const MARK = { type: ['string', 'null'], maxLength: 256 } as const;

function none(why: string): object {
  return { type: 'null', 'x-message': why };
}

function byType(branches: readonly object[]): object {
  return { type: 'object', required: ['type'], discriminator: { propertyName: 'type' }, oneOf: branches };
}

const TEXT_PARTS = [
  closed(['type', 'text'], { type: { const: 'input_text' }, text: TEXT, prompt_cache_breakpoint: CACHE_MARK }),
  closed(['type', 'text'], {
    type: { const: 'output_text' },
    text: TEXT,
    annotations: { type: ['array', 'null'], maxItems: 4096 },
    logprobs: { type: ['array', 'null'] },
  }),
  closed(['type', 'refusal'], { type: { const: 'refusal' }, refusal: TEXT }),
] as const;

const IMAGE_PART = closed(['type', 'image_url'], {
  type: { const: 'input_image' },
  image_url: { ...NON_EMPTY_TEXT, format: 'image-url' },
  detail: orNull({ enum: ['auto', 'low', 'high'] }),
  prompt_cache_breakpoint: CACHE_MARK,
});

function content(branches: readonly object[]): object {
  return { type: ['string', 'array'], maxLength: MAX_TEXT, maxItems: 4096, items: byType(branches) };
}

/** Where `type` is left out an item is a message. */
const MESSAGE = closed(['role', 'content'], {
  type: { const: 'message' },
  id: MARK,
  status: MARK,
  phase: MARK,
  role: { enum: ['user', 'system', 'developer', 'assistant'] },
  content: content([...TEXT_PARTS, IMAGE_PART]),
});

const ITEM = byType([
  MESSAGE,
  closed(['type', 'call_id', 'name', 'arguments'], {
    type: { const: 'function_call' },
    id: MARK,
    status: MARK,
    call_id: CALL_ID,
    name: TOOL_NAME,
    arguments: TEXT,
    parsed_arguments: ANYTHING,
  }),
  closed(['type', 'call_id', 'output'], {
    type: { const: 'function_call_output' },
    id: MARK,
    status: MARK,
    call_id: CALL_ID,
    output: content(TEXT_PARTS),
  }),
  closed(['type'], {
    type: { const: 'reasoning' },
    id: MARK,
    status: MARK,
    summary: {
      type: ['array', 'null'],
      maxItems: 4096,
      items: closed(['type', 'text'], { type: { const: 'summary_text' }, text: TEXT }),
    },
    content: {
      type: ['array', 'null'],
      maxItems: 4096,
      items: closed(['type', 'text'], { type: { const: 'reasoning_text' }, text: TEXT }),
    },
    // Nothing here is encrypted for a caller, so a text comes from elsewhere and is not read.
    encrypted_content: { type: ['string', 'null'], maxLength: MAX_TEXT },
  }),
]);

const FORMAT = byType([
  closed(['type'], { type: { const: 'text' } }),
  closed(['type'], { type: { const: 'json_object' } }),
  closed(['type', 'name', 'schema'], {
    type: { const: 'json_schema' },
    ...(JSON_SCHEMA_FORMAT as { readonly properties: Schemas }).properties,
    schema: ROOT_SCHEMA,
  }),
]);

const TOOL = closed(['type', 'name'], {
  type: { const: 'function' },
  name: TOOL_NAME,
  description: { type: ['string', 'null'], maxLength: MAX_TEXT },
  parameters: orNull(ROOT_SCHEMA),
  strict: { type: ['boolean', 'null'] },
});

const TOOL_CHOICE = {
  type: ['string', 'object'],
  if: { type: 'string' },
  then: { enum: ['none', 'auto', 'required'] },
  else: functionsOnly(closed(['type', 'name'], { type: { const: 'function' }, name: TOOL_NAME }), OTHER_CHOICE),
} as const;

const NO_STATE = 'must be null: no response is stored here, so send the whole conversation as input';

export const RESPONSES_SCHEMA = {
  ...closed(['model', 'input'], {
    model: CHAT['model'] ?? {},
    input: {
      type: ['string', 'array'],
      maxLength: MAX_TEXT,
      minItems: 1,
      maxItems: 4096,
      items: { type: 'object', if: { required: ['type'] }, then: ITEM, else: MESSAGE },
    },
    instructions: { type: ['string', 'null'], maxLength: MAX_TEXT },
    max_output_tokens: orNull(CHAT['max_completion_tokens'] ?? {}),
    temperature: orNull(CHAT['temperature'] ?? {}),
    top_p: orNull(CHAT['top_p'] ?? {}),
    stream: { type: ['boolean', 'null'] },
    stream_options: orNull(closed([], { include_obfuscation: { type: ['boolean', 'null'] } })),
    tools: { type: ['array', 'null'], maxItems: 128, items: functionsOnly(TOOL, OTHER_TOOL) },
    tool_choice: orNull(TOOL_CHOICE),
    parallel_tool_calls: { type: ['boolean', 'null'] },
    reasoning: orNull(
      closed([], {
        effort: EFFORT,
        summary: orNull({ enum: ['auto', 'concise', 'detailed'] }),
        generate_summary: orNull({ enum: ['auto', 'concise', 'detailed'] }),
      }),
    ),
    text: orNull(closed([], { format: orNull(FORMAT), verbosity: orNull({ enum: ['low', 'medium', 'high'] }) })),
    user: USER,
    store: { type: ['boolean', 'null'] },
    include: { type: ['array', 'null'], maxItems: 64, items: { type: 'string', maxLength: 256 } },
    max_tool_calls: { type: ['integer', 'null'], minimum: 1 },
    truncation: orNull({ enum: ['disabled'], 'x-message': 'must be disabled: no input is left out here' }),
    ...IGNORED,
    top_logprobs: { enum: [0, null], 'x-message': 'must be 0: log probabilities are not served' },
    background: { enum: [false, null], 'x-message': 'must be false: no response is made in the background' },
    previous_response_id: none(NO_STATE),
    conversation: none(NO_STATE),
    prompt: none('must be null: no prompts are stored here'),
    context_management: none('must be null: no input is left out here'),
    moderation: NO_MODERATION,
  }),
  $defs: { schema: WIDE_SCHEMA },
} as const;
