/** The engine port: what routes, admission, telemetry and console use of a model's engine (docs/architecture.md#ports). */
import type { EmbedJob, Output, GenerateJob, ReplyLimit, ScoreJob } from '../../engine/protocol/jobs.js';
import type { EngineFacts, EngineSetup } from '../../engine/protocol/setup.js';
import type { PrefixIndex } from './prefixes.js';

export type { CacheScope } from '../../engine/protocol/cache-key.js';
export { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';
export { promptLength, tokenPrompt, type Prompt } from '../../engine/protocol/prompt.js';
export { REQUEST_AHEAD_TOKENS, type Channel, type FinishReason, type ReplyLimit } from '../../engine/protocol/jobs.js';
export type { EngineFacts, ModelKind, ScoreScale } from '../../engine/protocol/setup.js';
export type { EmbedJob, GenerateJob, ScoreJob } from '../../engine/protocol/jobs.js';
export { CACHE_SHARE, MOST_CACHE_BYTES } from '../../engine/protocol/cache-key.js';
export { MEMORY_FILES } from '../../engine/protocol/cache-key.js';

/** Why a job ended without its result. */
export interface JobFault {
  /**
   * lost: the process ended, was killed, or takes no jobs now; failed: only this job; protocol: the engine violated its protocol; stale:
   * its prompt was made with another tokenizer or template than that of the replica, whose weights were changed, and has to be made again.
   */
  readonly kind: 'lost' | 'failed' | 'protocol' | 'stale';
  /** Whether `started` had been called. A lost job that had not started may return to the queue. */
  readonly started: boolean;
}

/** Called in order, on the sidecar's event loop; after `done` or `failed`, and after cancelling, never again. */
interface JobReceiver {
  /** `weightVersion`: of the weights that make the whole reply. */
  started(cachedTokens: number, weightVersion: string): void;
  /** Prompt tokens that were not computed again, where the engine knows them only at the end. */
  cached(tokens: number): void;
  /** One of the job's seats is free again, never the last one, which is free with `done`. */
  seatFreed(): void;
  /** All replies are complete; the engine's sequences are free. */
  done(): void;
  failed(fault: JobFault): void;
}

export interface GenerationReceiver extends JobReceiver {
  /** The job waits until `supply` is called with the embeddings of the prompt's image with this index. Absent: there is no image. */
  needsImage?(image: number): void;
  /** A reply of a job with a `limit` has so many tokens, and soon as many as it may have: `limit` has to be called. Absent: it has none. */
  needsTokens?(tokens: number): void;
  /** Whole characters of one reply. */
  piece(piece: Result<'piece'>): void;
  /** A part of a call's arguments; the call's first part has its name, and later ones have the same index. */
  call(part: Result<'call'>): void;
  finished(end: Result<'finished'>): void;
}

export interface ScoreReceiver extends JobReceiver {
  answer(answer: Result<'answer'>): void;
}

export interface EmbedReceiver extends JobReceiver {
  /** In the order of the job's inputs. */
  vectors(made: Result<'vectors'>): void;
}

/** The engine's output of this kind, whose fields engine/protocol/jobs.ts describes. */
type Result<Kind extends Output['kind']> = Omit<Extract<Output, { kind: Kind }>, 'id' | 'kind'>;

/** A job, and what its results are passed to. */
export type EngineJob =
  | { readonly kind: 'generate'; readonly job: GenerateJob; readonly receiver: GenerationReceiver }
  | { readonly kind: 'score'; readonly job: ScoreJob; readonly receiver: ScoreReceiver }
  | { readonly kind: 'embed'; readonly job: EmbedJob; readonly receiver: EmbedReceiver };

/** A job that was sent to an engine. Its functions do nothing after its end. */
export interface JobHandle {
  /**
   * Stops it at the engine's next step; nothing more is called on its receiver. Undefined if its seats may be given to other
   * jobs at once, since the engine runs a cancel before every job that it is given later. Otherwise they may once the
   * promise settles; it never rejects. Idempotent.
   */
  readonly cancel: () => Promise<void> | undefined;
  /** Sends the embeddings of an image that it needs. Absent: it needs none. */
  readonly supply?: (image: number, values: Float32Array) => void;
  /** Sets how many tokens each reply may have. Absent: all that the job asks for. */
  readonly limit?: (limit: ReplyLimit) => void;
  /** The job continues with one seat less, except its last; `seatFreed` is called on its receiver once that seat is free. */
  readonly reduceSeats: () => void;
  /** Keeps its process for the later parts of the same work. Absent: no job of this kind is a part. */
  readonly hold?: () => ProcessHold;
}

/** A process that began a part of a request's work and is kept for the later ones, also once other weights have taken its place. */
export interface ProcessHold {
  readonly weightVersion: string;
  /** As {@link Engine.run} does, on this process; undefined if it has ended. */
  readonly run: (job: EngineJob) => JobHandle | undefined;
  /** The process need not be kept any more. Idempotent. */
  readonly release: () => void;
}

export type EngineState = 'unloaded' | 'cold' | 'ready' | 'lost';

/** One replica of an engine, as operators see it. */
export interface ReplicaStatus {
  readonly state: EngineState;
  /** Why it is not ready, in one line for the operator, or undefined. */
  readonly problem: string | undefined;
  /** Of its present process, or of its last one; undefined if none was ready. */
  readonly facts: EngineFacts | undefined;
}

/** Computes one model's replies, as routes see it. The route that calls `run` holds a lease of seats of one replica. */
export interface Engine {
  /**
   * unloaded: no process runs until the engine is woken; cold: loading, or between two processes; ready: takes jobs; lost: given up for
   * good (closed, or the model cannot be served), unlike a job that is lost. Of several replicas it is the state of the one that is closest
   * to taking jobs.
   */
  readonly state: EngineState;
  /** Why it was given up, in one line for the operator, or undefined. */
  readonly problem: string | undefined;
  /** It is loaded when a request needs it: the sidecar is ready without it. */
  readonly onDemand: boolean;
  /** Set from the first `ready` on, and kept during a restart. `contextPerSeat`: of the longest seats there are. */
  readonly facts: EngineFacts | undefined;
  /** Tokens that a seat can hold, shortest first, of all replicas as they are configured. */
  readonly contexts: readonly number[];
  /** By index. */
  readonly replicas: readonly ReplicaStatus[];
  /** While cold or unloaded: the estimated time until it is ready if it were woken now, ms. */
  readonly readyInMs: number;
  /** A request needs it: an unloaded one begins to load. Otherwise it does nothing. */
  wake(): void;
  /**
   * Starts a job on the replica with this index. When that is not ready, the receiver's `failed` is called (lost, not started)
   * before the next tick ends. `prefix`: its prompt's chain hashes, as the queue had them. `hold`: of the process that began the work of
   * which it is a part; the job runs there if the replica has other weights by now.
   */
  run(job: EngineJob, replica: number, prefix: Uint32Array, hold?: ProcessHold): JobHandle;
  /**
   * The prefixes from which a job of this replica can start: in its free sequences, its prefix cache and the caches that it can restore
   * from; by the last reports.
   */
  heldPrefixes(replica: number): PrefixIndex;
}

/** The fields of a setup that other weights change. */
export type Changes = Pick<EngineSetup, 'file' | 'weights'>;

/** Whether a replica now serves with other weights. `lacksMemory`: it may have failed for lack of memory. */
export type Replaced =
  { readonly kind: 'replaced' } | { readonly kind: 'kept'; readonly why: string; readonly lacksMemory: boolean };

/** Reports of one replica of an engine. Called on the event loop, never from inside start() or run(). They must not throw. */
export interface EngineEvents {
  /**
   * From now on this many jobs of one sequence each can run at once; 0: none. The queue grants this many seats. If the number
   * falls because of a failure, this is called before the failed jobs' receivers, so that a returned seat is not granted again.
   */
  seats(count: number): void;
  /**
   * The replica stays lost, because the model cannot be served; `why` is one line for the operator. Called after `seats(0)`. `unfit`:
   * the engine reported this itself, so the configuration or the file has to change; otherwise its starts crashed.
   */
  unservable(why: string, unfit: boolean): void;
  /** Its process ended. It is loaded again after this many ms; if no request needs it now, once one does, and not earlier. */
  restarting(inMs: number): void;
  /** An external server did not confirm the end of this many more cancelled replies in time. */
  unconfirmed(count: number): void;
}
