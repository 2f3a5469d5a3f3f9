/**
 * The messages between the sidecar and an engine process. Both sides import this file and it imports nothing.
 *
 * A child is forked with `serialization: 'advanced'` (structured clone), so typed arrays cross as they are. The sidecar
 * speaks first (`start`), the engine answers `ready` or `unable`; after that jobs go one way and one `step` message a
 * step comes back. Every message carries `v`; a message with another `v` or an unknown `kind` ends the engine.
 */
export const PROTOCOL_VERSION = 1;

/** What an engine process exits with by itself. */
export const ENGINE_EXIT = {
  /** Told to, or its channel closed. */
  done: 0,
  /** After `unable`. */
  unable: 3,
  /** A message that is not of this protocol came. */
  protocol: 4,
} as const;

/** How an engine is to be set up. */
export interface EngineSetup {
  /** Absolute path of a GGUF file. */
  readonly file: string;
  readonly kind: 'chat' | 'decision';
  /** Parallel sequences. */
  readonly seats: number;
  /** Tokens that one sequence can hold: prompt and completion together. */
  readonly contextPerSeat: number;
  /** Compute threads; 0: all cores but one (at least one) on a CPU. */
  readonly threads: number;
  readonly gpu: 'auto' | 'cuda' | 'vulkan' | 'metal' | false;
  /** Prompt tokens that all prefilling sequences together may add to one step. */
  readonly prefillTokensPerStep: number;
  /** How often the engine says that its event loop turns, in ms. */
  readonly heartbeatMs: number;
  /** Refuse to load what does not fit into memory. Undefined: try it. */
  readonly memory?: {
    /** Bytes of other engines' weights: mapped from their files, so the kernel counts them as free. */
    readonly mappedElsewhere: number;
  };
}

/** What an engine says of itself once it can take work. */
export interface EngineFacts {
  /** `general.name` of the GGUF. */
  readonly model: string;
  readonly seats: number;
  readonly contextPerSeat: number;
  /** Number of tokens in the vocabulary. */
  readonly vocabulary: number;
  /** SHA-256 of the weights file, hex. */
  readonly weightVersion: string;
  /** Every decision label is one distinct token after the rendered template. Always true of a decision engine. */
  readonly labelsVerified: boolean;
  readonly threads: number;
  /** Backend in use; false: CPU. */
  readonly gpu: string | false;
}

/** One chat completion: `n` replies to one prompt, on one sequence, one after the other. */
export interface GenerateJob {
  readonly prompt: Uint32Array;
  readonly n: number;
  /** Completion tokens per reply, at least 1; prompt and completion fit the seat's context together. */
  readonly maxTokens: number;
  /** 0: greedy. */
  readonly temperature: number;
  readonly topP: number;
  readonly frequencyPenalty: number;
  readonly presencePenalty: number;
  /** 32 unsigned bits; reply i uses seed + i. */
  readonly seed: number;
  /** Stop strings, none empty. */
  readonly stops: readonly string[];
}

/** One decision request: every question scored on its own after the shared input, none with another in its decode. */
export interface ScoreJob {
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
}

/** Sidecar to engine. `id` is unique among the jobs of one engine process. */
export type ToEngine = { readonly v: number } & (
  | { readonly kind: 'start'; readonly setup: EngineSetup }
  | { readonly kind: 'generate'; readonly id: number; readonly job: GenerateJob }
  | { readonly kind: 'score'; readonly id: number; readonly job: ScoreJob }
  | { readonly kind: 'cancel'; readonly id: number }
  | { readonly kind: 'shutdown' }
);

export type FinishReason = 'stop' | 'length' | 'tool_calls';

/** Which part of a reply a text belongs to. */
export type Channel = 'content' | 'reasoning';

/** One thing that a step produced for one job. A job ends with exactly one of `done`, `failed`, or silence after `cancel`. */
export type Output =
  /** The job has its sequence and its prefill is under way. From here it is not given back. */
  | { readonly id: number; readonly kind: 'started'; readonly cachedTokens: number }
  /** Whole characters, never empty; `tokens`: completion tokens of this reply so far. */
  | {
      readonly id: number;
      readonly kind: 'piece';
      readonly choice: number;
      readonly channel: Channel;
      readonly text: string;
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
  /** One question's answer: probabilities in the labels' order, summing to 1; the labels' share of the whole distribution. */
  | {
      readonly id: number;
      readonly kind: 'answer';
      readonly question: number;
      readonly probabilities: Float64Array;
      readonly labelMass: number;
    }
  /** All replies or answers are out and the sequence is free. */
  | { readonly id: number; readonly kind: 'done' }
  /** The job cannot go on; the sequence is free. `reason` is the engine's own short text, never content. */
  | { readonly id: number; readonly kind: 'failed'; readonly reason: string };

/** Engine to sidecar. */
export type FromEngine = { readonly v: number } & (
  | { readonly kind: 'ready'; readonly facts: EngineFacts }
  /** The model cannot be served; the process exits. `reason` is one clear line; `mayMend`: a later try may do better. */
  | { readonly kind: 'unable'; readonly reason: string; readonly mayMend: boolean }
  | { readonly kind: 'step'; readonly step: number; readonly outputs: readonly Output[] }
  /** Sent every `heartbeatMs` whatever goes on; `step` counts finished decodes, `live` the jobs that hold a sequence. */
  | { readonly kind: 'heartbeat'; readonly step: number; readonly live: number }
);
