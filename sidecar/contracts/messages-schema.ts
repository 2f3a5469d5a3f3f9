/**
 * POST /v1/messages and POST /v1/messages/count_tokens: Anthropic's Messages API, served under `contract: compatible` without state
 * (docs/compatible.md#messages-api). The body is closed. Messages, blocks and tools are open, as in chat under this contract, since clients
 * send back what any server has written into them.
 */
import { CHAT_SCHEMA } from './chat-schema.js';
import { MAX_MESSAGES, open, orNull, ROOT_SCHEMA, SERVICE_TIER, WIDE_SCHEMA } from './compatible-schema.js';
import {
  HISTORY_NAME,
  MAX_TEXT,
  TEXT,
  TEXT_OR_NULL,
  WIDE_CALL_ID,
  WIDE_TOOL_NAME,
  closed,
  oneOfBy,
} from './common-schema.js';

type Schemas = Readonly<Record<string, object>>;

const CHAT = CHAT_SCHEMA.properties;

const MAX_BLOCKS = 4096;

/** Types of blocks that record what was done on Anthropic's own servers. Most become text of the conversation (messages.ts). */
const ELSEWHERE =
  '^(?:(?:server|mcp)_tool_use|mcp_tool_listing|container_upload|compaction|fallback|browser_state|[a-z_]{1,64}_tool_result)$';

/** Blocks of these types, and those of {@link ELSEWHERE}. `types`: in the order of the branches. */
function blocks(branches: Schemas): object {
  const types = Object.keys(branches);
  const [first, ...others] = Object.values(branches);
  return {
    type: 'object',
    required: ['type'],
    properties: { type: { type: 'string' } },
    if: { properties: { type: { enum: types } } },
    then: others.length === 0 ? first : { discriminator: { propertyName: 'type' }, oneOf: [first, ...others] },
    else: {
      maxProperties: 32,
      properties: { type: { type: 'string', pattern: ELSEWHERE, 'x-message': `must be one of ${types.join(', ')}` } },
    },
  };
}

function textOrBlocks(branches: Schemas, types: readonly string[] = ['string', 'array']): object {
  return { type: types, maxLength: MAX_TEXT, maxItems: MAX_BLOCKS, items: blocks(branches) };
}

const TEXT_BLOCK = open(['type', 'text'], { type: { const: 'text' }, text: TEXT });
const TEXTS: Schemas = { text: TEXT_BLOCK };

/** `base64` with its data, or `url`, which may be a data URL. */
const IMAGE_SOURCE = oneOfBy('type', [
  open(['type', 'media_type', 'data'], {
    type: { const: 'base64' },
    media_type: { type: 'string', pattern: '^image/[a-z0-9.+-]{1,64}$' },
    data: { type: 'string', minLength: 1, maxLength: MAX_TEXT },
  }),
  open(['type', 'url'], {
    type: { const: 'url' },
    url: { type: 'string', minLength: 1, maxLength: MAX_TEXT, format: 'image-url' },
  }),
]);

/** Of a tool's result or a document, where one that cannot be shown becomes a line of text: any source. */
const ANY_IMAGE = open(['type', 'source'], {
  type: { const: 'image' },
  source: open(['type'], { type: TEXT, media_type: TEXT_OR_NULL, data: TEXT, url: TEXT }),
});

/** What users and tools may show besides text. Only a document's own text is read. */
const SHOWN: Schemas = {
  ...TEXTS,
  image: open(['type', 'source'], { type: { const: 'image' }, source: IMAGE_SOURCE }),
  document: open(['type', 'source'], {
    type: { const: 'document' },
    title: TEXT_OR_NULL,
    context: TEXT_OR_NULL,
    source: {
      type: 'object',
      required: ['type'],
      maxProperties: 32,
      properties: { type: { type: 'string', maxLength: 64 }, media_type: TEXT_OR_NULL },
      if: { properties: { type: { const: 'text' } } },
      then: { required: ['data'], properties: { data: TEXT } },
      else: {
        if: { properties: { type: { const: 'content' } } },
        then: { required: ['content'], properties: { content: textOrBlocks({ ...TEXTS, image: ANY_IMAGE }) } },
      },
    },
  }),
  search_result: open(['type', 'content'], {
    type: { const: 'search_result' },
    source: TEXT_OR_NULL,
    title: TEXT_OR_NULL,
    content: { type: 'array', maxItems: MAX_BLOCKS, items: TEXT_BLOCK },
  }),
};

const TOOL_RESULT = open(['type', 'tool_use_id'], {
  type: { const: 'tool_result' },
  tool_use_id: WIDE_CALL_ID,
  is_error: { type: ['boolean', 'null'] },
  content: textOrBlocks(
    {
      ...SHOWN,
      image: ANY_IMAGE,
      tool_reference: open(['type', 'tool_name'], { type: { const: 'tool_reference' }, tool_name: HISTORY_NAME }),
    },
    ['string', 'array', 'null'],
  ),
});

const SAID: Schemas = {
  ...TEXTS,
  thinking: open(['type', 'thinking'], { type: { const: 'thinking' }, thinking: TEXT }),
  // Nothing here is encrypted for a caller, so its data comes from elsewhere and is not read.
  redacted_thinking: open(['type'], { type: { const: 'redacted_thinking' } }),
  tool_use: open(['type', 'id', 'name'], {
    type: { const: 'tool_use' },
    id: WIDE_CALL_ID,
    name: HISTORY_NAME,
    // Of a call that max_tokens has cut some clients send back the text of the input.
    input: {},
  }),
};

const MESSAGE = oneOfBy('role', [
  open(['role', 'content'], { role: { const: 'user' }, content: textOrBlocks({ ...SHOWN, tool_result: TOOL_RESULT }) }),
  open(['role', 'content'], { role: { const: 'assistant' }, content: textOrBlocks(SAID) }),
  open(['role', 'content'], { role: { const: 'system' }, content: textOrBlocks(TEXTS) }),
]);

/** A tool of the caller's own has a schema. What runs at Anthropic, or has its schema there, is not offered; sets of it have no name. */
const TOOL = {
  type: 'object',
  maxProperties: 32,
  properties: { name: WIDE_TOOL_NAME, type: { type: ['string', 'null'], maxLength: 256 } },
  if: { properties: { type: { enum: ['custom', null] } } },
  then: {
    required: ['name', 'input_schema'],
    properties: {
      description: { type: ['string', 'null'], maxLength: MAX_TEXT },
      input_schema: ROOT_SCHEMA,
      strict: { type: ['boolean', 'null'] },
      defer_loading: { type: ['boolean', 'null'] },
    },
  },
} as const;

const PARALLEL = { disable_parallel_tool_use: { type: ['boolean', 'null'] } } as const;

const TOOL_CHOICE = oneOfBy('type', [
  open(['type'], { type: { const: 'auto' }, ...PARALLEL }),
  open(['type'], { type: { const: 'any' }, ...PARALLEL }),
  open(['type', 'name'], { type: { const: 'tool' }, name: WIDE_TOOL_NAME, ...PARALLEL }),
  open(['type'], { type: { const: 'none' } }),
]);

/** Tokens of thought. Anthropic's own least is 1,024. */
const BUDGET = { type: 'integer', minimum: 1, maximum: 1_048_576 } as const;

const THINKING = oneOfBy('type', [
  open(['type'], { type: { const: 'enabled' }, budget_tokens: orNull(BUDGET) }),
  open(['type'], { type: { const: 'adaptive' } }),
  open(['type'], { type: { const: 'between_tools' } }),
  open(['type'], { type: { const: 'disabled' } }),
]);

const FORMAT = closed(['type', 'schema'], { type: { const: 'json_schema' }, name: TEXT_OR_NULL, schema: ROOT_SCHEMA });

const SOME = { type: ['object', 'null'], maxProperties: 64 } as const;
const NAME = { type: ['string', 'null'], maxLength: 1024 } as const;

/** Accepted without effect. */
const WITHOUT_EFFECT = {
  cache_control: SOME,
  context_management: SOME,
  diagnostics: SOME,
  service_tier: SERVICE_TIER,
  fallbacks: { type: ['array', 'string', 'null'], maxLength: 64, maxItems: 64 },
  fallback_credit_token: { type: ['object', 'string', 'null'], maxLength: 8192, maxProperties: 64 },
  speed: NAME,
  inference_geo: NAME,
  user_profile_id: NAME,
  workspace_id: NAME,
  betas: { type: ['array', 'null'], maxItems: 256, items: { type: 'string', maxLength: 256 } },
} as const;

export const MESSAGES_SCHEMA = {
  ...closed(['model', 'messages'], {
    model: CHAT.model,
    messages: { type: 'array', minItems: 1, maxItems: MAX_MESSAGES, items: MESSAGE },
    system: textOrBlocks(TEXTS, ['string', 'array', 'null']),
    max_tokens: orNull(CHAT.max_tokens),
    stop_sequences: orNull({ type: 'array', maxItems: 16, items: { type: 'string', minLength: 1, maxLength: 4096 } }),
    stream: { type: ['boolean', 'null'] },
    temperature: orNull(CHAT.temperature),
    top_p: orNull(CHAT.top_p),
    top_k: orNull({ type: 'integer', minimum: -1, maximum: 2_147_483_647 }),
    tools: { type: ['array', 'null'], maxItems: 512, items: TOOL },
    tool_choice: orNull(TOOL_CHOICE),
    thinking: orNull(THINKING),
    output_config: orNull(
      open([], { effort: orNull({ enum: ['low', 'medium', 'high', 'xhigh', 'max'] }), format: orNull(FORMAT) }),
    ),
    output_format: orNull(FORMAT),
    metadata: orNull(open([], { user_id: NAME })),
    ...WITHOUT_EFFECT,
    // The words after the colon are in docs/compatible.md: a client that is told so by the error's code goes on without threads.
    thread: { type: 'null', 'x-message': 'must be null: no message is stored here, so send the whole conversation' },
    container: { type: 'null', 'x-message': 'must be null: no tool runs here' },
    mcp_servers: {
      type: ['array', 'null'],
      maxItems: 0,
      'x-message': 'must be empty: no tool runs here, so offer the tools of MCP servers as tools of your own',
    },
  }),
  $defs: { schema: WIDE_SCHEMA },
} as const;
