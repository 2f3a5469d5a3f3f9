/** Rules of strings with patterns or formats, for grammars whose rules are written one by one; equal ones are made once. */
import { RuleMaker } from './rule-maker.js';
import type { Alternative } from './rules.js';
import { textForm } from './scalar-rules.js';
import type { Shape } from './shape.js';
import type { WorkBudget } from './work.js';

export interface PatternRule {
  /** The rule's name. Absent: there is no such string. */
  readonly name?: string;
}

export class PatternRules {
  readonly #prefix: string;
  readonly #work: WorkBudget;
  readonly #into: Set<string>;
  readonly #made = new Map<string, PatternRule | undefined>();

  /** `prefix`: what the rules' names begin with. `into`: gets their lines of GBNF. */
  constructor(prefix: string, work: WorkBudget, into: Set<string>) {
    this.#prefix = prefix;
    this.#work = work;
    this.#into = into;
  }

  /**
   * The rule of the shape's strings, of the alternatives that `make` returns for it. Undefined: the shape has no pattern or format,
   * or `make` returned undefined. `more`: what these depend on besides the shape.
   */
  of(
    shape: Shape,
    make: (maker: RuleMaker) => readonly Alternative[] | undefined,
    more: readonly string[] = [],
  ): PatternRule | undefined {
    const form = textForm(shape, { work: this.#work });
    if (form.patterns.length + form.formats.length === 0) return undefined;
    const key = JSON.stringify([form, more]);
    if (!this.#made.has(key)) this.#made.set(key, this.#rule(make));
    return this.#made.get(key);
  }

  #rule(make: (maker: RuleMaker) => readonly Alternative[] | undefined): PatternRule | undefined {
    const maker = new RuleMaker(`${this.#prefix}${this.#made.size}`, this.#work);
    const alternatives = make(maker);
    if (alternatives === undefined) return undefined;
    const name = maker.newRule(alternatives);
    const lines = maker.rules.lines(name, (steps) => {
      this.#work.spend(steps);
    });
    for (const line of lines ?? []) this.#into.add(line);
    return lines ? { name } : {};
  }
}
