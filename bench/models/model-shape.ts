import type { WeightType } from './random-weights.js';

/**
 * llama: every layer attends to every token. gemma3: five of six layers see a sliding window. lfm2: two of three layers are
 * short convolutions, whose state is that of their last inputs.
 */
export type ModelArchitecture = 'llama' | 'gemma3' | 'lfm2';

export interface ModelShape {
  /** llama by default. */
  readonly architecture?: ModelArchitecture;
  /** Length of the residual stream; a multiple of 32 and of `2 * heads`. */
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  /** Divides `heads`. */
  readonly kvHeads: number;
  /** Inner width of the feed-forward part; a multiple of 32. */
  readonly feedForward: number;
  /** The training context in the model’s metadata. */
  readonly context: number;
  readonly weights: WeightType;
  /** Base of the rotary angles; 10,000 by default. */
  readonly ropeBase?: number;
}
