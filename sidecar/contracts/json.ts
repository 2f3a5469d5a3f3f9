/**
 * Body bytes to JSON values, with what JSON.parse leaves open decided once, for every route:
 *
 * - The bytes are UTF-8 without a byte order mark; either fault refuses the body.
 * - Arrays and objects nest at most {@link MAX_NESTING} deep. Checked on the text, before anything recursive sees it.
 * - A body holds at most {@link MAX_VALUES} values. Counted on the text, since a value takes up to 30 times the memory of
 *   its text: 80 MiB of `{},` are 1.5 GB as objects.
 * - A name that occurs twice in one object refuses the body: last-wins would let two readers see two requests.
 * - A lone surrogate escape (`"\ud800"`) has no UTF-8 form, so a tokenizer would get another text: it refuses the body, or is
 *   read as U+FFFD where the route says so. Agents that cut a tool's output send half of an emoji.
 * - `__proto__` is a name like any other. JSON.parse makes it an own property; closed schemas then refuse it.
 * - Numbers are IEEE doubles, as JSON.parse reads them: past 2^53 they are rounded, `1.0` is the integer 1, `1e999` is
 *   Infinity, which no schema takes for a number. NaN and Infinity as words are not JSON.
 *
 * All of it is linear in the text.
 */

/** How deep arrays and objects may nest in a body. */
export const MAX_NESTING = 64;

/**
 * How many values a body may hold: strings, numbers, words, arrays and objects. 64 for each of 4,096 messages, where a
 * message has 3 to 20; a decision of as many values is past its bound of tokens. As properties of different names, the
 * most expensive kind, they take some 0.8 s to read and check; test/contract/too-many-values.test.ts prints it.
 */
export const MAX_VALUES = 262_144;

export type JsonFault =
  'encoding' | 'byte-order-mark' | 'syntax' | 'nesting' | 'values' | 'repeated-name' | 'lone-surrogate';

export type JsonRead =
  | {
      readonly ok: true;
      readonly value: unknown;
      /** What `value` was parsed from: `membersOf` and `compactText` read order and number texts from it. */
      readonly text: string;
    }
  | {
      readonly ok: false;
      readonly fault: JsonFault;
      /** Of a lone surrogate: where it is, names of the caller's own included. */
      readonly segments?: readonly string[];
    };

export interface JsonOptions {
  /** A lone surrogate becomes U+FFFD, in `value` and in `text`. */
  readonly replaceSurrogates?: boolean;
}

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const BYTE_ORDER_MARK = 0xfeff;

/** Only an escape can bring a lone surrogate past the UTF-8 decoder, so most bodies need no further look. */
const SURROGATE_ESCAPE = /\\u[dD][89a-fA-F]/;
const LONE_SURROGATE = /\p{Surrogate}/u;
/** Each escape of a JSON text in turn: a pair of surrogates, half of one (captured), or another. */
const ESCAPES = /\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(\\u[dD][89a-fA-F][\da-fA-F]{2})|\\[^]/g;

/** Reads one JSON value. Never throws on any input. */
export function readJson(bytes: Uint8Array, { replaceSurrogates = false }: JsonOptions = {}): JsonRead {
  let text: string;
  try {
    text = UTF8.decode(bytes);
  } catch {
    return { ok: false, fault: 'encoding' };
  }
  if (text.charCodeAt(0) === BYTE_ORDER_MARK) return { ok: false, fault: 'byte-order-mark' };

  const outline = outlineOf(text);
  if (outline.depth > MAX_NESTING) return { ok: false, fault: 'nesting' };
  if (outline.values > MAX_VALUES) return { ok: false, fault: 'values' };
  const escaped = SURROGATE_ESCAPE.test(text);
  if (escaped && replaceSurrogates) {
    text = text.replace(ESCAPES, (escape, lone: string | undefined) => (lone === undefined ? escape : '\\ufffd'));
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // The parser's own message quotes the text.
    return { ok: false, fault: 'syntax' };
  }
  if (countMembers(value) !== outline.members) return { ok: false, fault: 'repeated-name' };
  const segments = escaped && !replaceSurrogates ? loneSurrogateAt(value) : undefined;
  if (segments) return { ok: false, fault: 'lone-surrogate', segments };
  return { ok: true, value, text };
}

/**
 * What a JSON text holds, without recursion. `members` are its colons outside strings; its values are one, one for each comma, and the
 * first one in each array or object. Stops counting once the depth or the values are past their bounds. What it says of a text that is
 * not JSON does not matter: JSON.parse refuses that afterwards.
 */
function outlineOf(text: string, mostDepth = MAX_NESTING, mostValues = MAX_VALUES) {
  let open = 0;
  let depth = 0;
  let members = 0;
  let values = 1;
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case 0x22: // "
        at = endOfString(text, at) - 1;
        break;
      case 0x3a: // :
        members++;
        break;
      case 0x2c: // ,
        values++;
        break;
      case 0x5b: // [
      case 0x7b: // {
        open++;
        if (!isClosing(text.charCodeAt(at + 1))) values++;
        if (open > depth) depth = open;
        break;
      case 0x5d: // ]
      case 0x7d: // }
        open--;
        break;
      default:
    }
    if (depth > mostDepth || values > mostValues) break;
  }
  return { depth, members, values };
}

function isClosing(unit: number): boolean {
  return unit === 0x5d || unit === 0x7d;
}

/** Index after the closing quote of the string that opens at `at`; the text's length when it never closes. */
export function endOfString(text: string, at: number): number {
  let quote = at;
  do {
    quote = text.indexOf('"', quote + 1);
    if (quote < 0) return text.length;
  } while (isEscaped(text, quote));
  return quote + 1;
}

/** Whether an odd number of backslashes stands before `at`. Each run is looked at once, so a string costs linear time. */
function isEscaped(text: string, at: number): boolean {
  let before = at - 1;
  while (text.charCodeAt(before) === 0x5c) before--;
  return (at - before) % 2 === 0;
}

/**
 * Members of all objects in a value. Fewer than the text shows: a name was repeated and JSON.parse dropped one. `for in`
 * takes a third of what Object.values does for an object of 130,000 names, and inherits nothing from what JSON.parse made.
 */
function countMembers(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  let members = 0;
  if (Array.isArray(value)) {
    for (const item of value) if (typeof item === 'object') members += countMembers(item);
    return members;
  }
  const object = value as Readonly<Record<string, unknown>>;
  for (const name in object) {
    members++;
    const item = object[name];
    if (typeof item === 'object') members += countMembers(item);
  }
  return members;
}

/**
 * The place of the first lone surrogate in a value; for a lone surrogate in a member's name, the place of its object. Returns undefined if
 * the value has none.
 */
function loneSurrogateAt(value: unknown): string[] | undefined {
  if (typeof value === 'string') return LONE_SURROGATE.test(value) ? [] : undefined;
  if (typeof value !== 'object' || value === null) return undefined;
  for (const [name, item] of Object.entries(value)) {
    if (LONE_SURROGATE.test(name)) return [];
    const inside = loneSurrogateAt(item);
    if (inside) return [name, ...inside];
  }
  return undefined;
}

/**
 * A value's place in a text that `readJson` accepted: `text.slice(from, to)`, no space around it. JSON.parse moves integer-like
 * names to the front and rounds numbers; where a caller's order or digits count, they are read from the text. The functions that
 * take places check no syntax again.
 */
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

/**
 * What is wrong with an operator's JSON file in which a name occurs twice in one object; undefined if nothing is. JSON.parse
 * takes the last one, so what the first one said would be lost without a word. `value` is what JSON.parse made of
 * `text`, of a schema that bounds its depth. The place is looked for only in a file that has such a name.
 */
export function repeatedName(text: string, value: unknown): string | undefined {
  if (countMembers(value) === outlineOf(text, Infinity, Infinity).members) return undefined;
  const at = secondOf(text, rootOf(text));
  return at === undefined ? REPEATED : `${REPEATED}, on line ${lineAt(text, at)}`;
}

/** The problem without the place. */
export const REPEATED = 'repeats a name within one object';

/** The line of a place in a text, from 1. */
export function lineAt(text: string, at: number): number {
  return text.slice(0, at).split('\n').length;
}

/** Where the value of a name is that its object has already. */
function secondOf(text: string, span: Span): number | undefined {
  const first = text[span.from];
  if (first === '{') {
    const names = new Set<string>();
    for (const member of membersOf(text, span)) {
      if (names.has(member.name)) return member.from;
      names.add(member.name);
      const found = secondOf(text, member);
      if (found !== undefined) return found;
    }
  }
  if (first === '[') {
    for (const element of elementsOf(text, span)) {
      const found = secondOf(text, element);
      if (found !== undefined) return found;
    }
  }
  return undefined;
}
