import type { Decoder, StepPart, PartResult } from './decoder.js';
import { chatPoints, PromptPlan, PromptProgress } from './prompt-plan.js';
import type { GenerateJob, Output, ReplyLimit, StateJob } from '../protocol/jobs.js';
import { promptLength, tokenPrompt, type PlacedImage } from '../protocol/prompt.js';
import { Reply } from './reply.js';
import type { Branch, EndedReply, ModelTokens, TokensAhead, Work, WorkLimits } from './job.js';
import type { StoppedReplies } from './stopped-replies.js';

const ONE_AHEAD: TokensAhead = { tokens: 1, moves: false };

/** A prompt no longer than this is evaluated again sooner than its state is saved in a decode of its own. */
const LEAST_SAVED_TOKENS = 32;

/**
 * A chat completion: `n` replies to one prompt. The prompt is evaluated once; each further reply starts from a copy of
 * that state, or from a sequence truncated to it, and evaluates the last token again for its logits.
 */
export class Generation implements Work {
  readonly items: number;
  readonly terms: StateJob;
  readonly isolated = false;
  readonly reuse = 'any';
  readonly intermittent: boolean;
  readonly #id: number;
  readonly #job: GenerateJob;
  readonly #plan: PromptPlan;
  /** Its state cannot be truncated, and is saved. */
  readonly #appendOnly: boolean;
  /** Its prompt's memory is used by nothing else. */
  readonly #ownsPrompt: boolean;
  readonly #speculates: boolean;
  readonly #model: ModelTokens;
  readonly #decoder: Decoder;
  readonly #embeddings: Embeddings;
  /** Its replies that have begun and whose sequences are not taken back. */
  readonly #running = new Set<Reply>();
  readonly #stopped: StoppedReplies;
  /** Tokens of its reply when it was stopped. */
  readonly #had: Uint32Array;
  /** Absent: that of the job. */
  #limit: ReplyLimit | undefined;
  /** Images that started items lack. */
  #needed: readonly number[] = [];

  constructor(
    id: number,
    job: GenerateJob,
    limits: WorkLimits,
    model: ModelTokens,
    decoder: Decoder,
    stopped: StoppedReplies,
  ) {
    this.terms = job;
    this.items = job.n;
    const { grammar, calls } = job.format ?? {};
    this.intermittent = decoder.isExpensive(Math.max(grammar?.stacks ?? 0, calls?.stacks ?? 0));
    this.#id = id;
    this.#job = job;
    this.#stopped = stopped;
    this.#had = stopped.take(job);
    const prompt = this.#had.length > 0 ? [...job.prompt, ...tokenPrompt(this.#had)] : job.prompt;
    const length = promptLength(prompt);
    const worth = job.n > 1 || length > LEAST_SAVED_TOKENS;
    this.#appendOnly = !decoder.states.truncatable && decoder.states.save !== undefined;
    const saving = this.#appendOnly && worth ? chatPoints(length, model, job.n > 1) : undefined;
    this.#plan = new PromptPlan(prompt, limits.prefillTokensPerStep, { scope: job.scope, ...limits.origin }, saving);
    this.#embeddings = new Embeddings(this.#plan.images, job.n === 1);
    this.#ownsPrompt = limits.ownsPrompts === true;
    this.#speculates = limits.speculation === 'auto' && decoder.states.truncatable;
    this.#model = model;
    this.#decoder = decoder;
  }

  neededImages(): readonly number[] {
    const asked = this.#embeddings.ask(this.#needed);
    this.#needed = [];
    return asked;
  }

  supply(image: number, values: Float32Array): void {
    this.#embeddings.supply(image, values);
  }

  limit(limit: ReplyLimit): boolean {
    this.#limit = limit;
    return [...this.#running].filter((reply) => reply.limit(limit)).length > 0;
  }

  plan(): PromptPlan {
    return this.#plan;
  }

  branch(item: number, sequence: number, keep: number): Branch {
    const reply = new Reply(this.#id, item, this.#job, this.#model, this.#decoder, this.#draftFrom, this.#had);
    if (this.#limit) reply.limit(this.#limit);
    this.#running.add(reply);
    this.#needed = [...this.#needed, ...this.#plan.images.flatMap(({ at }, index) => (at < keep ? [] : [index]))];
    return new ReplyBranch(sequence, new PromptProgress(this.#plan, keep), reply, this.#embeddings, {
      start: this.#replyStart,
      ended: () => this.#running.delete(reply),
    });
  }

  /** Where the reply begins in its sequence; undefined if no next prompt is evaluated ahead of it. */
  get #replyStart(): number | undefined {
    const { tokens, images } = this.#plan;
    const isOne = this.items === 1 && images.length === 0;
    return this.#appendOnly && isOne ? tokens.length - this.#had.length : undefined;
  }

  /** Images take places that are no tokens. */
  get #draftFrom(): Uint32Array | undefined {
    const { tokens, images } = this.#plan;
    return this.#speculates && images.length === 0 ? tokens : undefined;
  }

  /** A state that cannot be truncated is copied before its last token. */
  shareable({ progress }: Branch): boolean {
    return progress.left <= (this.#appendOnly ? 1 : 0);
  }

  stop(): void {
    const [reply] = this.#running;
    if (reply?.over !== true) this.#stopped.keep(this.#job, reply?.all.tokens ?? this.#had);
  }

  wipe(): void {
    this.#had.fill(0);
    if (!this.#ownsPrompt) return;
    this.#plan.tokens.fill(0);
    for (const { tokens } of this.#job.prompt) tokens.fill(0);
  }
}

class ReplyBranch implements Branch {
  readonly sequence: number;
  readonly progress: PromptProgress;
  readonly #reply: Reply;
  readonly #embeddings: Embeddings;
  readonly #start: number | undefined;
  readonly #onDispose: () => void;

  constructor(
    sequence: number,
    progress: PromptProgress,
    reply: Reply,
    embeddings: Embeddings,
    { start, ended }: { readonly start: number | undefined; readonly ended: () => void },
  ) {
    this.sequence = sequence;
    this.progress = progress;
    this.#reply = reply;
    this.#embeddings = embeddings;
    this.#start = start;
    this.#onDispose = ended;
  }

  get ended(): EndedReply | undefined {
    const { repeatableTokens: tokens, last } = this.#reply;
    return this.#start === undefined || tokens === undefined ? undefined : { from: this.#start, tokens, last };
  }

  get awaitsImage(): Promise<void> | undefined {
    const { image } = this.progress;
    return image && this.#embeddings.arrivalOf(image);
  }

  get over(): boolean {
    return this.#reply.over;
  }

  get pending(): Promise<void> | undefined {
    return this.#reply.pending;
  }

  get ahead(): TokensAhead {
    return this.progress.left > 0 ? ONE_AHEAD : this.#reply.ahead;
  }

  get stepwise(): boolean {
    return this.#reply.stepwise;
  }

  part(count: number): StepPart {
    const { sequence, progress } = this;
    const { image } = progress;
    if (image) return this.#embeddings.part(sequence, image, progress.position, progress.take(count));
    const tokens = progress.left > 0 ? progress.take(count) : Uint32Array.of(this.#reply.last);
    if (progress.left > 0) return { kind: 'prefill', sequence, tokens };
    return { kind: 'sample', sequence, tokens, sampler: this.#reply.sampler };
  }

  accept(result: Exclude<PartResult, { kind: 'fault' }>, out: Output[]): void {
    if (result.kind !== 'token') return;
    if (result.speculation) this.#reply.speculated(result.speculation);
    this.#reply.accept(result.token, out);
    for (const token of result.then ?? []) {
      // It ended because of its text.
      if (this.#reply.over) break;
      this.#reply.accept(token, out);
    }
  }

  endLimited(out: Output[]): void {
    this.#reply.endLimited(out);
  }

  dispose(): void {
    this.#onDispose();
    this.#reply.dispose();
  }
}

const NONE = new Float32Array(0);

interface Arrival {
  readonly arrived: Promise<void>;
  readonly settle: () => void;
}

/** The embeddings of a job's images: asked for once each, and kept until no item of the job needs them. */
class Embeddings {
  readonly #images: readonly PlacedImage[];
  /** The job has one item. */
  readonly #once: boolean;
  readonly #values = new Map<PlacedImage, Float32Array>();
  readonly #arrivals = new Map<PlacedImage, Arrival>();
  readonly #asked = new Set<PlacedImage>();

  constructor(images: readonly PlacedImage[], once: boolean) {
    this.#images = images;
    this.#once = once;
  }

  /** Returns those of these indexes that were not asked for before. */
  ask(indexes: readonly number[]): readonly number[] {
    return indexes.filter((index) => {
      const image = this.#images[index];
      if (!image || this.#asked.has(image)) return false;
      this.#asked.add(image);
      let settle = (): void => undefined;
      const arrived = new Promise<void>((resolve) => (settle = resolve));
      this.#arrivals.set(image, { arrived, settle });
      return true;
    });
  }

  /** Embeddings that were not asked for are ignored. */
  supply(index: number, values: Float32Array): void {
    const image = this.#images[index];
    const arrival = image && this.#arrivals.get(image);
    if (!arrival) return;
    this.#arrivals.delete(image);
    this.#values.set(image, values);
    arrival.settle();
  }

  /** Settles when the embeddings of an image have arrived; undefined if they have. */
  arrivalOf(image: PlacedImage): Promise<void> | undefined {
    return this.#arrivals.get(image)?.arrived;
  }

  /** A part of these ids of the image, from `position` of the prompt on. A decoder refuses embeddings of another number. */
  part(sequence: number, placed: PlacedImage, position: number, tokens: Uint32Array): StepPart {
    const { at, image } = placed;
    const all = this.#values.get(placed) ?? NONE;
    const { positions, columns, whole } = image;
    const of = image.tokens.length;
    const width = all.length / of;
    const index = position - at;
    if (this.#once && index + tokens.length === of) this.#values.delete(placed);
    const values = all.subarray(index * width, (index + tokens.length) * width);
    return { kind: 'embeddings', sequence, tokens, values, image: { index, of, positions, columns, whole } };
  }
}
