/** Tools that the goldens' conversations offer. */

function tool(
  name: string,
  description: string | undefined,
  parameters: object | undefined,
  more: object = {},
): object {
  return { type: 'function', function: { name, description, parameters, ...more } };
}

export const TOOLS = [
  tool('get_weather', 'Tells the weather', {
    type: 'object',
    properties: {
      city: { type: 'string', description: 'A city' },
      unit: { type: 'string', enum: ['celsius', 'fahrenheit'] },
      days: { type: 'integer' },
    },
    required: ['city'],
  }),
  tool('send_note', 'Sends a note to people', {
    type: 'object',
    properties: { to: { type: 'array', items: { type: 'string' } }, text: { type: 'string' } },
    required: ['to', 'text'],
  }),
];

/** Properties that are nested, nullable, recursive or without a type. */
export const DEEP_TOOLS = [
  tool('search', 'Searches', {
    type: 'object',
    properties: {
      filter: { $ref: '#/$defs/filter' },
      limit: { anyOf: [{ type: 'integer' }, { type: 'null' }], description: 'At most', default: null },
      mode: { const: 'fast' },
      order: { enum: ['up', 'down', 1, null] },
      where: {
        type: 'object',
        description: 'A place',
        properties: {
          lat: { type: 'number' },
          lon: { type: ['number', 'null'] },
          deep: { type: 'object', properties: { x: { type: 'string' } } },
        },
        required: ['lat'],
      },
      tags: { type: 'array', items: { type: 'object', properties: { k: { type: 'integer' } } } },
    },
    required: ['filter'],
    additionalProperties: false,
    $defs: {
      filter: {
        type: 'object',
        properties: { field: { type: 'string' }, not: { $ref: '#/$defs/filter' } },
        required: ['field'],
      },
    },
  }),
];

/** Defaults of all types, members in another order, `strict`, and a tool without parameters and description. */
export const DATA_TOOLS = [
  {
    function: {
      strict: true,
      parameters: {
        required: ['rate'],
        properties: {
          rate: { description: 'A rate', type: 'number', default: 1.5, minimum: 0 },
          on: { type: 'boolean', default: false },
          big: { type: 'integer', default: 3 },
          names: { type: 'array', items: { type: 'string' }, default: ['a'] },
          text: { type: 'string', default: 'x "y" <z>', pattern: '^x' },
        },
        type: 'object',
        additionalProperties: false,
      },
      description: 'Sets "things" <b>',
      name: 'set',
    },
    type: 'function',
  },
  tool('now', undefined, undefined),
  tool('ping', 'Pings', { type: 'object', properties: {} }),
];
