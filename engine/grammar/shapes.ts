/**
 * Converts JSON schema to alternatives of plain shapes: references, allOf, anyOf and oneOf are resolved. An allOf of
 * anyOfs is multiplied out, within bounds.
 */
import { ANY, both, isRecord, JOIN_STEPS, plain, saysNothing, type All, type Schema, type Shape } from './shape.js';
import { Unservable, type WorkBudget } from './work.js';

/** Bounds of the alternatives of one value, and of the nesting of references and combinations. */
const MAX_ALTERNATIVES = 256;
const MAX_COMBINED = 64;
/** Steps of reading one schema's keywords. */
const READ_STEPS = 16;

/** One schema that says the same as all of these together; the same object where one alone says something. */
export function allOf(all: All): Schema {
  const own = [...new Set(all)].filter((schema) => !saysNothing(schema));
  const [first = true] = own;
  return own.length < 2 ? first : { allOf: own };
}

/** Works out the schemas within `root`, to whose definitions their references point. Throws Unservable. */
export class Shapes {
  readonly #root: unknown;
  readonly #work: WorkBudget;
  /** Of each schema once: it may be part of many combinations. */
  readonly #known = new Map<unknown, readonly Shape[]>();
  #byId: Map<string, unknown> | undefined;

  constructor(root: unknown, work: WorkBudget) {
    this.#root = root;
    this.#work = work;
  }

  /** The alternatives for a value that satisfies all of `all`; none: there is no such value. */
  of(all: All): readonly Shape[] {
    return this.#product(all.map((schema) => this.#ofOne(schema, 0))).map(withoutEmptyRange);
  }

  #ofOne(schema: unknown, depth: number): readonly Shape[] {
    if (schema === true) return [ANY];
    if (schema === false) return [];
    if (!isRecord(schema)) throw new Unservable('has a schema that is neither an object nor a boolean.');
    // A reference cycle also ends here.
    if (depth > MAX_COMBINED) throw new Unservable('combines or refers to schemas too deeply.');
    const before = this.#known.get(schema);
    if (before !== undefined) return before;
    const shapes = this.#combined(schema, depth);
    this.#known.set(schema, shapes);
    return shapes;
  }

  #combined(schema: Readonly<Record<string, unknown>>, depth: number): readonly Shape[] {
    this.#work.spend(READ_STEPS);
    if (saysNothing(schema)) return [ANY];
    const within = (inner: unknown): readonly Shape[] => this.#ofOne(inner, depth + 1);
    // Nothing is what is not anything; other schemas under `not` are not read.
    if ('not' in schema && saysNothing(schema.not)) return [];
    const factors: (readonly Shape[])[] = [[plain(schema, this.#work)]];
    if ('$ref' in schema) factors.push(within(this.#resolve(schema.$ref)));
    if (Array.isArray(schema.allOf)) factors.push(...schema.allOf.map(within));
    for (const variants of [schema.anyOf, schema.oneOf]) {
      if (Array.isArray(variants)) factors.push(this.#either(variants.map(within)));
    }
    return this.#product(factors);
  }

  /** The alternatives of all variants, those that are the same once. */
  #either(variants: readonly (readonly Shape[])[]): readonly Shape[] {
    const shapes = new Set<Shape>();
    for (const variant of variants) {
      this.#work.spend(1 + variant.length);
      for (const shape of variant) shapes.add(shape);
      bounded(shapes.size);
    }
    return [...shapes];
  }

  /**
   * Its steps are all counted first, so that a product that takes too many is refused before any of it is made: at once if it is
   * past the bound by itself, also where the compiler may take fewer steps than that for now. A factor that allows anything, as each
   * object of an allOf is for the properties that only another of them lists, takes one step and changes nothing.
   */
  #product(factors: readonly (readonly Shape[])[]): readonly Shape[] {
    const [first = [ANY], ...others] = factors.filter((factor) => factor.length !== 1 || factor[0] !== ANY);
    let alternatives = first.length;
    let steps = Math.max(0, factors.length - 1);
    for (const { length } of others) {
      alternatives *= length;
      bounded(alternatives);
      steps += JOIN_STEPS * alternatives;
    }
    this.#work.spend(steps);
    return others.reduce((left, factor) => left.flatMap((a) => factor.map((b) => both(a, b, this.#work))), first);
  }

  #resolve(reference: unknown): unknown {
    const [before = '', ...steps] = String(reference).split('/');
    let found: unknown = before === '#' ? this.#root : this.#identified(String(reference));
    if (before !== '#' && found !== undefined) return found;
    // A reference is at most as long as the contract has it.
    for (const step of steps) {
      const key = decoded(step);
      const isInside = typeof found === 'object' && found !== null && Object.hasOwn(found, key);
      found = isInside ? (found as Readonly<Record<string, unknown>>)[key] : undefined;
    }
    if (found !== undefined) return found;
    throw new Unservable('has a `$ref` to what is not in the schema.', {
      keyword: '$ref',
      offends: (value) => value === reference,
    });
  }

  /** The schema within the root that has this `$id`. */
  #identified(id: string): unknown {
    this.#byId ??= this.#identifiers();
    return this.#byId.get(id);
  }

  #identifiers(): Map<string, unknown> {
    const byId = new Map<string, unknown>();
    const open: unknown[] = [this.#root];
    for (let value = open.pop(); value !== undefined; value = open.pop()) {
      if (typeof value !== 'object' || value === null) continue;
      this.#work.spend(1);
      if (isRecord(value) && typeof value.$id === 'string') byId.set(value.$id, value);
      for (const inner of Object.values(value)) open.push(inner);
    }
    return byId;
  }
}

/** No object has more properties at least than at most. */
function withoutEmptyRange(shape: Shape): Shape {
  const { types, members } = shape;
  return members.least > members.most ? { ...shape, types: types.filter((type) => type !== 'object') } : shape;
}

function bounded(alternatives: number): void {
  if (alternatives > MAX_ALTERNATIVES) throw new Unservable('has too many alternatives.');
}

/** A JSON pointer's step, which may be percent-encoded besides. */
function decoded(step: string): string {
  try {
    return decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    return step;
  }
}
