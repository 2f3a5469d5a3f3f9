import { configSchema, type SettingSchema } from './config-schema.js';

/** One setting that a file or an environment variable can name. */
export interface Setting {
  /** For example `queue.maxWaitMs`. */
  readonly path: string;
  /** For example `RA_QUEUE_MAX_WAIT_MS`. */
  readonly variable: string;
  readonly schema: SettingSchema;
}

/** The settings below `schema`, in its order. A list is one setting; what is in its items is not listed. */
export function settings(schema: SettingSchema = configSchema, prefix = ''): Setting[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, child]) => {
    const path = prefix + name;
    return child.properties ? settings(child, `${path}.`) : [{ path, variable: variableOf(path), schema: child }];
  });
}

/** `queue.maxWaitMs` -> `RA_QUEUE_MAX_WAIT_MS`. */
function variableOf(path: string): string {
  return `RA_${path
    .replace(/\./g, '_')
    .replace(/[A-Z]/g, (letter) => `_${letter}`)
    .toUpperCase()}`;
}

/** The schema without what only the documentation reads: validators refuse keywords that they do not know. */
export function validationSchema(): object {
  const known = (key: string, value: unknown): unknown => (key === 'unit' || key === 'defaultText' ? undefined : value);
  return { ...(JSON.parse(JSON.stringify(configSchema, known)) as object), default: undefined };
}

/** The schema of `models[1].seats` and the like; undefined when there is none. */
export function schemaAt(path: string): SettingSchema | undefined {
  let schema: SettingSchema | undefined = configSchema;
  for (const [, index, name] of path.matchAll(/\[(\d+)\]|([^.[\]]+)/g)) {
    schema = index === undefined ? schema?.properties?.[name ?? ''] : schema?.items;
  }
  return schema;
}

/** The first unknown or missing key below `value`, as a path and what is wrong; undefined when there is none. */
export function wrongKey(schema: SettingSchema, value: unknown, path = ''): string | undefined {
  if (Array.isArray(value)) {
    return first(value, (item, i) => schema.items && wrongKey(schema.items, item, `${path}[${i}]`));
  }
  if (typeof value !== 'object' || value === null || !schema.properties) return undefined;
  const at = (name: string): string => (path === '' ? name : `${path}.${name}`);
  const missing = schema.required?.find((name) => !Object.hasOwn(value, name));
  if (missing !== undefined) return `${at(missing)} is missing`;
  return first(Object.entries(value), ([name, child]) => {
    const known = Object.hasOwn(schema.properties ?? {}, name) ? schema.properties?.[name] : undefined;
    return known ? wrongKey(known, child, at(name)) : `${at(name)} is not a setting`;
  });
}

function first<T>(items: readonly T[], find: (item: T, index: number) => string | undefined): string | undefined {
  for (const [i, item] of items.entries()) {
    const found = find(item, i);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** What a value must be, to follow the words `must be`: `an integer from 0 to 65535`. */
export function expectation(schema: SettingSchema): string {
  if (schema.enum) return `one of ${schema.enum.map(String).join(', ')}`;
  if (schema.type === 'integer') return `an integer ${bounds(schema)}`;
  if (schema.type === 'array')
    return `a list of ${schema.minItems ?? 0} to ${schema.maxItems ?? 'any number of'} items`;
  if (schema.type === 'object') return 'an object';
  const length = `text of ${schema.minLength ?? 0} to ${schema.maxLength ?? 'any number of'} characters`;
  return schema.pattern === undefined ? length : `${length} that match ${schema.pattern}`;
}

/** An integer's bounds: `>= 0` or `from 0 to 10`; the largest safe integer is no bound worth naming. */
export function bounds({ minimum = 0, maximum = Number.MAX_SAFE_INTEGER }: SettingSchema): string {
  return maximum === Number.MAX_SAFE_INTEGER ? `>= ${minimum}` : `from ${minimum} to ${maximum}`;
}
