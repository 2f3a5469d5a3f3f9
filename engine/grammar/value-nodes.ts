/**
 * What the values of arguments may be, for their reader: in a notation without quotes a text alone does not show whether it is a string,
 * nor an element whether it is a list.
 */
import {
  isWithin,
  type NodeParts,
  type ScalarForm,
  type ValueNode,
  type ValueType,
  type ValueTypes,
} from '../protocol/reply-format.js';
import { ANY_NUMBER } from './number-rules.js';
import { itemsOf, SchemaIds, saysNothing, type All, type ObjectShape, type Schema, type Shape } from './shape.js';
import { isTextOf } from './scalar-rules.js';
import { allOf, Shapes } from './shapes.js';
import type { WorkBudget } from './work.js';

/** Steps of one value. */
const NODE_STEPS = 8;

/**
 * What the arguments that `schema` allows may be: the first node is all of them, which are an object. `deep`: also what is within the
 * values of its members. Throws Unservable.
 */
export function valueNodes(schema: unknown, work: WorkBudget, deep: boolean): readonly ValueNode[] {
  return new Nodes(schema, work, deep).all();
}

class Nodes {
  readonly #deep: boolean;
  readonly #shapes: Shapes;
  readonly #work: WorkBudget;
  readonly #schemaIds = new SchemaIds();
  readonly #numbers = new Map<string, number>();
  readonly #open: Schema[] = [];

  constructor(root: unknown, work: WorkBudget, deep: boolean) {
    this.#deep = deep;
    this.#shapes = new Shapes(root, work);
    this.#work = work;
    this.#open.push(root as Schema);
    this.#numbers.set(this.#keyOf(root as Schema), 0);
  }

  all(): readonly ValueNode[] {
    const nodes: ValueNode[] = [];
    // An array hands out what is added to it on the way.
    for (const schema of this.#open) {
      const shapes = this.#shapes.of([schema]);
      this.#work.spend(NODE_STEPS * (1 + shapes.length));
      const within = this.#deep || nodes.length === 0;
      const types = { types: typesOf(shapes), ...valuesOf(shapes), ...scalarsOf(shapes) };
      nodes.push({ ...types, ...(within && this.#within(shapes)) });
    }
    return nodes;
  }

  #within(shapes: readonly Shape[]): Omit<ValueNode, keyof ValueTypes> {
    const free = shapes.filter(({ values }) => values === undefined);
    const objects = free.filter((shape) => shape.types.includes('object') && this.#isPossible(shape));
    const arrays = free.filter((shape) => shape.types.includes('array'));
    const bare = objects.some((shape) => this.#requiredOf(shape).length === 0 && shape.members.least === 0);
    const emptyText = shapes.some(
      (shape) =>
        shape.types.includes('string') &&
        (shape.values === undefined ? isTextOf('', shape, { work: this.#work }) : shape.values.has('""')),
    );
    return {
      ...(objects.length > 0 && { objects: objects.map((shape) => this.#membersOf(shape)) }),
      ...(arrays.length > 0 && { arrays: arrays.map((shape) => this.#itemsOf(shape)) }),
      ...(!emptyText && bare && { empty: 'object' as const }),
      ...(!emptyText && !bare && arrays.length > 0 && { empty: 'array' as const }),
    };
  }

  /** Where some members are declared, no others are offered (ObjectMarks.otherName). */
  #membersOf(shape: Shape): NodeParts {
    const objects = itemsOf(shape.objects, this.#spend);
    const names = new Set([...objects.flatMap(({ properties }) => [...properties.keys()]), ...this.#requiredOf(shape)]);
    if (names.size === 0) return { others: this.#numberOf(objects.map(({ additional }) => additional)) };
    const named = [...names].map((name) => [name, this.#numberOf(memberOf(objects, name))]);
    return { named: Object.fromEntries(named) as Readonly<Record<string, number>> };
  }

  /** Whether each member that must be there can have a value. */
  #isPossible(shape: Shape): boolean {
    const objects = itemsOf(shape.objects, this.#spend);
    return this.#requiredOf(shape).every((name) => typesOf(this.#shapes.of(memberOf(objects, name))).length > 0);
  }

  #itemsOf(shape: Shape): NodeParts {
    const arrays = itemsOf(shape.arrays, this.#spend);
    const first = Math.max(0, ...arrays.map(({ prefix }) => prefix.length));
    const item = (i: number): number => this.#numberOf(arrays.map(({ prefix, rest }) => prefix[i] ?? rest));
    const named = Object.fromEntries(Array.from({ length: first }, (_, i) => [i, item(i)]));
    return { ...(first > 0 && { named }), others: item(first) };
  }

  #requiredOf(shape: Shape): readonly string[] {
    return itemsOf(shape.required, this.#spend).flat();
  }

  readonly #spend = (): void => {
    this.#work.spend(1);
  };

  /** The number of a value that is valid against all of these. */
  #numberOf(all: All): number {
    const schema = allOf(all);
    const key = this.#keyOf(schema);
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    this.#numbers.set(key, this.#open.length);
    this.#open.push(schema);
    return this.#open.length - 1;
  }

  #keyOf(schema: Schema): string {
    return saysNothing(schema) ? '' : `${this.#schemaIds.id(schema)}`;
  }
}

/** What all of these say of the member of this name. */
function memberOf(objects: readonly ObjectShape[], name: string): All {
  return objects.map(({ properties, additional }) => properties.get(name) ?? additional);
}

/** The types of a value of these shapes. Of an enum, those of its values. */
export function typesOf(shapes: readonly Shape[]): readonly ValueType[] {
  return [...new Set(shapes.flatMap(typesOfShape))];
}

function typesOfShape({ types, values }: Shape): readonly ValueType[] {
  return values === undefined ? types : [...values.values()].flatMap((value) => typeOf(value, types) ?? []);
}

/** Undefined if it is none of `types`. */
function typeOf(value: unknown, types: readonly ValueType[]): ValueType | undefined {
  const whole = Number.isInteger(value) && !types.includes('number') ? 'integer' : undefined;
  const type = whole ?? (value === null ? 'null' : Array.isArray(value) ? 'array' : (typeof value as ValueType));
  return types.includes(type) ? type : undefined;
}

/** The only values besides objects and arrays. Nothing where any of a type is allowed. */
function valuesOf(shapes: readonly Shape[]): Pick<ValueTypes, 'values'> {
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
function scalarsOf(shapes: readonly Shape[]): Pick<ValueTypes, 'scalars'> {
  if (!typesOf(shapes).includes('string')) return {};
  const others = shapes.filter((shape) => typesOfShape(shape).some((type) => SCALARS.includes(type)));
  if (!others.some(({ values, numbers }) => values !== undefined || numbers !== ANY_NUMBER)) return {};
  return { scalars: others.map(scalarForm) };
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
