/** What an engine computes: replies to a prompt, or scores of answers. */
import type { CacheScope } from './cache-key.js';
import type { Prompt } from './prompt.js';
import type { ReplyFormat } from './reply-format.js';
import type { SamplingParams } from './sampling.js';
import type { StateElsewhere } from './shared-state.js';

/**
 * One chat completion: `n` replies to one prompt, on up to `seats` sequences at once, the others one after another. Prompt and
 * `maxTokens` fit the seat's context together; reply i uses `seed` + i.
 */
export interface GenerateJob extends SamplingParams {
  readonly prompt: Prompt;
  /** The tokenizer and template that made the prompt, as in EngineFacts; absent: they are not checked. */
  readonly promptVersion?: string;
  /** The scope whose prefixes the job may start from, and whose later jobs may start from what it leaves. */
  readonly scope: CacheScope;
  /**
   * A state in another process of the same scope with more of the prompt, as that process reported. Absent: there is
   * none.
   */
  readonly elsewhere?: StateElsewhere;
  /** Jobs run on other replicas of its model, so it does not run alone, even if it is the only one of its process. Absent: false. */
  readonly besideOthers?: boolean;
  readonly n: number;
  /**
   * Sequences that it may use at once: 1 to n. Each is returned by `seatFreed` when it is not needed any more or was
   * requested, the last by the job's end.
   */
  readonly seats: number;
  /** Stop strings, none empty. They end the content; in a thought they are ordinary text. */
  readonly stops: readonly string[];
  /** How the reply is constrained and parsed. Absent: unconstrained, and all text is content. */
  readonly format?: ReplyFormat;
}

/** One decision request: every question is scored separately after the shared input. */
export interface ScoreJob {
  /** No other sequence shares a question's decode and prompts are split at fixed positions: equal bit for bit. */
  readonly isolate: boolean;
  /** As in {@link GenerateJob}, 1 to the number of questions; 1 when isolated. */
  readonly seats: number;
  /** Both as in {@link GenerateJob}. */
  readonly promptVersion?: string;
  readonly scope: CacheScope;
  /** Both as in {@link GenerateJob}. */
  readonly elsewhere?: StateElsewhere;
  readonly besideOthers?: boolean;
  /** Template head and input. */
  readonly input: Uint32Array;
  readonly questions: readonly ScoreQuestion[];
  /** Divides the labels' log-probabilities before they are made to sum to 1. */
  readonly temperature: number;
}

export interface ScoreQuestion {
  /** Question and template tail; at least one token. */
  readonly tail: Uint32Array;
  /** One token per answer, distinct, in the answers' order. */
  readonly labels: Uint32Array;
  /**
   * The model's own temperature for this type of question, multiplied with the job's: engine/prompt/labels.ts. 1:
   * none.
   */
  readonly temperature: number;
}
