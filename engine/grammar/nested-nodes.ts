/** What nested arguments may be, for their reader: a text alone does not say whether it is a string, nor an element whether it is a list. */
import type { NestedParts, NestedTypes } from '../protocol/reply-format.js';
import { valueTypesOf } from './parameters.js';
import { itemsOf } from './rope.js';
import { isTextOf } from './scalar-rules.js';
import { SchemaIds } from './schema-ids.js';
import { saysNothing, type All, type Schema, type Shape } from './shape.js';
import { allOf, type Shapes } from './shapes.js';
import type { WorkBudget } from './work.js';

/** Steps of one value. */
const NODE_STEPS = 8;

export class NestedNodes {
  readonly #shapes: Shapes;
  readonly #work: WorkBudget;
  readonly #schemaIds = new SchemaIds();
  readonly #numbers = new Map<string, number>();
  readonly #open: Schema[] = [];

  /** `root`: the schema of all arguments. */
  constructor(root: unknown, shapes: Shapes, work: WorkBudget) {
    this.#shapes = shapes;
    this.#work = work;
    this.#open.push(root as Schema);
    this.#numbers.set(this.#keyOf(root as Schema), 0);
  }

  /** The first one is all arguments, which are an object. Throws Unservable. */
  all(): readonly NestedTypes[] {
    const nodes: NestedTypes[] = [];
    // An array hands out what is added to it on the way.
    for (const schema of this.#open) nodes.push(this.#node(this.#shapes.of([schema])));
    return nodes;
  }

  #node(shapes: readonly Shape[]): NestedTypes {
    this.#work.spend(NODE_STEPS * (1 + shapes.length));
    const free = shapes.filter(({ values }) => values === undefined);
    const objects = free.filter((shape) => shape.types.includes('object'));
    const arrays = free.filter((shape) => shape.types.includes('array'));
    const bare = objects.some((shape) => this.#requiredOf(shape).length === 0 && shape.members.least === 0);
    const emptyText = shapes.some(
      (shape) =>
        shape.types.includes('string') &&
        (shape.values === undefined ? isTextOf('', shape, { work: this.#work }) : shape.values.has('""')),
    );
    return {
      ...valueTypesOf({ shapes }),
      ...(objects.length > 0 && { objects: objects.map((shape) => this.#membersOf(shape)) }),
      ...(arrays.length > 0 && { arrays: arrays.map((shape) => this.#itemsOf(shape)) }),
      ...(!emptyText && bare && { empty: 'object' as const }),
      ...(!emptyText && !bare && arrays.length > 0 && { empty: 'array' as const }),
    };
  }

  /** Where some members are declared, no others are offered (NestedRules). */
  #membersOf(shape: Shape): NestedParts {
    const objects = itemsOf(shape.objects, this.#spend);
    const names = new Set([...objects.flatMap(({ properties }) => [...properties.keys()]), ...this.#requiredOf(shape)]);
    if (names.size === 0) return { others: this.#numberOf(objects.map(({ additional }) => additional)) };
    const ofName = (name: string): number =>
      this.#numberOf(objects.map(({ properties, additional }) => properties.get(name) ?? additional));
    return { named: Object.fromEntries([...names].map((name) => [name, ofName(name)])) };
  }

  #itemsOf(shape: Shape): NestedParts {
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
