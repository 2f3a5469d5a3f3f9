/** Schemas that the contract accepts for a tool’s parameters, with the keywords about a value’s structure. */
import { Ajv } from 'ajv';
import * as fc from 'fast-check';

export interface TestSchema {
  readonly type?: string;
  readonly enum?: readonly (string | number | boolean | null)[];
  readonly const?: string | number | boolean | null;
  readonly items?: TestSchema;
  readonly properties?: Readonly<Record<string, TestSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | TestSchema;
  readonly anyOf?: readonly TestSchema[];
  readonly allOf?: readonly TestSchema[];
  readonly minLength?: number;
  readonly maxLength?: number;
}

/** A few, so that names begin alike and meet in allOf. */
const NAMES = ['a', 'ab', 'abc', 'b', 'x y', 'é"\n', ''];
const name = fc.constantFrom(...NAMES);
/**
 * Without the empty name, which the contract treats as none and ajv does not miss; and without the name that JSON
 * escapes, which grammars write only if it is declared.
 */
const REQUIRED = NAMES.filter((each) => /^[a-z ]+$/.test(each));
const scalar = fc.oneof(fc.string({ maxLength: 3 }), fc.integer({ min: -3, max: 3 }), fc.boolean(), fc.constant(null));

export const schemas: fc.Arbitrary<TestSchema> = fc.letrec<{ schema: TestSchema }>((tie) => ({
  schema: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.constantFrom<TestSchema>(
      ...['string', 'number', 'integer', 'boolean', 'null', 'array', 'object'].map((type) => ({ type })),
    ),
    fc.constant({}),
    fc.record({
      type: fc.constant('string'),
      minLength: fc.nat({ max: 2 }),
      maxLength: fc.integer({ min: 2, max: 4 }),
    }),
    fc.record({ enum: fc.uniqueArray(scalar, { minLength: 1, maxLength: 4 }) }),
    fc.record({ const: scalar }),
    fc.record({ type: fc.constant('array'), items: tie('schema') }),
    fc.record(
      {
        type: fc.constant('object'),
        properties: fc.dictionary(name, tie('schema'), { maxKeys: 4, noNullPrototype: true }),
        required: fc.uniqueArray(fc.constantFrom(...REQUIRED), { maxLength: 2 }),
        additionalProperties: fc.oneof(fc.boolean(), tie('schema')),
      },
      { requiredKeys: ['type', 'properties'] },
    ),
    fc.record({ anyOf: fc.array(tie('schema'), { minLength: 1, maxLength: 3 }) }),
    fc.record({ allOf: fc.array(tie('schema'), { minLength: 1, maxLength: 2 }) }),
  ),
})).schema;

const ajv = new Ajv({ strict: false });

/**
 * Returns a value that is probably valid against the schema, its properties in the order in which a grammar writes them. Returns
 * undefined if it found no such value.
 * Of an anyOf it is valid against the variant of which it is made: another may declare other properties, in another order.
 */
export function valueOf(schema: TestSchema, random: () => number): unknown {
  const below = (count: number): number => Math.floor(random() * count);
  const pick = <T>(from: readonly T[]): T | undefined => from[below(from.length)];
  const { anyOf, allOf, items, properties = {}, required = [], additionalProperties: others = true } = schema;
  if (schema.const !== undefined) return schema.const;
  if (schema.enum) return pick(schema.enum);
  if (anyOf) {
    const variant = pick(anyOf) ?? {};
    const value = valueOf(variant, random);
    return ajv.validate(variant, value) ? value : undefined;
  }
  if (allOf) return valueOf(allOf[0] ?? {}, random);
  switch (schema.type ?? pick(['string', 'integer', 'null', 'array'])) {
    case 'string':
      return 'xy"z'.slice(0, Math.max(schema.minLength ?? 0, below((schema.maxLength ?? 3) + 1)));
    case 'number':
      return below(100) / 8;
    case 'integer':
      return below(100) - 50;
    case 'boolean':
      return below(2) === 0;
    case 'null':
      return null;
    case 'array':
      return Array.from({ length: below(3) }, () => valueOf(items ?? {}, random)).filter((item) => item !== undefined);
    default: {
      // Another schema of an allOf may declare one of several, which then comes before the others.
      if (required.filter((name) => !Object.hasOwn(properties, name)).length > 1) return undefined;
      const names = [...new Set([...Object.keys(properties), ...required])].filter(
        (name) => required.includes(name) || below(2) === 0,
      );
      if (others !== false && below(2) === 0) names.push('other');
      const schemaOf = (name: string): TestSchema => properties[name] ?? (typeof others === 'object' ? others : {});
      return Object.fromEntries(names.map((name) => [name, valueOf(schemaOf(name), random)]));
    }
  }
}
