/** Stands for an id in a call's texts: a run of letters and digits that says nothing here. */
export const ID = '\u0000';

/** What a unit led to: more is needed, the alternative of this number is complete, or none can be any more. */
export type Progress = 'more' | 'failed' | number;

/**
 * Matches text, unit by unit, against fixed texts, of which the first to be complete wins. White space counts for nothing
 * on either side: models are not held to a template's spaces where no grammar holds them.
 */
export class ExpectedText {
  readonly #texts: readonly string[];
  /** Units matched of each text; -1: it cannot be this one any more. */
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

  /** Where it stands without a further unit: a text of nothing but white space is complete at once. */
  get progress(): Progress {
    const complete = this.#texts.findIndex((text, i) => this.#at[i] === text.length);
    if (complete >= 0) return complete;
    return this.#at.some((at) => at >= 0) ? 'more' : 'failed';
  }
}

/** An id is left at the first unit that cannot be of it. */
function follow(text: string, at: number, unit: string): number {
  if (at < 0) return -1;
  if (text[at] !== ID) return text[at] === unit ? at + 1 : -1;
  if (/[A-Za-z0-9]/.test(unit)) return at;
  return text[at + 1] === unit ? at + 2 : -1;
}

function isSpace(unit: string): boolean {
  return unit === ' ' || unit === '\n' || unit === '\t' || unit === '\r';
}
