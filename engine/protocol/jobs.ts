/** What an engine computes, replies to a prompt, scores of answers or vectors of inputs, and the results that it sends. */
import type { CacheScope, StateElsewhere } from './cache-key.js';
import type { Prompt } from './prompt.js';
import type { ReplyFormat } from './reply-format.js';

/** Sessions that go on turn by turn, by numbers that the sidecar gives them (sidecar/admission/sessions.ts). */
export interface SequenceClaims {
  /** The session that the job's sequence belongs to from now on. Absent: the job is no turn of a session. */
  readonly session?: number;
  /** Sessions that will go on soon: the job does not overwrite their sequences while another one is free. */
  readonly kept: readonly number[];
}

/** What jobs that keep states of sequences have in common. */
export interface StateJob {
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
  /**
   * Of a request of class batch on a lent seat: prompts of all other jobs come first (scheduler/batch-planner.ts). False: it was stopped on one,
   * and has a seat like any other job now.
   */
  readonly background?: boolean;
  /** Absent: the job is no turn of a session, and no sequence is kept for one. */
  readonly claims?: SequenceClaims;
}

/**
 * One chat completion: `n` replies to one prompt, on up to `seats` sequences at once, the others one after another. Prompt and
 * `maxTokens` fit the seat's context together; reply i uses `seed` + i.
 */
export interface GenerateJob extends SamplingParams, StateJob {
  readonly prompt: Prompt;
  readonly n: number;
  /**
   * Sequences that it may use at once: 1 to n. Each is returned by `seatFreed` when it is not needed any more or was
   * requested, the last by the job's end.
   */
  readonly seats: number;
  /** Tokens that each reply may have before a message `limit`, at least 1. Absent: `maxTokens`. */
  readonly limit?: number;
  /** Stop strings, none empty. They end the content; in a thought they are ordinary text. */
  readonly stops: readonly string[];
  /** How the reply is constrained and parsed. Absent: unconstrained, and all text is content. */
  readonly format?: ReplyFormat;
}

/** One decision request: every question is scored separately after the shared input. */
export interface ScoreJob extends StateJob {
  /** No other sequence shares a question's decode and prompts are split at fixed positions: equal bit for bit. */
  readonly isolate: boolean;
  /** As in {@link GenerateJob}, 1 to the number of questions; 1 when isolated. */
  readonly seats: number;
  /** Template head and input. */
  readonly input: Uint32Array;
  readonly questions: readonly ScoreQuestion[];
  /** Divides the labels' log-probabilities before they are made to sum to 1. */
  readonly temperature: number;
}

/** Vectors or scores of whole inputs, one for each. They are sent in the order of the inputs. */
export interface EmbedJob {
  /** Always 1: inputs of all jobs share decodes, whatever their number. */
  readonly seats: 1;
  /** As in {@link GenerateJob}. */
  readonly promptVersion?: string;
  /** Jobs of one scope share its part of the engine's time; nothing is kept for later jobs. */
  readonly scope: CacheScope;
  /** The part of the engine's time that jobs of this scope get, in relation to those of others; above 0. */
  readonly weight: number;
  /** The tokens of all inputs, one after another. */
  readonly tokens: Uint32Array;
  /** Tokens of each input, at least 1 and at most a seat's context. */
  readonly lengths: Uint32Array;
  /** The inputs as texts, for an engine whose server scores these. */
  readonly pairs?: PairTexts;
}

/** A query with each of some documents. */
export interface PairTexts {
  readonly query: string;
  readonly documents: readonly string[];
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
  /** The same request need not get the same reply: its seed is random, and its temperature above 0. Absent: false. */
  readonly mayVary?: boolean;
}

/** How many tokens each reply of a job may have. */
export interface ReplyLimit {
  /** At least 1, at most `maxTokens`. */
  readonly tokens: number;
  /** A reply that has them ends with `length`. Otherwise it waits there for more. */
  readonly last: boolean;
}

/**
 * A reply asks for more than its limit once it has so many tokens left: the answer of a busy sidecar takes less time than they do, so that the
 * reply does not have to wait for it.
 */
export const REQUEST_AHEAD_TOKENS = 128;

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
  /** A reply has, or would have, so many tokens, and its limit is near or less: it waits for a message `limit` there. Once for each limit. */
  | { readonly id: number; readonly kind: 'needsTokens'; readonly choice: number; readonly tokens: number }
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
      /** Tokens that were drafted for the reply, and those of them that it has. Absent: none were. */
      readonly draftedTokens?: number;
      readonly acceptedTokens?: number;
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
  /** The vectors of the next `count` inputs, one after another, each of length 1; or their scores. All numbers are finite. */
  | { readonly id: number; readonly kind: 'vectors'; readonly count: number; readonly values: Float32Array }
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
