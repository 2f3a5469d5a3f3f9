/**
 * The text behind a JSON value: order of members, texts of numbers. JSON.parse moves integer-like names to the front and
 * rounds numbers; where a caller's order or digits count, they are read here.
 *
 * Everything takes a text that `readJson` accepted, and positions inside it: nothing here checks syntax again.
 */
import { endOfString } from './json.js';

/** A value's place in the text: `text.slice(from, to)`, no space around it. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

export interface Member extends Span {
  readonly name: string;
}

/** The place of the text's one value. */
export function rootOf(text: string): Span {
  const from = skipSpace(text, 0);
  return { from, to: endOfValue(text, from) };
}

/** The members of the object at `span`, in the order of the text. */
export function membersOf(text: string, span: Span): Member[] {
  const members: Member[] = [];
  let at = skipSpace(text, span.from + 1);
  while (text.charCodeAt(at) === 0x22) {
    const nameEnd = endOfString(text, at);
    const name = JSON.parse(text.slice(at, nameEnd)) as string;
    const from = skipSpace(text, skipSpace(text, nameEnd) + 1);
    const to = endOfValue(text, from);
    members.push({ name, from, to });
    at = skipSpace(text, skipSpace(text, to) + 1);
  }
  return members;
}

/** The elements of the array at `span`. */
export function elementsOf(text: string, span: Span): Span[] {
  const elements: Span[] = [];
  let from = skipSpace(text, span.from + 1);
  while (from < span.to - 1) {
    const to = endOfValue(text, from);
    elements.push({ from, to });
    from = skipSpace(text, skipSpace(text, to) + 1);
  }
  return elements;
}

/** The value at `span` without space between tokens; strings and numbers stay as they were written. */
export function compactText(text: string, span: Span): string {
  let compact = '';
  let from = span.from;
  let at = span.from;
  while (at < span.to) {
    if (text.charCodeAt(at) === 0x22) {
      at = endOfString(text, at);
    } else if (isSpace(text.charCodeAt(at))) {
      compact += text.slice(from, at);
      at = skipSpace(text, at);
      from = at;
    } else {
      at++;
    }
  }
  return compact + text.slice(from, span.to);
}

/** Index after the value that starts at `at`. */
function endOfValue(text: string, at: number): number {
  let open = 0;
  for (;;) {
    switch (text.charCodeAt(at)) {
      case 0x22: // "
        at = endOfString(text, at);
        break;
      case 0x5b: // [
      case 0x7b: // {
        open++;
        at++;
        break;
      case 0x5d: // ]
      case 0x7d: // }
        open--;
        at++;
        break;
      default:
        // Inside a container one character at a time; outside, a number, true, false or null in one go.
        at = open > 0 ? at + 1 : endOfWord(text, at);
    }
    if (open === 0 || at >= text.length) return at;
  }
}

function endOfWord(text: string, at: number): number {
  while (at < text.length && !isSpace(text.charCodeAt(at)) && !',]}'.includes(text.charAt(at))) at++;
  return at;
}

function skipSpace(text: string, at: number): number {
  while (isSpace(text.charCodeAt(at))) at++;
  return at;
}

function isSpace(code: number): boolean {
  return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}
