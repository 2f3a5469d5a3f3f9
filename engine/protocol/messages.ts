/**
 * The messages between the sidecar and an engine process. Both sides import this file.
 *
 * They are sent over link.ts, with typed arrays. The sidecar starts with `start`, the engine answers `ready` or
 * `unable`; then jobs are sent one way and at most one `step` message per step the other. Every message has the version
 * `v`; another version or an unknown `kind` ends the engine.
 */
import type { CacheScope } from './cache-key.js';
import type { Prompt } from './prompt.js';

export const PROTOCOL_VERSION = 3;

/** The engine's own exit codes. */
export const ENGINE_EXIT = {
  /** After `shutdown`, or when its link closed. */
  done: 0,
  /** After `unable`. */
  unable: 3,
  /** After a message that is not of this protocol. */
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
  /** The cores that it computes on, as in `0-3,8`. Absent: any. */
  readonly cores?: string;
  readonly gpu: 'auto' | 'cuda' | 'vulkan' | 'metal' | false;
  /** auto: if it is faster, and if the backend supports it. */
  readonly flashAttention: 'auto' | boolean;
  /** Prompt tokens that all prefilling sequences together may add to one step. 0: by the backend. */
  readonly prefillTokensPerStep: number;
  /** Keep all cells of sliding windows, so that past state can be cut at any position. Absent: false. */
  readonly swaFull?: boolean;
  /** Number formats of past state. Absent: f16. */
  readonly kv?: KvTypes;
  /** Saved states of a model whose past state cannot be cut. `bytes`: host memory; absent: by the model and what is free. */
  readonly checkpoints?: { readonly bytes?: number };
  /** Time that a step may spend on prompts beside running replies, in percent of what their next tokens take. */
  readonly prefillShare: number;
  /** Which part of a new prompt is reused from KV state that a sequence still has. */
  readonly prefixReuse: PrefixReuse;
  /** Time between two heartbeats, in ms. */
  readonly heartbeatMs: number;
  /** Refuse to load what does not fit into memory. Undefined: no check. */
  readonly memory?: {
    /** Bytes of other engines' weights: mapped from their files, so the kernel counts them as available. */
    readonly mappedElsewhere: number;
  };
}

/** Number formats of the keys and values that attention keeps. */
export interface KvTypes {
  readonly keys: KvType;
  readonly values: KvType;
}

export type KvType = 'f16' | 'q8_0' | 'q4_0';

/**
 * auto: a job that runs alone reuses only state that equals, bit for bit, what it would compute itself, so that its
 * result is the same; one beside others, whose digits depend on the batch anyway, reuses every shared token. any:
 * always every shared token. off: nothing.
 */
export type PrefixReuse = 'auto' | 'any' | 'off';

/** The engine's properties once it is ready. */
export interface EngineFacts {
  /** `general.name` of the GGUF. */
  readonly model: string;
  readonly seats: number;
  readonly contextPerSeat: number;
  /** Number of tokens in the vocabulary. */
  readonly vocabulary: number;
  /** SHA-256 of the weights file, hex. */
  readonly weightVersion: string;
  /** Every decision label is one distinct token after the rendered template. Always true for a decision engine. */
  readonly labelsVerified: boolean;
  readonly threads: number;
  /** Backend in use; false: CPU. */
  readonly gpu: string | false;
  /** Bytes of weights that the engine repacked for itself and are not mapped (memory/repacked.ts); absent: none. */
  readonly repackedBytes?: number;
}

/** One chat completion: `n` replies to one prompt, on up to `seats` sequences at once, the others one after another. */
export interface GenerateJob {
  readonly prompt: Prompt;
  /** Whose held prefixes it may start from, and who may start from what it leaves. */
  readonly scope: CacheScope;
  readonly n: number;
  /**
   * Sequences that it may use at once: 1 to n. Each is returned by `freed` when it is not needed any more or was
   * requested, the last by the job's end.
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
  /** Stop strings, none empty. They end the content; in a thought they are ordinary text. */
  readonly stops: readonly string[];
  /** How the reply is constrained and parsed. Absent: unconstrained, and all text is content. */
  readonly format?: ReplyFormat;
}

/** The form of a reply, as far as it depends on the prompt. */
export interface ReplyFormat {
  readonly thought?: ThoughtFormat;
  /** Absent: the reply has no calls, and text that looks like one is content. */
  readonly calls?: CallFormat;
  /** The grammar that constrains the reply. */
  readonly grammar?: ReplyGrammar;
  /** Control tokens whose names count as text in this reply, because marks contain them. All others have no text. */
  readonly markers: readonly string[];
}

export interface ReplyGrammar {
  /** GBNF made by engine/grammar, its root rule on the first line. */
  readonly gbnf: string;
  /** The most places in the grammar that a text can be at simultaneously: the cost per token. Absent: few. */
  readonly stacks?: number;
  /**
   * The reply is unconstrained up to this text, which must occur, and constrained after it (heldBehind). Absent: from
   * the start.
   */
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
  /**
   * The beginning of `open`, which occurs in no other text of the model. '': calls are recognized by `{` at the reply's
   * start.
   */
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
   * The text before an answer that is no call and is wrapped in a JSON string. Absent: such an answer is not wrapped.
   * Not with `alsoOpen`.
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

/** What values an argument may have. The reader of tagged arguments decides by it whether a text is a string or JSON. */
export interface ParameterTypes {
  readonly name: string;
  readonly types: readonly ValueType[];
}

/** The calls that a reply may contain. */
export interface CallFormat {
  readonly syntax: CallSyntax;
  /** Names that may be called, at least one. */
  readonly functions: readonly string[];
  /** The parameters of each of `functions`, in that order; of a name that occurs twice, all. With tagged arguments alone. */
  readonly parameters?: readonly (readonly ParameterTypes[])[];
  /** One call at most; the reply ends with it. */
  readonly single: boolean;
  /**
   * The grammar from a call's mark to the calls' end: GBNF rules whose start is `calls`, without a `root`. Absent: the
   * reply's own grammar constrains all of it.
   */
  readonly gbnf?: string;
  /** As {@link ReplyGrammar.stacks}, of these rules. */
  readonly stacks?: number;
}

/**
 * How a thought at the start of a reply is separated from its content. No mark is empty or begins with white space.
 * White space before and after a mark, and between a thought and the content, is dropped.
 */
export interface ThoughtFormat {
  /** The prompt has already begun the thought: the reply's first text is thought. */
  readonly open: boolean;
  readonly starts: readonly string[];
  readonly ends: readonly string[];
  /** Texts that end a thought which was not ended properly, and are themselves content (the opening of a tool call). */
  readonly breaks: readonly string[];
  /** Texts that the format puts before the content, with or without a thought before them; dropped. */
  readonly headers: readonly string[];
  /** The content ends here, and the text after it is dropped; absent: at the reply's end. */
  readonly close?: string;
  /** A part of the content ends here, and a thought, a header or more content follows. */
  readonly part?: string;
}

/** One decision request: every question is scored separately after the shared input. */
export interface ScoreJob {
  /** No other sequence shares a question's decode and prompts are split at fixed positions: equal bit for bit. */
  readonly isolate: boolean;
  /** As in {@link GenerateJob}, 1 to the number of questions; 1 when isolated. */
  readonly seats: number;
  /** As in {@link GenerateJob}. */
  readonly scope: CacheScope;
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
   * The model's own temperature for this type of question, multiplied with the job's: engine/prompt/calibration.ts. 1:
   * none.
   */
  readonly temperature: number;
}

/** Sidecar to engine. `id` is unique among the jobs of one engine process. */
export type ToEngine = { readonly v: number } & (
  | { readonly kind: 'start'; readonly setup: EngineSetup }
  | { readonly kind: 'generate'; readonly id: number; readonly job: GenerateJob }
  | { readonly kind: 'score'; readonly id: number; readonly job: ScoreJob }
  | { readonly kind: 'cancel'; readonly id: number }
  /**
   * Other requests wait: the job continues with one seat less, except its last one, and sends `freed` once that seat is
   * free.
   */
  | { readonly kind: 'reduceSeats'; readonly id: number }
  | { readonly kind: 'shutdown' }
);

export type FinishReason = 'stop' | 'length' | 'tool_calls';

/** The part of a reply that a text belongs to. */
export type Channel = 'content' | 'reasoning';

/**
 * One result of a step for one job. A job ends with exactly one of `done`, `failed`, or without an output after
 * `cancel`.
 */
export type Output =
  /** The job has its sequence and its prefill has started. From here on it does not return to the queue. */
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
  | { readonly id: number; readonly kind: 'freed' }
  /** All replies or answers are complete and its sequences are free. */
  | { readonly id: number; readonly kind: 'done' }
  /** The job failed; its sequences are free. `reason` is the engine's own short text, never content. */
  | { readonly id: number; readonly kind: 'failed'; readonly reason: string };

/** The prefix in a free sequence: the chain hashes of its tokens (prefix-hash.ts). None: it is empty, or in use. */
export interface HeldPrefix {
  readonly sequence: number;
  readonly hashes: Uint32Array;
}

/** Tokens in the KV memory: in sequences of jobs, and in free ones, kept for reuse. */
export interface HeldTokens {
  readonly running: number;
  readonly kept: number;
}

/** Engine to sidecar. */
export type FromEngine = { readonly v: number } & (
  | { readonly kind: 'ready'; readonly facts: EngineFacts }
  /** The model cannot be served; the process exits. `reason` is one line; `mayMend`: a later attempt may succeed. */
  | { readonly kind: 'unable'; readonly reason: string; readonly mayMend: boolean }
  /** `held`: the free sequences whose prefixes have changed since the last message. */
  | {
      readonly kind: 'step';
      readonly step: number;
      readonly outputs: readonly Output[];
      readonly held: readonly HeldPrefix[];
    }
  /** Sent every `heartbeatMs`; `step` counts finished decodes, `live` is the number of jobs with a sequence. */
  | { readonly kind: 'heartbeat'; readonly step: number; readonly live: number; readonly tokens: HeldTokens }
);
