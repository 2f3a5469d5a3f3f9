/** The results of a job, as the engine sends them. */

export type FinishReason = 'stop' | 'length' | 'tool_calls';

/** The part of a reply that a text belongs to. */
export type Channel = 'content' | 'reasoning';

/**
 * One result of a step for one job. A job ends with exactly one of `done`, `failed`, `returned`, or, after `cancel`,
 * without an output; an engine that confirms cancels then sends `cancelled`.
 */
export type Output =
  /** The job has its sequence and its prefill has started. From here on it does not return to the queue. */
  | { readonly id: number; readonly kind: 'started'; readonly cachedTokens: number }
  /** It continues once it is given the embeddings of the image with this index: no state that it starts from has them. */
  | { readonly id: number; readonly kind: 'needsImage'; readonly image: number }
  /** Whole characters, never empty; `tokens`: completion tokens of this reply so far. */
  | {
      readonly id: number;
      readonly kind: 'piece';
      readonly choice: number;
      readonly channel: Channel;
      readonly text: string;
      readonly tokens: number;
    }
  /** A part of a call's arguments, JSON text. The call's first part has its name and no arguments yet. */
  | {
      readonly id: number;
      readonly kind: 'call';
      readonly choice: number;
      /** The call's index in the reply. */
      readonly index: number;
      readonly name?: string;
      readonly arguments: string;
      readonly tokens: number;
    }
  | {
      readonly id: number;
      readonly kind: 'finished';
      readonly choice: number;
      readonly reason: FinishReason;
      /** The stop string, or the end token's id. */
      readonly matchedStop?: string | number;
      readonly completionTokens: number;
      readonly reasoningTokens: number;
    }
  /**
   * One question's answer: probabilities in the labels' order, summing to 1, and the labels' share of the whole
   * distribution.
   */
  | {
      readonly id: number;
      readonly kind: 'answer';
      readonly question: number;
      readonly probabilities: Float64Array;
      readonly labelMass: number;
    }
  /** One of the job's sequences is free: from now on it has one seat less. Never its last. */
  | { readonly id: number; readonly kind: 'seatFreed' }
  /** All replies or answers are complete and its sequences are free. */
  | { readonly id: number; readonly kind: 'done' }
  /** The job failed; its sequences are free. `reason` is the engine's own short text, never content. */
  | { readonly id: number; readonly kind: 'failed'; readonly reason: string }
  /** The server that computes refused a job that had not started: it may go back to the queue. */
  | { readonly id: number; readonly kind: 'returned' }
  /**
   * Prompt tokens that were not computed again, where they are known only at the end: of a server that reports them then, and of
   * all questions of a decision. After `started`, once at most.
   */
  | { readonly id: number; readonly kind: 'cached'; readonly tokens: number }
  /** After `cancel`: nothing of the job is computed any more, or this was not confirmed in time. */
  | { readonly id: number; readonly kind: 'cancelled' };
