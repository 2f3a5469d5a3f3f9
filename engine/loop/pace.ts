/** The weight of the newest measurement in what is known: about the last eight count. */
const NEWEST = 1 / 8;

/** Sizes differ enough to tell a slope from noise when their standard deviation is this share of their mean. */
const TELLING_SPREAD = 0.2;

/**
 * Fewer prompt tokens than this are never worth a decode. On a GPU a decode reads all weights whatever its size, so that
 * some dozens of tokens take hardly longer than one: smaller chunks would save the replies beside them nothing.
 */
export const LEAST_TOKENS = { cpu: 8, gpu: 64 } as const;

/**
 * How many prompt tokens a step may take beside running replies. What a prompt token costs is the slope of the time of
 * prompt decodes over their tokens (weighted least squares): the fixed cost of a decode is paid whatever its size, and
 * counted as tokens' it would make small chunks seem dear, hence smaller still.
 */
export class Pace {
  /** Time for prompts over time for next tokens. */
  readonly #share: number;
  readonly #most: number;
  /** Fewer are not worth a decode. */
  readonly least: number;
  /** Milliseconds of a decode of next tokens alone; undefined: none was seen. */
  #decodeMs: number | undefined;
  /** Means over prompt decodes: tokens, ms, and their products. */
  #n = 0;
  #ms = 0;
  #nn = 0;
  #nms = 0;
  #seen = false;

  /** At most `most` tokens a step, and `share` of the time that next tokens take, but for the `least` tokens. */
  constructor(share: number, most: number, least: number) {
    this.#share = share;
    this.#most = most;
    this.least = Math.min(least, most);
  }

  /** A decode of next tokens alone. */
  decoded(ms: number): void {
    this.#decodeMs = this.#decodeMs === undefined ? ms : this.#decodeMs + NEWEST * (ms - this.#decodeMs);
  }

  /** A decode of prompt tokens alone. */
  prefilled(tokens: number, ms: number): void {
    if (tokens < this.least) return;
    const weight = this.#seen ? NEWEST : 1;
    this.#seen = true;
    this.#n += weight * (tokens - this.#n);
    this.#ms += weight * (ms - this.#ms);
    this.#nn += weight * (tokens * tokens - this.#nn);
    this.#nms += weight * (tokens * ms - this.#nms);
  }

  /** Prompt tokens that the next step may take: all, as long as too little is known. */
  tokens(): number {
    const each = this.#msPerToken();
    if (this.#decodeMs === undefined || !(each > 0)) return this.#most;
    const fit = Math.floor((this.#share * this.#decodeMs) / each);
    return Math.max(this.least, Math.min(fit, this.#most));
  }

  #msPerToken(): number {
    const spread = this.#nn - this.#n * this.#n;
    const slope = (this.#nms - this.#n * this.#ms) / spread;
    const mean = this.#ms / this.#n;
    // Of sizes that hardly differ the slope is noise: then the mean, which is never below the slope of a line from above 0.
    return spread > (TELLING_SPREAD * this.#n) ** 2 && slope > 0 ? Math.min(slope, mean) : mean;
  }
}
