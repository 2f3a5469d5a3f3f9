import t from 'tap';
import { parseChat } from '../../../sidecar/contracts/parse.js';
import {
  type At,
  FULL_CHAT,
  type Json,
  bytesOf,
  objectsIn,
  pathText,
  shown,
  verdictOf,
  withAt,
} from '../../support/bodies.js';

const MAX_TEXT = 16_777_216;
const LONGEST = 'a'.repeat(MAX_TEXT);
const TOO_LONG = `${LONGEST}a`;
const PROPERTY: At = ['tools', 0, 'function', 'parameters', 'properties', 'chosen'];
const PARAMETERS: At = ['tools', 0, 'function', 'parameters'];

/** What a place may and may not hold. `bad` pairs a value with the words about it. */
interface Rule {
  readonly at: At;
  readonly good: readonly Json[];
  readonly bad: readonly (readonly [value: Json, predicate: string])[];
}

const integer = (at: At, low: number, high: number): Rule => ({
  at,
  good: [low, high],
  bad: [
    [low - 1, `must be at least ${low}`],
    [high + 1, `must be at most ${high}`],
    [low + 0.5, 'must be an integer'],
    ['1', 'must be an integer'],
    [null, 'must be an integer'],
  ],
});

const number = (at: At, low: number, high: number, step = 0.001): Rule => ({
  at,
  good: [low, high, (low + high) / 2],
  bad: [
    [low - step, `must be at least ${low}`],
    [high + step, `must be at most ${high}`],
    ['1', 'must be a number'],
    [null, 'must be a number'],
  ],
});

const boolean = (at: At): Rule => ({
  at,
  good: [true, false],
  bad: [
    [1, 'must be a boolean'],
    [null, 'must be a boolean'],
  ],
});

const oneOf = (at: At, values: readonly string[]): Rule => ({
  at,
  good: values,
  bad: [
    ['other', `must be one of ${values.join(', ')}`],
    [1, `must be one of ${values.join(', ')}`],
  ],
});

const text = (at: At, low: number, high: number, kind = 'must be a string'): Rule => ({
  at,
  good: ['a'.repeat(Math.max(low, 1)), 'a'.repeat(high), ...(low === 0 ? [''] : [])],
  bad: [
    ['a'.repeat(high + 1), `must have at most ${high} characters`],
    ...(low === 1 ? ([['', 'must not be empty']] as const) : []),
    [1, kind],
    [[], kind === 'must be a string or an array' ? 'must have at least 1 item' : kind],
  ],
});

const longText = (at: At, low: number, kind?: string): Rule => text(at, low, MAX_TEXT, kind);

const toolName = (at: At, spoiled = 'must match ^[A-Za-z0-9_-]+$'): Rule => ({
  at,
  good: at[0] === 'tools' || at[0] === 'tool_choice' ? ['look'] : ['a', 'A-_9'.repeat(16)],
  bad: [
    ['', 'must not be empty'],
    ['a'.repeat(65), 'must have at most 64 characters'],
    ['a b', spoiled],
    ['é', spoiled],
    ['a\n', spoiled],
    [1, 'must be a string'],
  ],
});

const constant = (at: At, value: string): Rule => ({
  at,
  good: [value],
  bad: [
    ['other', `must be ${value}`],
    [null, `must be ${value}`],
  ],
});

const scalar = (at: At): Rule => ({
  at,
  good: ['', LONGEST, 1, -1.5, 1e20, true, null],
  bad: [
    [TOO_LONG, `must have at most ${MAX_TEXT} characters`],
    [{}, 'must be a string or a number or a boolean or null'],
    [[], 'must be a string or a number or a boolean or null'],
  ],
});

const names = (at: At): Rule => ({
  at,
  good: [[], ['a'], ['a', 'b'], ['a'.repeat(256)]],
  bad: [
    [['a', 'a'], 'must not hold an item twice'],
    ['a', 'must be an array'],
  ],
});

const property = (name: string): At => [...PROPERTY, name];

const RULES: readonly Rule[] = [
  {
    at: ['model'],
    good: ['a', '9', 'org/model:tag-1.0_x', 'a'.repeat(128)],
    bad: [
      ['', 'must not be empty'],
      ['a'.repeat(129), 'must have at most 128 characters'],
      ['.a', 'must match ^[A-Za-z0-9][A-Za-z0-9._:/-]*$'],
      ['a b', 'must match ^[A-Za-z0-9][A-Za-z0-9._:/-]*$'],
      ['a\n', 'must match ^[A-Za-z0-9][A-Za-z0-9._:/-]*$'],
      [1, 'must be a string'],
      [null, 'must be a string'],
    ],
  },
  {
    at: ['messages'],
    good: [[{ role: 'user', content: 'x' }], Array.from({ length: 4096 }, () => ({ role: 'user', content: 'x' }))],
    bad: [
      [[], 'must have at least 1 item'],
      [Array.from({ length: 4097 }, () => ({ role: 'user', content: 'x' })), 'must have at most 4096 items'],
      ['x', 'must be an array'],
      [{}, 'must be an array'],
    ],
  },
  { at: ['messages', 0], good: [{ role: 'user', content: 'x' }], bad: [['x', 'must be an object']] },
  longText(['messages', 0, 'content'], 1),
  toolName(['messages', 0, 'name']),
  longText(['messages', 1, 'content'], 1, 'must be a string or an array'),
  {
    at: ['messages', 1, 'content'],
    good: [Array.from({ length: 4096 }, () => ({ type: 'text', text: 'x' }))],
    bad: [
      [Array.from({ length: 4097 }, () => ({ type: 'text', text: 'x' })), 'must have at most 4096 items'],
      [null, 'must be a string or an array'],
    ],
  },
  { at: ['messages', 1, 'content', 0], good: [], bad: [['x', 'must be an object']] },
  longText(['messages', 1, 'content', 0, 'text'], 1),
  {
    at: ['messages', 1, 'content', 1, 'image_url', 'url'],
    good: [
      'https://a/',
      'HTTPS://[::1]:8080/x?y#z',
      'data:,x',
      'data:image/png;base64,AAAA',
      `data:image/png;base64,${'A'.repeat(MAX_TEXT - 24)}AA`,
    ],
    bad: [
      ['', 'must not be empty'],
      [`https://a/${LONGEST}`, `must have at most ${MAX_TEXT} characters`],
      ['http://a/', 'must be an https or data URL'],
      ['x', 'must be an https or data URL'],
      [null, 'must be a string'],
    ],
  },
  { at: ['messages', 1, 'content', 1, 'image_url'], good: [], bad: [['https://a/', 'must be an object']] },
  oneOf(['messages', 1, 'content', 1, 'image_url', 'detail'], ['auto', 'low', 'high']),
  toolName(['messages', 1, 'name']),
  longText(['messages', 2, 'content'], 0, 'must be a string or null'),
  { at: ['messages', 2, 'content'], good: [null], bad: [] },
  longText(['messages', 2, 'reasoning_content'], 0, 'must be a string or null'),
  { at: ['messages', 2, 'reasoning_content'], good: [null], bad: [] },
  toolName(['messages', 2, 'name']),
  {
    at: ['messages', 2, 'tool_calls'],
    good: [Array.from({ length: 128 }, () => ({ id: 'c', type: 'function', function: { name: 'f', arguments: '' } }))],
    bad: [
      [[], 'must have at least 1 item'],
      [
        Array.from({ length: 129 }, () => ({ id: 'c', type: 'function', function: { name: 'f', arguments: '' } })),
        'must have at most 128 items',
      ],
      [null, 'must be an array'],
    ],
  },
  text(['messages', 2, 'tool_calls', 0, 'id'], 1, 256),
  constant(['messages', 2, 'tool_calls', 0, 'type'], 'function'),
  toolName(['messages', 2, 'tool_calls', 0, 'function', 'name']),
  longText(['messages', 2, 'tool_calls', 0, 'function', 'arguments'], 0),
  longText(['messages', 3, 'content'], 0),
  text(['messages', 3, 'tool_call_id'], 1, 256),
  number(['frequency_penalty'], -2, 2),
  number(['presence_penalty'], -2, 2),
  integer(['max_tokens'], 1, 1_048_576),
  integer(['max_completion_tokens'], 1, 1_048_576),
  integer(['n'], 1, 16),
  boolean(['parallel_tool_calls']),
  oneOf(['reasoning_effort'], ['none', 'minimal', 'low', 'medium', 'high']),
  { at: ['response_format'], good: [], bad: [['text', 'must be an object']] },
  oneOf(['response_format', 'type'], ['text', 'json_object']),
  {
    at: ['seed'],
    good: [-9_223_372_036_854_776_000, 9_223_372_036_854_776_000, 0],
    bad: [
      [-9_223_372_036_854_780_000, 'must be at least -9223372036854776000'],
      [9_223_372_036_854_780_000, 'must be at most 9223372036854776000'],
      [0.5, 'must be an integer'],
      ['1', 'must be an integer'],
    ],
  },
  text(['stop'], 1, 4096, 'must be a string or an array'),
  {
    at: ['stop'],
    good: [['a'], ['a', 'b', 'c', 'd']],
    bad: [
      [['a', 'b', 'c', 'd', 'e'], 'must have at most 4 items'],
      [null, 'must be a string or an array'],
    ],
  },
  text(['stop', 0], 1, 4096),
  boolean(['store']),
  boolean(['stream']),
  { at: ['stream_options'], good: [], bad: [[null, 'must be an object']] },
  boolean(['stream_options', 'include_usage']),
  number(['temperature'], 0, 2),
  number(['top_p'], 0, 1),
  {
    at: ['tool_choice'],
    good: ['none', 'auto', 'required'],
    bad: [
      ['function', 'must be one of none, auto, required'],
      [null, 'must be a string or an object'],
      [1, 'must be a string or an object'],
    ],
  },
  constant(['tool_choice', 'type'], 'function'),
  toolName(['tool_choice', 'function', 'name']),
  { at: ['tool_choice', 'function', 'name'], good: [], bad: [['other', 'must be the name of one of the tools']] },
  {
    at: ['tools'],
    good: [],
    bad: [
      [[], 'must have at least 1 item'],
      [{}, 'must be an array'],
    ],
  },
  { at: ['tools', 0], good: [], bad: [['look', 'must be an object']] },
  constant(['tools', 0, 'type'], 'function'),
  toolName(['tools', 0, 'function', 'name']),
  longText(['tools', 0, 'function', 'description'], 0),
  boolean(['tools', 0, 'function', 'strict']),
  { at: PARAMETERS, good: [], bad: [[null, 'must be an object']] },
  constant([...PARAMETERS, 'type'], 'object'),
  { at: [...PARAMETERS, 'properties'], good: [{}], bad: [[[], 'must be an object']] },
  names([...PARAMETERS, 'required']),
  text([...PARAMETERS, 'required', 0], 1, 256),
  {
    at: [...PARAMETERS, 'additionalProperties'],
    good: [true, false, {}, { type: 'string' }],
    bad: [[null, 'must be a boolean or an object']],
  },
  oneOf(
    [...PARAMETERS, 'additionalProperties', 'type'],
    ['string', 'number', 'integer', 'boolean', 'array', 'object', 'null'],
  ),
  {
    at: [...PARAMETERS, '$schema'],
    good: ['http://json-schema.org/', `https://json-schema.org/${'a'.repeat(232)}`],
    bad: [
      ['', 'must not be empty'],
      [`https://json-schema.org/${'a'.repeat(233)}`, 'must have at most 256 characters'],
      ['https://json-schema.example/', 'must match ^https?://json-schema\\.org/'],
      ['https://json-schema.org/ x', 'must be a URI'],
      [1, 'must be a string'],
    ],
  },
  text(['user'], 1, 256),
];

/** The same for places inside a property schema, which `param` does not reach: the caller named the property. */
const PROPERTY_RULES: readonly Rule[] = [
  {
    at: PROPERTY,
    good: [{}],
    bad: [
      [true, 'must be an object'],
      [null, 'must be an object'],
    ],
  },
  oneOf(property('type'), ['string', 'number', 'integer', 'boolean', 'array', 'object', 'null']),
  longText(property('description'), 0),
  {
    at: property('enum'),
    good: [['a']],
    bad: [
      [[], 'must have at least 1 item'],
      ['a', 'must be an array'],
    ],
  },
  scalar([...property('enum'), 0]),
  scalar(property('const')),
  scalar(property('default')),
  { at: property('items'), good: [{}], bad: [[[], 'must be an object']] },
  { at: property('properties'), good: [{}], bad: [[[], 'must be an object']] },
  names(property('required')),
  text([...property('required'), 0], 1, 256),
  { at: property('additionalProperties'), good: [true, false, {}], bad: [['x', 'must be a boolean or an object']] },
  ...['allOf', 'anyOf', 'oneOf'].flatMap((name): Rule[] => [
    {
      at: property(name),
      good: [[{}, {}]],
      bad: [
        [[], 'must have at least 1 item'],
        [{}, 'must be an array'],
      ],
    },
    { at: [...property(name), 0], good: [], bad: [[true, 'must be an object']] },
  ]),
  ...['minimum', 'maximum'].map((name): Rule => ({
    at: property(name),
    good: [-1e308, 1e308],
    bad: [
      [-1.1e308, 'must be at least -1e+308'],
      [1.1e308, 'must be at most 1e+308'],
      ['1', 'must be a number'],
    ],
  })),
  ...['minLength', 'maxLength'].map((name): Rule => ({
    at: property(name),
    good: [0, 1e15],
    bad: [
      [-1, 'must be at least 0'],
      [0.5, 'must be an integer'],
    ],
  })),
  text(property('pattern'), 1, 1024),
];

/** Where, in words, a problem inside the property schema is. */
function subjectInProperty(at: At): string {
  const inside = at.slice(PROPERTY.length);
  return `${pathText([...PARAMETERS, 'properties'])} has an entry ${inside.length === 0 ? 'that' : `whose ${pathText(inside)}`}`;
}

function checkRule(rule: Rule, subject: string, param: string): void {
  for (const value of rule.good) {
    const parsed = parseChat(bytesOf(withAt(FULL_CHAT, rule.at, value)));
    t.equal(parsed.kind, 'ok', `${subject} takes ${shown(value)}`);
  }
  for (const [value, predicate] of rule.bad) {
    const parsed = parseChat(bytesOf(withAt(FULL_CHAT, rule.at, value)));
    t.same(
      verdictOf(parsed),
      { code: 'bad_request', status: 400, message: `${subject} ${predicate}`, param },
      `${subject} refuses ${shown(value)}`,
    );
  }
}

t.equal(parseChat(bytesOf(FULL_CHAT)).kind, 'ok', 'every field at once');

for (const rule of RULES) checkRule(rule, pathText(rule.at), pathText(rule.at));
for (const rule of PROPERTY_RULES) checkRule(rule, subjectInProperty(rule.at), pathText([...PARAMETERS, 'properties']));

t.test('every object is closed', (t) => {
  // Maps whose keys callers choose are the only open ones.
  const open = new Set([pathText([...PARAMETERS, 'properties']), pathText([...PROPERTY, 'properties'])]);
  for (const at of objectsIn(FULL_CHAT).filter((place) => !open.has(pathText(place)))) {
    for (const [unknown, value] of [
      ['zcanary', 1],
      ['__proto__', { zcanary: 1 }],
      ['constructor', 1],
    ] as const) {
      const parsed = parseChat(bytesOf(withAt(FULL_CHAT, [...at, unknown], value)));
      if (parsed.kind !== 'invalid') {
        t.fail(`${pathText(at)} took ${unknown}`);
        continue;
      }
      t.match(parsed.error.message, /has a field outside the contract; its fields are /);
      t.notMatch(JSON.stringify(parsed.error), /zcanary|__proto__|constructor/);
      const cut = pathText(at).startsWith(pathText(PROPERTY)) ? pathText([...PARAMETERS, 'properties']) : pathText(at);
      t.equal(parsed.error.param, cut === '' ? null : cut);
    }
  }
  t.end();
});

t.test('what is required', (t) => {
  const required: readonly At[] = [
    ['model'],
    ['messages'],
    ['messages', 0, 'role'],
    ['messages', 0, 'content'],
    ['messages', 1, 'role'],
    ['messages', 1, 'content'],
    ['messages', 1, 'content', 0, 'type'],
    ['messages', 1, 'content', 0, 'text'],
    ['messages', 1, 'content', 1, 'type'],
    ['messages', 1, 'content', 1, 'image_url'],
    ['messages', 1, 'content', 1, 'image_url', 'url'],
    ['messages', 2, 'role'],
    ['messages', 2, 'tool_calls', 0, 'id'],
    ['messages', 2, 'tool_calls', 0, 'type'],
    ['messages', 2, 'tool_calls', 0, 'function'],
    ['messages', 2, 'tool_calls', 0, 'function', 'name'],
    ['messages', 2, 'tool_calls', 0, 'function', 'arguments'],
    ['messages', 3, 'role'],
    ['messages', 3, 'content'],
    ['messages', 3, 'tool_call_id'],
    ['response_format', 'type'],
    ['stream_options', 'include_usage'],
    ['tool_choice', 'type'],
    ['tool_choice', 'function'],
    ['tool_choice', 'function', 'name'],
    ['tools', 0, 'type'],
    ['tools', 0, 'function'],
    ['tools', 0, 'function', 'name'],
    ['tools', 0, 'function', 'parameters'],
    [...PARAMETERS, 'type'],
    [...PARAMETERS, 'properties'],
  ];
  for (const at of required) {
    const parsed = parseChat(bytesOf(withAt(FULL_CHAT, at, undefined)));
    const path = pathText(at);
    t.same(verdictOf(parsed), { code: 'bad_request', status: 400, message: `${path} is required`, param: path }, path);
  }
  const optional = objectsIn(FULL_CHAT).flatMap((at) => {
    const fields = at.reduce<unknown>((value, step) => (value as Record<string, unknown>)[String(step)], FULL_CHAT);
    return Object.keys(fields as object).map((name) => [...at, name]);
  });
  const needed = new Set(required.map(pathText));
  for (const at of optional.filter((place) => !needed.has(pathText(place)) && pathText(place) !== 'tools')) {
    t.equal(parseChat(bytesOf(withAt(FULL_CHAT, at, undefined))).kind, 'ok', `${pathText(at)} may be left out`);
  }
  t.end();
});

t.test('an assistant needs content or tool_calls', (t) => {
  const bare = withAt(
    withAt(FULL_CHAT, ['messages', 2, 'content'], undefined),
    ['messages', 2, 'tool_calls'],
    undefined,
  );
  t.match(parseChat(bytesOf(bare)), {
    error: { message: 'messages[2] must have content or tool_calls', param: 'messages[2]' },
  });
  t.end();
});

t.test('fields of another role are unknown', (t) => {
  for (const [at, name] of [
    [0, 'tool_calls'],
    [0, 'tool_call_id'],
    [1, 'reasoning_content'],
    [3, 'name'],
  ] as const) {
    const parsed = parseChat(bytesOf(withAt(FULL_CHAT, ['messages', at, name], 'x')));
    t.match(parsed, { error: { param: `messages[${at}]` } });
  }
  t.match(parseChat(bytesOf(withAt(FULL_CHAT, ['messages', 0, 'role'], 'developer'))), {
    error: { message: 'messages[0].role must be one of system, user, assistant, tool', param: 'messages[0].role' },
  });
  t.end();
});

t.test('counts of tools', (t) => {
  const tool = { type: 'function', function: { name: 'look', parameters: { type: 'object', properties: {} } } };
  const tools = (count: number): Json =>
    withAt(
      FULL_CHAT,
      ['tools'],
      Array.from({ length: count }, () => tool),
    );
  t.equal(parseChat(bytesOf(tools(128))).kind, 'ok');
  t.match(parseChat(bytesOf(tools(129))), { error: { message: 'tools must have at most 128 items', param: 'tools' } });
  t.end();
});

t.test('a parameter may not be named __proto__', (t) => {
  for (const at of [[...PARAMETERS, 'properties'], property('properties')]) {
    const parsed = parseChat(bytesOf(withAt(FULL_CHAT, [...at, '__proto__'], {})));
    t.match(parsed, { error: { message: /has a name that is not allowed: a name must not be __proto__$/ } });
  }
  const required = withAt(FULL_CHAT, [...PARAMETERS, 'required'], ['__proto__']);
  t.match(parseChat(bytesOf(required)), {
    error: { message: `${pathText([...PARAMETERS, 'required', 0])} must not be __proto__` },
  });
  t.end();
});

t.test('lengths are in code points', (t) => {
  const withUser = (user: string) => parseChat(bytesOf(withAt(FULL_CHAT, ['user'], user))).kind;
  t.equal(withUser('😀'.repeat(256)), 'ok');
  t.equal(withUser('😀'.repeat(257)), 'invalid');
  t.equal(withUser(`${'😀'.repeat(255)}ab`), 'invalid');
  t.equal(withUser('é'.repeat(256)), 'ok');
  t.end();
});
