/** The weight of the newest decode of next tokens in the average: about the last eight count. */
const NEWEST_DECODE = 1 / 8;
/** The weight of the newest chunk: it was evaluated just before the next one's position. */
const NEWEST_CHUNK = 1 / 2;

/** The cost of a prompt token grows with the tokens before it, so it is kept by depth, in steps of this many tokens. */
const DEPTH_STEP = 512;

/**
 * Smaller chunks are not worth a decode. On a GPU a decode reads all weights whatever its size, so some dozens of
 * tokens take hardly longer than one, and smaller chunks would not help the replies beside them.
 */
export const LEAST_TOKENS = { cpu: 2, gpu: 64 } as const;

/**
 * The number of prompt tokens that a step may have beside running replies, so that they take the allowed share of the
 * time of the replies' own decode, including the fixed cost of one more decode. Each chunk's time per token determines
 * the size of the next. This spreads the fixed cost over the tokens, which is inexact when sizes differ; but the next
 * chunk is measured again, and the sizes converge to the one that takes the allowed time.
 */
export class PrefillBudget {
  /** Time for prompts over time for next tokens. */
  readonly #share: number;
  readonly #most: number;
  /** Fewer are not worth a decode. */
  readonly least: number;
  /** Milliseconds of a decode of only next tokens; undefined: none was measured. */
  #decodeMs: number | undefined;
  /** Milliseconds per prompt token, by depth in DEPTH_STEP. */
  readonly #msPerToken: (number | undefined)[] = [];

  /** At most `most` tokens a step, and `share` of the time of next tokens, but at least `least` tokens. */
  constructor(share: number, most: number, least: number) {
    this.#share = share;
    this.#most = most;
    this.least = Math.min(least, most);
  }

  /** The expected time of a decode of only next tokens; 0: none was measured. */
  get decodeMs(): number {
    return this.#decodeMs ?? 0;
  }

  /**
   * What a decode took, ms, or `steps` decodes of the same parts together. `counts`: prompt tokens of each part, 0 of a next token;
   * `depth`: tokens before them.
   */
  learn(counts: readonly number[], steps: number, depth: number, ms: number): void {
    const prompt = counts.reduce((sum, count) => sum + count, 0);
    if (prompt === 0) this.decoded(ms / steps);
    else if (counts.every((count) => count > 0)) this.prefilled(prompt, depth, ms);
  }

  /** A decode of next tokens alone. */
  decoded(ms: number): void {
    this.#decodeMs = mixed(this.#decodeMs, ms, NEWEST_DECODE);
  }

  /** A decode of prompt tokens alone, with so many before them. */
  prefilled(tokens: number, depth: number, ms: number): void {
    if (tokens < this.least) return;
    const at = Math.floor(depth / DEPTH_STEP);
    this.#msPerToken[at] = mixed(this.#known(at), ms / tokens, NEWEST_CHUNK);
  }

  /**
   * Prompt tokens after `depth` others that the next step may have, with `ratio` times the share: all, as long as nothing was
   * measured.
   */
  tokens(depth: number, ratio = 1): number {
    const each = this.#known(Math.floor(depth / DEPTH_STEP));
    if (this.#decodeMs === undefined || each === undefined || !(each > 0)) return this.#most;
    const fit = Math.floor((ratio * this.#share * this.#decodeMs) / each);
    return Math.max(this.least, Math.min(fit, this.#most));
  }

  /** Without a measurement, the one before it; before the first, the first. */
  #known(at: number): number | undefined {
    for (let i = Math.min(at, this.#msPerToken.length - 1); i >= 0; i--) {
      if (this.#msPerToken[i] !== undefined) return this.#msPerToken[i];
    }
    return this.#msPerToken.find((each) => each !== undefined);
  }
}

function mixed(known: number | undefined, newest: number, weight: number): number {
  return known === undefined ? newest : known + weight * (newest - known);
}
