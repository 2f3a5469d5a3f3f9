/** Reads one call's arguments, in whatever notation a model writes them, and returns them as JSON text. */
import { ObjectEnd } from './json-text.js';

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

/** Arguments that are written as one JSON object. */
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
