/** JSON schemas as text, for tables. */
import { code } from './markdown.js';
import type { Schema } from '../../sidecar/api/openapi/schemas.js';

/** The kind of value: `string`, `array of [Message](#message)`. */
export function typeOf(schema: Schema): string {
  const name = referenced(schema);
  if (name !== undefined) return `[${name}](#${name.toLowerCase()})`;
  const { type, items, additionalProperties, then } = schema as Parts;
  if (type === undefined) return kindsOf(schema);
  return ([] as string[])
    .concat(type)
    .map((kind) => {
      if (kind === 'array' && items) return `array of ${typeOf(items)}`;
      if (kind !== 'object') return kind;
      if (typeof additionalProperties === 'object') return `map to ${typeOf(additionalProperties)}`;
      return then && referenced(then) !== undefined ? typeOf(then) : 'object';
    })
    .join(' or ');
}

/** The values that are possible, where a schema lists them. */
export function valuesOf(schema: Schema): string {
  const { const: only, enum: several, items } = schema as Parts;
  if (only !== undefined) return code(only);
  return several?.map(code).join(', ') ?? (items ? valuesOf(items) : '');
}

/** The value’s constraints beyond its kind; those of array elements and map values included. */
export function boundsOf(schema: Schema): string {
  const { items, additionalProperties, propertyNames, allOf = [], then, else: otherwise } = schema as Parts;
  return [
    ...own(schema as Parts),
    ...allOf.map(boundsOf),
    ...(then ? [boundsOf(then)] : []),
    ...(otherwise ? [boundsOf(otherwise)] : []),
    ...(items ? prefixed('each', boundsOf(items)) : []),
    ...(propertyNames ? prefixed('names', boundsOf(propertyNames)) : []),
    ...(typeof additionalProperties === 'object' ? prefixed('each', boundsOf(additionalProperties)) : []),
  ]
    .filter((rule) => rule !== '')
    .join('; ');
}

/** The keywords that this file renders. */
interface Parts {
  readonly type?: string | readonly string[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly not?: Parts;
  readonly minimum?: number;
  readonly exclusiveMinimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly uniqueItems?: boolean;
  readonly minProperties?: number;
  readonly maxProperties?: number;
  readonly pattern?: string;
  readonly format?: string;
  readonly items?: Schema;
  readonly additionalProperties?: Schema | boolean;
  readonly propertyNames?: Schema;
  readonly allOf?: readonly Schema[];
  readonly anyOf?: readonly Schema[];
  readonly if?: Schema;
  readonly then?: Schema;
  readonly else?: Schema;
}

function own(schema: Parts): string[] {
  const { const: only, enum: several, not, pattern, format, uniqueItems } = schema;
  const numbers = schema.exclusiveMinimum === undefined ? range(schema.minimum, schema.maximum) : above(schema);
  return [
    ...(only === undefined ? [] : [code(only)]),
    ...(several === undefined ? [] : [several.map(code).join(', ')]),
    ...(not?.const === undefined ? [] : [`not ${code(not.const)}`]),
    numbers,
    range(schema.minLength, schema.maxLength, 'character'),
    range(schema.minItems, schema.maxItems, 'item'),
    range(schema.minProperties, schema.maxProperties, 'entry'),
    ...(uniqueItems === true ? ['no item twice'] : []),
    ...(pattern === undefined ? [] : [pattern === '\\S' ? 'not blank' : `\`${pattern}\``]),
    ...(format === undefined ? [] : [format]),
  ];
}

function above({ exclusiveMinimum = 0, maximum }: Parts): string {
  return `above ${exclusiveMinimum}${maximum === undefined ? '' : `, at most ${maximum}`}`;
}

function range(least: number | undefined, most: number | undefined, what?: keyof typeof PLURALS): string {
  const counted = (limit: number): string =>
    what === undefined ? String(limit) : `${limit} ${limit === 1 ? what : PLURALS[what]}`;
  if (least !== undefined && most !== undefined) return `${least} to ${counted(most)}`;
  if (most !== undefined) return `at most ${counted(most)}`;
  return least === undefined ? '' : `at least ${counted(least)}`;
}

const PLURALS = { character: 'characters', item: 'items', entry: 'entries' } as const;

function prefixed(what: string, rules: string): string[] {
  return rules === '' ? [] : [`${what}: ${rules}`];
}

/** The kind of a schema that lists its values or its variants, which are all of one kind. */
function kindsOf({ const: only, enum: several, anyOf }: Parts): string {
  if (anyOf?.[0]) return typeOf(anyOf[0]);
  const values = several ?? (only === undefined ? [] : [only]);
  return values.length === 0 ? 'any' : [...new Set(values.map(kindOf))].join(' or ');
}

function kindOf(value: unknown): string {
  if (value === null) return 'null';
  return Number.isInteger(value) ? 'integer' : typeof value;
}

/** The name in a reference; undefined for any other schema. */
function referenced(schema: Schema): string | undefined {
  const target = schema['$ref'];
  return typeof target === 'string' ? target.slice(target.lastIndexOf('/') + 1) : undefined;
}
