/**
 * Caller text is data: a special token's text in it must not become that token, or a caller could end its turn and
 * write the system's. llama.cpp can treat control tokens as text, but then also those of the template, and it always
 * recognizes user-defined tokens (`<think>`, `<tool_call>`). So the caller's text is split after the first character of
 * every such text, and the parts are tokenized separately. Prompts without such texts are not changed.
 */

import { WholeFloat } from './whole-float.js';

/** Code units of the Basic Multilingual Plane's private use area, from which the break mark is chosen. */
const PRIVATE_FIRST = 0xe000;
const PRIVATE_LAST = 0xf8ff;

interface Node {
  end: boolean;
  readonly next: Map<number, Node>;
}

/** The special texts of one vocabulary, as a trie over UTF-16 code units: a scan looks at each position once per level. */
export class SpecialTexts {
  readonly #root: Node = { end: false, next: new Map() };

  /**
   * Texts of one character cannot be split, and white space is no marker; some vocabularies have both as user-defined
   * tokens for compression, so they are ignored.
   */
  constructor(texts: readonly string[]) {
    for (const text of texts) {
      if (/^..+$/su.test(text) && !/^[\s\u2581]*$/u.test(text)) this.#add(text);
    }
  }

  /** Whether any special text occurs in the text. */
  occursIn(text: string): boolean {
    for (let at = 0; at < text.length; at++) if (this.#startsAt(text, at)) return true;
    return false;
  }

  /** The text split after the first character of every special text; no piece has one in it. Linear in the text's length. */
  breakUp(text: string): readonly string[] {
    const pieces: string[] = [];
    let from = 0;
    for (let at = 0; at < text.length; at++) {
      if (!this.#startsAt(text, at)) continue;
      const end = at + ((text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1);
      pieces.push(text.slice(from, end));
      from = end;
    }
    pieces.push(text.slice(from));
    return pieces;
  }

  #add(text: string): void {
    let node = this.#root;
    for (let at = 0; at < text.length; at++) {
      const unit = text.charCodeAt(at);
      let next = node.next.get(unit);
      if (next === undefined) {
        next = { end: false, next: new Map() };
        node.next.set(unit, next);
      }
      node = next;
    }
    node.end = true;
  }

  #startsAt(text: string, start: number): boolean {
    let node: Node | undefined = this.#root;
    for (let at = start; at < text.length; at++) {
      node = node.next.get(text.charCodeAt(at));
      if (node === undefined) return false;
      if (node.end) return true;
    }
    return false;
  }
}

/** A value whose strings contain `mark` at the places to split after rendering. Without `mark` nothing was changed. */
export type Guarded<T> =
  | { readonly kind: 'ok'; readonly value: T; readonly mark?: string }
  /**
   * Special text next to every possible mark character, or values nested too deeply: this does not occur in honest
   * prompts.
   */
  | { readonly kind: 'unmarkable' };

/** Inserts marks at the places to split in all strings of a JSON value, names of members included. */
export function guard<T>(value: T, specials: SpecialTexts): Guarded<T> {
  try {
    return guardNested(value, specials);
  } catch (error) {
    if (error instanceof RangeError) return { kind: 'unmarkable' };
    throw error;
  }
}

function guardNested<T>(value: T, specials: SpecialTexts): Guarded<T> {
  if (!someString(value, (text) => specials.occursIn(text))) return { kind: 'ok', value };
  const mark = unusedMark(value);
  if (mark === undefined) return { kind: 'unmarkable' };
  return { kind: 'ok', value: mapStrings(value, (text) => specials.breakUp(text).join(mark)) as T, mark };
}

/** A character that no string has, neither as it is nor as an escape of JSON, in which templates may write it. */
export function unusedMark(value: unknown): string | undefined {
  const used = new Set<number>();
  someString(value, (text) => {
    for (const char of text.match(/[\ue000-\uf8ff]/g) ?? []) used.add(char.charCodeAt(0));
    for (const [, digits = ''] of text.matchAll(/\\u([ef][0-9a-f]{3})/gi)) used.add(Number.parseInt(digits, 16));
    return false;
  });
  for (let unit = PRIVATE_FIRST; unit <= PRIVATE_LAST; unit++) if (!used.has(unit)) return String.fromCharCode(unit);
  return undefined;
}

/** A rendered text split at its marks, which a template may have written as escapes of JSON. */
export function splitAtMarks(text: string, mark: string | undefined): readonly string[] {
  if (mark === undefined) return [text];
  return text.replaceAll(`\\u${mark.charCodeAt(0).toString(16)}`, mark).split(mark);
}

/** Whether `test` holds for any string of a JSON value, names of members included. */
function someString(value: unknown, test: (text: string) => boolean): boolean {
  if (typeof value === 'string') return test(value);
  if (Array.isArray(value)) return value.some((item) => someString(item, test));
  if (typeof value !== 'object' || value === null) return false;
  return Object.entries(value).some(([name, member]) => test(name) || someString(member, test));
}

function mapStrings(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map((item) => mapStrings(item, change));
  if (typeof value !== 'object' || value === null || value instanceof WholeFloat) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [change(name), mapStrings(member, change)]));
}
