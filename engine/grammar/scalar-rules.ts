/** Rules of texts and numbers as a schema narrows them. */
import { inClass, literal } from './gbnf.js';
import { TEXT_TO_MARK, type MarkedStrings, type QuotedStrings } from './notation.js';
import type { RuleMaker, Alternative, Item } from './rules.js';
import { isWithin } from '../protocol/reply-format.js';
import { numberRules, ANY_NUMBER } from './number-rules.js';
import { itemsOf, type Range, type Shape } from './shape.js';
import { AFTER_VALUE, TEXT_STACKS, type Container } from './stacks.js';
import { SharedTexts, type TextRule } from './text-rules.js';
import { isText, textAutomaton, type Automaton, type TextForm } from './text-automaton.js';
import { Unservable, type WorkBudget } from './work.js';

/** Bound of counted items and characters. Beyond it: at least this many, or any number. */
export const MAX_COUNTED = 256;

/** The error for a least count that cannot be enforced. */
export function overCounted(keyword: 'minItems' | 'minProperties'): Unservable {
  const offends = (value: unknown): boolean => typeof value === 'number' && value > MAX_COUNTED;
  return new Unservable(`has a \`${keyword}\` over ${MAX_COUNTED}.`, { keyword, offends });
}

/** Places in a text with patterns: its next character, and each of the escapes that may stand for it. */
const PATTERN: Container = { places: 12, parts: [], others: [] };
const TEXT: Container = { places: TEXT_STACKS, parts: [], others: [] };
/** Places in a number of a step: one for each count of digits that it may have. */
const STEPPED: Container = { places: 32 + AFTER_VALUE, parts: [], others: [] };

/** Steps of patterns for a step of the multiples of a number, so that all of one request leave half of its other steps. */
const STEPPED_SHARE = 8;

/** Alternatives, and the places of each in the grammar. */
export interface Scalars {
  readonly alternatives: readonly Alternative[];
  readonly container: Container;
}

/** Strings in quotes, of the shape's length, patterns and formats, as far as these are enforced. */
export function quotedTexts(shape: Shape, { others }: QuotedStrings, maker: RuleMaker): Scalars {
  const text = jsonText(shape, maker.work);
  if (text === 'none') return { alternatives: [], container: TEXT };
  if (text) return { alternatives: [['"\\""', maker.shared(text)]], container: PATTERN };
  const length = counted(shape.length);
  const between = (quote: string, character: string): Alternative => {
    if (length.least === 0 && length.most === Infinity && character === 'json-char') return [{ rule: 'json-string' }];
    return [quote, maker.shared(SharedTexts.of(maker.work).counted(character, length)), quote];
  };
  const quotes = [{ quote: '"\\""', character: 'json-char' }, ...others];
  return { alternatives: quotes.map(({ quote, character }) => between(quote, character)), container: TEXT };
}

/** Strings up to a mark. */
export interface MarkedTexts extends Scalars {
  /** They are all texts without the mark. */
  readonly any: boolean;
}

/**
 * Strings of the shape that stand as they are, up to a mark. `brackets`: a value that begins with one of these characters would be taken
 * for JSON, so no string does.
 */
export function markedTexts(
  shape: Shape,
  { open, mark, close, unquoted, trimmed }: MarkedStrings,
  brackets: readonly string[],
  maker: RuleMaker,
): MarkedTexts {
  const made = (alternatives: readonly Alternative[], any = false): MarkedTexts => ({
    alternatives: alternatives.map((alternative) => [...open, ...alternative]),
    container: TEXT,
    any,
  });
  const pattern = unquotedText(shape, maker.work, mark, brackets);
  const { least, most } = counted(shape.length);
  if (pattern === 'none' || least > most) return made([]);
  if (pattern) return made([[maker.shared(pattern), ...close]]);
  const other = (more: string): string => `[^${inClass(mark)}${more}]`;
  const many = (character: string, count: Range): Item =>
    maker.shared(SharedTexts.of(maker.work).counted(character, count));
  const excluded = brackets.map(inClass).join('');
  const rest = { rule: TEXT_TO_MARK };
  if (most < Infinity || (least > 0 && !unquoted))
    return made([[many(other(`${trimmed ? '\\n' : ''}${excluded}`), { least, most }), ...close]]);
  if (least === 0 && excluded === '') return made([[rest]], true);
  if (!trimmed) return made([[many(other(''), { least, most: least }), rest]]);
  const others = least > 1 ? [many(other('\\n'), { least: least - 1, most: least - 1 })] : [];
  const text = [other(`\\n\\t\\r ${excluded}`), ...others, rest];
  return made(least > 0 ? [text] : [text, close], least === 0);
}

/**
 * The rule of strings of the shape that stand as they are, up to a mark, without the mark. Undefined if no pattern or format is enforced.
 * `mark`: occurs in no such string. `brackets`: no such string begins with one of these.
 */
function unquotedText(shape: Shape, work: WorkBudget, mark: string, brackets: readonly string[]): TextRule | undefined {
  const form = counted(textForm(shape, work));
  if (form.patterns.length + form.formats.length === 0) return undefined;
  if (form.least > form.most) return 'none';
  const texts = SharedTexts.of(work);
  const excluded = [...brackets.map((bracket) => `^\\s*\\${bracket}`), escaped(mark)];
  const any = texts.plain({ patterns: [], formats: [], least: 0, most: Infinity, excludedPatterns: excluded });
  const automaton = textAutomaton(form, work);
  if (automaton === undefined || any === undefined || any === 'none') return undefined;
  const isFree = brackets.length === 0 && !mayHave(automaton, mark);
  return texts.plain(isFree ? form : { ...form, excludedPatterns: excluded }, any);
}

/** Whether a text of it may have the mark's first character. */
function mayHave(automaton: Automaton, mark: string): boolean {
  const first = mark.codePointAt(0) ?? 0;
  return automaton.some(({ next }) =>
    next.some(({ spans }) => spans.some(([low, high]) => low <= first && first <= high)),
  );
}

/** A pattern of texts that have this one in them. */
function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
}

/**
 * The rule of JSON strings of the shape after their opening quote. Undefined if no pattern or format is enforced, and some strings are of the
 * length.
 */
function jsonText(shape: Shape, work: WorkBudget): TextRule | undefined {
  const form = textForm(shape, work);
  if (form.least > form.most) return 'none';
  return form.patterns.length + form.formats.length > 0 ? SharedTexts.of(work).json(counted(form)) : undefined;
}

/** What the shape requires of a text. */
export function textForm({ length, texts }: Shape, work: WorkBudget): TextForm {
  const all = itemsOf(texts, () => {
    work.spend(1);
  });
  return {
    patterns: [...new Set(all.flatMap(({ pattern }) => pattern ?? []))],
    formats: [...new Set(all.flatMap(({ format }) => format ?? []))],
    least: length.least,
    most: length.most,
  };
}

/** Whether a text of an enum is one of the shape. Not by its format, whose grammar has the usual forms alone. */
export function isTextOf(text: string, shape: Shape, maker: Pick<RuleMaker, 'work'>): boolean {
  const { length } = shape;
  const characters = Array.from(text).length;
  if (characters < length.least || characters > length.most) return false;
  const form = { ...textForm(shape, maker.work), formats: [], least: 0, most: Infinity };
  return shape.texts === undefined || isText(text, form, maker.work);
}

/** With lengths that are counted. */
export function counted<T extends Range>(range: T): T {
  return {
    ...range,
    least: Math.min(range.least, MAX_COUNTED),
    most: range.most > MAX_COUNTED ? Infinity : range.most,
  };
}

/** JSON numbers within the shape's bounds. */
export function numbersOf({ numbers }: Shape, whole: boolean, maker: RuleMaker): Scalars {
  const container = numbers.steps.length > 0 ? STEPPED : { places: 1, parts: [], others: [] };
  const mayTake = (steps: number): boolean => maker.work.spendPattern(STEPPED_SHARE * steps);
  const written = (): readonly Alternative[] | undefined =>
    numberRules(numbers, whole, (rule) => maker.newRule(rule), mayTake);
  const alternatives =
    numbers === ANY_NUMBER
      ? undefined
      : maker.once(`number ${whole} ${JSON.stringify(Object.values(numbers).map(String))}`, written);
  return { alternatives: alternatives ?? [[{ rule: whole ? 'json-integer' : 'json-number' }]], container };
}

/** Whether a number of an enum is one of the shape. */
export function isNumberOf(value: number, { types, numbers }: Shape): boolean {
  const isType = types.includes('number') || (types.includes('integer') && Number.isInteger(value));
  return isType && isWithin(value, numbers);
}

/** The rule of exactly one of these texts as keys, quotes included. */
export function keysOf(texts: readonly string[], maker: RuleMaker): string {
  return maker.newRule(texts.map((text) => [literal(JSON.stringify(text))]));
}
