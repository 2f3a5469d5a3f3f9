import type { StepPart, PartResult } from './decoder.js';
import type { Reuse } from './state-store.js';
import type { GenerateJob, Output, ReplyLimit, ScoreJob, StateJob } from '../protocol/jobs.js';
import type { CacheOrigin } from '../protocol/cache-key.js';
import { DIGEST_BYTES, IMAGE_IDS, promptLength, type PromptSegment } from '../protocol/prompt.js';
import type { EngineSetup } from '../protocol/setup.js';
import type { PromptPlan, PromptProgress } from './prompt-plan.js';
import type { KeepLimits } from './saved-states.js';

/** A reply that has ended, as a sequence holds it. */
export interface EndedReply {
  /** Tokens of the sequence before it: its prompt. */
  readonly from: number;
  /** Tokens that its text is made of. The sequence may lack the last of them, and may have others after them. */
  readonly tokens: number;
  /** The last of them. */
  readonly last: number;
}

export interface TokensAhead {
  /** At least 1. */
  readonly tokens: number;
  /** They may become more before the last of them: by another limit, or by a text to which the bound does not apply. */
  readonly moves: boolean;
}

/** One reply or one question on one sequence: it provides its part of the next step, and receives the result. */
export interface Branch {
  readonly sequence: number;
  readonly progress: PromptProgress;
  /** All of its outputs are complete. */
  readonly over: boolean;
  /** Its reply, if it is over and the conversation's next prompt is likely to repeat it. Absent: it is not. */
  readonly ended?: EndedReply | undefined;
  /**
   * Settles when the next token of its reply can be chosen: its grammar's mask is computed beside the steps, or it waits for a
   * limit. Its prompt continues meanwhile, except for the end. Never rejects. Undefined if the token can be chosen now.
   */
  readonly pending?: Promise<void> | undefined;
  /** Settles when the embeddings of its prompt's next image have arrived. Never rejects. Undefined if it needs none now. */
  readonly awaitsImage?: Promise<void> | undefined;
  /** Next tokens that it may have. */
  readonly ahead: TokensAhead;
  /** Each of them is to be chosen after the one before was accepted, which may constrain it. Absent: false. */
  readonly stepwise?: boolean;
  /** The next part: `count` prompt tokens, at most all that are left; 0 once there are none. Called once a step. */
  part(count: number): StepPart;
  /** Takes the part's result and adds its outputs to `out`. The loop handles faults. */
  accept(result: Exclude<PartResult, { kind: 'fault' }>, out: Output[]): void;
  /** Ends its reply, if it has all the tokens that it may have; asks for more, where it waits for them. Absent: it has no limit. */
  endLimited?(out: Output[]): void;
  /** Disposes samplers. Idempotent. */
  dispose(): void;
}

/** What a job consists of: items (replies, questions) that start from the same tokens. */
export interface Work {
  readonly items: number;
  /** Of its job: whose states it reuses and leaves, and how it goes beside other jobs. */
  readonly terms: StateJob;
  /** No other sequence may share its decodes (a decision's result must not depend on the neighbours). */
  readonly isolated: boolean;
  /** Its items skip steps ({@link Branch.pending}). Absent: none does. */
  readonly intermittent?: boolean;
  /** Each item's prompt counts by itself, and so does what of it was not computed again. Absent: the prompt counts once. */
  readonly countsEach?: boolean;
  /** How much state of another item of the same job may be reused. */
  readonly reuse: Exclude<Reuse, 'none'>;
  /** Indexes of the images whose embeddings the started items lack and that were not returned before. Absent: none. */
  neededImages?(): readonly number[];
  /** Sets how many tokens each reply may have. Returns whether a reply waited for that. Absent: it has no replies. */
  limit?(limit: ReplyLimit): boolean;
  /** Takes the embeddings of an image that {@link neededImages} returned. */
  supply?(image: number, values: Float32Array): void;
  plan(item: number): PromptPlan;
  /** Starts an item on a sequence that has the first `keep` tokens of its plan. */
  branch(item: number, sequence: number, keep: number): Branch;
  /** Whether another item can start from a branch's state. */
  shareable(branch: Branch): boolean;
  /** It is cancelled, and may be sent again. Absent: it then begins again. */
  stop?(): void;
  /** Overwrites its prompt's memory with zeros, if that is its own. It is not used any more. */
  wipe?(): void;
}

/** One running item, and its job. */
export interface RunningItem {
  readonly job: RunningJob;
  readonly branch: Branch;
}

/** One job, from its arrival on: its running items, their sequences, and how many sequences it may use. Does not use the decoder. */
export class RunningJob {
  readonly id: number;
  readonly work: Work;
  readonly #branches: Branch[] = [];
  #seats: number;
  /** Sequences that it may use at once; fewer, once others wait for its seats. */
  #limit: number;
  /** The first item that was not started. */
  #item = 0;
  #ended = 0;
  #kept = 0;

  constructor(id: number, work: Work, seats: number) {
    this.id = id;
    this.work = work;
    this.#seats = this.#limit = Math.min(seats, work.items);
  }

  /** The job's seats. */
  get seats(): number {
    return this.#seats;
  }

  /** Running items, at most one per sequence. */
  get branches(): readonly Branch[] {
    return this.#branches;
  }

  /** The prompt of the next item; undefined if all are started. */
  get next(): PromptPlan | undefined {
    return this.#item < this.work.items ? this.work.plan(this.#item) : undefined;
  }

  /** Prompt tokens of all items that were not computed again. */
  get kept(): number {
    return this.#kept;
  }

  /** All outputs are complete. */
  get done(): boolean {
    return this.#ended === this.work.items;
  }

  /** Whether the next item may start where one has ended. */
  get follows(): boolean {
    return this.#branches.length <= this.#limit;
  }

  /** Whether the next item could start beside the others. */
  get spreads(): boolean {
    const { work } = this;
    return (
      this.#item < work.items &&
      this.#branches.length < this.#limit &&
      this.#branches.some((branch) => work.shareable(branch))
    );
  }

  /** Whether a decode caused work: an item ended, the next one can start, or a seat can be freed. */
  get moves(): boolean {
    return this.#branches.some(({ over }) => over) || this.spreads || this.#seats > this.#needed;
  }

  /** Continues with one sequence less, except its last. */
  reduceSeats(): void {
    this.#limit = Math.max(1, this.#limit - 1);
  }

  /** Starts the next item on a sequence, which contains the first `keep` tokens of its prompt. */
  begin(sequence: number, keep: number): void {
    this.#branches.push(this.work.branch(this.#item, sequence, keep));
    this.#kept += keep;
    this.#item += 1;
  }

  /** A branch has ended. Its sequence belongs to the loop again. */
  end(branch: Branch): void {
    branch.dispose();
    this.#branches.splice(this.#branches.indexOf(branch), 1);
    this.#ended += 1;
  }

  /** Frees the seats that it will not need again and returns their number. Not if it is done, which frees all. */
  releaseSpare(): number {
    const spare = Math.max(0, this.#seats - this.#needed);
    this.#seats -= spare;
    return spare;
  }

  /** Seats that it needs. */
  get #needed(): number {
    return Math.min(this.work.items - this.#ended, Math.max(this.#limit, this.#branches.length));
  }

  dispose(): void {
    for (const branch of this.#branches) branch.dispose();
    this.work.wipe?.();
  }
}

/** The properties of the model's tokens that jobs need. */
export interface ModelTokens {
  isEnd(token: number): boolean;
  /** The bytes a token stands for; none for control tokens. */
  bytes(token: number): Uint8Array;
  /** A control token's name, such as `<|channel|>`; undefined if the token is none. */
  control(token: number): string | undefined;
  /** The tokens of a text that follows a control token; none is added. Absent: no next prompt is evaluated ahead. */
  tokenize?(text: string): Uint32Array;
}

type FromSetup = 'seats' | 'contextPerSeat' | 'prefillShare' | 'prefixReuse' | 'speculation' | 'prefillAhead';

/** What a step loop is made with. */
export interface StepLimits extends KeepLimits, Pick<EngineSetup, FromSetup> {
  /** Where prompts are split, and the most prompt tokens in one decode. */
  readonly prefillTokensPerStep: number;
  /** On a GPU: the time that a round with replies is to take, ms, in place of {@link prefillShare}. Absent: on a CPU. */
  readonly stepMs?: number;
  /** The loop owns the prompts' memory: it is overwritten with zeros when their job ends. Absent: false. */
  readonly ownsPrompts?: boolean;
  /** What the sequences' states are made with. */
  readonly origin: CacheOrigin;
  /** Time between two messages of outputs, ms. Absent: SEND_MS in outbox.ts. */
  readonly sendMs?: number;
}

/** What a job's prompts are planned with. */
export type WorkLimits = Pick<StepLimits, 'prefillTokensPerStep' | 'origin' | 'ownsPrompts' | 'speculation'>;

/** Whether a sequence has room for the prompt and the completion. */
export function generationFits({ prompt, maxTokens, n }: GenerateJob, { contextPerSeat }: StepLimits): boolean {
  const length = promptLength(prompt);
  return n > 0 && length > 0 && length + maxTokens <= contextPerSeat;
}

/** Whether a sequence has room for the input and each question. */
export function scoringFits({ input, questions }: ScoreJob, { contextPerSeat }: StepLimits): boolean {
  return (
    questions.length > 0 &&
    questions.every(
      ({ tail, labels }) => labels.length > 0 && tail.length > 0 && input.length + tail.length <= contextPerSeat,
    )
  );
}

/**
 * Why a job must not be passed to llama.cpp, or undefined: a token outside the vocabulary fails its whole batch, and
 * one among the labels would be read beyond the logits. An image must have an id for each place, and tokens after it, since
 * a reply continues from a token's logits.
 */
export function jobProblem(job: GenerateJob | ScoreJob, vocabulary: number): string | undefined {
  const known = (tokens: Uint32Array): boolean => tokens.every((token) => token < vocabulary);
  if ('prompt' in job) {
    const segmentProblem = job.prompt
      .map((segment) => problemOf(segment, known))
      .find((problem) => problem !== undefined);
    const ends = job.prompt.at(-1);
    return segmentProblem ?? (ends?.kind === 'image' ? 'an image without tokens after it' : undefined);
  }
  const all = known(job.input) && job.questions.every(({ tail, labels }) => known(tail) && known(labels));
  return all ? undefined : OUTSIDE;
}

const OUTSIDE = 'a token outside the vocabulary';

function problemOf(segment: PromptSegment, known: (tokens: Uint32Array) => boolean): string | undefined {
  if (segment.kind === 'tokens') return known(segment.tokens) ? undefined : OUTSIDE;
  const { tokens, digest, positions, columns } = segment;
  const right =
    tokens.length > 0 &&
    tokens.every((id) => id >= IMAGE_IDS) &&
    digest.length === DIGEST_BYTES &&
    isCount(positions, tokens.length) &&
    isCount(columns, tokens.length) &&
    positions > 0 &&
    (columns > 0 || positions === tokens.length);
  return right ? undefined : 'an image that is no image';
}

function isCount(value: number, most: number): boolean {
  return Number.isSafeInteger(value) && value >= 0 && value <= most;
}
