import type { OptionalRule } from './gbnf.js';
import { alternativesText, Rules, type Alternative, type Item } from './rules.js';
import { Unservable, type WorkBudget } from './work.js';

/** Rules made for one schema before those that match nothing are left out. */
const MAX_RULES = 10_000;

/** Steps of creating a rule, and of each of its alternatives. */
export const RULE_STEPS = 12;

/** Makes the rules of one schema; equal ones are one. */
export class RuleMaker {
  readonly rules = new Rules();
  readonly work: WorkBudget;
  readonly #prefix: string;
  /** Names of rules by what they allow. */
  readonly #written = new Map<string, string>();
  readonly #once = new Map<string, readonly Alternative[] | undefined>();
  #made = 0;

  /** `prefix`: what names begin with. */
  constructor(prefix: string, work: WorkBudget) {
    this.#prefix = prefix;
    this.work = work;
  }

  /** The name of a rule of these alternatives. Throws Unservable past {@link MAX_RULES}. */
  newRule(alternatives: readonly Alternative[]): string {
    this.work.spend(RULE_STEPS * (1 + alternatives.length));
    const key = alternativesText(alternatives);
    const known = this.#written.get(key);
    if (known !== undefined) return known;
    const name = this.newName();
    this.#written.set(key, name);
    this.rules.set(name, alternatives);
    return name;
  }

  /** A name for a rule that is still to be set. */
  newName(): string {
    if (this.#made >= MAX_RULES) throw new Unservable('is too large to be compiled to a grammar.');
    return `${this.#prefix}-${this.#made++}`;
  }

  /** Gives a name of {@link newName} its alternatives. */
  set(name: string, alternatives: readonly Alternative[]): void {
    this.work.spend(RULE_STEPS * (1 + alternatives.length));
    this.rules.set(name, alternatives);
  }

  /** A rule that is shared with other schemas. */
  shared(rule: OptionalRule): Item {
    this.rules.setWritten(rule.name, [rule]);
    return { rule: rule.name };
  }

  /** The same of a rule without which the grammar is of no use. */
  needed({ name, lines }: OptionalRule): Item {
    this.rules.setWritten(name, lines);
    return { rule: name };
  }

  /** Returns what `make` returned at the first call with this key. */
  once(key: string, make: () => readonly Alternative[] | undefined): readonly Alternative[] | undefined {
    if (!this.#once.has(key)) this.#once.set(key, make());
    return this.#once.get(key);
  }
}
