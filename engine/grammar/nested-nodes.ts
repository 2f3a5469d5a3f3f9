/** What nested arguments may be, for their reader: a text alone does not say whether it is a string, nor an element whether it is a list. */
import type { NestedTypes } from '../protocol/reply-format.js';
import { scalarsOf, typesOf } from './parameters.js';
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
    const types = typesOf({ shapes });
    const free = shapes.filter(({ values }) => values === undefined);
    const objects = free.filter((shape) => shape.types.includes('object'));
    const arrays = free.filter((shape) => shape.types.includes('array'));
    const spend = (): void => {
      this.#work.spend(1);
    };
    const members = objects.map((shape) => itemsOf(shape.objects, spend));
    const lists = arrays.map((shape) => itemsOf(shape.arrays, spend));
    const names = new Set(members.flatMap((all) => all.flatMap(({ properties }) => [...properties.keys()])));
    for (const shape of objects) for (const name of itemsOf(shape.required, spend).flat()) names.add(name);
    const prefix = Math.max(0, ...lists.flatMap((all) => all.map((each) => each.prefix.length)));
    const item = (i: number): number =>
      this.#either(lists.map((all) => all.map((each) => each.prefix[i] ?? each.rest)));
    const ofName = (name: string): number =>
      this.#either(members.map((all) => all.map((each) => each.properties.get(name) ?? each.additional)));
    const bare = objects.some(
      (shape) => itemsOf(shape.required, spend).flat().length === 0 && shape.members.least === 0,
    );
    const emptyText = shapes.some(
      (shape) =>
        shape.types.includes('string') &&
        (shape.values === undefined ? isTextOf('', shape, { work: this.#work }) : shape.values.has('""')),
    );
    return {
      types,
      ...scalarsOf({ shapes }),
      ...(names.size > 0 && { members: Object.fromEntries([...names].map((name) => [name, ofName(name)])) }),
      ...(objects.length > 0 && { others: this.#either(members.map((all) => all.map((each) => each.additional))) }),
      ...(prefix > 0 && { prefix: Array.from({ length: prefix }, (_, i) => item(i)) }),
      ...(arrays.length > 0 && { items: item(prefix) }),
      ...(!emptyText && bare && { empty: 'object' as const }),
      ...(!emptyText && !bare && arrays.length > 0 && { empty: 'array' as const }),
    };
  }

  /** The number of a value that is valid against all schemas of one of `ways`. */
  #either(ways: readonly All[]): number {
    const one = ways.map(allOf);
    const different = [...new Map(one.map((schema) => [this.#keyOf(schema), schema])).values()];
    const [first = true] = different;
    const schema = different.length < 2 ? first : { anyOf: different };
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
