/** Strings that stand without quotes and escapes, up to a mark, where their schema has patterns or formats. */
import { counted, MAX_COUNTED, textForm } from './scalar-rules.js';
import type { Shape } from './shape.js';
import { SharedTexts, type TextRule } from './shared-texts.js';
import { textAutomaton, type Automaton } from './text-automaton.js';
import type { WorkBudget } from './work.js';

/**
 * The rule of such a string, without the mark. Undefined: no pattern or format is enforced. `mark`: occurs in no such string. `unlike`:
 * patterns of texts that are excluded besides.
 */
export function unquotedText(
  shape: Shape,
  work: WorkBudget,
  mark: string,
  unlike: readonly string[] = [],
): TextRule | undefined {
  const form = counted(textForm(shape, work));
  if (form.patterns.length + form.formats.length === 0) return undefined;
  if (form.least > form.most) return 'none';
  const texts = SharedTexts.of(work);
  const excluded = [...unlike, escaped(mark)];
  const any = texts.plain({ patterns: [], formats: [], least: 0, most: Infinity, unlike: excluded });
  const automaton = textAutomaton(form, work);
  if (automaton === undefined || any === undefined || any === 'none') return undefined;
  const isFree = unlike.length === 0 && !mayHave(automaton, mark);
  return texts.plain(isFree ? form : { ...form, unlike: excluded }, any);
}

/** Whether the shape takes any text. `pattern`: what constrains it to its patterns and formats. */
export function isAnyText({ length }: Shape, pattern: TextRule | undefined): boolean {
  return pattern === undefined && length.least === 0 && length.most > MAX_COUNTED;
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
