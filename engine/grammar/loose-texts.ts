/** Strings, and values of an enum, as notations close to JSON have them. */
import { choiceRule } from './choice.js';
import { EnumValues } from './enum-values.js';
import { literal } from './gbnf.js';
import type { Notation } from './loose-notation.js';
import { PatternRules } from './pattern-rules.js';
import { MAX_COUNTED, textsOf } from './scalar-rules.js';
import { isRecord, type Shape } from './shape.js';
import { unquotedTexts } from './unquoted-text.js';
import type { WorkBudget } from './work.js';

export class LooseTexts {
  readonly #notation: Notation;
  readonly #work: WorkBudget;
  readonly #patterns: PatternRules;
  readonly #newRule: (text: string) => string;

  /** `prefix`: what the names of rules begin with. `rules`: gets them. `newRule`: makes one and returns its name. */
  constructor(
    notation: Notation,
    prefix: string,
    work: WorkBudget,
    rules: Set<string>,
    newRule: (text: string) => string,
  ) {
    this.#notation = notation;
    this.#work = work;
    this.#patterns = new PatternRules(prefix, work, rules);
    this.#newRule = newRule;
  }

  /** The ways to write a string of the shape. */
  strings(shape: Shape): string[] {
    const notation = this.#notation;
    const { least, most } = shape.length;
    const pattern = this.#patterns.of(shape, (maker) =>
      notation.kind === 'bare' ? unquotedTexts(shape, maker, notation.quote) : textsOf(shape, maker).alternatives,
    );
    const quote = notation.kind === 'bare' ? literal(notation.quote) : '';
    if (pattern) return pattern.name === undefined ? [] : [`${quote} ${pattern.name} ${quote}`.trim()];
    if (least > most) return [];
    if (least === 0 && most > MAX_COUNTED) return ['loose-string'];
    const times = `{${Math.min(least, MAX_COUNTED)},${most > MAX_COUNTED ? '' : most}}`;
    if (notation.kind === 'keywords') return [`"\\"" json-char${times} "\\""`, `"'" loose-char${times} "'"`];
    return [`${quote} [^${notation.quote[0] ?? ''}]${times} ${quote}`];
  }

  /** The ways to write strings of these values, and objects and lists where those are not JSON, that the shape allows. */
  enum(shape: Shape, values: ReadonlyMap<string, unknown>): string[] {
    const notation = this.#notation;
    const fitting = new EnumValues({ work: this.#work });
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
