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

t.test('a value that fits comes back', (t) => {
  const check = compile<{ models: readonly { seats?: number }[] }>(SCHEMA);
  const value = { models: [{}] };
  t.same(check(value), { ok: true, value });
  t.same(value, { models: [{}] }, 'defaults are filled in only where asked for');
  t.end();
});

t.test('defaults', (t) => {
  const check = compile(SCHEMA, { useDefaults: true });
  t.same(check({ models: [{}] }), { ok: true, value: { models: [{ seats: 4 }], level: 'info' } });
  t.end();
});

t.test('the first problem, where and what', (t) => {
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
  t.end();
});

t.test('unknown fields by name, for files of the operator', (t) => {
  const check = compile(SCHEMA, { nameUnknownFields: true });
  t.match(check({ models: [{ seatz: 1 }] }), {
    ok: false,
    path: 'models[0].seatz',
    message: 'is not a known field; known are seats, a/b~c',
  });
  t.end();
});

t.test('lengths count code points on both sides of every bound', (t) => {
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
  ] as const) {
    t.equal(check(text).ok, ok, `${text.length} units`);
  }
  t.end();
});
