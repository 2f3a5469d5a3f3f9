/**
 * The messages between the sidecar and an engine process. Both sides import this file.
 *
 * They cross by link.ts, typed arrays as such. The sidecar speaks first (`start`), the engine answers `ready` or `unable`; after that jobs go one way and one `step` message a
 * step comes back. Every message carries `v`; a message with another `v` or an unknown `kind` ends the engine.
 */
import type { Prompt } from './prompt.js';

export const PROTOCOL_VERSION = 3;

/** What an engine process exits with by itself. */
export const ENGINE_EXIT = {
  /** Told to, or its link closed. */
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
  /** Compute threads; 0: one for each of `cores`, else all cores but one (at least one) on a CPU. */
  readonly threads: number;
  /** Where it computes, as in `0-3,8`. Absent: wherever the kernel likes. */
  readonly cores?: string;
  readonly gpu: 'auto' | 'cuda' | 'vulkan' | 'metal' | false;
  /** auto: where it is the faster one, and where the backend has it. */
  readonly flashAttention: 'auto' | boolean;
  /** Prompt tokens that all prefilling sequences together may add to one step. */
  readonly prefillTokensPerStep: number;
  /** Time that a step may spend on prompts beside running replies, in percent of what their next tokens take. */
  readonly prefillShare: number;
  /** What of a new prompt is not evaluated again when a sequence still holds it. */
  readonly prefixReuse: PrefixReuse;
  /** How often the engine says that its event loop turns, in ms. */
  readonly heartbeatMs: number;
  /** Refuse to load what does not fit into memory. Undefined: try it. */
  readonly memory?: {
    /** Bytes of other engines' weights: mapped from their files, so the kernel counts them as free. */
    readonly mappedElsewhere: number;
  };
}

/**
 * auto: a job that runs alone reuses only state that was made exactly as it would make it, so that its result is the same
 * to the last bit; one with company, whose digits depend on its neighbours anyway, reuses all it can. any: always all it
 * can. off: nothing.
 */
export type PrefixReuse = 'auto' | 'any' | 'off';

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
  /** Bytes of the weights that it holds for itself and not mapped (memory/repacked.ts); absent: none. */
  readonly repackedBytes?: number;
}

/** One chat completion: `n` replies to one prompt, on up to `seats` sequences at once, the others in turn. */
export interface GenerateJob {
  readonly prompt: Prompt;
  readonly n: number;
  /**
   * Sequences that it may hold at once: 1 to n. Each that it needs no more, or was asked for, comes back by `freed`, the last
   * by its end.
   */
  readonly seats: number;
  /** Completion tokens per reply, at least 1; prompt and completion fit the seat's context together. */
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
  /** 32 unsigned bits; reply i uses seed + i. */
  readonly seed: number;
  /** Stop strings, none empty. They end the content; in a thought they are text like any other. */
  readonly stops: readonly string[];
  /** How the reply is held and taken apart. Absent: all text is content, written as the model likes. */
  readonly format?: ReplyFormat;
}

/** The form of a reply, as far as it matters for the prompt at hand. */
export interface ReplyFormat {
  readonly thought?: ThoughtFormat;
  /** Absent: the reply calls nothing, and what looks like a call is text. */
  readonly calls?: CallFormat;
  /** The reply is held by this grammar: no token is sampled that it does not allow. */
  readonly grammar?: ReplyGrammar;
  /** Texts of control tokens that count as text in this reply, because marks are made of them. All others have no text. */
  readonly markers: readonly string[];
}

export interface ReplyGrammar {
  /** GBNF made by engine/grammar, its root rule on the first line. */
  readonly gbnf: string;
  /** Places of it that a text can be at, all at once: what it costs a token. Absent: few. */
  readonly stacks?: number;
  /** The reply is free up to this text, which must come, and held from behind it on (heldBehind). Absent: at once. */
  readonly after?: string;
}

/**
 * How a model writes calls, as the texts around their parts:
 *
 *     open NAME between ARGUMENTS ( next NAME between ARGUMENTS )* close
 *
 * ARGUMENTS is one JSON object unless `arguments` says otherwise. White space in the texts counts for nothing, U+0000 stands
 * for an id of letters and digits.
 */
export interface CallSyntax {
  /** The beginning of `open` that no other text of the model has. '': calls are told by their `{` at the reply's beginning. */
  readonly mark: string;
  readonly open: string;
  /** What the model is known to write in place of `open`, whatever its template says. */
  readonly alsoOpen?: readonly string[];
  readonly between: string;
  /** What the model is known to write in place of `between`. */
  readonly alsoBetween?: readonly string[];
  /** Absent: a reply has one call at most. */
  readonly next?: string;
  readonly close: string;
  /**
   * What stands before an answer that is no call and is wrapped in a JSON string. Absent: such an answer stands as it is. Not
   * with `alsoOpen`.
   */
  readonly answer?: string;
  /** How ARGUMENTS are written. Absent: as one JSON object. */
  readonly arguments?: TaggedArguments;
}

/** The types of JSON Schema. A value is of `integer` or `number`, never of both. */
export type ValueType = 'object' | 'array' | 'string' | 'number' | 'integer' | 'boolean' | 'null';

/**
 * Arguments that are written one by one, any number of them:
 *
 *     open NAME between VALUE close
 *
 * VALUE is JSON, but for strings, which stand as they are, without quotes and escapes, up to `close`. One line end that
 * `between` ends with, or `close` begins with, belongs to neither.
 */
export interface TaggedArguments {
  readonly kind: 'tagged';
  readonly open: string;
  /** Some formats write the value's type here. */
  readonly between: Readonly<Record<Exclude<ValueType, 'integer'>, string>>;
  readonly close: string;
  /** A string may stand between `<![CDATA[` and `]]>`, which are no part of it. */
  readonly cdata?: true;
}

/** What an argument may be: which text of a tagged argument is a string is told by this. */
export interface ParameterTypes {
  readonly name: string;
  readonly types: readonly ValueType[];
}

/** The calls that a reply may hold. */
export interface CallFormat {
  readonly syntax: CallSyntax;
  /** Names that may be called, at least one. */
  readonly functions: readonly string[];
  /** The parameters of each of `functions`, in that order; of a name that occurs twice, all. With tagged arguments alone. */
  readonly parameters?: readonly (readonly ParameterTypes[])[];
  /** One call at most; the reply ends with it. */
  readonly single: boolean;
  /**
   * What holds the reply from a call's mark to the calls' end: GBNF rules of which `calls` is the start, without a `root`.
   * Absent: the reply's own grammar holds all of it.
   */
  readonly gbnf?: string;
  /** As {@link ReplyGrammar.stacks}, of these rules. */
  readonly stacks?: number;
}

/**
 * How a thought that leads a reply is told from its content. No mark is empty or begins with white space. White space before a
 * mark, behind it, and between a thought and the content belongs to neither.
 */
export interface ThoughtFormat {
  /** The prompt has begun the thought already: the reply's first text is thought. */
  readonly open: boolean;
  readonly starts: readonly string[];
  readonly ends: readonly string[];
  /** Texts that end a thought which was not ended properly, and are themselves content (the opening of a tool call). */
  readonly breaks: readonly string[];
  /** Texts that the format puts before the content, with or without a thought in front; dropped. */
  readonly headers: readonly string[];
  /** The content ends here, and what is behind it is dropped; absent: at the reply's end. */
  readonly close?: string;
}

/** One decision request: every question scored on its own after the shared input. */
export interface ScoreJob {
  /** No other sequence shares a question's decode and prompts are split at fixed places: equal to the last bit. */
  readonly isolate: boolean;
  /** As in {@link GenerateJob}, 1 to the number of questions; 1 when isolated. */
  readonly seats: number;
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
  /** The model's own for questions of this type, on top of the job's: engine/prompt/calibration.ts. 1: none. */
  readonly temperature: number;
}

/** Sidecar to engine. `id` is unique among the jobs of one engine process. */
export type ToEngine = { readonly v: number } & (
  | { readonly kind: 'start'; readonly setup: EngineSetup }
  | { readonly kind: 'generate'; readonly id: number; readonly job: GenerateJob }
  | { readonly kind: 'score'; readonly id: number; readonly job: ScoreJob }
  | { readonly kind: 'cancel'; readonly id: number }
  /** Others wait: the job goes on with one seat less, its last one excepted, and says `freed` once nothing runs there. */
  | { readonly kind: 'reduceSeats'; readonly id: number }
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
  /** A part of a call's arguments, JSON text. The call's first part names it and has no arguments yet. */
  | {
      readonly id: number;
      readonly kind: 'call';
      readonly choice: number;
      /** The call's place among the reply's calls. */
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
  /** One question's answer: probabilities in the labels' order, summing to 1; the labels' share of the whole distribution. */
  | {
      readonly id: number;
      readonly kind: 'answer';
      readonly question: number;
      readonly probabilities: Float64Array;
      readonly labelMass: number;
    }
  /** One of the job's sequences is free: it may hold one seat fewer from now on. Never for its last. */
  | { readonly id: number; readonly kind: 'freed' }
  /** All replies or answers are out and its sequences are free. */
  | { readonly id: number; readonly kind: 'done' }
  /** The job cannot go on; its sequences are free. `reason` is the engine's own short text, never content. */
  | { readonly id: number; readonly kind: 'failed'; readonly reason: string };

/** What a free sequence holds: the chain hashes of its tokens (prefix-hash.ts). None: it holds nothing, or is taken. */
export interface HeldPrefix {
  readonly sequence: number;
  readonly hashes: Uint32Array;
}

/** Tokens in the KV memory: of sequences that jobs hold, and of free ones, kept to be reused. */
export interface HeldTokens {
  readonly running: number;
  readonly kept: number;
}

/** Engine to sidecar. */
export type FromEngine = { readonly v: number } & (
  | { readonly kind: 'ready'; readonly facts: EngineFacts }
  /** The model cannot be served; the process exits. `reason` is one clear line; `mayMend`: a later try may do better. */
  | { readonly kind: 'unable'; readonly reason: string; readonly mayMend: boolean }
  /** `held`: the free sequences whose prefixes are others than the last message said. */
  | {
      readonly kind: 'step';
      readonly step: number;
      readonly outputs: readonly Output[];
      readonly held: readonly HeldPrefix[];
    }
  /** Sent every `heartbeatMs` whatever goes on; `step` counts finished decodes, `live` the jobs that hold a sequence. */
  | { readonly kind: 'heartbeat'; readonly step: number; readonly live: number; readonly tokens: HeldTokens }
);
