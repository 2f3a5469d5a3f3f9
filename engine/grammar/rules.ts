/** Rules before they are written as GBNF, while some of them may turn out to match nothing. */
import type { Rule, OptionalRule } from './gbnf.js';
import { Unservable, type WorkBudget } from './work.js';

/** GBNF as it is, or a rule by its name, `least` to `most` times (absent: once). */
export type Item = string | { readonly rule: string; readonly least?: number; readonly most?: number };

export type Alternative = readonly Item[];

/** Steps of an item of an alternative, and of the alternative itself: whether it matches anything, and its text. */
export const ITEM_STEPS = 4;

/** Rules by name, each with its alternatives; none at all: it matches nothing. */
export class Rules {
  readonly #rules = new Map<string, readonly Alternative[]>();
  readonly #written = new Map<string, readonly Rule[]>();

  /** Has these alternatives from now on. Names that begin with `json-` are known already. */
  set(name: string, alternatives: readonly Alternative[]): void {
    this.#rules.set(name, alternatives);
  }

  /** Has this rule as it is written already, with those that it needs. It matches something. */
  setWritten(name: string, rules: readonly Rule[]): void {
    this.#written.set(name, rules);
  }

  /**
   * The rules that `root` needs as lines of GBNF, without those that match nothing; undefined if `root` matches
   * nothing. `spend` is called with the steps that are about to be done, and may throw to stop.
   */
  lines(root: string, spend: (steps: number) => void): Rule[] | undefined {
    const empty = this.#empty(spend);
    if (empty.has(root)) return undefined;
    const lines: Rule[] = [];
    // A set hands out what is added to it on the way.
    const needed = new Set([root]);
    for (const name of needed) {
      const all = this.#rules.get(name) ?? [];
      const alternatives = empty.size === 0 ? all : withoutEmpty(all, empty);
      for (const alternative of alternatives)
        for (const item of alternative) if (typeof item !== 'string') needed.add(item.rule);
      lines.push(...(this.#written.get(name) ?? []));
      if (alternatives.length > 0) lines.push(`${name} ::= ${alternativesText(alternatives)}`);
    }
    return lines;
  }

  /**
   * The rules that match nothing: those whose every alternative needs one that matches nothing, or endless recursion.
   * Linear: an alternative is visited once for each rule that it needs, when that rule is found to match something.
   */
  #empty(spend: (steps: number) => void): Set<string> {
    const empty = new Set(this.#rules.keys());
    const waiting = new Map<string, Waiting[]>();
    const found: string[] = [];
    for (const [name, alternatives] of this.#rules) {
      for (const alternative of alternatives) {
        spend(ITEM_STEPS * (1 + alternative.length));
        const waits = { name, missing: 0 };
        for (const item of alternative) {
          if (typeof item === 'string' || item.least === 0 || !empty.has(item.rule)) continue;
          const others = waiting.get(item.rule);
          // An alternative that needs a rule twice waits for it once.
          if (others?.at(-1) === waits) continue;
          if (others) others.push(waits);
          else waiting.set(item.rule, [waits]);
          waits.missing += 1;
        }
        if (waits.missing === 0) found.push(name);
      }
    }
    // An array hands out what is added to it on the way.
    for (const name of found) {
      if (!empty.delete(name)) continue;
      for (const waits of waiting.get(name) ?? []) if ((waits.missing -= 1) === 0) found.push(waits.name);
    }
    return empty;
  }
}

/** An alternative of the rule `name` that needs so many more rules to match something. */
interface Waiting {
  readonly name: string;
  missing: number;
}

function withoutEmpty(alternatives: readonly Alternative[], empty: ReadonlySet<string>): readonly Alternative[] {
  return alternatives
    .filter((alternative) => matches(alternative, empty))
    .map((alternative) => alternative.filter((item) => !isEmpty(item, empty)));
}

function isEmpty(item: Item, empty: ReadonlySet<string>): boolean {
  return typeof item !== 'string' && empty.has(item.rule);
}

function matches(alternative: Alternative, empty: ReadonlySet<string>): boolean {
  return alternative.every((item) => !isEmpty(item, empty) || (typeof item !== 'string' && item.least === 0));
}

/** The right side of a rule of these alternatives. */
export function alternativesText(alternatives: readonly Alternative[]): string {
  const [only, ...more] = alternatives;
  if (only && more.length === 0) return alternativeText(only);
  return [...new Set(alternatives.map(alternativeText))].join(' | ');
}

export function alternativeText(alternative: Alternative): string {
  return alternative.length === 0 ? '""' : alternative.map(itemText).join(' ');
}

function itemText(item: Item): string {
  if (typeof item === 'string') return item;
  const { rule, least, most } = item;
  if (least === undefined) return rule;
  return `${rule}{${least},${most === undefined || most === Infinity ? '' : most}}`;
}

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
