/** The placeholder for an id in a call's texts: a run of letters and digits that is ignored. */
export const ID = '\u0000';

/** The placeholder for the called function's name in what stands around a call. */
export const CALLED = '\u0001';

/** The result of a unit: more is needed, the alternative with this number is complete, or none can match any more. */
export type Progress = 'more' | 'failed' | number;

/**
 * Matches text, unit by unit, against fixed texts; the first complete one wins. White space is ignored on both sides,
 * since models vary a template's spaces when no grammar constrains them.
 */
export class ExpectedText {
  readonly #texts: readonly string[];
  /** Matched units of each text; -1: it cannot match any more. */
  readonly #at: number[];

  constructor(texts: readonly string[]) {
    this.#texts = texts.map((text) => text.replace(/\s+/g, ''));
    this.#at = texts.map(() => 0);
  }

  /** Takes one UTF-16 unit. */
  take(unit: string): Progress {
    if (isSpace(unit)) return this.progress;
    for (const [i, text] of this.#texts.entries()) this.#at[i] = follow(text, this.#at[i] ?? -1, unit);
    return this.progress;
  }

  /** The state without a further unit: a text of only white space is complete at once. */
  get progress(): Progress {
    const complete = this.#texts.findIndex((text, i) => this.#at[i] === text.length);
    if (complete >= 0) return complete;
    return this.#at.some((at) => at >= 0) ? 'more' : 'failed';
  }
}

/** An id ends at the first unit that cannot be part of it. */
function follow(text: string, at: number, unit: string): number {
  if (at < 0) return -1;
  if (text[at] !== ID) return text[at] === unit ? at + 1 : -1;
  if (/[A-Za-z0-9]/.test(unit)) return at;
  return text[at + 1] === unit ? at + 2 : -1;
}

function isSpace(unit: string): boolean {
  return unit === ' ' || unit === '\n' || unit === '\t' || unit === '\r';
}
