import { grammarText, type GrammarPart } from './gbnf.js';

/**
 * Any JSON (RFC 8259) with three bounds, so that a model cannot continue forever without content: white space, of which
 * there is none around the whole; digits, so that every number is a finite one; and `\u` escapes, which make no lone
 * surrogates.
 */
const RULES: Readonly<Record<string, string>> = {
  'json-ws': String.raw`| " " | "\n" [ \t]{0,20}`,
  'json-hex': '[0-9a-fA-F]',
  'json-unit':
    '[0-9abcefABCEF] json-hex json-hex json-hex | [dD] [0-7] json-hex json-hex | ' +
    String.raw`[dD] [89abAB] json-hex json-hex "\\u" [dD] [c-fC-F] json-hex json-hex`,
  'json-plain': String.raw`[^"\\\x00-\x1F\x7F]`,
  'json-char': String.raw`json-plain | "\\" ["\\/bfnrt] | "\\u" json-unit`,
  'json-string': String.raw`"\"" json-char* "\""`,
  'json-integer': '"-"? ("0" | [1-9] [0-9]{0,15})',
  'json-number': 'json-integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?',
  'json-member': 'json-string ":" json-ws json-value json-ws',
  'json-object': '"{" json-ws (json-member ("," json-ws json-member)*)? "}"',
  'json-item': 'json-value json-ws',
  'json-array': '"[" json-ws (json-item ("," json-ws json-item)*)? "]"',
  'json-value': 'json-object | json-array | json-string | json-number | "true" | "false" | "null"',
};

/** `name ::= …` of every rule above, to be put beside rules that refer to them. */
export const JSON_RULES: readonly string[] = Object.entries(RULES).map(([name, rule]) => `${name} ::= ${rule}`);

/** One JSON object, with nothing before or after it. */
export const anyObject: GrammarPart<string> = { rule: 'json-object', rules: JSON_RULES };

const data = grammarText(anyObject.rule, [anyObject]);

/** The grammar of JSON mode: one valid JSON object, then the end. */
export const dataGrammar: string = data.kind === 'ok' ? data.gbnf : '';
