/** The path that the refusal of a schema names. */
import t from 'tap';
import { schemaGrammar } from '../../../engine/grammar/schema.js';

const NOWHERE = { $ref: '#/$defs/none' };

t.test('the path of the schema that no grammar can express', (t) => {
  const many = { type: 'array', minItems: 257 };
  const values = { enum: Array.from({ length: 2049 }, (_, i) => i) };
  for (const [what, schema, path] of [
    ['the root', NOWHERE, []],
    ['a property', { type: 'object', properties: { a: { items: NOWHERE } } }, ['properties', 'a', 'items']],
    ['a branch', { anyOf: [{ type: 'null' }, NOWHERE] }, ['anyOf', '1']],
    ['an item of draft 4', { type: 'array', items: [{}, NOWHERE] }, ['items', '1']],
    ['a definition', { $ref: '#/$defs/a', $defs: { a: many, b: { minItems: 256 } } }, ['$defs', 'a']],
    ['values', { additionalProperties: values }, ['additionalProperties']],
    ['data that looks like a schema', { default: NOWHERE, properties: { a: NOWHERE } }, ['properties', 'a']],
    ['a property of that name', { properties: { $ref: { type: 'null' }, a: NOWHERE } }, ['properties', 'a']],
  ] as const) {
    t.match(schemaGrammar(schema), { kind: 'unservable', path: [...path], why: /`\$ref`|`minItems`|`enum`/ }, what);
  }
  const made = schemaGrammar({ type: 'string', minLength: 2, maxLength: 1 });
  t.strictSame(made, { kind: 'unservable', why: 'allows no value.' }, 'no single keyword is the cause');
  t.end();
});
