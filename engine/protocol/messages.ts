/**
 * The messages between the sidecar and an engine process. Both sides import this file.
 *
 * They are sent over link.ts, with typed arrays. The sidecar starts with `start`, the engine answers `ready` or
 * `unable`; then jobs are sent one way and at most one `step` message per step the other. Every message has the version
 * `v`; another version or an unknown `kind` ends the engine.
 */
import type { Output } from './job-output.js';
import type { GenerateJob, ScoreJob } from './jobs.js';
import type { EngineFacts, EngineSetup } from './setup.js';

export const PROTOCOL_VERSION = 4;

/** The engine's own exit codes. */
export const ENGINE_EXIT = {
  /** After `shutdown`, or when its link closed. */
  done: 0,
  /** After `unable`. */
  unable: 3,
  /** After a message that is not of this protocol. */
  protocol: 4,
} as const;

/** Sidecar to engine. `id` is unique among the jobs of one engine process. */
export type ToEngine = { readonly v: number } & (
  | { readonly kind: 'start'; readonly setup: EngineSetup }
  | { readonly kind: 'generate'; readonly id: number; readonly job: GenerateJob }
  | { readonly kind: 'score'; readonly id: number; readonly job: ScoreJob }
  /** Embeddings of the image with this index, for which the job asked (`wants`). */
  | { readonly kind: 'embeddings'; readonly id: number; readonly image: number; readonly values: Float32Array }
  | { readonly kind: 'cancel'; readonly id: number }
  /**
   * Other requests wait: the job continues with one seat less, except its last one, and sends `seatFreed` once that seat is
   * free.
   */
  | { readonly kind: 'reduceSeats'; readonly id: number }
  | { readonly kind: 'shutdown' }
);

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
