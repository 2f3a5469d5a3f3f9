import { literal } from './gbnf.js';
import type { Alternative, Item } from './rules.js';
import { type All, type Shape, itemsOf, isRecord, type Schema } from './shape.js';
import { Unservable, type WorkBudget } from './work.js';
import { isNumberOf, isTextOf } from './scalar-rules.js';

/**
 * One of these texts, as a tree: common prefixes are written once, so that llama.cpp, which follows all alternatives at once, has at most
 * one per distinct character. `texts`: distinct, at least one. Depth of the recursion: at most their number.
 */
export function choice(texts: readonly string[], newRule: (alternatives: readonly Alternative[]) => string): Item {
  return { rule: newRule(branches(texts, newRule)) };
}

function branches(texts: readonly string[], newRule: (alternatives: readonly Alternative[]) => string): Alternative[] {
  const groups = new Map<string, string[]>();
  for (const text of texts) {
    const [first = ''] = text;
    const group = groups.get(first);
    if (group) group.push(text);
    else groups.set(first, [text]);
  }
  return [...groups.values()].map((group): Alternative => {
    const [only = ''] = group;
    if (group.length === 1) return [literal(only)];
    const common = commonBeginning(group);
    const rests = group.map((text) => text.slice(common.length));
    return [literal(common), { rule: newRule(branches(rests, newRule)) }];
  });
}

/** Of whole characters. */
function commonBeginning(texts: readonly string[]): string {
  const [first = '', ...others] = texts;
  let units = first.length;
  for (const other of others) {
    let same = 0;
    while (same < units && first[same] === other[same]) same += 1;
    units = same;
  }
  // Not between the halves of a character.
  const lead = first.charCodeAt(units - 1);
  return first.slice(0, units < first.length && lead >= 0xd800 && lead <= 0xdbff ? units - 1 : units);
}

export const MAX_VALUES = 2048;
/** Characters of one enum: its tree is made by looking at each of them once a level. */
const MAX_ENUM_CHARACTERS = 65_536;

/** The JSON texts that the enums of one value allow. */
export class EnumValues {
  readonly #work: WorkBudget;
  readonly #validity: Validity;
  readonly #texts = new Set<string>();

  /** `work` is charged for each value and each character. */
  constructor(shapes: { of(all: All): readonly Shape[] }, work: WorkBudget) {
    this.#work = work;
    this.#validity = new Validity(shapes, work);
  }

  /** Adds those of `values`, each with its JSON text, that the shape allows. */
  add(shape: Shape, values: ReadonlyMap<string, unknown>): void {
    this.#work.spend(values.size);
    for (const [text, value] of values) {
      this.#work.spendText(text.length);
      if (this.#validity.fits(value, shape)) this.#texts.add(text);
    }
  }

  /** All of them, each once. Throws {@link Unservable} for too many values or characters. */
  texts(): string[] {
    if (this.#texts.size > MAX_VALUES) throw tooLong(`${MAX_VALUES} values`, (all) => all.length > MAX_VALUES);
    let characters = 0;
    for (const text of this.#texts) characters += text.length;
    if (characters > MAX_ENUM_CHARACTERS)
      throw tooLong(`${MAX_ENUM_CHARACTERS} characters`, (all) => JSON.stringify(all).length > MAX_ENUM_CHARACTERS);
    // The tree is made by looking at each character once.
    this.#work.spendText(characters);
    return [...this.#texts];
  }
}

function tooLong(bound: string, isOver: (all: readonly unknown[]) => boolean): Unservable {
  const offends = (value: unknown): boolean => Array.isArray(value) && isOver(value);
  return new Unservable(`has an \`enum\` of over ${bound}.`, { keyword: 'enum', offends });
}

/** Depth up to which a value is looked at. */
const MAX_DEPTH = 64;

/** Whether a value that a schema lists, or a name of a property, is valid against the rest of it, as far as that is enforced. */
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
