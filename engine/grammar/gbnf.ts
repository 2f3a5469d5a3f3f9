/** The text of a grammar: GBNF, llama.cpp's notation. */

/**
 * The largest grammar that is used: compiling is linear in it (some 10 ms for this one), and so is every step at worst.
 */
export const MAX_GRAMMAR_CHARACTERS = 131_072;

/** Rules for one thing, to be put into a grammar beside others. */
export interface GrammarPart {
  /** The rule that matches it. */
  readonly rule: string;
  /** `name ::= …` each, `rule` and all that it refers to; equal lines may be in several parts. */
  readonly rules: readonly string[];
}

export type GrammarText =
  | { readonly kind: 'ok'; readonly gbnf: string }
  /** `why`: one sentence for the caller, without any of the caller's text. */
  | { readonly kind: 'unservable'; readonly why: string };

/** A grammar of `root` (GBNF, in terms of the parts' rules), with the root rule on its first line. */
export function grammarText(root: string, parts: readonly GrammarPart[]): GrammarText {
  const lines = new Set([`root ::= ${root}`]);
  for (const part of parts) for (const rule of part.rules) lines.add(rule);
  const gbnf = [...lines].join('\n');
  if (gbnf.length <= MAX_GRAMMAR_CHARACTERS) return { kind: 'ok', gbnf };
  return { kind: 'unservable', why: `The grammar for it has over ${MAX_GRAMMAR_CHARACTERS} characters.` };
}

const ESCAPES: Readonly<Record<string, string>> = { '"': '\\"', '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' };

/** Exactly this text. A lone surrogate, which UTF-8 does not have, stands for U+FFFD. */
export function literal(text: string): string {
  const wellFormed = Buffer.from(text).toString();
  return `"${wellFormed.replace(/["\\\n\r\t\0]/g, (unit) => ESCAPES[unit] ?? '\\x00')}"`;
}
