/**
 * The decoder port: how the step loop uses llama.cpp (docs/architecture.md#ports). The loop does not depend on its implementation, of
 * which unit tests have one without a model.
 */
import type { ImageSegment } from '../protocol/prompt.js';
import type { SamplingParams } from '../protocol/jobs.js';
import type { SharedState, StateElsewhere } from '../protocol/cache-key.js';

/** How the next token of one reply is chosen. */
export interface Sampling extends SamplingParams {
  /**
   * Control tokens, by name, that are allowed while a grammar constrains the reply, since its texts contain them. All
   * others are not.
   */
  readonly markers?: readonly string[];
  /**
   * The prompt before the reply, from which its next tokens may be drafted. The decoder copies it and overwrites its copy when the
   * sampler is disposed. Absent: nothing is drafted.
   */
  readonly draftFrom?: Uint32Array;
}

/** One reply's sampler: its random state and its memory for penalties. The code that made it must dispose it once. */
export interface Sampler {
  /**
   * Constrains the reply by this grammar (GBNF, rule `root`) from now on, in place of any previous one: only tokens
   * that it allows are sampled, and once it is finished only an end token. The root must first match the text of
   * `tokens`, the last sampled ones, oldest first, often none. False: they do not match, and the reply stays
   * unconstrained. With an unusable grammar, the reply's next step is a fault. Not during a step. `stacks`: the most
   * places in the grammar that a text can be at, by which a decoder recognizes an expensive one.
   */
  constrain(gbnf: string, tokens: readonly number[], stacks?: number): boolean;
  /**
   * Settles when the reply's next token can be sampled: its grammar's mask is computed beside the steps, and no part
   * with this sampler may be in one. Never rejects. Undefined if they may be now.
   */
  readonly pending?: Promise<void> | undefined;
  /** The reply is not constrained any more. Not during a step. */
  release(): void;
  dispose(): void;
}

/** What every part is: tokens that its sequence holds afterwards, after what it held. */
interface Evaluated {
  readonly sequence: number;
  readonly tokens: Uint32Array;
}

/** Which embeddings of an image a part has. */
export interface ImagePart extends Pick<ImageSegment, 'positions' | 'columns' | 'whole'> {
  /** Of its first one. */
  readonly index: number;
  /** Embeddings of the whole image. */
  readonly of: number;
}

/** What one sequence adds to a step. A sequence appears at most once in a step. */
export type StepPart =
  /** Evaluate only: a chunk of a prompt. */
  | (Evaluated & { readonly kind: 'prefill' })
  /** Evaluate, then choose the next token from the last one's logits. */
  | (Evaluated & { readonly kind: 'sample'; readonly sampler: Sampler })
  /**
   * Evaluate these embeddings, some or all of an image, in place of the tokens, which are its ids. Alone in its step. A fault
   * where there are not as many as tokens.
   */
  | (Evaluated & { readonly kind: 'embeddings'; readonly values: Float32Array; readonly image: ImagePart })
  /** Evaluate, then read the labels' logits after the last token. */
  | (Evaluated & { readonly kind: 'score'; readonly labels: Uint32Array });

export type PartResult =
  | { readonly kind: 'filled' }
  /**
   * The tokens chosen, `token` first. The sequence then contains the part's tokens and all chosen ones but the last, with which
   * the reply's next part begins. `then`: those of a run's further tokens. `speculation`: of a run with drafts, whose steps may
   * choose several tokens. Absent: each step has chosen one.
   */
  | {
      readonly kind: 'token';
      readonly token: number;
      readonly then?: readonly number[];
      readonly speculation?: Speculated;
    }
  /** In a step of several results: this part has no more of them. */
  | { readonly kind: 'none' }
  /** Natural log-probabilities of the labels over the whole vocabulary, in their order. */
  | { readonly kind: 'scores'; readonly logprobs: Float64Array }
  /** This part failed; the state of its sequence is unknown. */
  | { readonly kind: 'fault'; readonly reason: string };

/** What was drafted in the steps that gave a result. */
export interface Speculated {
  /** The steps, of which each part of the run has as many; 0 for further tokens of a step. */
  readonly steps: number;
  /** Tokens that were drafted for this part, and those of them that were chosen. */
  readonly drafted: number;
  readonly accepted: number;
}

/** Tokens that a step chooses for a part at most: one, and those that were drafted. */
export const MOST_STEP_TOKENS = 64;

/**
 * Steps without JavaScript in between: all parts are next tokens of replies, and each step's last chosen tokens are the next
 * step's input. They continue until one chooses an end token, or `halt`.
 */
export interface Run {
  /** The most tokens that each part is given; the steps end with the first one that has them. */
  readonly most: readonly number[];
  /** A further step begins only where each part may have so many more tokens. Absent: 1. */
  readonly reserve?: number;
  /** What a step of several parts with drafts may take, ms. Absent: any time. */
  readonly stepMs?: number | undefined;
  /** One step only, which may have drafts. Absent: false. */
  readonly once?: boolean;
  /**
   * One step only, and each token of a part is chosen after the one before was delivered: what is delivered may constrain a reply. Its
   * results have one token of a part at most. Absent: false.
   */
  readonly checked?: boolean;
  /** The least time between reports, ms. */
  readonly everyMs: number;
}

/** The state of a sequence after its first `length` tokens, in host memory. Owned by its maker; dispose once. */
export interface Checkpoint {
  /** Tokens. */
  readonly length: number;
  readonly bytes: number;
  dispose(): void;
}

/** All that a sequence holds. */
export interface WholeState extends Checkpoint {
  /** By which other processes can open it. Asked for while a step computes. Undefined if they cannot. */
  readonly shared?: SharedState | undefined;
}

/** What is written beside a whole state for other processes. Their maker overwrites them. */
export interface StateNotes {
  readonly tokens: Uint32Array;
  /** Of chunks that were evaluated by themselves. */
  readonly ends: Uint32Array;
}

export interface OpenedState {
  readonly state: WholeState;
  readonly notes: StateNotes;
}

/** What can be done with a sequence's state between steps. Only `Sequences` and `SavedStates` call it, and never during a step. */
export interface SequenceStates {
  /** Whether `truncate` can keep any length; otherwise only nothing, or at a high cost. */
  readonly truncatable: boolean;
  /** The same of a state that was saved whole and restored. Absent: as `truncatable`. */
  readonly restoredTruncatable?: boolean;
  /** Whether `copy` works. */
  readonly copyable: boolean;
  /** Removes a sequence's state from token `length` on. Rejects if the state cannot be truncated there. */
  truncate(sequence: number, length: number): Promise<void>;
  /**
   * Copies the state of `source` to `target`, another sequence. Rejects on failure; the state of
   * `target` is then unknown.
   */
  copy(target: number, source: number): Promise<void>;
  /**
   * Copies the state of a sequence as it is now. Rejects when it cannot; what the sequence holds is then
   * unknown. Absent: the decoder has no checkpoints.
   */
  save?(sequence: number): Promise<Checkpoint>;
  /**
   * Makes a sequence hold what it held when the checkpoint was saved. It must still hold the same tokens up to there, and may
   * hold more. Rejects when it cannot; what it holds is then unknown.
   */
  restore?(sequence: number, checkpoint: Checkpoint): Promise<void>;
  /**
   * Copies all that a sequence holds, so that any sequence can be made to hold it. Changes nothing. Rejects when it cannot.
   * `notes`: by which sequences of other processes can, too; absent: only those of this one. Absent: the decoder has no way to.
   */
  saveWhole?(sequence: number, notes?: StateNotes): Promise<WholeState>;
  /**
   * Makes a sequence hold what was saved by {@link saveWhole}, whatever it held. Rejects when it cannot, also where the state has
   * changed since it was saved; what the sequence holds is then unknown.
   */
  restoreWhole?(sequence: number, state: WholeState): Promise<void>;
  /** Bytes that whole states may still take in memory of the decoder's own; undefined or absent: they take the system's. */
  readonly room?: number | undefined;
  /** A state that another process has saved with notes; it stays that one's too. Throws where it is gone. */
  openWhole?(elsewhere: StateElsewhere): OpenedState;
}

export type StepResults = AsyncGenerator<readonly PartResult[], readonly PartResult[]>;

export interface Decoder {
  readonly states: SequenceStates;
  /**
   * Decodes all parts together, in ascending order of sequence (the caller sorts), on another thread, from the first `next` on, and
   * returns one result per part. Their tokens must fit the context's batch. Never rejects. No second step before this one ended.
   *
   * With `run` further steps may follow: yields, while they are computed, the results that were not yet yielded, one per part, and
   * returns the last ones, perhaps none. Each is delivered before the next one is read. It is read to its end.
   */
  step(parts: readonly StepPart[], run?: Run): StepResults;
  /** No further step of a {@link Run} begins; it ends after the current one. */
  halt(): void;
  sampler(sampling: Sampling): Sampler;
  /** Whether a reply constrained by a grammar with this many stacks will be {@link Sampler.pending}. */
  isExpensive(stacks: number): boolean;
}

/** The results of a single step. Never rejects. */
export async function decodeOnce(
  decoder: Pick<Decoder, 'step'>,
  parts: readonly StepPart[],
): Promise<readonly PartResult[]> {
  return (await decoder.step(parts).next()).value;
}

/** Numbers that samplers take for something else than the contract means. */

/** With this seed llama.cpp, and its server, choose one of their own. */
const RANDOM_SEED = 0xffffffff;

/** Logits divided by less may be infinite, and their differences no numbers. It chooses the most probable token long before. */
const LEAST_TEMPERATURE = 1e-6;

/** A seed that fixes the random numbers: `seed`, of 32 bits, or the one before where llama.cpp would choose its own. */
export function fixedSeed(seed: number): number {
  return seed === RANDOM_SEED ? seed - 1 : seed;
}

/** The temperature to compute with: 0, which chooses the most probable token, in place of one that is too small to divide by. */
export function usableTemperature(temperature: number): number {
  return temperature < LEAST_TEMPERATURE ? 0 : temperature;
}
