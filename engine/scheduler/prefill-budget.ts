/** The weight of the newest decode of next tokens in the average: about the last eight count. */
const NEWEST_DECODE = 1 / 8;
/** The weight of the newest chunk: it was evaluated just before the next one's position. */
const NEWEST_CHUNK = 1 / 2;

/** The cost of a prompt token grows with the tokens before it, so it is kept by depth, in steps of this many tokens. */
const DEPTH_STEP = 512;

/**
 * Smaller chunks are not worth a decode. On a GPU a decode reads all weights and starts all kernels whatever its size: on an H200
 * chunks of 64 tokens between the steps of 31 replies gave a prompt 2,400 tokens a second, and chunks of 256 alone gave
 * 8,400 (bench/results/gpu-first-run.md).
 */
export const LEAST_TOKENS = { cpu: 2, gpu: 256 } as const;

/**
 * A decode of fewer prompt tokens takes hardly longer than one of a single token, so a larger chunk's time cannot be told from its.
 * The least chunk has so many on the slowest GPU too.
 */
const FEW_TOKENS = 64;

/** The least chunk holds running replies up for at most as long as so many of their steps take: a slow GPU's is smaller. */
const LEAST_STEPS = 8;

/**
 * The number of prompt tokens that a round of the step loop may have beside running replies, so that they take the allowed share
 * of the time of the replies' own decode, including the fixed cost of one more decode. Each chunk's time per token determines
 * the size of the next. This spreads the fixed cost over the tokens, which is inexact when sizes differ; but the next
 * chunk is measured again, and the sizes converge to the one that takes the allowed time. Where that is smaller than the least
 * chunk, rounds without one save their time until it pays for one.
 */
export class PrefillBudget {
  /** Time for prompts over time for next tokens. */
  readonly #share: number;
  readonly #most: number;
  readonly #least: number;
  /** Whether a round may have no chunk, and save its time. Otherwise it has at least the least one. */
  readonly saves: boolean;
  /** Milliseconds of a decode of only next tokens; undefined: none was measured. */
  #decodeMs: number | undefined;
  /** Milliseconds that this round and those before it, since the last chunk, may use; and those that this round has used. */
  #savedMs = 0;
  #usedMs = 0;
  /** Milliseconds per prompt token, by depth in DEPTH_STEP. */
  readonly #msPerToken: (number | undefined)[] = [];

  /** At most `most` tokens a round, and `share` of the time of next tokens, but at least `least` tokens. */
  constructor(share: number, most: number, least: number) {
    this.#share = share;
    this.#most = most;
    this.#least = Math.min(least, most);
    this.saves = least > LEAST_TOKENS.cpu;
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
    if (tokens < Math.min(this.#least, FEW_TOKENS)) return;
    const at = Math.floor(depth / DEPTH_STEP);
    this.#msPerToken[at] = mixed(this.#known(at), ms / tokens, NEWEST_CHUNK);
  }

  /** Fewer tokens after `depth` others are not worth a decode. */
  least(depth: number): number {
    const each = this.#each(depth);
    if (!this.saves || each === undefined) return this.#least;
    const held = Math.floor((LEAST_STEPS * this.decodeMs) / each);
    return Math.min(this.#least, Math.max(held, FEW_TOKENS));
  }

  /** A round begins. Prompts that wait beside it may use `ratio` times the share of its time; 0: no prompt waits. */
  begin(ratio: number): void {
    this.#usedMs = 0;
    this.#savedMs = ratio === 0 ? 0 : this.#savedMs + this.#roundMs(ratio);
  }

  /** The planner gave this round so many prompt tokens, after `depth` others, which use up what was saved. */
  spend(tokens: number, depth: number, ratio: number): void {
    const each = this.#each(depth) ?? 0;
    const bound = this.least(depth) * each + this.#roundMs(ratio);
    this.#usedMs += tokens * each;
    this.#savedMs = Math.max(0, Math.min(this.#savedMs, bound) - tokens * each);
  }

  /**
   * Tokens after `depth` others that this round may have of a prompt with `left` more to its chunk's end, with `ratio` times the
   * share: all, as long as nothing was measured. 0: fewer than are worth a decode, so that a later round has them.
   */
  tokens(depth: number, ratio = 1, left = Infinity): number {
    const each = this.#each(depth);
    if (!(this.decodeMs > 0) || each === undefined) return this.#most;
    const least = this.least(depth);
    const used = this.saves ? this.#usedMs : 0;
    const fit = Math.floor((this.#roundMs(ratio) - used) / each);
    if (fit >= least) return Math.min(fit, this.#most);
    if (!this.saves) return least;
    const wanted = Math.min(least, left);
    return this.#savedMs >= wanted * each ? wanted : 0;
  }

  #roundMs(ratio: number): number {
    return ratio * this.#share * this.decodeMs;
  }

  /** Milliseconds per token; undefined: not known, or too short to be measured. */
  #each(depth: number): number | undefined {
    const each = this.#known(Math.floor(depth / DEPTH_STEP));
    return each !== undefined && each > 0 ? each : undefined;
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
