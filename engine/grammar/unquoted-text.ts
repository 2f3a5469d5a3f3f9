/** Strings that stand without quotes and escapes, up to a mark, where their schema has patterns or formats. */
import type { RuleMaker } from './rule-maker.js';
import type { Alternative } from './rules.js';
import { counted, MAX_COUNTED, textForm } from './scalar-rules.js';
import type { Shape } from './shape.js';
import { textAutomaton, type Automaton } from './text-automaton.js';
import { unquotedTextRules } from './text-rules.js';

/**
 * The alternatives of such a string, without the mark; none: there is no such string. Undefined: no pattern or format is enforced.
 * `mark`: occurs in no such string. `unlike`: patterns of texts that are excluded besides.
 */
export function unquotedTexts(
  shape: Shape,
  maker: RuleMaker,
  mark: string,
  unlike: readonly string[] = [],
): readonly Alternative[] | undefined {
  const form = textForm(shape, maker);
  if (form.patterns.length + form.formats.length === 0) return undefined;
  if (form.least > form.most) return [];
  return maker.once(`unquoted ${JSON.stringify([form, mark, unlike])}`, () => {
    const all = textAutomaton(counted(form), maker.work);
    if (all === undefined) return undefined;
    if (unlike.length === 0 && !mayHave(all, mark)) return unquotedTextRules(all, maker);
    const own = textAutomaton({ ...counted(form), unlike: [...unlike, escaped(mark)] }, maker.work);
    return own && unquotedTextRules(own, maker);
  });
}

/** Whether the shape takes any text. `pattern`: what constrains it to its patterns and formats. */
export function isAnyText({ length }: Shape, pattern: object | undefined): boolean {
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
