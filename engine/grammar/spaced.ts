import { literal } from './gbnf.js';

/** Rules that {@link spaced} refers to. */
export const SPACED_RULES: readonly string[] = [
  'call-gap ::= | " " | "\\n"{1,2} [ \\t]{0,20}',
  'call-id ::= [A-Za-z0-9]{1,9}',
];

/** A text of a syntax: white space may be there or not, but for what parts two words, also after what opens JSON; U+0000 is an id, U+0001 a function's name. */
export function spaced(text: string): string {
  const parts = text.replace(/([{,]|":)(?=["{[])/g, '$1 ').split(/((?<!\w)\s+|\s+(?!\w)|[\0\x01])/);
  return parts
    .filter((part) => part !== '')
    .map((part) =>
      part === '\0' ? 'call-id' : part === '\x01' ? 'call-name' : part.trim() === '' ? 'call-gap' : literal(part),
    )
    .join(' ');
}
