/** Whether a value that a schema lists, or a name of a property, is valid against the rest of it, as far as that is enforced. */
import { itemsOf } from './rope.js';
import { isNumberOf, isTextOf } from './scalar-rules.js';
import { isRecord, type All, type Schema, type Shape } from './shape.js';
import type { WorkBudget } from './work.js';

/** Depth up to which a value is looked at. */
const MAX_DEPTH = 64;

export class Validity {
  readonly #shapes: { of(all: All): readonly Shape[] };
  readonly #work: WorkBudget;
  /** Of objects and arrays. */
  readonly #texts = new Map<unknown, string>();
  /** Of objects and arrays, by schemas: alternatives that recurse would look at a value twice as often at each level. */
  readonly #found = new Map<unknown, Map<string, boolean>>();
  readonly #ids = new Map<Schema, number>();

  /** `work` is charged for each value that is looked at, and for each text of one. */
  constructor(shapes: { of(all: All): readonly Shape[] }, work: WorkBudget) {
    this.#shapes = shapes;
    this.#work = work;
  }

  /** Whether `value` is valid against all of these. */
  of(value: unknown, all: All, depth = 0): boolean {
    this.#work.spend(1 + all.length);
    if (depth > MAX_DEPTH) return true;
    if (typeof value !== 'object' || value === null) return this.#isValid(value, all, depth);
    const found = this.#found.get(value) ?? new Map<string, boolean>();
    this.#found.set(value, found);
    const key = all.map((schema) => this.#idOf(schema)).join();
    const valid = found.get(key) ?? this.#isValid(value, all, depth);
    found.set(key, valid);
    return valid;
  }

  #isValid(value: unknown, all: All, depth: number): boolean {
    const isListed = ({ values }: Shape): boolean => values?.has(this.#textOf(value)) ?? true;
    return this.#shapes.of(all).some((shape) => isListed(shape) && this.fits(value, shape, depth));
  }

  #textOf(value: unknown): string {
    const known = this.#texts.get(value);
    if (known !== undefined) return known;
    const text = JSON.stringify(value);
    this.#work.spendText(text.length);
    if (typeof value === 'object') this.#texts.set(value, text);
    return text;
  }

  #idOf(schema: Schema): number {
    const id = this.#ids.get(schema) ?? this.#ids.size;
    this.#ids.set(schema, id);
    return id;
  }

  /** Whether it has one of the shape's types and satisfies what the shape says besides the values that it lists. */
  fits(value: unknown, shape: Shape, depth = 0): boolean {
    const { types } = shape;
    if (typeof value === 'string') return types.includes('string') && isTextOf(value, shape, { work: this.#work });
    if (typeof value === 'number') return isNumberOf(value, shape);
    if (typeof value === 'boolean') return types.includes('boolean');
    if (Array.isArray(value)) return types.includes('array') && this.#fitsArray(value, shape, depth);
    return isRecord(value) ? types.includes('object') && this.#fitsObject(value, shape, depth) : types.includes('null');
  }

  #fitsArray(value: readonly unknown[], { arrays, items }: Shape, depth: number): boolean {
    if (value.length < items.least || value.length > items.most) return false;
    const all = itemsOf(arrays, this.#step);
    if (all.length === 0) return true;
    return value.every((item, i) =>
      this.of(
        item,
        all.map(({ prefix, rest }) => prefix[i] ?? rest),
        depth + 1,
      ),
    );
  }

  #fitsObject(value: Readonly<Record<string, unknown>>, shape: Shape, depth: number): boolean {
    const { least, most } = shape.members;
    const members = Object.entries(value);
    if (members.length < least || members.length > most) return false;
    const required = itemsOf(shape.required, this.#step).flat();
    this.#work.spend(required.length);
    if (!required.every((name) => Object.hasOwn(value, name))) return false;
    const all = itemsOf(shape.objects, this.#step);
    return members.every(([name, member]) => {
      const names = all.flatMap((object) => (object.names === undefined ? [] : [object.names]));
      const own = all.map(({ properties, additional }) => properties.get(name) ?? additional);
      return all.length === 0 || (this.of(name, names, depth + 1) && this.of(member, own, depth + 1));
    });
  }

  readonly #step = (): void => {
    this.#work.spend(1);
  };
}
