/**
 * Readers of JSON that arrives in parts. They do not validate it: it was sampled under a grammar, or its reader will
 * parse it.
 */

/** What models write in Python's notation where JSON is meant. */
export const PYTHON_LITERALS: Readonly<Record<string, string>> = { True: 'true', False: 'false', None: 'null' };

/** Whether it is true, false, null or a number. */
export function isScalar(json: string): boolean {
  return /^(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?)$/.test(json);
}

/** Finds where one JSON object ends. */
export class ObjectEnd {
  #depth = 0;
  #inString = false;
  #escaped = false;
  /** The closing brace has been taken. */
  complete = false;

  /** Something was taken. */
  begun = false;

  /** Units of `text` that belong to the object; fewer than all of them only if it is complete. */
  take(text: string): number {
    this.begun ||= text !== '';
    for (let i = 0; i < text.length; i++) {
      if (this.#step(text[i] ?? '')) return i + 1;
    }
    return text.length;
  }

  #step(unit: string): boolean {
    if (this.#escaped) this.#escaped = false;
    else if (unit === '"') this.#inString = !this.#inString;
    else if (this.#inString) this.#escaped = unit === '\\';
    else if (unit === '{' || unit === '[') this.#depth += 1;
    else if ((unit === '}' || unit === ']') && --this.#depth === 0) this.complete = true;
    return this.complete;
  }
}

const ESCAPES: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };

/** Converts the inside of a JSON string to its text. The halves of a surrogate pair are returned together. */
export class StringText {
  /** An escape that has begun. */
  #escape = '';
  /** A high surrogate without its other half. */
  #half = '';
  /** The closing quote has been taken. */
  complete = false;

  /** Reads up to the closing quote; returns the decoded text and how many units were read. */
  take(text: string): { readonly text: string; readonly used: number } {
    let out = '';
    for (let i = 0; i < text.length; i++) {
      out += this.#step(text[i] ?? '');
      if (this.complete) return { text: out, used: i + 1 };
    }
    return { text: out, used: text.length };
  }

  #step(unit: string): string {
    if (this.#escape !== '') return this.#unescape(unit);
    if (unit === '\\') {
      this.#escape = unit;
      return '';
    }
    if (unit === '"') {
      this.complete = true;
      return this.#lone();
    }
    return this.#join(unit);
  }

  #unescape(unit: string): string {
    this.#escape += unit;
    const letter = this.#escape[1] ?? '';
    if (letter === 'u' && this.#escape.length < 6) return '';
    const code = this.#escape.slice(2);
    this.#escape = '';
    return this.#join(letter === 'u' ? String.fromCharCode(Number.parseInt(code, 16)) : (ESCAPES[letter] ?? letter));
  }

  #join(unit: string): string {
    const code = unit.charCodeAt(0);
    if (code >= 0xd800 && code < 0xdc00) {
      const before = this.#lone();
      this.#half = unit;
      return before;
    }
    if (code >= 0xdc00 && code < 0xe000) {
      const whole = this.#half === '' ? '\ufffd' : this.#half + unit;
      this.#half = '';
      return whole;
    }
    return this.#lone() + unit;
  }

  #lone(): string {
    if (this.#half === '') return '';
    this.#half = '';
    return '\ufffd';
  }
}
