/** Checks of values against schemas. The message about a value that is refused contains no value and no field of the caller's. */
import { FORMATS } from './formats.js';
import { pathOf, segmentsOf } from './body-refusals.js';
import { repeatedName } from './json.js';
import { functionOf, type ErrorObject, type ValidateFunction } from './schema-code.js';

export type Outcome<T> =
  | { readonly ok: true; readonly value: T }
  | {
      readonly ok: false;
      /** JSON path, `models[0].seats`; '' for the root. May hold names of the value's own: see `segments`. */
      readonly path: string;
      /** A predicate about the path: `must be at least 1`. */
      readonly message: string;
      /** The path in pieces. */
      readonly segments: readonly string[];
      /** The field outside the schema, if its name is one of `names`; `path` is that of its object. */
      readonly field?: string;
      /** With `allProblems`: all that are found, this first one included, as `path message`. */
      readonly all?: readonly string[];
    };

/** The type of a schema's values, with defaults filled in. `form`, `word`, `inDataDir`: keywords of settings (config/setting.ts). */
export type ValueOf<S> = S extends { readonly const: infer Value }
  ? Value
  : S extends { readonly enum: readonly (infer Value)[] }
    ? Value
    : S extends { readonly anyOf: readonly (infer Branch)[] }
      ? ValueOf<Branch>
      : S extends { readonly oneOf: readonly (infer Branch)[] }
        ? ValueOf<Branch>
        : S extends { readonly type: readonly (infer Type)[] }
          ? OfType<Type, S>
          : S extends { readonly type: infer Type }
            ? OfType<Type, S>
            : S extends { readonly if: { readonly type: 'null' }; readonly else: infer Else }
              ? ValueOf<Else> | null
              : unknown;

type OfType<Type, S> = Type extends 'object'
  ? ObjectOf<S>
  : Type extends 'array'
    ? S extends { readonly items: infer Item }
      ? readonly ValueOf<Item>[]
      : readonly unknown[]
    : Type extends 'string'
      ? S extends { readonly word: infer Word; readonly form?: never }
        ? Word
        : string
      : Type extends 'integer' | 'number'
        ? number
        : Type extends 'boolean'
          ? boolean
          : null;

type ObjectOf<S> = S extends { readonly properties: infer Properties }
  ? Flat<
      { readonly [Name in keyof Properties as Always<Properties, Name, S>]: ValueOf<Properties[Name]> } & {
        readonly [Name in keyof Properties as Exclude<Name, Always<Properties, Name, S>>]?: ValueOf<Properties[Name]>;
      }
    >
  : S extends { readonly additionalProperties: infer Value extends object }
    ? Readonly<Record<string, ValueOf<Value>>>
    : S extends { readonly then: infer Then }
      ? ValueOf<Then>
      : object;

/** The name, if the property always has a value: it is required, or has a default. */
type Always<Properties, Name extends keyof Properties, S> = Properties[Name] extends
  { readonly default: unknown } | { readonly inDataDir: string }
  ? Name
  : S extends { readonly required: readonly (infer Required)[] }
    ? Name & Required
    : never;

type Flat<T> = { [Name in keyof T]: T[Name] };

export type Check<T> = (value: unknown) => Outcome<T>;

export interface CompileOptions {
  /** The name of the function's code, which no other schema has. Absent: this process compiles the schema. */
  readonly written?: string;
  /** Fill in the schema's defaults: changes the value that is checked. */
  readonly useDefaults?: boolean;
  /** Name an unknown field in the path. For files of the operator's own, never for requests. */
  readonly nameUnknownFields?: boolean;
  /** Unknown fields that a message may name nevertheless: a fixed list, none of the caller's own. */
  readonly names?: ReadonlySet<string>;
  /** Say of an unknown field that is not named which of its object's fields it is. */
  readonly countFields?: boolean;
  /** Go on after the first problem. For files of the operator's own, never for requests: it takes as long as they are wrong. */
  readonly allProblems?: boolean;
}

/** A schema's check, compiled at the first call: most processes use few schemas. It stops at the first problem unless asked otherwise. */
export function compile<T>(schema: object, options: CompileOptions = {}): Check<T> {
  const { written, useDefaults = false, nameUnknownFields = false, allProblems = false, names } = options;
  const flavour = allProblems ? 'filling-all' : useDefaults ? 'filling' : 'checking';
  const make = functionOf<T>({ schema, flavour, ...(written !== undefined && { written }) });
  let made: ValidateFunction<T> | undefined;
  return (value) => {
    const validate = (made ??= make());
    if (validate(value)) return { ok: true, value };
    const problems = (validate.errors ?? []).map((error) => withSchema(error, schema));
    const error = decisive(problems);
    const segments = error === undefined ? [] : placeOfError(error, nameUnknownFields);
    const named = error && namedBy(error, names);
    const place = error && options.countFields === true && named === undefined ? placeAmongFields(error) : '';
    const message = error === undefined ? 'is not valid' : predicateOf(error, nameUnknownFields, named, place);
    const all = allProblems ? problems.map((each) => lineOf(each, nameUnknownFields)) : undefined;
    // ajv keeps the last errors, and the values in them, until the next call.
    validate.errors = null;
    return {
      ok: false,
      path: pathOf(segments),
      message,
      segments,
      ...(named !== undefined && { field: named }),
      ...(all && { all }),
    };
  };
}

/** What an operator's JSON file contains, if it fits. `refuse` throws; it is given what is wrong, in one line. */
export function parseFile<T>(text: string, check: Check<T>, refuse: (problem: string) => never): T {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return refuse('is not JSON');
  }
  const checked = check(value);
  if (!checked.ok) return refuse(`${checked.path} ${checked.message}`.trim());
  const repeated = repeatedName(text, value);
  return repeated === undefined ? checked.value : refuse(repeated);
}

function namedBy(error: Problem, names: ReadonlySet<string> | undefined): string | undefined {
  const name = (error.params as ErrorParams).additionalProperty;
  return error.keyword === 'additionalProperties' && name !== undefined && names?.has(name) === true ? name : undefined;
}

/** `, its 2nd of 3`; '': the error is about no unknown field. */
function placeAmongFields({ keyword, params, data }: Problem): string {
  const name = (params as ErrorParams).additionalProperty;
  if (keyword !== 'additionalProperties' || name === undefined || typeof data !== 'object' || data === null) return '';
  const fields = Object.keys(data);
  return `, number ${fields.indexOf(name) + 1} of its ${fields.length}`;
}

function lineOf(error: Problem, nameUnknownFields: boolean): string {
  return `${pathOf(placeOfError(error, nameUnknownFields))} ${predicateOf(error, nameUnknownFields)}`;
}

/** An error of ajv, with what it is about. */
interface Problem extends Omit<ErrorObject, 'schema' | 'parentSchema'> {
  /** The keyword's value in the schema, and the schema that has the keyword. */
  readonly schema: unknown;
  readonly parentSchema: unknown;
}

/** Finds both by the error's path, where the function was not made to give them (schema-code.ts). */
function withSchema(error: ErrorObject, root: object): Problem {
  if (error.parentSchema !== undefined) return error as Problem;
  let [parentSchema, schema]: unknown[] = [undefined, root];
  for (const part of error.schemaPath.split('/').slice(1)) {
    parentSchema = schema;
    const key = decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~');
    schema = (schema as Readonly<Record<string, unknown>> | undefined)?.[key];
  }
  return Object.assign({}, error, { schema, parentSchema });
}

/** ajv's first error, unless a schema around it has a wording of its own. */
function decisive(errors: readonly Problem[]): Problem | undefined {
  return errors.find((error) => wordingOf(error) !== undefined) ?? errors[0];
}

function wordingOf(error: Problem): string | undefined {
  const wording = (error.parentSchema as { 'x-message'?: unknown } | undefined)?.['x-message'];
  return typeof wording === 'string' ? wording : undefined;
}

/** The names that an error's parameters may carry. */
interface ErrorParams {
  readonly missingProperty?: string;
  readonly additionalProperty?: string;
  readonly tag?: string;
}

function placeOfError(error: Problem, nameUnknownFields: boolean): string[] {
  const segments = segmentsOf(error.instancePath);
  const params = error.params as ErrorParams;
  if (error.keyword === 'required' && params.missingProperty !== undefined) segments.push(params.missingProperty);
  if (error.keyword === 'discriminator' && params.tag !== undefined) segments.push(params.tag);
  if (error.keyword === 'additionalProperties' && nameUnknownFields && params.additionalProperty !== undefined) {
    segments.push(params.additionalProperty);
  }
  return segments;
}

function predicateOf(error: Problem, nameUnknownFields: boolean, named?: string, place = ''): string {
  if (named !== undefined)
    return `has \`${named}\`, which is outside the contract; its fields are ${fieldsOf(error).join(', ')}`;
  const predicate = wordingOf(error) ?? ruleOf(error, nameUnknownFields, place);
  return error.propertyName === undefined ? predicate : `has a name that is not allowed: a name ${predicate}`;
}

/** A rule in words. */
function ruleOf(error: Problem, nameUnknownFields: boolean, place: string): string {
  if (error.keyword !== 'additionalProperties')
    return RULES[error.keyword]?.(error.schema as number, error) ?? 'is not valid';
  const known = fieldsOf(error).join(', ');
  return nameUnknownFields
    ? `is not a known field; known are ${known}`
    : `has a field outside the contract${place}; its fields are ${known}`;
}

/** The others, by keyword. `limit`: the keyword's own value where that is a number; it is ours and safe to show, as `schema`. */
const RULES: Readonly<Record<string, (limit: number, error: Problem) => string>> = {
  type: (_, { schema }) => `must be ${([] as unknown[]).concat(schema).map(kindOf).join(' or ')}`,
  required: () => 'is required',
  enum: (_, { schema }) => `must be one of ${(schema as unknown[]).map(String).join(', ')}`,
  const: (_, { schema }) => `must be ${String(schema)}`,
  discriminator: (_, error) => `must be one of ${tagsOf(error).join(', ')}`,
  minLength: (limit) => (limit === 1 ? 'must not be empty' : `must have at least ${limit} characters`),
  maxLength: (limit) => `must have at most ${limit} characters`,
  pattern: (_, { schema }) => `must match ${String(schema)}`,
  format: (_, { schema }) => FORMATS[String(schema)]?.message ?? 'is not well-formed',
  minItems: (limit) => `must have at least ${counted(limit, 'item')}`,
  maxItems: (limit) => `must have at most ${counted(limit, 'item')}`,
  uniqueItems: () => 'must not hold an item twice',
  minProperties: (limit) => `must have at least ${limit === 1 ? '1 entry' : `${limit} entries`}`,
  maxProperties: (limit) => `must have at most ${limit === 1 ? '1 entry' : `${limit} entries`}`,
  minimum: (limit) => `must be at least ${limit}`,
  maximum: (limit) => `must be at most ${limit}`,
  exclusiveMinimum: (limit) => `must be above ${limit}`,
  exclusiveMaximum: (limit) => `must be below ${limit}`,
};

function counted(count: number, what: string): string {
  return count === 1 ? `1 ${what}` : `${count} ${what}s`;
}

function kindOf(type: unknown): string {
  return type === 'null' ? 'null' : `${/^[aio]/.test(String(type)) ? 'an' : 'a'} ${String(type)}`;
}

/** Without those that are there to be refused. */
function fieldsOf(error: Problem): string[] {
  const { properties = {} } = error.parentSchema as { properties?: Readonly<Record<string, object>> };
  return Object.entries(properties).flatMap(([name, schema]) => ('x-unlisted' in schema ? [] : [name]));
}

/** The values that a discriminating field can take, from the branches of its oneOf. */
function tagsOf(error: Problem): string[] {
  const { discriminator, oneOf } = error.parentSchema as {
    discriminator: { propertyName: string };
    oneOf: readonly { properties: Record<string, { const?: unknown }> }[];
  };
  return oneOf.map((branch) => String(branch.properties[discriminator.propertyName]?.const));
}
