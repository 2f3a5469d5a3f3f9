/**
 * Many jobs over one channel: assigns ids, forwards results to the jobs' receivers, and checks their order (`misplaced`). It does not know
 * the process. One mux per engine process.
 */
import { PROTOCOL_VERSION, type ToEngine } from '../../engine/protocol/messages.js';
import type { Output, ReplyLimit } from '../../engine/protocol/jobs.js';
import { IdMap } from '../lib/id-map.js';
import type {
  EmbedReceiver,
  EngineJob,
  GenerationReceiver,
  JobFault,
  JobHandle,
  ProcessHold,
  ScoreReceiver,
} from './engine.js';

/** Bound of concurrent jobs. Every job holds a seat, so this only catches a bug of a route. */
export const MAX_JOBS = 1024;

interface OpenBase {
  readonly id: number;
  /** Seats that the job holds. */
  seats: number;
  /** Choices that are finished, or questions that are answered. */
  readonly ended: Set<number>;
  started: boolean;
}

/** A job that has not ended: what has come of it so far. The job itself is not kept: a reply may take minutes. */
type OpenJob = OpenGeneration | OpenScoring | OpenEmbedding;

interface OpenGeneration extends OpenBase {
  readonly kind: 'generate';
  readonly receiver: GenerationReceiver;
  readonly n: number;
  /** Number of calls begun, by choice. */
  readonly calls: Map<number, number>;
  /** Images whose embeddings it waits for. */
  readonly missingImages: Set<number>;
}

interface OpenScoring extends OpenBase {
  readonly kind: 'score';
  readonly receiver: ScoreReceiver;
  /** Labels per question. */
  readonly labels: readonly number[];
}

interface OpenEmbedding extends OpenBase {
  readonly kind: 'embed';
  readonly receiver: EmbedReceiver;
  /** Inputs without a result. */
  left: number;
}

export class Mux {
  readonly #send: (message: ToEngine) => void;
  readonly #onThrow: OnThrow;
  readonly #onFailed: (reason: string) => void;
  readonly #jobs = new IdMap<OpenJob>();
  /** Cancelled jobs whose end the engine is to confirm, with what settles their promises. At most as many as seats. */
  readonly #cancelling = new Map<number, { readonly settle: () => void; readonly confirmed: Promise<void> }>();
  #lastId = 0;
  #onIdle: (() => void) | undefined;
  /** Lists of inputs that keep the process for their next parts. */
  #holds = 0;
  #letsHold = true;
  /** This and the next are facts that the engine reported (EngineFacts). */
  confirmsCancels = false;
  weightVersion = '';

  /**
   * `onThrow` is called if a receiver throws: a bug of its owner, whose job ends as failed while the others continue. `onFailed` is called
   * with the engine's reason for a failed job.
   */
  constructor(
    send: (message: ToEngine) => void,
    onThrow: OnThrow,
    onFailed: (reason: string) => void = () => undefined,
  ) {
    this.#send = send;
    this.#onThrow = onThrow;
    this.#onFailed = onFailed;
  }

  /** Jobs that have not ended. */
  get open(): number {
    return this.#jobs.size;
  }

  /** Of these, those that wait for embeddings of images. The engine may have nothing to compute for them. */
  get awaitingImages(): number {
    return this.#jobs.values().filter((job) => job.kind === 'generate' && job.missingImages.size > 0).length;
  }

  /** Calls `fn` once, when all jobs have ended, all cancels are confirmed and nothing holds the process; perhaps at once. */
  whenIdle(fn: () => void): void {
    this.#onIdle = fn;
    this.#checkIdle();
  }

  run(asked: EngineJob): JobHandle {
    if (this.#jobs.size >= MAX_JOBS) return failSoon(asked.receiver, { kind: 'failed', started: false }, this.#onThrow);
    const id = ++this.#lastId;
    this.#jobs.set(id, openJob(id, asked));
    if (asked.kind === 'generate') this.#send({ v: PROTOCOL_VERSION, kind: 'generate', id, job: asked.job });
    else if (asked.kind === 'score') this.#send({ v: PROTOCOL_VERSION, kind: 'score', id, job: asked.job });
    else this.#send({ v: PROTOCOL_VERSION, kind: 'embed', id, job: asked.job });
    return {
      cancel: () => this.#cancel(id),
      reduceSeats: () => this.#reduceSeats(id),
      supply: (image, values) => this.#supply(id, image, values),
      limit: (limit) => this.#limit(id, limit),
      ...(asked.kind === 'embed' && { hold: () => this.#hold() }),
    };
  }

  /** Whether those who hold the process keep it, and may send it jobs. */
  letHold(letsHold: boolean): void {
    this.#letsHold = letsHold;
    this.#checkIdle();
  }

  #hold(): ProcessHold {
    let held = true;
    this.#holds += 1;
    return {
      weightVersion: this.weightVersion,
      run: (job) => (this.#letsHold ? this.run(job) : undefined),
      release: () => {
        if (!held) return;
        held = false;
        this.#holds -= 1;
        this.#checkIdle();
      },
    };
  }

  /**
   * Forwards one step's outputs to their receivers, in order. Outputs of ended or cancelled jobs are dropped. Returns undefined, or the
   * protocol violation; then the rest was not forwarded and the engine must be killed.
   */
  apply(outputs: readonly Output[]): string | undefined {
    for (const output of outputs) {
      if (output.id === 0 || output.id > this.#lastId) return 'unknown-job';
      const opened = this.#jobs.get(output.id);
      if (opened === undefined) {
        if (isEnd(output)) this.#confirmCancelled(output.id);
        continue;
      }
      const violation = misplaced(opened, output);
      if (violation !== undefined) return violation;
      this.#deliver(opened, output);
    }
    this.#checkIdle();
    return undefined;
  }

  /**
   * The engine has ended: every job fails. After a protocol violation the started ones fail as `protocol`; one that had not started is
   * `lost` in both cases and may return to the queue.
   */
  lost(kind: 'lost' | 'protocol'): void {
    const jobs = this.#jobs.values();
    this.#letsHold = false;
    this.#jobs.clear();
    for (const id of [...this.#cancelling.keys()]) this.#confirmCancelled(id);
    for (const { receiver, started } of jobs) fail(receiver, { kind: started ? kind : 'lost', started }, this.#onThrow);
    this.#checkIdle();
  }

  #reduceSeats(id: number): void {
    if (this.#jobs.get(id) !== undefined) this.#send({ v: PROTOCOL_VERSION, kind: 'reduceSeats', id });
  }

  #supply(id: number, image: number, values: Float32Array): void {
    const job = this.#jobs.get(id);
    if (job?.kind !== 'generate' || !job.missingImages.delete(image)) return;
    this.#send({ v: PROTOCOL_VERSION, kind: 'embeddings', id, image, values });
  }

  #limit(id: number, { tokens, last }: ReplyLimit): void {
    if (this.#jobs.get(id) !== undefined) this.#send({ v: PROTOCOL_VERSION, kind: 'limit', id, tokens, last });
  }

  #cancel(id: number): Promise<void> | undefined {
    if (!this.#jobs.delete(id)) return this.#cancelling.get(id)?.confirmed;
    this.#send({ v: PROTOCOL_VERSION, kind: 'cancel', id });
    if (!this.confirmsCancels) {
      this.#checkIdle();
      return undefined;
    }
    let settle = (): void => undefined;
    const confirmed = new Promise<void>((resolve) => (settle = resolve));
    this.#cancelling.set(id, { settle, confirmed });
    return confirmed;
  }

  #checkIdle(): void {
    if (this.#jobs.size + this.#cancelling.size + (this.#letsHold ? this.#holds : 0) > 0) return;
    const idle = this.#onIdle;
    this.#onIdle = undefined;
    idle?.();
  }

  #confirmCancelled(id: number): void {
    this.#cancelling.get(id)?.settle();
    this.#cancelling.delete(id);
  }

  /** Jobs are removed from the map before their last call, so a receiver may cancel or start others inside it. */
  #deliver(opened: OpenJob, output: Output): void {
    try {
      switch (output.kind) {
        case 'started':
          opened.started = true;
          opened.receiver.started(output.cachedTokens, this.weightVersion);
          break;
        case 'needsImage':
          if (opened.kind !== 'generate') break;
          opened.missingImages.add(output.image);
          opened.receiver.needsImage?.(output.image);
          break;
        case 'needsTokens':
          if (opened.kind === 'generate') opened.receiver.needsTokens?.(output.tokens);
          break;
        case 'seatFreed':
          opened.seats -= 1;
          opened.receiver.seatFreed();
          break;
        case 'done':
          this.#jobs.delete(opened.id);
          opened.receiver.done();
          break;
        case 'failed':
          this.#jobs.delete(opened.id);
          this.#onFailed(output.reason);
          opened.receiver.failed({ kind: 'failed', started: opened.started });
          break;
        case 'returned':
          this.#jobs.delete(opened.id);
          opened.receiver.failed(NOT_READY);
          break;
        case 'cached':
          opened.receiver.cached(output.tokens);
          break;
        case 'piece':
          if (opened.kind === 'generate') opened.receiver.piece(output);
          break;
        case 'call':
          if (opened.kind !== 'generate') break;
          opened.calls.set(output.choice, Math.max(output.index + 1, opened.calls.get(output.choice) ?? 0));
          opened.receiver.call(output);
          break;
        case 'finished':
          if (opened.kind !== 'generate') break;
          opened.ended.add(output.choice);
          opened.receiver.finished(output);
          break;
        case 'answer':
          if (opened.kind !== 'score') break;
          opened.ended.add(output.question);
          opened.receiver.answer(output);
          break;
        case 'vectors':
          if (opened.kind !== 'embed') break;
          opened.left -= output.count;
          opened.receiver.vectors(output);
          break;
        case 'cancelled':
      }
    } catch (error) {
      this.#onThrow(error);
      if (this.#jobs.get(opened.id) === undefined) return;
      void this.#cancel(opened.id);
      fail(opened.receiver, { kind: 'failed', started: opened.started }, this.#onThrow);
    }
  }
}

type OnThrow = (error: unknown) => void;

/** Of a job for an engine that takes none now. */
export const NOT_READY: JobFault = { kind: 'lost', started: false };

/** Of a job whose prompt was made with another tokenizer or template than the engine's. */
export const STALE: JobFault = { kind: 'stale', started: false };

/** Fails a job that never reached an engine, in a microtask, unless it is cancelled first. */
export function failSoon(receiver: EngineJob['receiver'], fault: JobFault, onThrow: OnThrow): JobHandle {
  let cancelled = false;
  queueMicrotask(() => {
    if (!cancelled) fail(receiver, fault, onThrow);
  });
  const cancel = (): undefined => {
    cancelled = true;
  };
  return { cancel, reduceSeats: () => undefined };
}

function fail(receiver: EngineJob['receiver'], fault: JobFault, onThrow: OnThrow): void {
  try {
    receiver.failed(fault);
  } catch (error) {
    onThrow(error);
  }
}

function openJob(id: number, asked: EngineJob): OpenJob {
  const { seats } = asked.job;
  const ended = new Set<number>();
  if (asked.kind === 'score') {
    const labels = asked.job.questions.map((question) => question.labels.length);
    return { id, kind: 'score', receiver: asked.receiver, seats, ended, started: false, labels };
  }
  if (asked.kind === 'embed') {
    const left = asked.job.lengths.length;
    return { id, kind: 'embed', receiver: asked.receiver, seats, ended, started: false, left };
  }
  const none = { calls: new Map<number, number>(), missingImages: new Set<number>() };
  return { id, kind: 'generate', receiver: asked.receiver, seats, ended, started: false, n: asked.job.n, ...none };
}

/** The outputs after which the engine computes nothing more of the job. */
function isEnd({ kind }: Output): boolean {
  return kind === 'cancelled' || kind === 'done' || kind === 'failed' || kind === 'returned';
}

/** Why this output is not allowed now, or undefined. */
function misplaced(opened: OpenJob, output: Output): string | undefined {
  if (output.kind === 'failed') return undefined;
  if (output.kind === 'returned') return opened.started ? 'returned-late' : undefined;
  if (output.kind === 'started') return opened.started ? 'started-twice' : undefined;
  if (!opened.started) return 'not-started';
  switch (output.kind) {
    case 'seatFreed':
      return opened.seats > 1 ? undefined : 'freed-last';
    case 'needsImage':
      return opened.kind === 'generate' && opened.receiver.needsImage && !opened.missingImages.has(output.image)
        ? undefined
        : 'wrong-image';
    case 'done':
      return leftOf(opened) === 0 ? undefined : 'done-early';
    case 'vectors':
      return opened.kind === 'embed' && output.count <= opened.left ? undefined : 'wrong-vectors';
    case 'answer':
      if (opened.kind !== 'score') return 'wrong-kind';
      if (opened.ended.has(output.question)) return 'answered-twice';
      return output.probabilities.length === opened.labels[output.question] ? undefined : 'wrong-answer';
    case 'cached':
      return undefined;
    case 'cancelled':
      return 'not-cancelled';
    default:
      if (opened.kind !== 'generate') return 'wrong-kind';
      if (output.choice >= opened.n || opened.ended.has(output.choice)) return 'wrong-choice';
      return output.kind === 'call' && !inTurn(output, opened.calls.get(output.choice) ?? 0) ? 'wrong-call' : undefined;
  }
}

/** Replies, answers or results that it lacks. */
function leftOf(opened: OpenJob): number {
  if (opened.kind === 'embed') return opened.left;
  return (opened.kind === 'generate' ? opened.n : opened.labels.length) - opened.ended.size;
}

/** A part with a name starts the next call; one without continues the last. */
function inTurn({ index, name }: Extract<Output, { kind: 'call' }>, begun: number): boolean {
  return index === (name === undefined ? begun - 1 : begun);
}
