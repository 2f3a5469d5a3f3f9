/** Finds the place in a schema whose keyword a grammar cannot enforce. */

/** A keyword that cannot be enforced, with those of its values that cannot. */
export interface Fault {
  readonly keyword: string;
  readonly offends: (value: unknown) => boolean;
}

/** Definitions come first: a reference from the root may have been put in its place, and the caller wrote it there. */
const MAPS = ['$defs', 'definitions', 'properties', 'patternProperties'];
const LISTS = ['prefixItems', 'allOf', 'anyOf', 'oneOf'];
/** Draft 4 has a list in `items`. */
const SCHEMAS = ['items', 'additionalItems', 'additionalProperties', 'propertyNames', 'not'];

type Members = Readonly<Record<string, unknown>>;

/**
 * The path of the first schema that has such a keyword, in the order of the lists above; undefined: there is none.
 * Values that are not schemas (`default`, `examples`, `const`) are not searched. The path may contain names that the
 * caller chose. Takes as many steps as there are values, which the weight of a request's tools bounds.
 */
export function keywordPath(schema: unknown, { keyword, offends }: Fault): readonly string[] | undefined {
  const open: { readonly at: unknown; readonly path: readonly string[] }[] = [{ at: schema, path: [] }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { at, path } = next;
    if (!isMembers(at)) continue;
    if (Object.hasOwn(at, keyword) && offends(at[keyword])) return path;
    const inner = innerSchemas(at).map(({ at: found, path: steps }) => ({ at: found, path: [...path, ...steps] }));
    open.push(...inner.reverse());
  }
  return undefined;
}

function innerSchemas(schema: Members): { readonly at: unknown; readonly path: readonly string[] }[] {
  const within = (name: string): { readonly at: unknown; readonly path: readonly string[] }[] =>
    Object.entries(schema[name] as Members).map(([key, at]) => ({ at, path: [name, key] }));
  const found = [...MAPS.filter((name) => isMembers(schema[name])), ...LISTS.filter((name) => isList(schema[name]))];
  const single = SCHEMAS.filter((name) => Object.hasOwn(schema, name));
  return [
    ...found.flatMap(within),
    ...single.flatMap((name) => (isList(schema[name]) ? within(name) : [{ at: schema[name], path: [name] }])),
  ];
}

function isList(value: unknown): boolean {
  return Array.isArray(value);
}

function isMembers(value: unknown): value is Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
