import type { RuleMaker } from './rule-maker.js';
import { isNumberOf, isTextOf } from './scalar-rules.js';
import type { Shape } from './shape.js';
import { Unservable } from './work.js';

/** Values of one enum. */
export const MAX_VALUES = 2048;
/** Characters of one enum: its tree is made by looking at each of them once a level. */
const MAX_ENUM_CHARACTERS = 65_536;

/** The JSON texts that the enums of one value allow. */
export class EnumValues {
  readonly #maker: Pick<RuleMaker, 'work'>;
  readonly #texts = new Set<string>();

  /** The work of `maker` is charged for each value and each character. */
  constructor(maker: Pick<RuleMaker, 'work'>) {
    this.#maker = maker;
  }

  /** Adds those of `values`, each with its JSON text, that the shape allows. */
  add(shape: Shape, values: ReadonlyMap<string, unknown>): void {
    this.#maker.work.spend(values.size);
    for (const [text, value] of values) {
      if (typeof value === 'string') this.#maker.work.spendText(value.length);
      if (this.#fits(value, shape)) this.#texts.add(text);
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
    this.#maker.work.spendText(characters);
    return [...this.#texts];
  }

  /**
   * Whether an enum's value has one of the shape's types and satisfies what the shape requires of texts and numbers.
   */
  #fits(value: unknown, shape: Shape): boolean {
    const { types } = shape;
    switch (typeof value) {
      case 'string':
        return types.includes('string') && isTextOf(value, shape, this.#maker);
      case 'number':
        return isNumberOf(value, shape);
      case 'boolean':
        return types.includes('boolean');
      default:
        return types.includes(value === null ? 'null' : Array.isArray(value) ? 'array' : 'object');
    }
  }
}

function tooLong(bound: string, isOver: (all: readonly unknown[]) => boolean): Unservable {
  const offends = (value: unknown): boolean => Array.isArray(value) && isOver(value);
  return new Unservable(`has an \`enum\` of over ${bound}.`, { keyword: 'enum', offends });
}
