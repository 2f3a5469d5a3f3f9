/**
 * The messages between the sidecar and a vision process, over link.ts: one process for each model that reads images. It counts
 * the tokens of an image from its size and computes embeddings of image files. The sidecar starts with `start`, the process
 * answers `ready` or `unable`; then it answers each `layout` and `encode` once, in any order, and `forget` never. Every message has the
 * version `v`; another version or an unknown kind ends the process. The protocol is separate from that of engine processes
 * (messages.ts), since it has no jobs and no steps.
 */
import type { CacheScope } from './cache-key.js';
import type { EngineSetup } from './setup.js';

export const VISION_VERSION = 3;

/** How a vision process is set up. */
export interface VisionSetup {
  /** Path of the model's GGUF file, of which only the head is read. */
  readonly file: string;
  /** Path of the projector's GGUF file. */
  readonly projector: string;
  /** Compute threads; 0: all cores but one, or one for each of `cores`. */
  readonly threads: number;
  /** As in `0-3,8`. Absent: any. */
  readonly cores?: string;
  /** The backend that encodes; false: the CPU. */
  readonly gpu: EngineSetup['gpu'];
  /** The GPU that its process sees alone: its index or UUID. Absent: all that there are. */
  readonly device?: string;
  /** The most tokens of an image, where the projector has a choice. Absent: its own bound. */
  readonly maxTokens?: number;
  /** The most pixels of an image: what its memory is bounded by. */
  readonly maxPixels: number;
  /** Embeddings that it keeps. */
  readonly cacheBytes: number;
  /** Those that were not used for so long are dropped, ms. */
  readonly maxAgeMs: number;
  /** Time between two heartbeats, ms. */
  readonly heartbeatMs: number;
}

/** What of its confinement is in force. */
export interface Confinement {
  /** System calls are filtered: no files, no network, no programs, no signals to other processes. */
  readonly filtered: boolean;
  readonly bounded: boolean;
  /** It has another user than the sidecar, which is root. */
  readonly ownUser: boolean;
}

/** A vision process once it is ready. */
export interface VisionFacts {
  /** SHA-256 of the projector's file, hex. */
  readonly projectorVersion: string;
  /** Embeddings of an image attend to each other. */
  readonly whole: boolean;
  readonly confinement: Confinement;
}

/** What an image becomes in a prompt: the projector's own texts, as tokens, and the places of its embeddings. */
export type LayoutPart =
  | { readonly kind: 'tokens'; readonly tokens: Uint32Array }
  | {
      readonly kind: 'embeddings';
      readonly count: number;
      readonly positions: number;
      readonly columns: number;
    };

/** Width and height, in pixels. */
export interface Size {
  readonly width: number;
  readonly height: number;
}

/** An image to make embeddings of. */
export interface EncodeTask {
  /** Names the embeddings in the process' cache. Never logged. */
  readonly digest: Uint8Array;
  /** Whose embeddings they are kept as. */
  readonly scope: CacheScope;
  /** PNG or JPEG. */
  readonly bytes: Uint8Array;
  /** By the file's head. */
  readonly size: Size;
  /** The size that it is shrunk to first. */
  readonly shrunk: Size;
}

/** Sidecar to vision process. `id` is unique among the requests to one process. */
export type ToVision = { readonly v: number } & (
  | { readonly kind: 'start'; readonly setup: VisionSetup }
  | { readonly kind: 'layout'; readonly id: number; readonly size: Size }
  | { readonly kind: 'encode'; readonly id: number; readonly task: EncodeTask }
  /** Nothing of this scope is kept any more. */
  | { readonly kind: 'forget'; readonly scope: CacheScope }
);

/** Vision process to sidecar. */
export type FromVision = { readonly v: number } & (
  | { readonly kind: 'ready'; readonly facts: VisionFacts }
  /** It cannot start; the process exits. `reason` is one line. `mayMend`: a later start may succeed. */
  | { readonly kind: 'unable'; readonly reason: string; readonly mayMend: boolean }
  | { readonly kind: 'layout'; readonly id: number; readonly parts: readonly LayoutPart[] }
  /** For each part of the layout with embeddings, these. */
  | { readonly kind: 'encoded'; readonly id: number; readonly embeddings: readonly Float32Array[] }
  /** `undecodable`: the file is not what its head says. */
  | { readonly kind: 'refused'; readonly id: number; readonly why: 'undecodable' | 'failed' }
  | { readonly kind: 'heartbeat' }
);
