/**
 * The arguments of earlier calls as JSON values, for templates that write them out themselves. Callers send them as text of
 * up to 16,777,216 characters: counted before they are parsed, since a value takes ten times the memory of its text. The text may
 * be no JSON; sidecar/contracts/json.ts finds parts of text that was accepted as JSON, and is not available to the engine.
 */

import { unusedMark } from './data-text.js';
import { needsWriting, WrittenNumber } from './written-number.js';

/** How deep arrays and objects may nest in one call's arguments: as deep as in a request. */
export const MAX_ARGUMENT_NESTING = 64;

/** Values in the arguments of all calls of a conversation: 32 in each of 4,096 messages, which a template writes in a second. */
export const MAX_ARGUMENT_VALUES = 131_072;

/** Thrown for arguments past either bound. */
export class OversizedArguments extends Error {}

export class CallArguments {
  #values = 0;

  /** Throws OversizedArguments past the bounds, and a SyntaxError if the text is not JSON. Empty text means no arguments. */
  parse(text: string): unknown {
    const found = scan(text);
    this.#values += found.values;
    if (found.nesting > MAX_ARGUMENT_NESTING || this.#values > MAX_ARGUMENT_VALUES) throw new OversizedArguments();
    return parseArguments(text, found);
  }

  /**
   * Whether the text is one JSON object within the bounds, or means no arguments; other JSON, or an object whose only member is
   * `reserved`; or neither. The values of others do not count.
   */
  kindOf(text: string, reserved: string): 'object' | 'other' | 'broken' {
    const before = this.#values;
    try {
      const value = this.parse(text);
      if (isObject(value) && !(Object.hasOwn(value, reserved) && Object.keys(value).length === 1)) return 'object';
    } catch {
      this.#values = before;
      return 'broken';
    }
    this.#values = before;
    return 'other';
  }
}

/** The arguments that a text within the bounds has. Throws a SyntaxError if it is not JSON. Empty text means no arguments. */
export function parseArguments(text: string, { odd } = scan(text)): unknown {
  // Callers send no text at all for a call without arguments.
  if (text.trim() === '') return {};
  // Parsed unchanged first, since replacing numbers could turn invalid text into JSON.
  const plain: unknown = JSON.parse(text);
  return odd.length > 0 ? (asWritten(text, odd) ?? plain) : plain;
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof WrittenNumber);
}

/** What a text of JSON holds, up to the first place that is past a bound. Of other text the result does not matter. */
interface Scan {
  /** Arrays, objects and the commas between values. */
  readonly values: number;
  readonly nesting: number;
  /** The numbers that are not values of JavaScript. */
  readonly odd: readonly NumberSpan[];
}

function scan(text: string): Scan {
  const odd: NumberSpan[] = [];
  let [open, values, nesting] = [0, 0, 0];
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    switch (unit) {
      case 0x22: // "
        at = endOfString(text, at);
        break;
      case 0x5b: // [
      case 0x7b: // {
        open++;
        values++;
        nesting = Math.max(nesting, open);
        break;
      case 0x5d: // ]
      case 0x7d: // }
        open--;
        break;
      case 0x2c: // ,
        values++;
        break;
      default:
        // A digit or a minus.
        if (unit === 0x2d || (unit >= 0x30 && unit <= 0x39)) {
          const end = endOfNumber(text, at);
          if (needsWriting(text.slice(at, end))) odd.push([at, end]);
          at = end - 1;
        }
    }
    if (nesting > MAX_ARGUMENT_NESTING || values > MAX_ARGUMENT_VALUES) break;
  }
  return { values, nesting, odd };
}

/** Where a number begins and ends. */
type NumberSpan = readonly [from: number, to: number];

function endOfNumber(text: string, at: number): number {
  let end = at + 1;
  while (end < text.length && '0123456789+-.eE'.includes(text[end] ?? '')) end++;
  return end;
}

/** JSON text parsed, with these numbers as they are written; undefined if every mark for them occurs in it. */
function asWritten(text: string, odd: readonly NumberSpan[]): unknown {
  const mark = unusedMark(text);
  if (mark === undefined) return undefined;
  const parts: string[] = [];
  let done = 0;
  for (const [from, to] of odd) {
    parts.push(text.slice(done, from), `"${mark}${text.slice(from, to)}"`);
    done = to;
  }
  parts.push(text.slice(done));
  return JSON.parse(parts.join(''), (_, value: unknown) =>
    typeof value === 'string' && value.startsWith(mark) ? new WrittenNumber(value.slice(mark.length)) : value,
  );
}

/** Index of the closing quote of the string that opens at `at`; the text's length when there is none. */
function endOfString(text: string, at: number): number {
  for (let end = at + 1; end < text.length; end++) {
    const unit = text.charCodeAt(end);
    if (unit === 0x22) return end;
    if (unit === 0x5c) end++;
  }
  return text.length;
}
