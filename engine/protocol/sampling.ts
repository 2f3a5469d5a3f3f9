/** How the next token of a reply is chosen. */
export interface SamplingParams {
  /** Completion tokens per reply, at least 1; it also bounds the memory of the penalties. */
  readonly maxTokens: number;
  /** 0: greedy. */
  readonly temperature: number;
  readonly topP: number;
  /** The most probable tokens that may come; absent: all. */
  readonly topK?: number;
  /** The least probability that a token may have, as a part of the most probable one's; absent: any. */
  readonly minP?: number;
  readonly frequencyPenalty: number;
  readonly presencePenalty: number;
  /** 32 unsigned bits. */
  readonly seed: number;
}
