/**
 * POST /chat/completions under `contract: compatible` (docs/compatible.md): all that the strict contract takes, and what clients send
 * besides. Closed too, but for messages, their parts and their calls: a name that is not here is refused. What would change the answer and
 * cannot be done is here with the one value that asks for nothing.
 */
import { CHAT_SCHEMA, TOOL_CHOICE } from './chat-schema.js';
import {
  HISTORY_NAME,
  MAX_TEXT,
  OTHER_TOOL,
  TEXT,
  WIDE_CALL_ID,
  WIDE_TOOL_NAME,
  closed,
  oneOfBy,
  functionsOnly,
  OTHER_CHOICE,
  TEXT_OR_NULL,
  exactly,
} from './common-schema.js';
import { INERT_FIELDS } from './inert-fields.js';
import type { ValueOf } from './validator.js';

/**
 * JSON Schema as tools and schema libraries write it, for `contract: compatible` (docs/compatible.md#json-schema). A closed set of
 * keywords, so that one which limits values and which nothing here reads is refused by name and not passed over; those that
 * limit nothing are ignored. As in the strict contract the caller's
 * schema is data: checked, made into a grammar and rendered, never run.
 */
const SCHEMA = { $ref: '#/$defs/schema' } as const;

const ANY = {} as const;
const FLAG = { type: 'boolean' } as const;
const COUNT = { type: 'integer', minimum: 0 } as const;
const NUMBER = { type: 'number', minimum: -1e308, maximum: 1e308 } as const;
/** Of draft 4 the exclusive bounds are switches. */
const EXCLUSIVE = { type: ['number', 'boolean'], minimum: -1e308, maximum: 1e308 } as const;
const LIST = { type: 'array', minItems: 1, items: SCHEMA } as const;
/** References and identifiers of schemas. */
const REFERENCE = { type: 'string', maxLength: 1024 } as const;

const NO_PROTO = { not: { const: '__proto__' }, 'x-message': 'must not be __proto__' } as const;
const SCHEMAS = { type: 'object', propertyNames: NO_PROTO, additionalProperties: SCHEMA } as const;
const NAMES = {
  type: 'array',
  uniqueItems: true,
  items: { type: 'string', maxLength: 256, allOf: [NO_PROTO] },
} as const;

const TYPE = { enum: ['string', 'number', 'integer', 'boolean', 'array', 'object', 'null'] } as const;

const KEYWORDS = {
  $ref: REFERENCE,
  type: {
    type: ['string', 'array'],
    if: { type: 'array' },
    then: { minItems: 1, maxItems: 7, items: TYPE },
    else: TYPE,
  },
  enum: { type: 'array', minItems: 1 },
  const: ANY,
  properties: SCHEMAS,
  required: NAMES,
  additionalProperties: SCHEMA,
  patternProperties: SCHEMAS,
  propertyNames: SCHEMA,
  minProperties: COUNT,
  maxProperties: COUNT,
  // Of draft 4 a list is what `prefixItems` is.
  items: { type: ['boolean', 'object', 'array'], if: { type: 'array' }, then: LIST, else: SCHEMA },
  prefixItems: LIST,
  additionalItems: SCHEMA,
  minItems: COUNT,
  maxItems: COUNT,
  uniqueItems: FLAG,
  allOf: LIST,
  anyOf: LIST,
  oneOf: LIST,
  not: SCHEMA,
  minimum: NUMBER,
  maximum: NUMBER,
  exclusiveMinimum: EXCLUSIVE,
  exclusiveMaximum: EXCLUSIVE,
  multipleOf: { type: 'number', exclusiveMinimum: 0, maximum: 1e308 },
  minLength: COUNT,
  maxLength: COUNT,
  pattern: { type: 'string', minLength: 1, maxLength: 1024 },
  format: { type: 'string', maxLength: 256 },
  nullable: FLAG,
  contentEncoding: { type: 'string', maxLength: 256 },
  contentMediaType: { type: 'string', maxLength: 256 },
  $defs: SCHEMAS,
  definitions: SCHEMAS,
  $schema: REFERENCE,
  $id: REFERENCE,
  $comment: TEXT,
  // OpenAPI's name for the property that distinguishes the branches of a oneOf.
  discriminator: { type: 'object' },
  title: TEXT,
  description: { type: 'string', maxLength: MAX_TEXT },
  default: ANY,
  examples: { type: 'array' },
  example: ANY,
  deprecated: FLAG,
  readOnly: FLAG,
  writeOnly: FLAG,
} as const;

/** Keywords of documentation, forms, editors and generated code that limit no value. Any value is accepted, as of each `x-` keyword. */
const ANNOTATIONS = [
  ...['markdownDescription', 'enumNames', 'enumDescriptions', 'markdownEnumDescriptions', 'enumTitles', 'tsEnumNames'],
  ...['deprecationMessage', 'defaultSnippets', 'propertyOrdering', 'propertyOrder', 'order', 'errorMessage', 'tsType'],
  ...['javaType', 'units', 'unit', 'xml', 'externalDocs', 'optional', 'placeholder', 'label', 'hint', 'help', 'group'],
  ...['widget', 'options', 'sensitive', 'secret', 'encrypted', 'faker', 'version', 'metadata', 'meta', 'tags', 'name'],
  ...['id', '$anchor', '$vocabulary', '$dynamicAnchor', '$recursiveAnchor', 'contentSchema', 'collectionFormat'],
  ...['style', 'explode', 'allowEmptyValue', 'annotations', 'cache_control', 'strict', 'outputSchema', 'output_schema'],
] as const;

const ANNOTATION_KEYWORDS = Object.fromEntries(ANNOTATIONS.map((name) => [name, ANY]));

/** For `$defs.schema`. */
export const WIDE_SCHEMA = {
  type: ['object', 'boolean'],
  if: { type: 'object' },
  then: { ...closed([], { ...KEYWORDS, ...ANNOTATION_KEYWORDS }), patternProperties: { '^x-': ANY } },
} as const;

/** The schema of arguments or of a reply: an object, whose keywords are those of any schema. */
export const ROOT_SCHEMA = { type: 'object', allOf: [SCHEMA] } as const;

/** Fields of a tool that other APIs have, and that change nothing for a function that is called here. */
export const IGNORED_OF_TOOLS: object = {
  cache_control: { type: ['object', 'null'], maxProperties: 16 },
  annotations: { type: ['object', 'null'], maxProperties: 16 },
  defer_loading: { type: ['boolean', 'null'] },
  eager_input_streaming: { type: ['boolean', 'null'] },
  input_examples: { type: ['array', 'null'], maxItems: 64 },
  output_schema: { type: ['object', 'null'] },
};

const TOOL = closed(['type', 'function'], {
  type: { const: 'function' },
  function: closed(['name'], {
    name: WIDE_TOOL_NAME,
    description: { type: ['string', 'null'], maxLength: MAX_TEXT },
    parameters: { type: ['object', 'null'], if: { type: 'object' }, then: ROOT_SCHEMA },
    strict: { type: ['boolean', 'null'] },
    ...IGNORED_OF_TOOLS,
  }),
  ...IGNORED_OF_TOOLS,
});

/** A tool as it may be described. */
export type WideTool = ValueOf<typeof TOOL>;

const WIDE_TOOL = functionsOnly(TOOL, OTHER_TOOL);

/** Names of maps whose keys callers choose. */
export const WIDE_OPEN_MAPS: ReadonlySet<string> = new Set([
  'properties',
  'patternProperties',
  '$defs',
  'definitions',
  'chat_template_kwargs',
  'metadata',
]);

type Schemas = Readonly<Record<string, object>>;

/** The strict contract's own fields. */
const STRICT = CHAT_SCHEMA.properties;

/** As `schema`, or null, which is as if the field were absent. */
export function orNull<const S extends object>(schema: S) {
  return { if: { type: 'null' }, else: schema } as const;
}

/** The same of each field. */
function eachOrNull<P extends Schemas>(fields: P) {
  const entries = Object.entries(fields).map(([name, schema]) => [name, orNull(schema)]);
  return Object.fromEntries(entries) as { readonly [Name in keyof P]: ReturnType<typeof orNull<P[Name]>> };
}

function only(values: readonly unknown[], why: string): object {
  return { enum: values, 'x-message': why };
}

const NAME = orNull(HISTORY_NAME);
/** The most messages, or items: a body has at most 262,144 values (json.ts), which leaves a message 16. */
export const MAX_MESSAGES = 16_384;
/** Where an API of OpenAI's ends a prefix to cache: every prefix is cached here. */
export const CACHE_MARK = { type: ['object', 'null'], maxProperties: 16 } as const;
/** Fields of a message, of a part or of a call at most, those that are ignored included. */
const MAX_FIELDS = 32;
const ELSEWHERE = only([null], 'must be null: it would have no effect here');

/**
 * A message, a part of its content or a call. Other servers and frameworks write fields of their own into histories, which
 * clients send back; nothing here reads them. `elsewhere`: fields that are read in messages of another role or parts of another
 * type, so that a caller who sends them expects an effect.
 */
export function open<const R extends string, const P extends Schemas>(
  required: readonly R[],
  properties: P,
  elsewhere: readonly string[] = [],
) {
  const unread: object = Object.fromEntries(elsewhere.map((name) => [name, ELSEWHERE]));
  return { type: 'object', maxProperties: MAX_FIELDS, required, properties: { ...unread, ...properties } } as const;
}

const PART_FIELDS = ['text', 'refusal', 'image_url'] as const;
const TEXT_PART = open(['type', 'text'], { type: { const: 'text' }, text: TEXT }, PART_FIELDS);
const REFUSAL_PART = open(['type', 'refusal'], { type: { const: 'refusal' }, refusal: TEXT }, PART_FIELDS);
const MAX_PARTS = 4096;

function parts(branches: readonly object[]): object {
  const [only] = branches;
  // Of another type: it is refused for that, before it is for what it lacks.
  if (only !== undefined && branches.length === 1)
    return {
      if: { type: 'object', required: ['type'], properties: { type: { not: { const: 'text' } } } },
      then: ONLY_TEXT,
      else: only,
    };
  return oneOfBy('type', branches);
}

const ONLY_TEXT = { properties: { type: { const: 'text' } } } as const;

function textOrParts(branches: readonly object[], types: readonly string[] = ['string', 'array']): object {
  return { type: types, maxLength: MAX_TEXT, maxItems: MAX_PARTS, items: parts(branches) };
}

const STRICT_IMAGE_PART = STRICT.messages.items.oneOf[1].properties.content.items.oneOf[1];
const IMAGE_PART = open(['type', 'image_url'], STRICT_IMAGE_PART.properties, PART_FIELDS);

/** In a tool's result, where an image that cannot be shown becomes a line of text: any URL. */
const RESULT_IMAGE = open(
  ['type', 'image_url'],
  {
    type: { const: 'image_url' },
    image_url: open(['url'], { url: TEXT, detail: { type: ['string', 'null'], maxLength: 256 } }),
  },
  PART_FIELDS,
);

/** Parts of an assistant's content in the words of other APIs, which frameworks keep in histories. */
const REPLY_PARTS = [
  TEXT_PART,
  REFUSAL_PART,
  open(['type', 'text'], { type: { const: 'output_text' }, text: TEXT }, PART_FIELDS),
  open(['type', 'thinking'], {
    type: { const: 'thinking' },
    thinking: textOrParts([TEXT_PART], ['string', 'array', 'null']),
  }),
  open(['type'], { type: { const: 'reasoning' }, text: TEXT_OR_NULL, reasoning: TEXT_OR_NULL }),
  open(['type'], { type: { const: 'redacted_thinking' } }),
];

const CALL = open(['id', 'function'], {
  id: WIDE_CALL_ID,
  type: { const: 'function' },
  function: closed(['name', 'arguments'], { name: HISTORY_NAME, arguments: TEXT, parsed_arguments: {} }),
});

const MESSAGE_FIELDS = ['reasoning_content', 'reasoning', 'refusal', 'tool_calls', 'tool_call_id'] as const;

function message(role: string, required: readonly string[], properties: Schemas): object {
  return open(['role', ...required], { role: { const: role }, ...properties }, MESSAGE_FIELDS);
}

const NO_PREFIX = only([false, null], 'must be false: no reply continues a message');
const INSTRUCTION = { content: textOrParts([TEXT_PART]), name: NAME } as const;

const MESSAGE = oneOfBy('role', [
  message('system', ['content'], INSTRUCTION),
  message('developer', ['content'], INSTRUCTION),
  message('user', ['content'], {
    content: textOrParts([TEXT_PART, IMAGE_PART]),
    name: NAME,
    // Of Ollama's own API.
    images: only([null], 'must be null: send parts of the type image_url'),
  }),
  message('assistant', [], {
    content: textOrParts(REPLY_PARTS, ['string', 'array', 'null']),
    name: NAME,
    reasoning_content: TEXT_OR_NULL,
    // An object is another server's record of the thought.
    reasoning: { type: ['string', 'object', 'array', 'null'], maxLength: MAX_TEXT },
    refusal: TEXT_OR_NULL,
    audio: only([null], 'must be null: audio is not served'),
    function_call: only([null], 'must be null: send tool_calls'),
    // Of the APIs of DeepSeek, Mistral and Moonshot.
    prefix: NO_PREFIX,
    partial: NO_PREFIX,
    tool_calls: { type: ['array', 'null'], maxItems: 128, items: CALL },
  }),
  message('tool', ['tool_call_id'], {
    content: textOrParts([TEXT_PART, RESULT_IMAGE], ['string', 'array', 'null']),
    tool_call_id: WIDE_CALL_ID,
  }),
]);

export const JSON_SCHEMA_FORMAT = closed(['name'], {
  name: { type: 'string', minLength: 1, maxLength: 256 },
  description: TEXT_OR_NULL,
  schema: orNull(ROOT_SCHEMA),
  strict: { type: ['boolean', 'null'] },
});

const RESPONSE_FORMAT = oneOfBy('type', [
  exactly({ type: { const: 'text' } }),
  // The form of several other servers, which Instructor sends.
  closed(['type'], { type: { const: 'json_object' }, schema: orNull(ROOT_SCHEMA) }),
  exactly({ type: { const: 'json_schema' }, json_schema: JSON_SCHEMA_FORMAT }),
]);

/** The form asked of a reply. */
export type WideFormat = ValueOf<typeof RESPONSE_FORMAT>;

/** A name of another API counts as the default tier, as clients send them. */
export const SERVICE_TIER = { type: ['string', 'null'], maxLength: 256 } as const;

/** Taken and without effect. Bounded, since they are kept while the request is. */
export const IGNORED = {
  metadata: { type: ['object', 'null'], maxProperties: 64 },
  prompt_cache_key: { type: ['string', 'null'], maxLength: 1024 },
  prompt_cache_retention: { type: ['string', 'null'], maxLength: 256 },
  prompt_cache_options: CACHE_MARK,
  safety_identifier: { type: ['string', 'null'], maxLength: 1024 },
} as const;

const CHAT_IGNORED = {
  ...IGNORED,
  service_tier: SERVICE_TIER,
  client_metadata: { type: ['object', 'null'], maxProperties: 64 },
  verbosity: orNull({ enum: ['low', 'medium', 'high'] }),
  prediction: { type: ['object', 'null'] },
} as const;

export const NO_MODERATION = only([null], 'must be null: moderation is not served');

/** What cannot be done, each with the values that do not ask for it. */
const REFUSED = {
  logprobs: only([false, null], 'must be false: log probabilities are not served'),
  top_logprobs: only([0, null], 'must be 0: log probabilities are not served'),
  logit_bias: {
    type: ['object', 'null'],
    allOf: [{ maxProperties: 0, 'x-message': 'must be empty: token biases are not served' }],
  },
  modalities: orNull({
    type: 'array',
    minItems: 1,
    items: only(['text'], 'must be text: other modalities are not served'),
  }),
  audio: only([null], 'must be null: audio is not served'),
  functions: only([null], 'must be null: send tools'),
  function_call: only([null], 'must be null: send tool_choice'),
  web_search_options: only([null], 'must be null: web search is not served'),
  moderation: NO_MODERATION,
} as const;

/** Some clients send an empty text or list for nothing, where others send null. */
export const USER = orNull({ ...STRICT.user, minLength: 0 });

/** The strict contract's levels, and those above that some clients have. */
const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max', 'ultra'] as const;
export const EFFORT = orNull({ enum: EFFORTS });

/** The most tokens of thought. 0: no thought; -1: no bound. */
export const BUDGET = { type: ['integer', 'null'], minimum: -1, maximum: 1_048_576 } as const;

/** How much the model may think, as the APIs of OpenRouter, Anthropic, vLLM, Qwen and Ollama have it. */
const THOUGHT = {
  reasoning: orNull(
    closed([], {
      effort: EFFORT,
      max_tokens: BUDGET,
      enabled: { type: ['boolean', 'null'] },
      exclude: only([false, null], 'must be false: the thought is a part of the answer'),
      summary: { type: ['string', 'null'], maxLength: 256 },
    }),
  ),
  thinking: orNull(
    closed([], {
      type: orNull({ enum: ['enabled', 'disabled', 'adaptive', 'auto'] }),
      budget_tokens: BUDGET,
      display: { type: ['string', 'null'], maxLength: 256 },
    }),
  ),
  thinking_token_budget: BUDGET,
  thinking_budget: BUDGET,
  enable_thinking: { type: ['boolean', 'null'] },
  think: { enum: [true, false, null, ...EFFORTS] },
} as const;

const USED = {
  reasoning_effort: EFFORT,
  stop: orNull({ ...STRICT.stop, minItems: 0 }),
  user: USER,
  top_k: orNull({ type: 'integer', minimum: -1, maximum: 2_147_483_647 }),
  min_p: orNull({ type: 'number', minimum: 0, maximum: 1 }),
  chat_template_kwargs: {
    type: ['object', 'null'],
    maxProperties: 32,
    additionalProperties: { type: ['string', 'number', 'boolean', 'null'], maxLength: 1024 },
  },
  response_format: orNull(RESPONSE_FORMAT),
  stream_options: orNull(
    closed([], {
      include_usage: { type: ['boolean', 'null'] },
      continuous_usage_stats: { type: ['boolean', 'null'] },
      include_obfuscation: { type: ['boolean', 'null'] },
    }),
  ),
  usage: orNull(closed([], { include: { type: ['boolean', 'null'] } })),
  ...THOUGHT,
  tools: { type: ['array', 'null'], maxItems: 128, items: WIDE_TOOL },
  tool_choice: orNull({
    ...TOOL_CHOICE,
    else: functionsOnly(
      exactly({
        type: { const: 'function' },
        function: exactly({ name: WIDE_TOOL_NAME }),
      }),
      OTHER_CHOICE,
    ),
  }),
} as const;

export const COMPATIBLE_SCHEMA = {
  ...closed(['model', 'messages'], {
    ...eachOrNull(STRICT),
    model: STRICT.model,
    messages: { type: 'array', minItems: 1, maxItems: MAX_MESSAGES, items: MESSAGE },
    ...USED,
    ...CHAT_IGNORED,
    ...REFUSED,
    ...INERT_FIELDS,
  }),
  $defs: { schema: WIDE_SCHEMA },
} as const;
