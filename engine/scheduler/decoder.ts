/**
 * The one small port through which the step loop drives llama.cpp. What is behind it (the public iterators, or the layer
 * below them) is a matter of speed and version; the loop above does not change.
 */

/** How the next token of a reply is chosen. */
export interface Sampling {
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
  /** Control tokens, by name, that may come while a grammar holds the reply: its texts are made of them. All others may not. */
  readonly markers?: readonly string[];
  /** The longest completion, in tokens: bounds the penalties' memory. */
  readonly maxTokens: number;
}

/** One reply's sampler: its random state and its memory for penalties. Owned by whoever made it; dispose once. */
export interface Sampler {
  /**
   * From now on the reply is held by this grammar (GBNF, rule `root`), in place of any before: no token comes that it does
   * not allow, and once it is finished only an end token. The root must first match the text of `tokens`, the last ones
   * sampled, oldest first, often none. False: they do not match, and the reply goes on unheld. A grammar that cannot be
   * used holds all the same: the next step of the reply is a fault, since nothing can match it. Not during a step.
   * `stacks`: places of the grammar that a text can be at, all at once, by which a decoder knows an expensive one.
   */
  hold(gbnf: string, tokens: readonly number[], stacks?: number): boolean;
  /**
   * Until the reply's next token can be sampled: what its grammar allows is being worked out beside the steps, and no part
   * with this sampler may be in one. Never rejects. Undefined: now.
   */
  readonly pending?: Promise<void> | undefined;
  /** The reply is no longer held. Not during a step. */
  release(): void;
  dispose(): void;
}

/** What one sequence adds to a step. A sequence appears at most once in a step. */
export type Part =
  /** Evaluate only: a chunk of a prompt. */
  | { readonly kind: 'prefill'; readonly sequence: number; readonly tokens: Uint32Array }
  /** Evaluate, then choose the next token from the last one's logits. */
  | { readonly kind: 'sample'; readonly sequence: number; readonly tokens: Uint32Array; readonly sampler: Sampler }
  /** Evaluate, then read the labels' logits after the last token. */
  | { readonly kind: 'score'; readonly sequence: number; readonly tokens: Uint32Array; readonly labels: Uint32Array };

export type PartResult =
  | { readonly kind: 'filled' }
  /** `then`: those of the run's steps after it, each from the one before. */
  | { readonly kind: 'token'; readonly token: number; readonly then?: readonly number[] }
  /** Natural log-probabilities of the labels over the whole vocabulary, in their order. */
  | { readonly kind: 'scores'; readonly logprobs: Float64Array }
  /** This part failed; what its sequence holds is unknown. */
  | { readonly kind: 'fault'; readonly reason: string };

/**
 * Steps that need nobody's look in between: all parts are next tokens of replies, and the token that each step chooses is
 * what the next one evaluates. They go on until one chooses an end token, or `halt`.
 */
export interface Run {
  /** Steps at most. */
  readonly most: number;
  /** How often they may be told of, at most. */
  readonly everyMs: number;
  /** Told now and then, with a result a part, of steps that nobody was told of, while others are made. */
  readonly made: (results: readonly PartResult[]) => void;
}

/** The state of a sequence after its first `length` tokens, in host memory. Owned by its maker; dispose once. */
export interface Checkpoint {
  /** Tokens. */
  readonly length: number;
  readonly bytes: number;
  dispose(): void;
}

export interface Decoder {
  /**
   * Decodes all parts together, in ascending order of sequence (the caller sorts), on another thread, and resolves with one
   * result a part. Their tokens together fit the context's batch. Never rejects. No second step before the first resolved.
   * `run`: further steps may follow by themselves; resolves with the results that were not told yet, none if all were.
   */
  step(parts: readonly Part[], run?: Run): Promise<PartResult[]>;
  /** No further step of a {@link Run} begins; its promise resolves after the one under way. */
  halt(): void;
  /** Whether `truncate` can cut anywhere; otherwise only to nothing, or at a cost that no one should pay. */
  readonly cuttable: boolean;
  /** Whether `copy` works. */
  readonly copyable: boolean;
  /** Forgets what a sequence holds from token `length` on. Not during a step. Rejects when the state cannot be cut. */
  truncate(sequence: number, length: number): Promise<void>;
  /**
   * Makes `target` hold what `source` holds, which is another. Not during a step. Rejects when it cannot; what `target`
   * holds is then unknown.
   */
  copy(target: number, source: number): Promise<void>;
  /**
   * Copies the state of a sequence as it is now. Not during a step. Rejects when it cannot; what the sequence holds is then
   * unknown. Absent: the decoder has no checkpoints.
   */
  save?(sequence: number): Promise<Checkpoint>;
  /**
   * Makes a sequence hold what it held when the checkpoint was saved. It must still hold the same tokens up to there, and may
   * hold more. Not during a step. Rejects when it cannot; what it holds is then unknown.
   */
  restore?(sequence: number, checkpoint: Checkpoint): Promise<void>;
  sampler(sampling: Sampling): Sampler;
  /** Whether a reply that is held by a grammar of so many stacks will be {@link Sampler.pending}. Absent: none will. */
  isExpensive?(stacks: number): boolean;
}
