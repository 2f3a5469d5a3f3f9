/** What a function's parameters are, one by one, for notations that write each of them by itself. */
import type { ScalarForm, ValueType, ValueTypes } from '../protocol/reply-format.js';
import { ANY_NUMBER, isWithin } from './number-range.js';
import { itemsOf } from './rope.js';
import { isRecord, type Range, type Schema, type Shape } from './shape.js';
import { allOf, Shapes } from './shapes.js';
import type { WorkBudget } from './work.js';

/** One parameter. */
export interface Parameter {
  readonly name: string;
  readonly required: boolean;
  readonly schema: Schema;
  /** What it may be, worked out. */
  readonly shapes: readonly Shape[];
}

/** One way of giving arguments. A schema that is an anyOf of objects has several. */
export type ParameterList = readonly Parameter[];

/** Arguments of any names, where a schema declares none. */
export type FreeMap = Pick<Parameter, 'schema' | 'shapes'>;

/** One way of giving arguments: `free` only where `list` is empty. */
export interface ArgumentWay {
  readonly list: ParameterList;
  /** How many arguments there are. */
  readonly members: Range;
  readonly free?: FreeMap;
}

/** The types of a parameter. Of an enum, those of its values. */
export function typesOf({ shapes }: Pick<Parameter, 'shapes'>): readonly ValueType[] {
  return [...new Set(shapes.flatMap(typesOfShape))];
}

function typesOfShape({ types, values }: Shape): readonly ValueType[] {
  return values === undefined ? types : [...values.values()].flatMap((value) => typeOf(value, types) ?? []);
}

/** Undefined: none of `types`. */
function typeOf(value: unknown, types: readonly ValueType[]): ValueType | undefined {
  const whole = Number.isInteger(value) && !types.includes('number') ? 'integer' : undefined;
  const type = whole ?? (value === null ? 'null' : Array.isArray(value) ? 'array' : (typeof value as ValueType));
  return types.includes(type) ? type : undefined;
}

/** The same with what else its reader has to know of it. */
export function valueTypesOf(own: Pick<Parameter, 'shapes'>): ValueTypes {
  return { types: typesOf(own), ...valuesOf(own), ...scalarsOf(own) };
}

/** The only values besides objects and arrays. Nothing where any of a type is allowed. */
function valuesOf({ shapes }: Pick<Parameter, 'shapes'>): Pick<ValueTypes, 'values'> {
  const texts = new Set<string>();
  for (const { types, values } of shapes) {
    if (values === undefined) return {};
    for (const [text, value] of values) {
      const type = typeOf(value, types);
      if (type !== undefined && type !== 'object' && type !== 'array') texts.add(text);
    }
  }
  return { values: [...texts] };
}

/** Which scalars besides strings a value is, where its text alone does not show it. Nothing where each of its types may be any. */
function scalarsOf({ shapes }: Pick<Parameter, 'shapes'>): Pick<ValueTypes, 'scalars'> {
  if (!typesOf({ shapes }).includes('string')) return {};
  const others = shapes.filter((shape) => typesOfShape(shape).some((type) => SCALARS.includes(type)));
  if (!others.some(({ values, numbers }) => values !== undefined || numbers !== ANY_NUMBER)) return {};
  return { scalars: others.map(scalarForm) };
}

/** All that a value may be, where that is a list of strings. */
export function listedStrings(shapes: readonly Shape[]): ReadonlySet<string> | undefined {
  const values = shapes.flatMap((shape) => (shape.values === undefined ? [undefined] : [...shape.values.values()]));
  return values.every((value) => typeof value === 'string') ? new Set(values) : undefined;
}

const SCALARS: readonly ValueType[] = ['number', 'integer', 'boolean', 'null'];

function scalarForm({ types, values, numbers }: Shape): ScalarForm {
  const own = types.filter((type) => SCALARS.includes(type));
  if (values !== undefined) {
    const fits = (value: unknown): boolean =>
      typeOf(value, own) !== undefined && (typeof value !== 'number' || isWithin(value, numbers));
    return { types: own, values: [...values].flatMap(([text, value]) => (fits(value) ? [text] : [])) };
  }
  const { least, most, aboveLeast, belowMost, steps } = numbers;
  // Bounds that are none have no JSON.
  const bounds = { ...(least > -Infinity && { least, aboveLeast }), ...(most < Infinity && { most, belowMost }) };
  return { types: own, ...bounds, ...(steps.length > 0 && { steps }) };
}

/** The ways to give arguments that `parameters` allows; none: it allows no object. Throws Unservable. */
export function argumentWays(parameters: unknown, work: WorkBudget): readonly ArgumentWay[] {
  const shapes = new Shapes(parameters, work);
  return shapes
    .of([parameters as Schema])
    .filter((shape) => shape.types.includes('object') && shape.values === undefined)
    .map((shape) => {
      const list = listOf(shape, shapes, work);
      const free = list.length === 0 && !takesNone(parameters) ? freeMapOf(shape, shapes, work) : undefined;
      return { list, members: shape.members, ...(free && { free }) };
    });
}

/** `properties: {}` without a word of others: how tools without parameters are declared. */
function takesNone(parameters: unknown): boolean {
  return isRecord(parameters) && isRecord(parameters['properties']) && parameters['additionalProperties'] === undefined;
}

/** undefined: the object has no members. */
function freeMapOf(shape: Shape, shapes: Shapes, work: WorkBudget): FreeMap | undefined {
  const objects = itemsOf(shape.objects, () => work.spend(1));
  const all = objects.map(({ additional }) => additional);
  if (all.includes(false) || shape.members.most === 0) return undefined;
  return { schema: allOf(all), shapes: shapes.of(all) };
}

/** The properties of an object, all that are declared or required. */
export function listOf(shape: Shape, shapes: Shapes, work: WorkBudget): ParameterList {
  const spend = (): void => {
    work.spend(1);
  };
  const objects = itemsOf(shape.objects, spend);
  const required = new Set(itemsOf(shape.required, spend).flat());
  const names = new Set([...objects.flatMap(({ properties }) => [...properties.keys()]), ...required]);
  return [...names].map((name) => {
    work.spend(objects.length);
    work.spendText(name.length);
    const all = objects.map(({ properties, additional }) => properties.get(name) ?? additional);
    return { name, required: required.has(name), schema: allOf(all), shapes: shapes.of(all) };
  });
}
