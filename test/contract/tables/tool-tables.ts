/** `tools`, `tool_choice` and the recursive property schema (docs/contract.md#tools). */
import { type At, FULL_CHAT, type Json, pathText } from '../../support/bodies.js';
import {
  LONGEST,
  TOO_LONG,
  boolean,
  constant,
  filled,
  list,
  longText,
  many,
  object,
  oneOf,
  text,
  toolName,
} from './builders.js';
import {
  CANARY,
  type Closed,
  type ContractCase,
  MAX_TEXT,
  type Rule,
  type Surface,
  changed,
  plainPlace,
} from './rule.js';

const PARAMETERS: At = ['tools', 0, 'function', 'parameters'];
const PROPERTIES: At = [...PARAMETERS, 'properties'];
const PROPERTY: At = [...PROPERTIES, 'chosen'];
const property = (...rest: At): At => [...PROPERTY, ...rest];

const TYPES = ['string', 'number', 'integer', 'boolean', 'array', 'object', 'null'];

const IN_PROPERTIES = pathText(PROPERTIES);

/** `param` and the text about a problem end before a property’s name, which the caller chose. */
export function chatPlace(at: At): { subject: string; param: string | null } {
  if (at.length < PROPERTY.length || !pathText(at).startsWith(pathText(PROPERTY))) return plainPlace(at);
  const inside = pathText(at.slice(PROPERTY.length));
  const entry = inside === '' ? 'has an entry that' : `has an entry whose ${inside}`;
  return { subject: `${IN_PROPERTIES} ${entry}`, param: IN_PROPERTIES };
}

const SURFACE: Surface = { route: 'chat', base: FULL_CHAT, place: chatPlace };

const scalar = (at: At): Rule => ({
  at,
  kinds: ['string', 'number', 'boolean', 'null'],
  wrong: 'must be a string or a number or a boolean or null',
  good: ['', LONGEST, 1, -1.5, 9_007_199_254_740_991, -9_007_199_254_740_991, true, null],
  bad: [[TOO_LONG, `must have at most ${MAX_TEXT} characters`]],
});

const names = (at: At): Rule => ({
  at,
  kinds: ['array'],
  wrong: 'must be an array',
  good: [[], ['a'], ['a', 'A'], ['a'.repeat(256)], many(1000, String)],
  bad: [
    [[CANARY, CANARY], 'must not hold an item twice'],
    [['a', 'b', 'a'], 'must not hold an item twice'],
  ],
});

const schemaOrBoolean = (at: At): Rule => ({
  at,
  kinds: ['boolean', 'object'],
  wrong: 'must be a boolean or an object',
  good: [true, false, {}, { type: 'string' }],
  bad: [],
});

const bound = (at: At): Rule => ({
  at,
  kinds: ['number'],
  wrong: 'must be a number',
  good: [-1e308, 1e308, 0.5],
  bad: [
    [-1.1e308, 'must be at least -1e+308'],
    [1.1e308, 'must be at most 1e+308'],
  ],
});

const length = (at: At): Rule => ({
  at,
  kinds: ['number'],
  wrong: 'must be an integer',
  good: [0, 1e15],
  bad: [
    [-1, 'must be at least 0'],
    [0.5, 'must be an integer'],
  ],
});

const tool = (at = 0): Json => ({
  type: 'function',
  function: { name: at === 0 ? 'look' : `look_${at}`, parameters: { type: 'object', properties: {} } },
});

export const TOOL_RULES: readonly Rule[] = [
  {
    at: ['tool_choice'],
    kinds: ['string', 'object'],
    wrong: 'must be a string or an object',
    good: ['none', 'auto', 'required'],
    bad: ['function', '', CANARY].map((choice) => [choice, 'must be one of none, auto, required']),
  },
  constant(['tool_choice', 'type'], 'function'),
  object(['tool_choice', 'function']),
  toolName(['tool_choice', 'function', 'name'], ['look']),
  list(['tools'], 1, 128, tool),
  object(['tools', 0], [tool()]),
  constant(['tools', 0, 'type'], 'function'),
  object(['tools', 0, 'function']),
  toolName(['tools', 0, 'function', 'name'], ['look']),
  longText(['tools', 0, 'function', 'description'], 0),
  boolean(['tools', 0, 'function', 'strict']),
  object(PARAMETERS),
  constant([...PARAMETERS, 'type'], 'object'),
  object(PROPERTIES, [{}]),
  names([...PARAMETERS, 'required']),
  text([...PARAMETERS, 'required', 0], 1, 256),
  schemaOrBoolean([...PARAMETERS, 'additionalProperties']),
  oneOf([...PARAMETERS, 'additionalProperties', 'type'], TYPES),
  {
    ...text([...PARAMETERS, '$schema'], 1, 256),
    good: ['http://json-schema.org/', `https://json-schema.org/${'a'.repeat(232)}`],
    bad: [
      ['', 'must not be empty'],
      [`https://json-schema.org/${filled(233)}`, 'must have at most 256 characters'],
      [`https://json-schema.example/${CANARY}`, 'must match ^https?://json-schema\\.org/'],
      [` https://json-schema.org/${CANARY}`, 'must match ^https?://json-schema\\.org/'],
      [`https://json-schema.org/ ${CANARY}`, 'must be a URI'],
    ],
  },
  object(PROPERTY, [{}]),
  oneOf(property('type'), TYPES),
  longText(property('description'), 0),
  { ...list(property('enum'), 1, 1000, String), bad: [[[], 'must have at least 1 item']] },
  scalar(property('enum', 0)),
  scalar(property('const')),
  scalar(property('default')),
  object(property('items'), [{}]),
  object(property('properties'), [{}]),
  names(property('required')),
  text(property('required', 0), 1, 256),
  schemaOrBoolean(property('additionalProperties')),
  ...['allOf', 'anyOf', 'oneOf'].flatMap((name) => [
    { ...list(property(name), 1, 1000, () => ({})), bad: [[[], 'must have at least 1 item']] as const },
    object(property(name, 0), [{}, { type: 'null' }]),
  ]),
  bound(property('minimum')),
  bound(property('maximum')),
  length(property('minLength')),
  length(property('maxLength')),
  text(property('pattern'), 1, 1024),
];

const PROPERTY_FIELDS = [
  ...['type', 'description', 'enum', 'const', 'default', 'items', 'properties', 'required', 'additionalProperties'],
  ...['allOf', 'anyOf', 'oneOf', 'minimum', 'maximum', 'minLength', 'maxLength', 'pattern'],
];

export const TOOL_OBJECTS: readonly Closed[] = [
  { at: ['tool_choice'], fields: ['type', 'function'], required: ['type', 'function'] },
  { at: ['tool_choice', 'function'], fields: ['name'], required: ['name'] },
  { at: ['tools', 0], fields: ['type', 'function'], required: ['type', 'function'] },
  {
    at: ['tools', 0, 'function'],
    fields: ['name', 'description', 'parameters', 'strict'],
    required: ['name', 'parameters'],
  },
  {
    at: PARAMETERS,
    fields: ['type', 'properties', 'required', 'additionalProperties', '$schema'],
    required: ['type', 'properties'],
  },
  ...[PROPERTY, property('items'), property('additionalProperties'), property('allOf', 0)].map((at) => ({
    at,
    fields: PROPERTY_FIELDS,
    required: [],
  })),
];

const NAME = 'tool_choice.function.name';
const NO_TOOL = 'must be the name of one of the tools';
const NO_PROTO = 'has a name that is not allowed: a name must not be __proto__';
const ENTRY = 'has an entry whose properties has an entry';
const REQUIRED = `${pathText(PARAMETERS)}.required[1]`;
/** Two tools of one name. */
const TWICE = ['a', 'b'].map((key) => ({
  type: 'function',
  function: { name: 'get', parameters: { type: 'object', properties: { [key]: { type: 'string' } } } },
}));

/** Rules between fields, and names that callers choose. */
const REFUSED: readonly (readonly [at: At, value: Json | undefined, param: string, predicate: string])[] = [
  [['tools'], undefined, NAME, NO_TOOL],
  [['tool_choice', 'function', 'name'], CANARY, NAME, NO_TOOL],
  [['tools', 0, 'function', 'name'], CANARY, NAME, NO_TOOL],
  [['tools'], TWICE, 'tools[1].function.name', 'must not be the name of an earlier tool: give each tool its own name'],
  [[...PROPERTIES, '__proto__'], {}, IN_PROPERTIES, NO_PROTO],
  [property('properties', '__proto__'), {}, IN_PROPERTIES, `has an entry whose properties ${NO_PROTO}`],
  [[...PARAMETERS, 'required'], ['a', '__proto__'], REQUIRED, 'must not be __proto__'],
  [property('required'), ['__proto__'], IN_PROPERTIES, 'has an entry whose required[0] must not be __proto__'],
  [
    property('properties', CANARY),
    { type: CANARY },
    IN_PROPERTIES,
    `${ENTRY} whose type must be one of ${TYPES.join(', ')}`,
  ],
  [property('properties', CANARY), true, IN_PROPERTIES, `${ENTRY} that must be an object`],
  [
    property('properties', CANARY),
    { properties: { [CANARY]: { anyOf: [{}, { pattern: '' }] } } },
    IN_PROPERTIES,
    `${ENTRY} whose properties has an entry whose anyOf[1].pattern must not be empty`,
  ],
  [
    property('oneOf'),
    [{}, { $ref: CANARY }],
    IN_PROPERTIES,
    'has an entry whose oneOf[1] has `$ref`, which is outside the contract; `contract: compatible` accepts it',
  ],
];

export const TOOL_CASES: readonly ContractCase[] = [
  ...REFUSED.map(([at, value, param, predicate]) =>
    changed(SURFACE, at, value, { message: `${param} ${predicate}`, param }),
  ),
  ...['chosen', 'a b', '', 'é', 'toString', 'constructor', '$ref', '7', 'properties', filled(5000)].map((name) =>
    changed(SURFACE, PROPERTIES, { [name]: { type: 'string' } }),
  ),
  changed(SURFACE, property('pattern'), '^(a+)+$(('),
  changed(SURFACE, ['tools', 1], {
    type: 'function',
    function: { name: 'second', parameters: { type: 'object', properties: {} } },
  }),
];
