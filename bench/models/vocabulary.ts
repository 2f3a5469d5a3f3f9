import type { Metadata } from './gguf-format.js';

/** Everything that a model file says of its tokens and its chat template. */
export interface Vocabulary {
  /** Number of tokens. */
  readonly size: number;
  /** All `tokenizer.` keys. */
  readonly metadata: Metadata;
  /**
   * Natural logarithm of how often each token should turn up in generated text, by token id; only differences count.
   * Absent: nothing is known, all tokens are treated alike.
   */
  readonly logFrequencies?: Float32Array;
}
