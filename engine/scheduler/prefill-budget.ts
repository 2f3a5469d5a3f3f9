/** The weight of the newest decode of next tokens in what is known: about the last eight count. */
const NEWEST_DECODE = 1 / 8;
/** The weight of the newest chunk: it was evaluated just before where the next one will be. */
const NEWEST_CHUNK = 1 / 2;

/** What a prompt token costs grows with what lies before it, so it is kept by depth, in steps of so many tokens. */
const DEPTH_STEP = 512;

/**
 * Fewer prompt tokens than this are never worth a decode. On a GPU a decode reads all weights whatever its size, so that
 * some dozens of tokens take hardly longer than one: smaller chunks would save the replies beside them nothing.
 */
export const LEAST_TOKENS = { cpu: 2, gpu: 64 } as const;

/**
 * How many prompt tokens a step may take beside running replies: as many as their own decode may take, all of it, the fixed
 * cost of one more decode included. Each chunk's time over its tokens says how many the next one may have. That counts the
 * fixed cost as tokens', which is the more wrong the more the sizes differ; but the next chunk is measured again, and the
 * one size that stays is that which takes just the time allowed.
 */
export class PrefillBudget {
  /** Time for prompts over time for next tokens. */
  readonly #share: number;
  readonly #most: number;
  /** Fewer are not worth a decode. */
  readonly least: number;
  /** Milliseconds of a decode of next tokens alone; undefined: none was seen. */
  #decodeMs: number | undefined;
  /** Milliseconds a prompt token took, by depth in DEPTH_STEP. */
  readonly #msPerToken: (number | undefined)[] = [];

  /** At most `most` tokens a step, and `share` of the time that next tokens take, but for the `least` tokens. */
  constructor(share: number, most: number, least: number) {
    this.#share = share;
    this.#most = most;
    this.least = Math.min(least, most);
  }

  /** What a decode of next tokens alone is likely to take; 0: none was seen. */
  get decodeMs(): number {
    return this.#decodeMs ?? 0;
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
   * Prompt tokens behind `depth` others that the next step may take, with `times` the share: all, as long as nothing is
   * known.
   */
  tokens(depth: number, times = 1): number {
    const each = this.#known(Math.floor(depth / DEPTH_STEP));
    if (this.#decodeMs === undefined || each === undefined || !(each > 0)) return this.#most;
    const fit = Math.floor((times * this.#share * this.#decodeMs) / each);
    return Math.max(this.least, Math.min(fit, this.#most));
  }

  /** Where nothing was seen, what was seen just before it; before the first that was seen, that. */
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
