/**
 * What it costs to have a session's state again once its seat is lost, learned from the turns of all sessions of a queue: the tokens that
 * the engine's prefix cache does not have are computed, the others restored.
 */

/** A prompt of which fewer tokens are computed, or reused, does not show what a token costs. */
const LEAST_TOKENS = 256;

/**
 * The weights of a lower and of a higher observation in the costs of a token: what others do at the same time only makes them higher, so
 * about a tenth of the observations is below the estimate.
 */
const LOWER_ALPHA = 0.3;
const HIGHER_ALPHA = 0.03;

/** Weight of the newest turn in the share of a prompt that was reused without its seat. */
const REUSED_ALPHA = 0.1;

export class LossCost {
  /** ms for a token; undefined if it is not known. */
  #computeMs: number | undefined;
  #restoreMs = 0;
  /** The share of a session's last prompt that a turn without its seat reused. */
  #reused: number;
  #restores = 0;

  /** `hasCache`: until turns show otherwise, a cache is taken to have all of a prompt at no cost. */
  constructor(hasCache: boolean) {
    this.#reused = hasCache ? 1 : 0;
  }

  /**
   * A turn's first token came after `ms`. `computed`, `cached`: of its prompt's tokens. `before`: tokens of the last prompt of its session,
   * if it lost its seat.
   */
  observe(turn: {
    readonly ms: number;
    readonly computed: number;
    readonly cached: number;
    readonly before: number | undefined;
  }): void {
    const { ms, computed, cached, before } = turn;
    if (before !== undefined && before >= LEAST_TOKENS) {
      this.#reused += REUSED_ALPHA * (Math.min(1, cached / before) - this.#reused);
      if (cached >= LEAST_TOKENS && this.#computeMs !== undefined) {
        const each = Math.max(0, ms - computed * this.#computeMs) / cached;
        this.#restoreMs = this.#restores === 0 ? each : low(this.#restoreMs, each);
        this.#restores += 1;
      }
      if (cached >= computed) return;
    }
    if (computed < LEAST_TOKENS) return;
    this.#computeMs = this.#computeMs === undefined ? ms / computed : low(this.#computeMs, ms / computed);
  }

  /** What the loss of a state of so many tokens costs, ms; 0 where that is not known. */
  msOf(tokens: number): number {
    return tokens * ((1 - this.#reused) * (this.#computeMs ?? 0) + this.#reused * this.#restoreMs);
  }
}

/** A low quantile, moved by one more observation. */
export function low(known: number, seen: number): number {
  return known + (seen < known ? LOWER_ALPHA : HIGHER_ALPHA) * (seen - known);
}
