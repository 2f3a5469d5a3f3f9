/**
 * `tools[]` and the recursive property schema inside `parameters` (docs/contract.md#tools). The caller's schema is data here: it is
 * checked against this contract, never run; a grammar is made of it where calls are constrained (engine/grammar, with bounds of its own).
 * Depth is bounded by the nesting of the body.
 */
import { CALL_ID, CALL_INDEX, MAX_TEXT, TEXT, TOOL_NAME, closed } from './common-schema.js';

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
export const PROPERTY_SCHEMA = closed([], {
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

export const TOOL = closed(['type', 'function'], {
  type: { const: 'function' },
  function: closed(['name', 'parameters'], {
    name: TOOL_NAME,
    description: TEXT,
    parameters: PARAMETERS,
    strict: { type: 'boolean' },
  }),
});

/** An assistant's call of a tool, in a request. Clients send back what they were answered, `index` and all. */
export const TOOL_CALL = closed(['id', 'type', 'function'], {
  id: CALL_ID,
  type: { const: 'function' },
  function: closed(['name', 'arguments'], { name: TOOL_NAME, arguments: TEXT }),
  index: CALL_INDEX,
});
