/** What one schema's own keywords say of a value, and what two such shapes say together. */
import { ANY_NUMBER, narrowerNumbers, numberRange, type NumberRange } from './number-rules.js';
import type { WorkBudget } from './work.js';

/** A schema: an object with keywords, or true (anything) or false (nothing). */
export type Schema = Readonly<Record<string, unknown>> | boolean;

/** What must hold of one value at once. */
export type All = readonly Schema[];

export type Type = 'object' | 'array' | 'string' | 'number' | 'integer' | 'boolean' | 'null';

const TYPES: readonly Type[] = ['object', 'array', 'string', 'number', 'boolean', 'null'];

/** One alternative. Everything in it must hold. */
export interface Shape {
  readonly types: readonly Type[];
  /** The only values, of all types, by their JSON texts; absent: any. */
  readonly values?: ReadonlyMap<string, unknown>;
  readonly objects: Rope<ObjectShape>;
  /** Names, in any order, some of them repeatedly. */
  readonly required: Rope<readonly string[]>;
  readonly arrays: Rope<ArrayShape>;
  readonly items: Range;
  /** In code points. */
  readonly length: Range;
  readonly texts: Rope<{ readonly pattern?: string; readonly format?: string }>;
  readonly numbers: NumberRange;
  /** How many properties an object has. */
  readonly members: Range;
}

export interface ObjectShape {
  readonly properties: ReadonlyMap<string, Schema>;
  /** What all other properties are, whatever their names: where there are patterns, any of what these allow. */
  readonly additional: Schema;
  /** The same by patterns of names, and what the properties are that none matches. */
  readonly byPattern: readonly (readonly [pattern: string, schema: Schema])[];
  readonly unmatched: Schema;
  readonly names?: Schema;
}

export interface ArrayShape {
  readonly prefix: readonly Schema[];
  /** What all items after the prefix are. */
  readonly rest: Schema;
}

export interface Range {
  readonly least: number;
  readonly most: number;
}

/**
 * Steps of {@link both}, three times what it takes, so that what is refused for its products took little work before: a request may
 * have 1,900 joins, and all tools of the public server that has the most have 90 (test/engine/grammar/recorded-schemas.test.ts).
 */
export const JOIN_STEPS = 72;
/** Steps of one value of an enum, besides its characters. */
const VALUE_STEPS = 8;
/** Steps of looking for one value of an enum in another. */
const COMPARE_STEPS = 3;

export const ANYTHING: Range = { least: 0, most: Infinity };

export const ANY: Shape = {
  types: TYPES,
  objects: undefined,
  required: undefined,
  arrays: undefined,
  items: ANYTHING,
  length: ANYTHING,
  texts: undefined,
  numbers: ANY_NUMBER,
  members: ANYTHING,
};

const KEYWORDS = [
  ...[
    '$ref',
    'not',
    'allOf',
    'anyOf',
    'oneOf',
    'type',
    'enum',
    'const',
    'properties',
    'required',
    'additionalProperties',
  ],
  ...['patternProperties', 'propertyNames', 'minProperties', 'maxProperties'],
  ...['items', 'additionalItems', 'prefixItems', 'minItems', 'maxItems', 'minLength', 'maxLength', 'pattern', 'format'],
  ...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'],
];

/** Every value is valid against it, as far as this goes. */
export function saysNothing(schema: unknown): boolean {
  return schema === true || (isRecord(schema) && !KEYWORDS.some((keyword) => schema[keyword] !== undefined));
}

/** What the keywords of one schema say themselves. */
export function plain(schema: Readonly<Record<string, unknown>>, work: WorkBudget): Shape {
  const { properties, required } = schema;
  const additionalProperties = othersOf(schema);
  // Of draft 4, a list of items is what came to be called prefixItems.
  const [prefixItems, items] = Array.isArray(schema.items)
    ? [schema.items, schema.additionalItems]
    : [schema.prefixItems, schema.items];
  const { propertyNames, minProperties, maxProperties, pattern, format } = schema;
  const saysObject = [properties, additionalProperties, required, propertyNames, minProperties, maxProperties].some(
    (keyword) => keyword !== undefined,
  );
  const saysArray = [items, prefixItems, schema.minItems, schema.maxItems].some((keyword) => keyword !== undefined);
  const values = [...('const' in schema ? [[schema.const]] : []), ...(Array.isArray(schema.enum) ? [schema.enum] : [])]
    .map((listed: readonly unknown[]) => byText(listed, work))
    .reduce<ReadonlyMap<string, unknown> | undefined>((a, b) => inBoth(a, b, work), undefined);
  // OpenAPI's way to allow null.
  const type = schema.nullable === true && schema.type !== undefined ? [schema.type, 'null'].flat() : schema.type;
  return {
    types: typesOf(type) ?? (saysObject ? ['object'] : saysArray ? ['array'] : TYPES),
    ...(values && { values }),
    objects: saysObject
      ? {
          item: {
            properties: new Map(isRecord(properties) ? (Object.entries(properties) as [string, Schema][]) : []),
            additional: (additionalProperties ?? true) as Schema,
            byPattern: isRecord(schema.patternProperties)
              ? (Object.entries(schema.patternProperties) as [string, Schema][])
              : [],
            unmatched: (schema.additionalProperties ?? true) as Schema,
            ...(propertyNames !== undefined && { names: propertyNames as Schema }),
          },
        }
      : undefined,
    required: Array.isArray(required) && required.length > 0 ? { item: required.map(String) } : undefined,
    arrays: saysArray
      ? {
          item: {
            prefix: (Array.isArray(prefixItems) ? prefixItems : []) as Schema[],
            rest: (items ?? true) as Schema,
          },
        }
      : undefined,
    items: range(schema.minItems, schema.maxItems),
    length: range(schema.minLength, schema.maxLength),
    texts:
      typeof pattern === 'string' || typeof format === 'string'
        ? {
            item: {
              ...(typeof pattern === 'string' && { pattern }),
              ...(typeof format === 'string' && { format }),
            },
          }
        : undefined,
    numbers: numberRange(schema),
    members: range(minProperties, maxProperties),
  };
}

function byText(values: readonly unknown[], work: WorkBudget): ReadonlyMap<string, unknown> {
  const texts = new Map<string, unknown>();
  for (const value of values) {
    work.spend(VALUE_STEPS);
    if (typeof value === 'string') work.spendText(value.length);
    texts.set(JSON.stringify(value), value);
  }
  return texts;
}

/** What properties that are not listed are: with patternProperties any of what those allow, whatever their names. */
function othersOf({ patternProperties: byPattern, additionalProperties }: Readonly<Record<string, unknown>>): unknown {
  const patterns = isRecord(byPattern) ? Object.values(byPattern) : [];
  if (patterns.length === 0) return additionalProperties;
  const others = additionalProperties ?? true;
  return others === true ? true : { anyOf: others === false ? patterns : [...patterns, others] };
}

function typesOf(type: unknown): readonly Type[] | undefined {
  if (type === undefined) return undefined;
  const types = new Set<unknown>(Array.isArray(type) ? type : [type]);
  if (types.has('number')) types.delete('integer');
  return [...TYPES, 'integer' as const].filter((known) => types.has(known));
}

function range(least: unknown, most: unknown): Range {
  return { least: typeof least === 'number' ? least : 0, most: typeof most === 'number' ? most : Infinity };
}

/** What holds of a value of which both hold. Copies none of what they say. */
export function both(a: Shape, b: Shape, work: WorkBudget): Shape {
  if (a === ANY) return b;
  if (b === ANY) return a;
  const values = inBoth(a.values, b.values, work);
  return {
    types: a.types === b.types ? a.types : commonTypes(a.types, b.types),
    ...(values && { values }),
    objects: join(a.objects, b.objects),
    required: join(a.required, b.required),
    arrays: join(a.arrays, b.arrays),
    items: narrower(a.items, b.items),
    length: narrower(a.length, b.length),
    texts: join(a.texts, b.texts),
    numbers: narrowerNumbers(a.numbers, b.numbers),
    members: narrower(a.members, b.members),
  };
}

function commonTypes(a: readonly Type[], b: readonly Type[]): readonly Type[] {
  const hasNumbers = (types: readonly Type[]): boolean => types.includes('number') || types.includes('integer');
  const integer = [a, b].some((types) => types.includes('integer')) && [a, b].every(hasNumbers);
  const common = a.filter((type) => type !== 'integer' && b.includes(type));
  return integer ? [...common, 'integer'] : common;
}

function narrower(a: Range, b: Range): Range {
  return { least: Math.max(a.least, b.least), most: Math.min(a.most, b.most) };
}

/** The values of both; undefined if any value is allowed. Looks at each of the fewer. */
function inBoth(
  a: ReadonlyMap<string, unknown> | undefined,
  b: ReadonlyMap<string, unknown> | undefined,
  work: WorkBudget,
): ReadonlyMap<string, unknown> | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  const [fewer, more] = a.size <= b.size ? [a, b] : [b, a];
  work.spend(COMPARE_STEPS * fewer.size);
  return new Map([...fewer].filter(([text]) => more.has(text)));
}

/** An object that is neither null nor an array. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * A list that is concatenated without copying: combinations of schemas concatenate the same lists repeatedly, and only
 * the few that remain are read.
 */
export type Rope<T> =
  undefined | { readonly item: T } | { readonly left: NonNullable<Rope<T>>; readonly right: NonNullable<Rope<T>> };

/** The items of `left`, then those of `right`. */
export function join<T>(left: Rope<T>, right: Rope<T>): Rope<T> {
  if (left === undefined) return right;
  return right === undefined ? left : { left, right };
}

/** The items in order. `step` is called before each part is visited; a rope has at most two parts per item. */
export function itemsOf<T>(rope: Rope<T>, step: () => void): T[] {
  const items: T[] = [];
  const open = rope === undefined ? [] : [rope];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    step();
    if ('item' in next) items.push(next.item);
    else open.push(next.right, next.left);
  }
  return items;
}

/** Depth up to which schemas are compared; deeper ones count as different. */
const MAX_DEPTH = 64;

/** Finds equal schemas, which become one rule of a grammar, since each rule costs time at every token. Each schema is visited once. */
export class SchemaIds {
  readonly #ids = new Map<string, number>();
  /** Of objects and arrays. */
  readonly #known = new Map<unknown, number>();
  #others = 0;

  /** The same number for values that are equal as JSON, keys in the same order. */
  id(value: unknown): number {
    return this.#id(value, 0);
  }

  #id(value: unknown, depth: number): number {
    if (typeof value !== 'object' || value === null) return this.#of(JSON.stringify(value));
    const known = this.#known.get(value);
    if (known !== undefined) return known;
    const id = this.#of(depth > MAX_DEPTH ? `another ${this.#others++}` : this.#text(value, depth));
    this.#known.set(value, id);
    return id;
  }

  #text(value: object, depth: number): string {
    if (Array.isArray(value)) return `[${value.map((each) => this.#id(each, depth + 1)).join()}]`;
    const entries = Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}:${this.#id(each, depth + 1)}`);
    return `{${entries.join()}}`;
  }

  #of(text: string): number {
    const id = this.#ids.get(text) ?? this.#ids.size;
    this.#ids.set(text, id);
    return id;
  }
}
