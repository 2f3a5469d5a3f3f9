/** Strings, and values of an enum, as notations close to JSON have them. */
import { choiceRule, EnumValues } from './choice.js';
import { literal, type OptionalRule, type Rule } from './gbnf.js';
import type { Notation } from './loose-notation.js';
import { counted, jsonText } from './scalar-rules.js';
import { isRecord, type Shape } from './shape.js';
import type { Shapes } from './shapes.js';
import { SharedTexts } from './shared-texts.js';
import { unquotedText } from './unquoted-text.js';
import type { WorkBudget } from './work.js';

export class LooseTexts {
  readonly #notation: Notation;
  readonly #shapes: Shapes;
  readonly #work: WorkBudget;
  readonly #rules: Set<Rule>;
  readonly #newRule: (text: string) => string;

  /** `rules`: gets those that other schemas may have too. `newRule`: makes one and returns its name. */
  constructor(
    notation: Notation,
    shapes: Shapes,
    work: WorkBudget,
    rules: Set<Rule>,
    newRule: (text: string) => string,
  ) {
    this.#notation = notation;
    this.#shapes = shapes;
    this.#work = work;
    this.#rules = rules;
    this.#newRule = newRule;
  }

  /** The ways to write a string of the shape. */
  strings(shape: Shape): string[] {
    const notation = this.#notation;
    const quote = notation.kind === 'bare' ? literal(notation.quote) : '"\\""';
    const pattern =
      notation.kind === 'bare' ? unquotedText(shape, this.#work, notation.quote) : jsonText(shape, this.#work);
    if (pattern === 'none') return [];
    if (pattern) return [`${quote} ${this.#shared(pattern)}${notation.kind === 'bare' ? ` ${quote}` : ''}`];
    const length = counted(shape.length);
    if (length.least > length.most) return [];
    if (length.least === 0 && length.most === Infinity) return ['loose-string'];
    const text = (character: string): string => this.#shared(SharedTexts.of(this.#work).counted(character, length));
    if (notation.kind === 'keywords') return [`"\\"" ${text('json-char')} "\\""`, `"'" ${text('loose-char')} "'"`];
    return [`${quote} ${text(`[^${notation.quote[0] ?? ''}]`)} ${quote}`];
  }

  #shared(rule: OptionalRule): string {
    this.#rules.add(rule);
    return rule.name;
  }

  /** The ways to write strings of these values, and objects and lists where those are not JSON, that the shape allows. */
  enum(shape: Shape, values: ReadonlyMap<string, unknown>): string[] {
    const notation = this.#notation;
    const fitting = new EnumValues(this.#shapes, this.#work);
    fitting.add(shape, values);
    const all = fitting.texts().map((text): unknown => JSON.parse(text));
    const written =
      notation.kind === 'keywords'
        ? all.filter((value) => typeof value === 'string').flatMap(quoted)
        : all.filter(isNoScalar).flatMap((value) => bare(value, notation.quote) ?? []);
    if (written.length === 0) return [];
    for (const text of written) this.#work.spendText(text.length);
    return [choiceRule(written, this.#newRule)];
  }
}

/** As JSON, and between single quotes, as Python has it too, where that needs no escape. */
function quoted(text: string): string[] {
  return [JSON.stringify(text), ...(/['\\\p{Cc}]/u.test(text) ? [] : [`'${text}'`])];
}

function isNoScalar(value: unknown): boolean {
  return typeof value === 'string' || Array.isArray(value) || isRecord(value);
}

/** Undefined: a string in it has the mark that ends strings. */
function bare(value: unknown, quote: string): string | undefined {
  if (typeof value === 'string') return value.includes(quote) ? undefined : quote + value + quote;
  if (!isNoScalar(value)) return JSON.stringify(value);
  const members = Object.entries(value as object).map(([name, member]) => {
    const text = bare(member, quote);
    return text !== undefined && !Array.isArray(value) ? `${name}:${text}` : text;
  });
  if (members.includes(undefined)) return undefined;
  return Array.isArray(value) ? `[${members.join(',')}]` : `{${members.join(',')}}`;
}
