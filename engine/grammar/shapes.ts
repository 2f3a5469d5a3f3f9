/**
 * JSON schema as alternatives of plain shapes: references, allOf, anyOf and oneOf are worked out, so that what is left
 * says of one value what it may be. An allOf of anyOfs is multiplied out, within bounds.
 */

/** A schema: an object with keywords, or true (anything) or false (nothing). */
export type Schema = Readonly<Record<string, unknown>> | boolean;

/** What must hold of one value at once. */
export type All = readonly Schema[];

export type Type = 'object' | 'array' | 'string' | 'number' | 'integer' | 'boolean' | 'null';

const TYPES: readonly Type[] = ['object', 'array', 'string', 'number', 'boolean', 'null'];

/** One alternative. Everything in it must hold. */
export interface Shape {
  readonly types: readonly Type[];
  /** The only values, of all types; absent: any. */
  readonly values?: readonly unknown[];
  readonly objects: readonly ObjectShape[];
  readonly required: ReadonlySet<string>;
  readonly arrays: readonly ArrayShape[];
  readonly items: Range;
  /** In code points. */
  readonly length: Range;
}

export interface ObjectShape {
  readonly properties: ReadonlyMap<string, Schema>;
  /** What all other properties are. */
  readonly additional: Schema;
}

export interface ArrayShape {
  readonly prefix: readonly Schema[];
  /** What all items behind the prefix are. */
  readonly rest: Schema;
}

export interface Range {
  readonly least: number;
  readonly most: number;
}

/** Alternatives of one value, and how deep references and combinations may lie in one another. */
export const MAX_ALTERNATIVES = 256;
export const MAX_COMBINED = 64;
/** Shapes made for one whole schema. */
export const MAX_SHAPES = 50_000;

/** A schema that cannot be served; caught where the grammar is made. `message`: why. */
export class Unservable extends Error {}

const ANYTHING: Range = { least: 0, most: Infinity };

export const ANY: Shape = {
  types: TYPES,
  objects: [],
  required: new Set(),
  arrays: [],
  items: ANYTHING,
  length: ANYTHING,
};

/** Works out the schemas within `root`, to whose definitions their references point. */
export class Shapes {
  readonly #root: unknown;
  #made = 0;

  constructor(root: unknown) {
    this.#root = root;
  }

  /** What a value may be of which all of `all` holds; none: there is no such value. */
  of(all: All): readonly Shape[] {
    return this.#product(all.map((schema) => this.#ofOne(schema, 0)));
  }

  #ofOne(schema: unknown, depth: number): readonly Shape[] {
    if (schema === true) return [ANY];
    if (schema === false) return [];
    if (!isRecord(schema)) throw new Unservable('has a schema that is neither an object nor a boolean.');
    // Also what a reference that comes back to itself runs into.
    if (depth > MAX_COMBINED) throw new Unservable('combines or refers to schemas too deeply.');
    const within = (inner: unknown): readonly Shape[] => this.#ofOne(inner, depth + 1);
    const factors: (readonly Shape[])[] = [[plain(schema)]];
    if ('$ref' in schema) factors.push(within(this.#resolve(schema.$ref)));
    if (Array.isArray(schema.allOf)) factors.push(...schema.allOf.map(within));
    for (const variants of [schema.anyOf, schema.oneOf]) {
      if (Array.isArray(variants)) factors.push(this.#bounded(variants.flatMap(within)));
    }
    return this.#product(factors);
  }

  #product(factors: readonly (readonly Shape[])[]): readonly Shape[] {
    return factors.reduce<readonly Shape[]>(
      (left, right) => this.#bounded(left.flatMap((a) => right.map((b) => both(a, b)))),
      [ANY],
    );
  }

  #bounded(shapes: readonly Shape[]): readonly Shape[] {
    this.#made += shapes.length;
    if (shapes.length > MAX_ALTERNATIVES || this.#made > MAX_SHAPES) throw new Unservable('has too many alternatives.');
    return shapes;
  }

  #resolve(reference: unknown): unknown {
    if (reference === '#') return this.#root;
    const [, place = '', name = ''] = /^#\/(\$defs|definitions)\/([^/]+)$/.exec(String(reference)) ?? [];
    const definitions = isRecord(this.#root) ? this.#root[place] : undefined;
    const key = decoded(name);
    if (isRecord(definitions) && Object.hasOwn(definitions, key)) return definitions[key];
    throw new Unservable('refers to what is not among its definitions.');
  }
}

/** A JSON pointer's step, which may be percent-encoded besides. */
function decoded(step: string): string {
  try {
    return decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    return step;
  }
}

/** The keywords that are read. */
const KEYWORDS = [
  ...['$ref', 'allOf', 'anyOf', 'oneOf', 'type', 'enum', 'const', 'properties', 'required', 'additionalProperties'],
  ...['items', 'prefixItems', 'minItems', 'maxItems', 'minLength', 'maxLength'],
];

/** Every value is valid against it, as far as this goes. */
export function saysNothing(schema: unknown): boolean {
  return schema === true || (isRecord(schema) && !KEYWORDS.some((keyword) => schema[keyword] !== undefined));
}

/** What the keywords of one schema say themselves. */
function plain(schema: Readonly<Record<string, unknown>>): Shape {
  const { properties, additionalProperties, required, items, prefixItems } = schema;
  const saysObject = [properties, additionalProperties, required].some((keyword) => keyword !== undefined);
  const saysArray = [items, prefixItems, schema.minItems, schema.maxItems].some((keyword) => keyword !== undefined);
  const values = 'const' in schema ? [schema.const] : schema.enum;
  const only = 'const' in schema && Array.isArray(schema.enum) ? inBoth(schema.enum, [schema.const]) : values;
  return {
    types: typesOf(schema.type) ?? (saysObject ? ['object'] : saysArray ? ['array'] : TYPES),
    ...(Array.isArray(only) && { values: only }),
    objects: saysObject
      ? [
          {
            properties: new Map(isRecord(properties) ? (Object.entries(properties) as [string, Schema][]) : []),
            additional: (additionalProperties ?? true) as Schema,
          },
        ]
      : [],
    required: new Set(Array.isArray(required) ? required.map(String) : []),
    arrays: saysArray
      ? [{ prefix: (Array.isArray(prefixItems) ? prefixItems : []) as Schema[], rest: (items ?? true) as Schema }]
      : [],
    items: range(schema.minItems, schema.maxItems),
    length: range(schema.minLength, schema.maxLength),
  };
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

function both(a: Shape, b: Shape): Shape {
  if (a === ANY) return b;
  if (b === ANY) return a;
  const values = a.values && b.values ? inBoth(a.values, b.values) : (a.values ?? b.values);
  return {
    types: commonTypes(a.types, b.types),
    ...(values && { values }),
    objects: [...a.objects, ...b.objects],
    required: new Set([...a.required, ...b.required]),
    arrays: [...a.arrays, ...b.arrays],
    items: narrower(a.items, b.items),
    length: narrower(a.length, b.length),
  };
}

function commonTypes(a: readonly Type[], b: readonly Type[]): readonly Type[] {
  const integer = [a, b].some((types) => types.includes('integer')) && [a, b].every((types) => hasNumbers(types));
  const common = a.filter((type) => type !== 'integer' && b.includes(type));
  return integer ? [...common, 'integer'] : common;
}

function hasNumbers(types: readonly Type[]): boolean {
  return types.includes('number') || types.includes('integer');
}

function narrower(a: Range, b: Range): Range {
  return { least: Math.max(a.least, b.least), most: Math.min(a.most, b.most) };
}

function inBoth(a: readonly unknown[], b: readonly unknown[]): unknown[] {
  const texts = new Set(b.map((value) => JSON.stringify(value)));
  return a.filter((value) => texts.has(JSON.stringify(value)));
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
