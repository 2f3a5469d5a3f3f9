/**
 * Many jobs over one channel: assigns ids, forwards results to the jobs' receivers, and checks their order
 * (`misplaced` in open-job.ts). It does not know the process. One mux per engine process.
 */
import { PROTOCOL_VERSION, type ToEngine } from '../../engine/protocol/messages.js';
import type { GenerateJob, ScoreJob } from '../../engine/protocol/jobs.js';
import type { Output } from '../../engine/protocol/job-output.js';
import { IdMap } from '../lib/id-map.js';
import { deliverResult, isEnd, misplaced, type OpenGeneration, type OpenJob, type OpenScoring } from './open-job.js';
import type { JobFault, GenerationReceiver, JobHandle, ScoreReceiver } from './engine.js';

/** Bound of concurrent jobs. Every job holds a seat, so this only catches a bug of a route. */
export const MAX_JOBS = 1024;

export class Mux {
  readonly #send: (message: ToEngine) => void;
  readonly #onThrow: OnThrow;
  readonly #onFailed: (reason: string) => void;
  readonly #jobs = new IdMap<OpenJob>();
  /** Cancelled jobs whose end the engine is to confirm, with what settles their promises. At most as many as seats. */
  readonly #cancelling = new Map<number, { readonly settle: () => void; readonly confirmed: Promise<void> }>();
  #lastId = 0;
  #onIdle: (() => void) | undefined;
  /** This and the next are facts that the engine reported (EngineFacts). */
  confirmsCancels = false;
  weightVersion = '';

  /**
   * `onThrow` is called if a receiver throws: a bug of its owner, whose job ends as failed while the others continue.
   * `onFailed` is called with the engine's reason for a failed job.
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

  /** Calls `fn` once, when all jobs have ended and all cancels are confirmed; perhaps at once. */
  whenIdle(fn: () => void): void {
    this.#onIdle = fn;
    this.#checkIdle();
  }

  generate(job: GenerateJob, receiver: GenerationReceiver): JobHandle {
    const id = ++this.#lastId;
    const { n, seats } = job;
    const none = {
      ended: new Set<number>(),
      calls: new Map<number, number>(),
      missingImages: new Set<number>(),
      started: false,
    };
    const opened: OpenGeneration = { id, kind: 'generate', receiver, n, seats, ...none };
    return this.#open(opened, { v: PROTOCOL_VERSION, kind: 'generate', id, job });
  }

  score(job: ScoreJob, receiver: ScoreReceiver): JobHandle {
    const id = ++this.#lastId;
    const labels = job.questions.map((question) => question.labels.length);
    const opened: OpenScoring = {
      id,
      kind: 'score',
      receiver,
      labels,
      seats: job.seats,
      ended: new Set(),
      started: false,
    };
    return this.#open(opened, { v: PROTOCOL_VERSION, kind: 'score', id, job });
  }

  /**
   * Forwards one step's outputs to their receivers, in order. Outputs of ended or cancelled jobs are dropped. Returns
   * undefined, or the protocol violation; then the rest was not forwarded and the engine must be killed.
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
   * The engine has ended: every job fails. After a protocol violation the started ones fail as `protocol`; one that had
   * not started is `lost` in both cases and may return to the queue.
   */
  lost(kind: 'lost' | 'protocol'): void {
    const jobs = this.#jobs.values();
    this.#jobs.clear();
    for (const id of [...this.#cancelling.keys()]) this.#confirmCancelled(id);
    for (const { receiver, started } of jobs) fail(receiver, { kind: started ? kind : 'lost', started }, this.#onThrow);
    this.#checkIdle();
  }

  #open(opened: OpenJob, message: ToEngine): JobHandle {
    if (this.#jobs.size >= MAX_JOBS)
      return failSoon(opened.receiver, { kind: 'failed', started: false }, this.#onThrow);
    this.#jobs.set(opened.id, opened);
    this.#send(message);
    const { id } = opened;
    return {
      cancel: () => this.#cancel(id),
      reduceSeats: () => this.#reduceSeats(id),
      supply: (image, values) => this.#supply(id, image, values),
    };
  }

  #reduceSeats(id: number): void {
    if (this.#jobs.get(id) !== undefined) this.#send({ v: PROTOCOL_VERSION, kind: 'reduceSeats', id });
  }

  #supply(id: number, image: number, values: Float32Array): void {
    const job = this.#jobs.get(id);
    if (job?.kind !== 'generate' || !job.missingImages.delete(image)) return;
    this.#send({ v: PROTOCOL_VERSION, kind: 'embeddings', id, image, values });
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
    if (this.#jobs.size + this.#cancelling.size > 0) return;
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
        case 'cancelled':
          break;
        default:
          deliverResult(opened, output);
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
export function failSoon(receiver: GenerationReceiver | ScoreReceiver, fault: JobFault, onThrow: OnThrow): JobHandle {
  let cancelled = false;
  queueMicrotask(() => {
    if (!cancelled) fail(receiver, fault, onThrow);
  });
  const cancel = (): undefined => {
    cancelled = true;
  };
  return { cancel, reduceSeats: () => undefined };
}

function fail(receiver: GenerationReceiver | ScoreReceiver, fault: JobFault, onThrow: OnThrow): void {
  try {
    receiver.failed(fault);
  } catch (error) {
    onThrow(error);
  }
}
