import type { Channel, EngineFacts, FinishReason, GenerateJob, ScoreJob } from '../../engine/protocol/messages.js';
import type { PrefixIndex } from './prefix-index.js';

export type {
  Channel,
  EngineFacts,
  FinishReason,
  GenerateJob,
  ScoreJob,
  ScoreQuestion,
} from '../../engine/protocol/messages.js';

/** Why a job ended without its result. */
export interface EngineFault {
  /** lost: the process died or was killed; failed: this job alone; protocol: the engine broke its protocol. */
  readonly kind: 'lost' | 'failed' | 'protocol';
  /** Whether `started` had been called. A lost job that had not started may be given back to the queue, once. */
  readonly started: boolean;
}

/** Called in order, on the sidecar's event loop; after `done` or `failed`, and after cancelling, never again. */
export interface GenerationSink {
  started(cachedTokens: number): void;
  /** Whole characters of one reply. */
  piece(piece: { choice: number; channel: Channel; text: string; tokens: number }): void;
  /** A part of a call's arguments; the call's first part names it, and later ones belong to the call of the same index. */
  call(piece: { choice: number; index: number; name?: string; arguments: string; tokens: number }): void;
  finished(end: {
    choice: number;
    reason: FinishReason;
    matchedStop?: string | number;
    completionTokens: number;
    reasoningTokens: number;
  }): void;
  /** One of the job's seats is free again. Never the last, which goes with `done`. */
  freed(): void;
  /** All replies are out; the engine's sequences are free. */
  done(): void;
  failed(fault: EngineFault): void;
}

export interface ScoreSink {
  started(cachedTokens: number): void;
  answer(answer: { question: number; probabilities: Float64Array; labelMass: number }): void;
  freed(): void;
  done(): void;
  failed(fault: EngineFault): void;
}

/** A job that an engine was given. Harmless after its end. */
export interface JobHandle {
  /** Stops it at the engine's next step; nothing more is called on its sink. Idempotent. */
  readonly cancel: () => void;
  /** It goes on with one seat less, its last one excepted; its sink hears `freed` once nothing runs there. */
  readonly reduceSeats: () => void;
}

export type EngineState = 'unloaded' | 'cold' | 'ready' | 'lost';

/**
 * One engine process as handlers see it. It takes no Lease: the caller holds the lease, and
 * since a cancel and the next job travel in order on one channel, a lease may be released as soon as cancel was called.
 */
export interface Engine {
  /**
   * unloaded: it has no process until it is woken; cold: loading, or between two lives; ready: takes jobs; lost: given up
   * (closed, or the model cannot be served).
   */
  readonly state: EngineState;
  /** Why it was given up, in one line for the operator; undefined otherwise. */
  readonly problem: string | undefined;
  /** It is loaded when somebody wants it: the sidecar is ready without it. */
  readonly onDemand: boolean;
  /** Set from the first `ready` on, and kept while a restart is under way. */
  readonly facts: EngineFacts | undefined;
  /** While cold or unloaded: a guess of when it will be ready, ms from now, were it woken now. */
  readonly readyInMs: number;
  /** Somebody wants it: an unloaded one begins to load. Otherwise it does nothing. */
  wake(): void;
  /** Starts a job. When not ready, the sink's `failed` is called (lost, not started) before the next tick ends. */
  generate(job: GenerateJob, sink: GenerationSink): JobHandle;
  score(job: ScoreJob, sink: ScoreSink): JobHandle;
  /** What the engine's free sequences hold, as far as it has told; empty while it is not ready. */
  heldPrefixes(): PrefixIndex;
}
