/** Rules of the strings whose texts an automaton allows: as JSON has them, or as they are. */
import { inClass, literal, type OptionalRule } from './gbnf.js';
import { live, type Automaton, type State, textAutomaton, type TextForm } from './text-automaton.js';
import { merged, type Span } from './text-language.js';
import { complement, LAST_CODE_POINT } from './text-pattern.js';
import { RULE_STEPS } from './rules.js';
import type { Range } from './shape.js';
import type { WorkBudget } from './work.js';

/** How the characters of a string are written. */
export interface Writing {
  /** One character of these, as GBNF; '': none of them is ever written. */
  readonly character: (spans: readonly Span[]) => string;
  /** What stands after the last one. */
  readonly end: string;
}

/** Characters that JSON writes as an escape, by its letter; of a few more there are none in such texts. */
const ESCAPED: Readonly<Record<string, string>> = {
  '"': '"',
  '\\': '\\',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
};
const UNPLAIN: readonly Span[] = [
  [0, 0x1f],
  [0x22, 0x22],
  [0x5c, 0x5c],
  [0x7f, 0x7f],
];
/** What no string that stands as it is has: control characters but tabs and line ends. */
const UNWRITTEN: readonly Span[] = [
  [0, 0x08],
  [0x0b, 0x1f],
  [0x7f, 0x7f],
];

/** A JSON string after its opening quote. */
export const JSON_TEXT: Writing = { character: jsonCharacter, end: '"\\""' };
/** A string that stands without quotes and escapes. */
export const PLAIN_TEXT: Writing = { character: (spans) => classOf(without(spans, UNWRITTEN)), end: '' };

/**
 * The rule `name` of such a string, and those of its places; none: there is no such string. `characters`: gives what
 * matches one character a name, if it is too long to be repeated.
 */
export function textLines(
  automaton: Automaton,
  name: string,
  writing: Writing,
  characters: (gbnf: string) => string,
): string[] {
  const states = live(automaton, ({ spans }) => writing.character(spans) !== '');
  const { end } = writing;
  const character = (spans: readonly Span[]): string => characters(writing.character(spans));
  const names = new Map([[0, name]]);
  const placeOf = (at: number): string => {
    if (isLast(states[at])) return end;
    const place = names.get(at) ?? `${name}-${names.size}`;
    names.set(at, place);
    return place;
  };
  const lines: string[] = [];
  // Iterating over a map also visits what is added meanwhile.
  for (const [at, place] of states.length === 0 ? [] : names) {
    const { ends, next } = states[at] ?? { ends: true, next: [] };
    const run = runFrom(states, at);
    const after = run && placeOf(run.to);
    const ways = run
      ? [`${character(run.spans)}${run.times} ${run.to === at ? end : after}`]
      : next.map(({ spans, to }) => `${character(spans)} ${placeOf(to)}`);
    if (ends && !run) ways.push(end === '' ? '""' : end);
    lines.push(`${place} ::= ${ways.map((way) => way.trim()).join(' | ')}`);
  }
  return lines;
}

/**
 * Several characters of one kind, from this state on: so many up to another state where none may be the last, or any number
 * where each may be, which then is all that follows.
 */
function runFrom(states: Automaton, at: number): { spans: readonly Span[]; times: string; to: number } | undefined {
  const { ends, next } = states[at] ?? { ends: true, next: [] };
  const [only, ...others] = next;
  if (only === undefined || others.length > 0) return undefined;
  const { spans } = only;
  if (only.to === at) return { spans, times: '*', to: at };
  let { to } = only;
  let count = 1;
  for (let state = states[to]; count < states.length && state?.ends === ends; state = states[to]) {
    const [onward, ...more] = state.next;
    if (onward === undefined || more.length > 0 || onward.spans.join() !== spans.join()) break;
    to = onward.to;
    count += 1;
  }
  if (ends) return isLast(states[to]) ? { spans, times: `{0,${count}}`, to } : undefined;
  return { spans, times: count === 1 ? '' : `{${count}}`, to };
}

/** Nothing follows. */
function isLast(state: State | undefined): boolean {
  return state?.ends === true && state.next.length === 0;
}

/** As it is, or as an escape. */
function jsonCharacter(spans: readonly Span[]): string {
  if (isAnything(spans)) return 'json-char';
  const plain = classOf(without(spans, UNPLAIN));
  const letters = Object.entries(ESCAPED)
    .filter(([, character]) => includes(spans, character.charCodeAt(0)))
    .map(([letter]) => (letter === '\\' ? '\\\\' : letter));
  return [...(plain === '' ? [] : [plain]), ...(letters.length > 0 ? [`"\\\\" [${letters.join('')}]`] : [])].join(
    ' | ',
  );
}

function isAnything(spans: readonly Span[]): boolean {
  const [first, ...others] = merged(spans);
  return others.length === 0 && first?.[0] === 0 && first[1] === LAST_CODE_POINT;
}

function includes(spans: readonly Span[], point: number): boolean {
  return spans.some(([low, high]) => low <= point && point <= high);
}

function without(spans: readonly Span[], others: readonly Span[]): Span[] {
  return complement([...complement(spans), ...others]);
}

/** The shorter of the class and of its complement; '': it is empty. */
function classOf(spans: readonly Span[]): string {
  const others = complement(spans);
  const [first] = spans;
  if (first === undefined) return '';
  if (spans.length === 1 && first[0] === first[1]) return literal(String.fromCodePoint(first[0]));
  return others.length < spans.length ? `[^${others.map(members).join('')}]` : `[${spans.map(members).join('')}]`;
}

function members([low, high]: Span): string {
  return low === high ? member(low) : `${member(low)}-${member(high)}`;
}

function member(point: number): string {
  const character = String.fromCodePoint(point);
  return /[A-Za-z0-9]/.test(character) ? character : inClass(character);
}

/** A rule of strings; none: there is no such string. */
export type TextRule = OptionalRule | 'none';

/** A longer one of one character is a rule. */
const MAX_REPEATED = 12;

const ofRequest = new WeakMap<WorkBudget, SharedTexts>();

/** Rules of strings, which the schemas of one request share: equal ones are written once, whichever tools have them. */
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

  /** What follows the opening quote of a JSON string, with the closing one. Undefined if it is not enforced. */
  json(form: TextForm): TextRule | undefined {
    return this.#once(`json ${JSON.stringify(form)}`, (name) =>
      this.#of(form, name, JSON_TEXT, [`${name} ::= json-char* ${JSON_TEXT.end}`]),
    );
  }

  /** A string without quotes and escapes. `otherwise`: what it is where there is no room for it. Undefined if it is not enforced. */
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
