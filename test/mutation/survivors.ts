/**
 * Why the mutants of a line survive: no case can distinguish them. Found by a part of the line, since line numbers
 * change.
 */
const TYPES_ALONE = 'required by the compiler; unreachable';
const SAME_BUT_SLOWER = 'a shortcut: the same outcome, later';
const VALID_TEXT = 'the text is JSON that was parsed before, so it ends where its values end';

const REASONS: readonly (readonly [file: string, line: string, why: string])[] = [
  ['body-refusals.ts', "segments[i] ?? ''", TYPES_ALONE],
  ['body-refusals.ts', '[known = []', TYPES_ALONE],
  ['body-refusals.ts', 'parts.at(-1)?.push', TYPES_ALONE],
  ['systemone.ts', "'state')) ??", 'by the schema no state is null'],
  ['systemone.ts', "'instructions')) ??", 'by the schema no instructions are null'],
  ['systemone.ts', 'criteria ? ', 'the schema requires the criteria'],
  ['systemone.ts', "map === 'questions' &&", 'no error of the schema lies inside another map'],
  ['systemone.ts', "text.charAt(criteria.from) === '{'", 'the other value is null, which has no members'],
  ['systemone.ts', 'firstRepeated(', 'the first of all repeats none'],
  ['systemone.ts', 'span === undefined', 'a fault of the code; unreachable'],
  ['validator.ts', 'validate.errors ?? []', TYPES_ALONE],
  ['validator.ts', 'error === undefined ?', 'a refusal has an error; unreachable'],
  ['validator.ts', '] as const) {', "ajv's own keywords come to the same lengths, more slowly"],
  ['validator.ts', 'allowUnionTypes', 'strictTypes is off, which includes it'],
  ['validator.ts', 'ajv.addKeyword', 'only a wrong schema of the sidecar could show it'],
  ['validator.ts', 'ajv.addFormat', 'formats occur where the type is string'],
  ['validator.ts', 'const wording =', 'verbose errors have their schema'],
  ['validator.ts', "typeof wording === 'string'", 'a wording is a string or is absent'],
  ['validator.ts', "error.keyword === 'required'", 'the parameter comes with the keyword and with no other'],
  ['validator.ts', "error.keyword === 'discriminator'", 'the parameter comes with the keyword and with no other'],
  [
    'validator.ts',
    "error.keyword === 'additionalProperties'",
    'the parameter comes with the keyword and with no other',
  ],
  ['validator.ts', 'FORMATS[String(error.schema)]', 'a schema with an unknown format does not compile'],
  ['validator.ts', 'Object.keys((error.parentSchema', 'verbose errors have their schema'],
  ['validator.ts', 'branch.properties[', 'ajv compiles no branch without the tag'],
  ['answer-schemas.ts', "closed(['type'", 'the discriminator requires the tag'],
  ['answer-schemas.ts', 'check === undefined', 'compiled again on each use: the same outcome, later'],
  ['answers.ts', '!== undefined &&', 'JSON.stringify leaves undefined out'],
  ['decision-answers.ts', 'result?.probabilities', 'the number of results was checked before'],
  ['common-schema.ts', 'toLowerCase()', 'names are compared with each other only, so either case works'],
  ['decisions.ts', "closed(['id', 'type'", 'the discriminator requires the tag'],
  ['decisions.ts', 'repeatedId >= 0', 'the first of all repeats none'],
  ['decisions.ts', 'repeated < 0', 'the first of all repeats none'],
  ['json.ts', 'at < span.to', VALID_TEXT],
  ['json.ts', 'at >= text.length', VALID_TEXT],
  ['json.ts', 'at < text.length', VALID_TEXT],
  ['json.ts', 'at < text.length', 'past the end there is no character that counts'],
  ['json.ts', 'open > depth', 'the depth matters when it exceeds the bound, and grows by one'],
  ['json.ts', 'depth > MAX_NESTING', SAME_BUT_SLOWER],
  ['json.ts', 'quote < 0', 'the search starts after the first character'],
  ['json.ts', '(at - before) % 2', 'sum and difference are odd or even together'],
  ['json.ts', "typeof item === 'object'", SAME_BUT_SLOWER],
  ['json.ts', "typeof value !== 'object'", 'a number, a boolean has no members'],
  ['json.ts', 'Array.isArray(value)', 'an array taken for an object has its items as members'],
  ['length.ts', 'text.length <= limit', SAME_BUT_SLOWER],
  ['length.ts', '2 * limit', SAME_BUT_SLOWER],
  ['length.ts', 'i + 1 < text.length', 'past the end there is no surrogate'],
  ['urls.ts', 'end < 0', 'an empty authority is refused below'],
  ['urls.ts', "authority !== ''", 'the URL parser refuses it as well'],
  ['urls.ts', 'comma < 0', 'the scheme precedes any comma'],
];

/** The reason for the survivors of a line; undefined if there is none. */
export function reasonFor(file: string, line: string): string | undefined {
  return REASONS.find(([name, part]) => name === file && line.includes(part))?.[2];
}
