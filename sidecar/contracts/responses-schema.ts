/**
 * POST /responses, served under `contract: compatible` without state (docs/compatible.md#responses). Closed: what needs a stored response
 * is refused by name. Tools that are no functions, and the items of their calls, are accepted: the tools are left out, and the items become
 * text.
 */
import { CHAT_SCHEMA } from './chat-schema.js';
import {
  CACHE_MARK,
  EFFORT,
  BUDGET,
  IGNORED,
  IGNORED_OF_TOOLS,
  SERVICE_TIER,
  MAX_MESSAGES,
  JSON_SCHEMA_FORMAT,
  NO_MODERATION,
  USER,
  open,
  orNull,
  ROOT_SCHEMA,
  WIDE_SCHEMA,
} from './compatible-schema.js';
import { INERT_FIELDS } from './inert-fields.js';
import type { ValueOf } from './validator.js';
import {
  HISTORY_NAME,
  MAX_TEXT,
  NON_EMPTY_TEXT,
  TEXT,
  WIDE_CALL_ID,
  WIDE_TOOL_NAME,
  closed,
  oneOfBy,
  exactly,
} from './common-schema.js';

type Schemas = Readonly<Record<string, object>>;

const CHAT = CHAT_SCHEMA.properties;

const ANYTHING = {} as const;
const MARK = { type: ['string', 'null'], maxLength: 256 } as const;
/** Of an item. Some servers keep a thought's signature in it. */
const ITEM_ID = { type: ['string', 'null'], maxLength: 8192 } as const;

function none(why: string): object {
  return { type: 'null', 'x-message': why };
}

const TEXT_PARTS = [
  closed(['type', 'text'], { type: { const: 'input_text' }, text: TEXT, prompt_cache_breakpoint: CACHE_MARK }),
  closed(['type', 'text'], {
    type: { const: 'output_text' },
    text: TEXT,
    annotations: { type: ['array', 'null'], maxItems: 4096 },
    logprobs: { type: ['array', 'null'] },
  }),
  exactly({ type: { const: 'refusal' }, refusal: TEXT }),
] as const;

const IMAGE_PART = closed(['type', 'image_url'], {
  type: { const: 'input_image' },
  image_url: { ...NON_EMPTY_TEXT, format: 'image-url' },
  detail: orNull({ enum: ['auto', 'low', 'high', 'original'] }),
  prompt_cache_breakpoint: CACHE_MARK,
});

/** In a tool's output, where what cannot be shown becomes a line of text: any image, and parts that are not looked at. */
const RESULT_PARTS = [
  closed(['type'], {
    type: { const: 'input_image' },
    image_url: { type: ['string', 'null'], maxLength: MAX_TEXT },
    file_id: MARK,
    detail: MARK,
    prompt_cache_breakpoint: CACHE_MARK,
  }),
  ...['input_file', 'input_audio', 'encrypted_content'].map((type) => open(['type'], { type: { const: type } })),
] as const;

function content(branches: readonly object[], types: readonly string[] = ['string', 'array']): object {
  return { type: types, maxLength: MAX_TEXT, maxItems: 4096, items: oneOfBy('type', branches) };
}

const TOOL = closed(['type', 'name'], {
  type: { const: 'function' },
  name: WIDE_TOOL_NAME,
  description: { type: ['string', 'null'], maxLength: MAX_TEXT },
  parameters: orNull(ROOT_SCHEMA),
  strict: { type: ['boolean', 'null'] },
  ...IGNORED_OF_TOOLS,
});

export type FunctionTool = ValueOf<typeof TOOL>;

/** A tool of another type, which is left out and not looked at. `name`: a constant of the API: lower case, digits, underscores. */
const FOREIGN_TOOL = {
  type: 'object',
  required: ['type'],
  maxProperties: 64,
  properties: { type: { type: 'string', maxLength: 64, pattern: '^[a-z][a-z0-9_]*$' } },
} as const;

function ofType(type: string): object {
  return { required: ['type'], properties: { type: { const: type } } };
}

/** Functions under a name, and perhaps tools of other types. */
const NAMESPACE = closed(['type', 'name', 'tools'], {
  type: { const: 'namespace' },
  name: WIDE_TOOL_NAME,
  description: { type: ['string', 'null'], maxLength: MAX_TEXT },
  tools: { type: 'array', maxItems: 128, items: { if: ofType('function'), then: TOOL, else: FOREIGN_TOOL } },
});

const TOOLS = {
  type: ['array', 'null'],
  maxItems: 128,
  items: {
    if: ofType('function'),
    then: TOOL,
    else: { if: ofType('namespace'), then: NAMESPACE, else: FOREIGN_TOOL },
  },
} as const;

/** What OpenAI's models say of a call and its result besides: nothing here reads it. */
const UNREAD_OF_CALLS: Schemas = { caller: ANYTHING, async: ANYTHING, created_by: MARK };

/** Where `type` is left out an item is a message. */
const MESSAGE = closed(['role', 'content'], {
  type: { const: 'message' },
  id: ITEM_ID,
  status: MARK,
  phase: MARK,
  role: { enum: ['user', 'system', 'developer', 'assistant'] },
  content: content([...TEXT_PARTS, IMAGE_PART]),
});

const ITEM = oneOfBy('type', [
  MESSAGE,
  closed(['type', 'call_id', 'name', 'arguments'], {
    type: { const: 'function_call' },
    id: ITEM_ID,
    status: MARK,
    call_id: WIDE_CALL_ID,
    name: HISTORY_NAME,
    namespace: orNull(HISTORY_NAME),
    arguments: TEXT,
    parsed_arguments: ANYTHING,
    ...UNREAD_OF_CALLS,
  }),
  closed(['type', 'call_id', 'output'], {
    type: { const: 'function_call_output' },
    id: ITEM_ID,
    status: MARK,
    call_id: WIDE_CALL_ID,
    output: content([...TEXT_PARTS, ...RESULT_PARTS], ['string', 'array', 'null']),
    name: orNull(HISTORY_NAME),
    namespace: orNull(HISTORY_NAME),
    ...UNREAD_OF_CALLS,
  }),
  closed(['type', 'tools'], {
    type: { const: 'additional_tools' },
    id: ITEM_ID,
    status: MARK,
    role: MARK,
    tools: TOOLS,
  }),
  closed(['type'], {
    type: { const: 'reasoning' },
    id: ITEM_ID,
    status: MARK,
    summary: {
      type: ['array', 'null'],
      maxItems: 4096,
      items: exactly({ type: { const: 'summary_text' }, text: TEXT }),
    },
    content: {
      type: ['array', 'null'],
      maxItems: 4096,
      items: exactly({ type: { const: 'reasoning_text' }, text: TEXT }),
    },
    // Nothing here is encrypted for a caller, so a text comes from elsewhere and is not read.
    encrypted_content: { type: ['string', 'null'], maxLength: MAX_TEXT },
  }),
]);

/** Items of calls of other tools, their results, and what another server made of earlier items. */
const FOREIGN_ITEMS =
  '^(?!function_call(_output)?$|additional_tools$)([a-z0-9]+_)+(call|output|tools|request|response)$|^((context_)?compaction(_[a-z]+)?|program|agent_message)$';

const FOREIGN_ITEM = {
  type: 'object',
  maxProperties: 32,
  properties: { type: { type: 'string', maxLength: 64 } },
} as const;

const FORMAT = oneOfBy('type', [
  exactly({ type: { const: 'text' } }),
  exactly({ type: { const: 'json_object' } }),
  closed(['type', 'name', 'schema'], {
    type: { const: 'json_schema' },
    ...JSON_SCHEMA_FORMAT.properties,
    schema: ROOT_SCHEMA,
  }),
]);

const TOOL_CHOICE = {
  type: ['string', 'object'],
  if: { type: 'string' },
  then: { enum: ['none', 'auto', 'required'] },
  else: {
    if: ofType('function'),
    then: closed(['type', 'name'], {
      type: { const: 'function' },
      name: WIDE_TOOL_NAME,
      namespace: orNull(WIDE_TOOL_NAME),
    }),
    // Refused by the name of its type, once it is known that it is one (responses.ts).
    else: FOREIGN_TOOL,
  },
} as const;

const NO_STATE = 'must be null: no response is stored here, so send the whole conversation as input';

export const RESPONSES_SCHEMA = {
  ...closed(['model', 'input'], {
    model: CHAT.model,
    input: {
      type: ['string', 'array'],
      maxLength: MAX_TEXT,
      minItems: 1,
      maxItems: MAX_MESSAGES,
      items: {
        type: 'object',
        if: { required: ['type'] },
        then: {
          if: { properties: { type: { type: 'string', pattern: FOREIGN_ITEMS } } },
          then: FOREIGN_ITEM,
          else: ITEM,
        },
        else: MESSAGE,
      },
    },
    instructions: { type: ['string', 'null'], maxLength: MAX_TEXT },
    max_output_tokens: orNull(CHAT.max_completion_tokens),
    temperature: orNull(CHAT.temperature),
    top_p: orNull(CHAT.top_p),
    stream: { type: ['boolean', 'null'] },
    stream_options: orNull(closed([], { include_obfuscation: { type: ['boolean', 'null'] } })),
    tools: TOOLS,
    tool_choice: orNull(TOOL_CHOICE),
    parallel_tool_calls: { type: ['boolean', 'null'] },
    reasoning: orNull(
      closed([], {
        effort: EFFORT,
        max_tokens: BUDGET,
        summary: MARK,
        generate_summary: MARK,
        context: MARK,
      }),
    ),
    text: orNull(closed([], { format: orNull(FORMAT), verbosity: MARK })),
    user: USER,
    store: { type: ['boolean', 'null'] },
    include: { type: ['array', 'null'], maxItems: 64, items: { type: 'string', maxLength: 256 } },
    max_tool_calls: { type: ['integer', 'null'], minimum: 1 },
    // A server may leave input out by it, and need not: nothing is left out here.
    truncation: orNull({ enum: ['auto', 'disabled'] }),
    ...INERT_FIELDS,
    ...IGNORED,
    service_tier: SERVICE_TIER,
    client_metadata: { type: ['object', 'null'], maxProperties: 64 },
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
