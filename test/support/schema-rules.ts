/** The rules of a JSON schema, one by one, each as the schema without it. */

type Schema = Readonly<Record<string, unknown>>;

/** A schema that lacks one rule. */
export interface Lacking {
  /** Where the rule was: `properties/model/pattern`, `required/messages`. */
  readonly rule: string;
  readonly schema: object;
}

/** A schema, or a keyword’s value, without the rule at a path. */
type Variant<T> = readonly [path: readonly string[], without: T];

/** Keywords with a schema, a list of schemas, or schemas by name. */
const ONE = new Set(['items', 'additionalProperties', 'propertyNames', 'not', 'if', 'then', 'else']);
const LIST = new Set(['oneOf', 'anyOf', 'allOf']);
const NAMED = new Set(['properties', '$defs']);

/** Keywords whose value is a set: each member is a rule. */
const SETS = new Set(['required', 'enum']);

/** What a branch repeats of its discriminator: that it is an object and has the tag. */
const SAID_BY_DISCRIMINATOR = /oneOf\/\d+\/(?:type|required\/(?:type|role))$/;

/** Every schema without one keyword, one field, one branch or one member of a set. */
export function lackingOneRule(schema: object): Lacking[] {
  return variants(schema as Schema)
    .map(([path, variant]) => ({ rule: path.join('/'), schema: variant }))
    .filter(({ rule }) => !SAID_BY_DISCRIMINATOR.test(rule));
}

function variants(schema: Schema): Variant<Schema>[] {
  return Object.entries(schema).flatMap(([keyword, value]) => {
    if (Array.isArray(value) && value.length === 0) return [];
    const inside = variantsOfValue(keyword, value).map(
      ([path, variant]) => [[keyword, ...path], { ...schema, [keyword]: variant }] as const,
    );
    const rest = Object.fromEntries(Object.entries(schema).filter(([name]) => name !== keyword));
    return [[[keyword], rest] as const, ...inside];
  });
}

/** A keyword’s value without one rule inside it. */
function variantsOfValue(keyword: string, value: unknown): Variant<unknown>[] {
  if (Array.isArray(value) && (SETS.has(keyword) || LIST.has(keyword))) {
    return value.flatMap((item: unknown, i) => {
      const name = LIST.has(keyword) ? String(i) : String(item);
      const without = value.length > 1 ? [[[name], value.filter((_, other) => other !== i)] as const] : [];
      if (!LIST.has(keyword)) return without;
      const inside = variants(item as Schema).map(
        ([path, variant]) => [[name, ...path], value.map((other: unknown, j) => (j === i ? variant : other))] as const,
      );
      return [...without, ...inside];
    });
  }
  if (typeof value !== 'object' || value === null) return [];
  if (ONE.has(keyword)) return variants(value as Schema);
  if (!NAMED.has(keyword)) return [];
  const named = value as Readonly<Record<string, Schema>>;
  return Object.entries(named).flatMap(([name, item]) => {
    const without = Object.fromEntries(Object.entries(named).filter(([other]) => other !== name));
    const inside = variants(item).map(([path, variant]) => [[name, ...path], { ...named, [name]: variant }] as const);
    return [[[name], without] as const, ...inside];
  });
}
