/** What both decision routes ask of a question, whatever its spelling (docs/contract.md#post-decisions and #post-systemone). */

/** The prompt template that is served; a request may pin it. Goes up when the template changes what a model reads. */
export const PROMPT_FORMAT_VERSION = 1;

export const MAX_QUESTIONS = 128;
export const MAX_OPTIONS = 26;
export const MAX_LEVELS = 10;

/** The longest input or rendered state, in characters. */
export const MAX_INPUT = 1_000_000;

/** The longest wording of a question, an answer or a level, in characters. */
export const MAX_WORDING = 65_536;

/** The longest id of a question, in characters. */
export const MAX_ID = 128;

/** A choice's name: one line. */
export const OPTION_NAME = {
  type: 'string',
  minLength: 1,
  maxLength: 256,
  allOf: [{ pattern: '^[^\\u0000-\\u001f\\u007f\\u2028\\u2029]*$', 'x-message': 'must be a single line' }],
} as const;

/** Index of the first text that an earlier one equals; -1 when all differ. */
export function firstRepeated(texts: readonly string[]): number {
  const seen = new Set<string>();
  return texts.findIndex((text) => seen.size === seen.add(text).size);
}

/**
 * A name as it is compared: trimmed and case-folded. Lower, upper, lower is as near to Unicode case folding as JavaScript
 * comes; one pass would keep `ß` and `ss`, or the two small sigmas, apart.
 */
export function folded(name: string): string {
  return name.trim().toLowerCase().toUpperCase().toLowerCase();
}
