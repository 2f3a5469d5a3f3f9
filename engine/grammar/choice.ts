import { literal } from './gbnf.js';
import type { Alternative, Item } from './rules.js';
import type { All, Shape } from './shape.js';
import { Validity } from './validity.js';
import { Unservable, type WorkBudget } from './work.js';

/**
 * One of these texts, as a tree: common prefixes are written once, so that llama.cpp, which follows all alternatives at
 * once, has at most one per distinct character. `texts`: distinct, at least one. Depth of the recursion: at most their
 * number.
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

/** Values of one enum. */
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
