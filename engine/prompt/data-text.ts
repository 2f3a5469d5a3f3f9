/**
 * Caller text is data: a special token's text in it must not become that token, or a caller could end its turn and
 * write the system's. llama.cpp can treat control tokens as text, but then also those of the template, and it always
 * recognizes user-defined tokens (`<think>`, `<tool_call>`). So a prompt is split after the first character of every special
 * text that its template did not write itself, and the parts are tokenized separately. A template marks its own special texts
 * (own-text.ts) and not the callers', since it may delete parts of a caller's text or put its own around it, and complete one.
 */

/** Code units of the Basic Multilingual Plane's private use area, from which the break mark is chosen. */
const PRIVATE_FIRST = 0xe000;
const PRIVATE_LAST = 0xf8ff;

const NOWHERE: ReadonlySet<number> = new Set();

interface Node {
  end: boolean;
  readonly next: Map<number, Node>;
}

/**
 * The special texts of one vocabulary, as a trie over UTF-16 code units: a scan looks at each position once per level, and only at
 * those with the first unit of a special text.
 */
export class SpecialTexts {
  readonly #root: Node = { end: false, next: new Map() };
  readonly #firsts: RegExp;
  #longest = 0;

  /**
   * Texts of one character cannot be split, and white space is no marker; some vocabularies have both as user-defined
   * tokens for compression, so they are ignored.
   */
  constructor(texts: readonly string[]) {
    for (const text of texts) {
      if (/^..+$/su.test(text) && !/^[\s\u2581]*$/u.test(text)) this.#add(text);
    }
    const units = Array.from(this.#root.next.keys(), (unit) => `\\u${unit.toString(16).padStart(4, '0')}`);
    this.#firsts = new RegExp(`[${units.join('')}]`, 'g');
  }

  get longest(): number {
    return this.#longest;
  }

  occursIn(text: string): boolean {
    return this.#next(text, 0) < text.length;
  }

  /**
   * The text split after the first character of every special text, but not at the places in `except`; without these no piece has a
   * special text in it. Linear in the text's length.
   */
  breakUp(text: string, except: ReadonlySet<number> = NOWHERE): readonly string[] {
    const pieces: string[] = [];
    let from = 0;
    for (let at = this.#next(text, 0); at < text.length; at = this.#next(text, at + 1)) {
      const end = at + ((text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1);
      if (except.has(end)) continue;
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
    this.#longest = Math.max(this.#longest, text.length);
  }

  /** Where the next special text starts, from `at` on; the text's length when none does. */
  #next(text: string, at: number): number {
    this.#firsts.lastIndex = at;
    while (this.#firsts.test(text)) {
      const start = this.#firsts.lastIndex - 1;
      if (this.#startsAt(text, start)) return start;
    }
    return text.length;
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

/** How a template's own special texts are told from callers': `mark` is in them, and nowhere in what callers wrote. */
export class Marking {
  readonly specials: SpecialTexts;
  readonly mark: string;

  constructor(specials: SpecialTexts, mark: string) {
    this.specials = specials;
    this.mark = mark;
  }

  /** A text of the template's own, with a mark within each special text. */
  marked(text: string): string {
    return this.specials.occursIn(text) ? this.specials.breakUp(text).join(this.mark) : text;
  }

  /** A rendered text without its marks, split within each special text that has none. */
  pieces(rendered: string): readonly string[] {
    const own = new Set<number>();
    let end = 0;
    const parts = splitAtMarks(rendered, this.mark);
    for (const part of parts) own.add((end += part.length));
    return this.specials.breakUp(parts.join(''), own);
  }
}

/** For texts that are not tokenized: nothing is special. */
export const UNMARKED = new Marking(new SpecialTexts([]), '');

/** A character that no string has, neither as it is nor as an escape of JSON. */
export function unusedMark(value: unknown): string | undefined {
  const used = new Set<number>();
  someString(value, (text) => {
    if (!/[\ue000-\uf8ff]|\\u[ef]/i.test(text)) return false;
    for (const char of text.match(/[\ue000-\uf8ff]/g) ?? []) used.add(char.charCodeAt(0));
    for (const [, digits = ''] of text.matchAll(/\\u([ef][0-9a-f]{3})/gi)) used.add(Number.parseInt(digits, 16));
    return false;
  });
  for (let unit = PRIVATE_FIRST; unit <= PRIVATE_LAST; unit++) if (!used.has(unit)) return String.fromCharCode(unit);
  return undefined;
}

/** A rendered text split at its marks. An escape of one is none: a template could put it together from callers' texts. */
export function splitAtMarks(text: string, mark: string): readonly string[] {
  if (mark === '') return [text];
  return text.split(mark);
}

/** Whether `test` holds for any string of a JSON value, names of members included. */
function someString(value: unknown, test: (text: string) => boolean): boolean {
  if (typeof value === 'string') return test(value);
  if (Array.isArray(value)) return value.some((item) => someString(item, test));
  if (typeof value !== 'object' || value === null) return false;
  return Object.entries(value).some(([name, member]) => test(name) || someString(member, test));
}
