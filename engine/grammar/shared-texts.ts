/** Rules of strings, which the schemas of one request share: equal ones are written once, whichever tools have them. */
import type { OptionalRule } from './gbnf.js';
import { RULE_STEPS } from './rule-maker.js';
import type { Range } from './shape.js';
import { textAutomaton, type TextForm } from './text-automaton.js';
import { JSON_TEXT, PLAIN_TEXT, textLines, type Writing } from './text-rules.js';
import type { WorkBudget } from './work.js';

/** A rule of strings; none: there is no such string. */
export type TextRule = OptionalRule | 'none';

/** A longer one of one character is a rule. */
const MAX_REPEATED = 12;

const ofRequest = new WeakMap<WorkBudget, SharedTexts>();

export class SharedTexts {
  readonly #work: WorkBudget;
  readonly #rules = new Map<string, TextRule | undefined>();
  /** Names by what matches one character. */
  readonly #characters = new Map<string, string>();

  private constructor(work: WorkBudget) {
    this.#work = work;
  }

  /** Those of the request that `work` is of. */
  static of(work: WorkBudget): SharedTexts {
    const texts = ofRequest.get(work) ?? new SharedTexts(work);
    ofRequest.set(work, texts);
    return texts;
  }

  /** What follows the opening quote of a JSON string, with the closing one. Undefined: it is not enforced. */
  json(form: TextForm): TextRule | undefined {
    return this.#once(`json ${JSON.stringify(form)}`, (name) =>
      this.#of(form, name, JSON_TEXT, [`${name} ::= json-char* ${JSON_TEXT.end}`]),
    );
  }

  /** A string without quotes and escapes. `otherwise`: what it is where there is no room for it. Undefined: it is not enforced. */
  plain(form: TextForm, otherwise?: OptionalRule): TextRule | undefined {
    return this.#once(`plain ${JSON.stringify(form)}`, (name) =>
      this.#of(form, name, PLAIN_TEXT, otherwise ? [`${name} ::= ${otherwise.name}`, ...otherwise.lines] : []),
    );
  }

  /** So many characters; any number where there is no room to count them. `character`: GBNF of one. */
  counted(character: string, { least, most }: Range): OptionalRule {
    const times = `{${least},${most === Infinity ? '' : most}}`;
    const rule = this.#once(`${character}${times}`, (name) => ({
      name,
      lines: [`${name} ::= ${character}${times}`],
      otherwise: [`${name} ::= ${character}*`],
    }));
    return rule as OptionalRule;
  }

  #once(key: string, make: (name: string) => TextRule | undefined): TextRule | undefined {
    if (!this.#rules.has(key)) this.#rules.set(key, make(`text-${this.#rules.size}`));
    return this.#rules.get(key);
  }

  #of(form: TextForm, name: string, writing: Writing, otherwise: readonly string[]): TextRule | undefined {
    const automaton = textAutomaton(form, this.#work);
    if (automaton === undefined) return undefined;
    const steps = automaton.reduce((sum, { next }) => sum + RULE_STEPS * (1 + next.length), 0);
    if (!this.#work.spendPattern(steps)) return undefined;
    const used = new Set<string>();
    const lines = textLines(automaton, name, writing, (gbnf) => this.#character(gbnf, used));
    return lines.length === 0 ? 'none' : { name, lines: [lines.join('\n'), ...used], otherwise };
  }

  /** `used`: gets the rule. */
  #character(gbnf: string, used: Set<string>): string {
    if (gbnf.length <= MAX_REPEATED && !gbnf.includes(' ')) return gbnf;
    const name = this.#characters.get(gbnf) ?? `text-char-${this.#characters.size}`;
    this.#characters.set(gbnf, name);
    used.add(`${name} ::= ${gbnf}`);
    return name;
  }
}
