import type { All, Shape } from './shape.js';
import { Validity } from './validity.js';
import { Unservable, type WorkBudget } from './work.js';

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
