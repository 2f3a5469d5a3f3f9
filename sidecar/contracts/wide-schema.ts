/**
 * JSON Schema as tools and schema libraries write it, for `contract: compatible` (docs/contract.md#json-schema). A closed set of
 * keywords, so that one which nothing here reads is refused by name and not passed over. As in `tool-schema.ts` the caller's
 * schema is data: checked, made into a grammar and rendered, never run.
 */
import { MAX_TEXT, OTHER_TOOL, TEXT, TOOL_NAME, closed, functionsOnly } from './common-schema.js';

/** Under `$defs` in a schema that uses {@link WIDE_TOOL}. */
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

/** For `$defs.schema`. */
export const WIDE_SCHEMA = {
  type: ['object', 'boolean'],
  if: { type: 'object' },
  then: { ...closed([], KEYWORDS) },
} as const;

/** The schema of arguments or of a reply: an object, whose keywords are those of any schema. */
export const ROOT_SCHEMA = { type: 'object', allOf: [SCHEMA] } as const;

const TOOL = closed(['type', 'function'], {
  type: { const: 'function' },
  function: closed(['name'], {
    name: TOOL_NAME,
    description: { type: ['string', 'null'], maxLength: MAX_TEXT },
    parameters: { type: ['object', 'null'], if: { type: 'object' }, then: ROOT_SCHEMA },
    strict: { type: ['boolean', 'null'] },
  }),
});

export const WIDE_TOOL = functionsOnly(TOOL, OTHER_TOOL);

/** Names of maps whose keys callers choose. */
export const WIDE_OPEN_MAPS: ReadonlySet<string> = new Set([
  'properties',
  'patternProperties',
  '$defs',
  'definitions',
  'chat_template_kwargs',
  'metadata',
]);
