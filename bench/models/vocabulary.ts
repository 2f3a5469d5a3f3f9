import type { Metadata } from './gguf-format.js';

/** Everything that a model file contains about its tokens and its chat template. */
export interface Vocabulary {
  /** Number of tokens. */
  readonly size: number;
  /** All `tokenizer.` keys. */
  readonly metadata: Metadata;
  /**
   * Natural logarithm of how often each token should occur in generated text, by token id; only differences count.
   * Absent: unknown, all tokens are treated alike.
   */
  readonly logFrequencies?: Float32Array;
}
