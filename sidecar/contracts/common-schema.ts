/** Pieces that several schemas use. Lengths are in Unicode code points. */

/** The longest text in one message or field, in characters. */
export const MAX_TEXT = 16_777_216;

type Fields = Readonly<Record<string, object>>;

/** An object with these fields and no other. */
export function closed<const R extends string, const P extends Fields>(required: readonly R[], properties: P) {
  return { type: 'object', additionalProperties: false, required, properties } as const;
}

/** An object with each of these fields and no other. */
export function exactly<const P extends Fields>(properties: P) {
  return closed(Object.keys(properties) as (keyof P & string)[], properties);
}

/** An object of one of these kinds, by its field `tag`, which is a constant of each. */
export function oneOfBy<const K extends readonly object[]>(tag: string, kinds: K) {
  return { type: 'object', required: [tag], discriminator: { propertyName: tag }, oneOf: kinds } as const;
}

/** A closed object for functions: one of another `type` is refused for that, before it is for what it lacks. */
export function functionsOnly<const S extends object>(schema: S, why: string) {
  const another = { required: ['type'], properties: { type: { not: { const: 'function' } } } };
  return {
    ...schema,
    if: another,
    then: { properties: { type: { const: 'function', 'x-message': `must be function: ${why}` } } },
  };
}

export const OTHER_TOOL = 'no other tool is served';
export const OTHER_CHOICE = 'no other choice is served';

/** A time of UTC with its zone, since a time without one could be read hours early or late. */
export const UTC_TIME = {
  type: 'string',
  maxLength: 32,
  pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d{1,9})?Z$',
} as const;

export const MODEL_ID = {
  type: 'string',
  minLength: 1,
  maxLength: 128,
  pattern: '^[A-Za-z0-9][A-Za-z0-9._:/-]*$',
} as const;

/** A model's id in an answer. */
export const MODEL = { type: 'string', minLength: 1, maxLength: 128 } as const;

/** A number of tokens or requests, or Unix time in seconds. */
export const COUNT = { type: 'integer', minimum: 0 } as const;

export const TEXT = { type: 'string', maxLength: MAX_TEXT } as const;

export const NON_EMPTY_TEXT = { type: 'string', minLength: 1, maxLength: MAX_TEXT } as const;

export const TEXT_OR_NULL = { type: ['string', 'null'], maxLength: MAX_TEXT } as const;

/** A function's name, also the name of a participant. */
export const TOOL_NAME = { type: 'string', minLength: 1, maxLength: 64, pattern: '^[A-Za-z0-9_-]+$' } as const;

/** A call's place among a message's calls. */
export const CALL_INDEX = { type: 'integer', minimum: 0, maximum: 127 } as const;

export const CALL_ID = { type: 'string', minLength: 1, maxLength: 256 } as const;

/** Under `contract: compatible`: a function that is offered. Plugins' names have dots, and those of MCP servers are long. */
export const WIDE_TOOL_NAME = { type: 'string', minLength: 1, maxLength: 128, pattern: '^[A-Za-z0-9_.-]+$' } as const;

/** Under `contract: compatible`: a function that was called, or a participant. Other servers take any name. */
export const HISTORY_NAME = { type: 'string', minLength: 1, maxLength: 256 } as const;

/** Under `contract: compatible`: some servers put a thought's signature into the ids of calls. */
export const WIDE_CALL_ID = { type: 'string', minLength: 1, maxLength: 8192 } as const;

/** Something other than space. A schema of its own, so that the wording is for blank texts alone. */
export const NOT_BLANK = { pattern: '\\S', 'x-message': 'must not be blank' } as const;

/** A string with something other than space in it. */
export function notBlank(maxLength: number) {
  return { type: 'string', maxLength, allOf: [NOT_BLANK] } as const;
}

// What both decision routes ask of a question, whatever its spelling (docs/contract.md#post-decisions and #post-systemone).

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
 * A name as it is compared: trimmed and case-folded. Lower, upper, lower is as near to Unicode case folding as JavaScript comes; one pass
 * would keep `ß` and `ss`, or the two small sigmas, apart.
 */
export function folded(name: string): string {
  return name.trim().toLowerCase().toUpperCase().toLowerCase();
}
