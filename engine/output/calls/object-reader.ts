/** Readers of one call's arguments: what all of them have, and those of arguments that are written as one object. */
import { isScalar, ObjectEnd, PYTHON_LITERALS } from './json-text.js';
import { StopMatcher } from '../stop-matcher.js';

/** What a reader made of some text. */
export interface ArgumentsPart {
  /** JSON text of the arguments. Joined, the parts of one call are one JSON object. */
  readonly json: string;
  /** Units of the text that were taken; fewer than all only when the arguments are complete. */
  readonly used: number;
}

export interface ArgumentsReader {
  /** Takes more text, not empty. Not called again once complete. */
  take(text: string): ArgumentsPart;
  /** The last argument was read. */
  readonly complete: boolean;
  /**
   * With `complete`: what was already read after the arguments: the call's `close` (0), its `next` (1), text that can be
   * neither (`failed`), or nothing yet.
   */
  readonly after: 0 | 1 | 'failed' | undefined;
  /** With `failed`: that text. */
  readonly rest: string;
}

export class JsonArguments implements ArgumentsReader {
  readonly after = undefined;
  readonly rest = '';
  readonly #object = new ObjectEnd();

  get complete(): boolean {
    return this.#object.complete;
  }

  take(text: string): ArgumentsPart {
    const lead = this.#object.begun ? 0 : text.length - text.trimStart().length;
    if (lead > 0) return { json: '', used: lead };
    const used = this.#object.take(text);
    return { json: text.slice(0, used), used };
  }
}

/** A number or a name that is longer than this is passed on as a string that has begun. */
const MAX_WORD = 1024;

const ENDS_WORD = /[\s,:=()[\]{}]/;
const ESCAPES: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r' };

type State = 'value' | 'key' | 'colon' | 'after' | 'word' | 'mark' | 'json' | 'quoted' | 'marked' | 'over';

/**
 * Converts an object in a notation close to JSON to JSON while it arrives: strings in either quotes or between marks, keys
 * with or without quotes, Python's names of literals. What is read was sampled under a grammar, or its reader will parse it.
 */
export class LooseJson implements ArgumentsReader {
  readonly after = undefined;
  readonly rest = '';
  readonly #quote: string | undefined;
  /** Closes the outermost object, and belongs to what follows it; absent: the object has braces. */
  readonly #end: string | undefined;
  readonly #open: ('object' | 'array')[] = [];
  #state: State = 'value';
  /** The text of a word, or of a mark's beginning. */
  #buffered = '';
  #escaped = false;
  #close = new StopMatcher([]);
  /** What is being read is a key. */
  #isKey = false;

  /** `quote`: a mark that opens and closes strings. `end`: what ends arguments that stand without braces. */
  constructor({ quote, end }: { readonly quote?: string; readonly end?: string }) {
    this.#quote = quote;
    this.#end = end;
    if (end === undefined) return;
    this.#open.push('object');
    this.#state = 'key';
    this.#begun = false;
  }

  #begun = true;

  get complete(): boolean {
    return this.#state === 'over';
  }

  take(text: string): ArgumentsPart {
    let json = this.#begun ? '' : '{';
    this.#begun = true;
    let used = 0;
    while (used < text.length && this.#state !== 'over') {
      const part = this.#step(text, used);
      json += part.json;
      used += part.used;
    }
    return { json, used };
  }

  #step(text: string, at: number): ArgumentsPart {
    const unit = text[at] ?? '';
    switch (this.#state) {
      case 'json':
        return { json: this.#readJson(unit), used: 1 };
      case 'quoted':
        return { json: this.#readQuoted(unit), used: 1 };
      case 'marked':
        return this.#readMarked(text.slice(at));
      case 'mark':
        return { json: this.#readMark(unit), used: 1 };
      case 'word':
        return this.#readWord(unit);
      default:
        return /\s/.test(unit) ? { json: '', used: 1 } : this.#between(unit);
    }
  }

  #between(unit: string): ArgumentsPart {
    if (this.#open.length === 1 && unit === this.#end && this.#state !== 'colon') {
      this.#state = 'over';
      return { json: '}', used: 0 };
    }
    if (unit === '}' || unit === ']') return { json: this.#pop(unit), used: 1 };
    if (this.#state === 'colon' && (unit === ':' || unit === '=')) {
      this.#state = 'value';
      return { json: ': ', used: 1 };
    }
    if (this.#state === 'after' && unit === ',') {
      this.#state = this.#open.at(-1) === 'array' ? 'value' : 'key';
      return { json: ', ', used: 1 };
    }
    this.#isKey = this.#state === 'key';
    if (this.#state === 'value' && (unit === '{' || unit === '[')) {
      this.#open.push(unit === '{' ? 'object' : 'array');
      this.#state = unit === '{' ? 'key' : 'value';
      return { json: unit, used: 1 };
    }
    return this.#begin(unit);
  }

  #begin(unit: string): ArgumentsPart {
    if (unit === '"' || unit === "'") {
      this.#state = unit === '"' ? 'json' : 'quoted';
      return { json: '"', used: 1 };
    }
    this.#buffered = '';
    this.#state = this.#quote?.startsWith(unit) === true ? 'mark' : 'word';
    return { json: '', used: 0 };
  }

  #pop(unit: string): string {
    this.#open.pop();
    this.#state = this.#open.length === 0 ? 'over' : 'after';
    return unit;
  }

  #ended(): void {
    this.#state = this.#isKey ? 'colon' : 'after';
  }

  #readJson(unit: string): string {
    if (this.#escaped) this.#escaped = false;
    else if (unit === '\\') this.#escaped = true;
    else if (unit === '"') this.#ended();
    return unit;
  }

  #readQuoted(unit: string): string {
    if (this.#escaped) {
      this.#escaped = false;
      return inner(ESCAPES[unit] ?? unit);
    }
    if (unit === '\\') {
      this.#escaped = true;
      return '';
    }
    if (unit !== "'") return inner(unit);
    this.#ended();
    return '"';
  }

  #readMark(unit: string): string {
    this.#buffered += unit;
    if (this.#buffered === this.#quote) {
      this.#state = 'marked';
      this.#close = new StopMatcher([this.#buffered]);
      return '"';
    }
    if (this.#quote?.startsWith(this.#buffered) !== true) this.#state = 'word';
    return '';
  }

  #readMarked(text: string): ArgumentsPart {
    const shown = inner(this.#close.push(text));
    if (this.#close.matched === undefined) return { json: shown, used: text.length };
    this.#ended();
    return { json: `${shown}"`, used: text.length - this.#close.rest.length };
  }

  #readWord(unit: string): ArgumentsPart {
    if (!ENDS_WORD.test(unit) && this.#buffered.length < MAX_WORD) {
      this.#buffered += unit;
      return { json: '', used: 1 };
    }
    const word = PYTHON_LITERALS[this.#buffered] ?? this.#buffered;
    const json = !this.#isKey && isScalar(word) ? word : JSON.stringify(this.#buffered);
    // Text that no notation has is dropped, so that each step takes something.
    const used = this.#buffered === '' ? 1 : 0;
    this.#buffered = '';
    this.#ended();
    return { json: used === 1 ? '' : json, used };
  }
}

/** Text as it stands within a JSON string. */
function inner(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}
