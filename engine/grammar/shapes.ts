/**
 * JSON schema as alternatives of plain shapes: references, allOf, anyOf and oneOf are worked out, so that what is left
 * says of one value what it may be. An allOf of anyOfs is multiplied out, within bounds.
 */
import { ANY, both, isRecord, JOIN_STEPS, plain, saysNothing, type All, type Shape } from './shape.js';
import { Unservable, type Work } from './work.js';

/** Alternatives of one value, and how deep references and combinations may lie in one another. */
export const MAX_ALTERNATIVES = 256;
export const MAX_COMBINED = 64;
/** Steps of reading one schema's keywords. */
const READ_STEPS = 16;

/** Works out the schemas within `root`, to whose definitions their references point. Throws Unservable. */
export class Shapes {
  readonly #root: unknown;
  readonly #work: Work;
  /** Of each schema once: it may be part of many combinations. */
  readonly #known = new Map<unknown, readonly Shape[]>();

  constructor(root: unknown, work: Work) {
    this.#root = root;
    this.#work = work;
  }

  /** What a value may be of which all of `all` holds; none: there is no such value. */
  of(all: All): readonly Shape[] {
    return this.#product(all.map((schema) => this.#ofOne(schema, 0)));
  }

  #ofOne(schema: unknown, depth: number): readonly Shape[] {
    if (schema === true) return [ANY];
    if (schema === false) return [];
    if (!isRecord(schema)) throw new Unservable('has a schema that is neither an object nor a boolean.');
    // Also what a reference that comes back to itself runs into.
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

  #product(factors: readonly (readonly Shape[])[]): readonly Shape[] {
    let product: readonly Shape[] = [ANY];
    for (const factor of factors) {
      bounded(product.length * factor.length);
      this.#work.spend(1 + JOIN_STEPS * product.length * factor.length);
      const left = product;
      product = left.flatMap((a) => factor.map((b) => both(a, b, this.#work)));
    }
    return product;
  }

  #resolve(reference: unknown): unknown {
    if (reference === '#') return this.#root;
    const [, place = '', name = ''] = /^#\/(\$defs|definitions)\/([^/]+)$/.exec(String(reference)) ?? [];
    const definitions = isRecord(this.#root) ? this.#root[place] : undefined;
    const key = decoded(name);
    if (isRecord(definitions) && Object.hasOwn(definitions, key)) return definitions[key];
    throw new Unservable('refers to what is not among its definitions.');
  }
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
