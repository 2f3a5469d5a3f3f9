/**
 * The messages between the sidecar and an engine process. Both sides import this file.
 *
 * They are sent over link.ts, with typed arrays. The sidecar starts with `start`, the engine answers `ready` or
 * `unable`; then jobs are sent one way and at most one `step` message per step the other. Every message has the version
 * `v`; another version or an unknown `kind` ends the engine.
 */
import type { CacheScope, SharedState } from './cache-key.js';
import type { EmbedJob, GenerateJob, Output, ReplyLimit, ScoreJob } from './jobs.js';
import type { HashedFile } from './file-key.js';
import type { EngineFacts, EngineSetup, GpuBackend } from './setup.js';

export const PROTOCOL_VERSION = 12;

/** Prefixes that an engine has in host memory, at most: a bound for what is compared at each request. */
export const MOST_SAVED = 1024;

/** The engine's own exit codes. */
export const ENGINE_EXIT = {
  /** After `shutdown`, or when its link closed. */
  done: 0,
  /** After `unable`. */
  unable: 3,
  /** After a message that is not of this protocol. */
  protocol: 4,
  /** The server that computes for it is gone, or is another one now. */
  lost: 5,
} as const;

/** Sidecar to engine. `id` is unique among the jobs of one engine process. */
export type ToEngine = { readonly v: number } & (
  | { readonly kind: 'start'; readonly setup: EngineSetup }
  /** The answer to `opens`. Absent: the sidecar could not hash them, and the engine does. */
  | { readonly kind: 'weights'; readonly weights?: HashedFile }
  | { readonly kind: 'generate'; readonly id: number; readonly job: GenerateJob }
  | { readonly kind: 'score'; readonly id: number; readonly job: ScoreJob }
  | { readonly kind: 'embed'; readonly id: number; readonly job: EmbedJob }
  /** Embeddings of the image with this index, for which the job asked (`needsImage`). */
  | { readonly kind: 'embeddings'; readonly id: number; readonly image: number; readonly values: Float32Array }
  | { readonly kind: 'cancel'; readonly id: number }
  /**
   * Other requests wait: the job continues with one seat less, except its last one, and sends `seatFreed` once that seat is
   * free.
   */
  | { readonly kind: 'reduceSeats'; readonly id: number }
  | ({ readonly kind: 'limit'; readonly id: number } & ReplyLimit)
  /** An account is frozen or gone: nothing that requests of its scope left is kept. Absent: what batches left as garbage is overwritten. */
  | { readonly kind: 'forget'; readonly scope?: CacheScope }
  | { readonly kind: 'shutdown' }
);

/**
 * The prefix in a free sequence, or, numbered from the seats on, in a place of host memory: the chain hashes of its tokens
 * (`prefixHashes`). None: it is empty, or in use.
 */
export interface HeldPrefix {
  readonly sequence: number;
  readonly hashes: Uint32Array;
  /** By which other processes can restore it. Absent: they cannot. */
  readonly state?: SharedState;
}

/** Tokens in the KV memory: in sequences of jobs, and in free ones, kept for reuse. */
export interface HeldTokens {
  readonly running: number;
  readonly kept: number;
}

/**
 * Why an entry of the prefix cache went: room for another one; replaced by one that contains it; age: not used for the longest
 * age; forgotten: its account; failed: it could not be restored.
 */
export const EVICTIONS = ['room', 'replaced', 'age', 'forgotten', 'failed'] as const;
export type Eviction = (typeof EVICTIONS)[number];

/** The prefix cache in host memory: sums since the engine's start, and what there is now. */
export interface CacheCounts {
  /** Requests that went on from an entry. */
  readonly hits: number;
  /** Prompt tokens that these did not evaluate. */
  readonly restoredTokens: number;
  readonly bytes: number;
  readonly entries: number;
  readonly evictions: Readonly<Record<Eviction, number>>;
}

/** What an engine reports of itself from time to time. */
export interface EngineReport {
  /** Jobs that have a sequence or wait for one; of an engine that computes elsewhere, requests that its server may be computing. */
  readonly live: number;
  readonly tokens: HeldTokens;
  readonly cache: CacheCounts;
}

export const NO_CACHE: CacheCounts = {
  hits: 0,
  restoredTokens: 0,
  bytes: 0,
  entries: 0,
  evictions: { room: 0, replaced: 0, age: 0, forgotten: 0, failed: 0 },
};

/** Of an engine that has not begun. */
export const NO_REPORT: EngineReport = { live: 0, tokens: { running: 0, kept: 0 }, cache: NO_CACHE };

/** Engine to sidecar. */
export type FromEngine = { readonly v: number } & (
  | { readonly kind: 'ready'; readonly facts: EngineFacts }
  /** Of a setup whose weights follow: the key of the file that it begins to load. Absent: its attributes cannot be read. */
  | { readonly kind: 'opens'; readonly key?: string }
  /** It begins to use a backend, false: the CPU. What ends the process before `ready` may be the fault of a GPU's. */
  | { readonly kind: 'tries'; readonly backend: GpuBackend | false }
  /**
   * The model cannot be served; the process exits. `reason` is one line; `mayMend`: a later attempt may succeed; `noStep`: the model has
   * loaded, and its first step failed.
   */
  | { readonly kind: 'unable'; readonly reason: string; readonly mayMend: boolean; readonly noStep?: true }
  /**
   * The server of an engine that computes elsewhere cannot be used: sent before `ready` while the engine waits for it, when the
   * reason changes and once a minute, and after `ready` before the engine exits because of it. `reason` is one line.
   */
  | { readonly kind: 'serverProblem'; readonly reason: string }
  /** `held`: the free sequences and the places of the prefix cache whose prefixes have changed since the last message. */
  | {
      readonly kind: 'step';
      readonly step: number;
      readonly outputs: readonly Output[];
      readonly held: readonly HeldPrefix[];
    }
  /**
   * An engine that computes elsewhere takes `seats` jobs of one sequence each from now on, from 1 to those of its facts.
   * `unconfirmed`: cancelled replies so far whose end the server did not confirm in time.
   */
  | { readonly kind: 'capacity'; readonly seats: number; readonly unconfirmed: number }
  /** Sent every `heartbeatMs`; `step` counts finished decodes. */
  | ({ readonly kind: 'heartbeat'; readonly step: number } & EngineReport)
);
