import t from 'tap';
import { compile } from '../../../sidecar/contracts/validator.js';

const SCHEMA = {
  type: 'object',
  additionalProperties: false,
  required: ['models'],
  properties: {
    models: {
      type: 'array',
      maxItems: 2,
      items: {
        type: 'object',
        additionalProperties: false,
        properties: {
          seats: { type: 'integer', minimum: 1, default: 4 },
          'a/b~c': { type: 'number', exclusiveMinimum: 0 },
        },
      },
    },
    level: { enum: ['info', 'warn'], default: 'info' },
  },
} as const;

t.test('a valid value is returned', async (t) => {
  const check = compile<{ models: readonly { seats?: number }[] }>(SCHEMA);
  const value = { models: [{}] };
  t.same(check(value), { ok: true, value });
  t.same(value, { models: [{}] }, 'defaults are filled in only if requested');
});

t.test('defaults', async (t) => {
  const check = compile(SCHEMA, { useDefaults: true });
  t.same(check({ models: [{}] }), { ok: true, value: { models: [{ seats: 4 }], level: 'info' } });
});

t.test('the first problem with its place', async (t) => {
  const check = compile(SCHEMA);
  const cases: readonly (readonly [unknown, string, string])[] = [
    [[], '', 'must be an object'],
    [{}, 'models', 'is required'],
    [{ models: [{ seats: 0 }] }, 'models[0].seats', 'must be at least 1'],
    [{ models: [{}, { seats: 0.5 }] }, 'models[1].seats', 'must be an integer'],
    [{ models: [{}, {}, {}] }, 'models', 'must have at most 2 items'],
    [{ models: [{ 'a/b~c': 0 }] }, 'models[0].a/b~c', 'must be above 0'],
    [{ models: [], level: 'loud' }, 'level', 'must be one of info, warn'],
    [{ models: [{ zcanary: 1 }] }, 'models[0]', 'has a field outside the contract; its fields are seats, a/b~c'],
  ];
  for (const [value, path, message] of cases) t.match(check(value), { ok: false, path, message });
});

t.test('unknown fields by name, for files of the operator', async (t) => {
  const check = compile(SCHEMA, { nameUnknownFields: true });
  t.match(check({ models: [{ seatz: 1 }] }), {
    ok: false,
    path: 'models[0].seatz',
    message: 'is not a known field; known are seats, a/b~c',
  });
});

t.test('lengths count code points on both sides of every bound', async (t) => {
  const check = compile({ type: 'string', minLength: 2, maxLength: 3 });
  for (const [text, ok] of [
    ['a', false],
    ['😀', false],
    ['ab', true],
    ['😀b', true],
    ['😀😀😀', true],
    ['😀😀😀a', false],
    ['abcd', false],
    ['ab😀', true],
    ['abc😀', false],
    ['aaaaaaa', false],
    ['\ud83dabc', false],
    ['abc\ude00', false],
  ] as const)
    t.equal(check(text).ok, ok, `${text.length} units`);
});

t.test('the message of each rule', async (t) => {
  for (const [schema, value, message] of [
    [{ type: 'string', minLength: 1 }, '', 'must not be empty'],
    [{ type: 'string', minLength: 2 }, 'a', 'must have at least 2 characters'],
    [{ type: 'object', minProperties: 1 }, {}, 'must have at least 1 entry'],
    [{ type: 'object', minProperties: 2 }, {}, 'must have at least 2 entries'],
    [{ type: 'object', maxProperties: 1 }, { a: 1, b: 2 }, 'must have at most 1 entry'],
    [{ type: 'object', maxProperties: 2 }, { a: 1, b: 2, c: 3 }, 'must have at most 2 entries'],
    [{ type: 'number', exclusiveMaximum: 1 }, 1, 'must be below 1'],
    [{ type: 'number', exclusiveMinimum: 1 }, 1, 'must be above 1'],
    [{ type: 'number', multipleOf: 2 }, 1, 'is not valid'],
    [{ type: ['array', 'object', 'null'] }, 1, 'must be an array or an object or null'],
    [{ not: { const: 1 } }, 1, 'is not valid'],
    [{ not: { const: 1 }, 'x-message': 'must be something else' }, 1, 'must be something else'],
  ] as const)
    t.same(compile(schema)(value), { ok: false, path: '', message, segments: [] });
});

t.test('a number where a text is allowed is no text of that length', async (t) => {
  const check = compile({ type: ['string', 'number'], minLength: 2, maxLength: 3 });
  for (const value of [1, 12345]) t.same(check(value), { ok: true, value });
});

t.test('a schema with a keyword that this ajv does not know is refused', async (t) => {
  t.throws(() => compile({ minLenght: 1 })(1), { message: 'strict mode: unknown keyword: "minLenght"' });
  t.throws(() => compile({ type: 'string', minLength: '1' })('a'), { name: 'Error' });
});

t.test('a checked value is not retained', async (t) => {
  const check = compile({ type: 'object', properties: { a: { type: 'number' } } });
  const outcome = check({ a: 'zcanary' });
  t.notMatch(JSON.stringify(outcome), /zcanary/);
});
