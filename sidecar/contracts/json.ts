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
      /** What `value` was parsed from: `json-text.ts` reads order and number texts from it. */
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

interface Outline {
  readonly depth: number;
  /** Object members: colons outside strings. */
  readonly members: number;
  /** One, one for each comma, and one for each array or object that something follows in: the first value in it. */
  readonly values: number;
}

/** Whether a name occurs twice in one object of `text`, from which JSON.parse made `value`, of whatever size. */
export function repeatsName(text: string, value: unknown): boolean {
  return countMembers(value) !== outlineOf(text, Infinity, Infinity).members;
}

/**
 * What a JSON text holds, without recursion. Stops counting once the depth or the values are past their bounds. What it
 * says of a text that is not JSON does not matter: JSON.parse refuses that afterwards.
 */
function outlineOf(text: string, mostDepth = MAX_NESTING, mostValues = MAX_VALUES): Outline {
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
