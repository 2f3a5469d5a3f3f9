/** The vision port: what routes know of the process that counts and encodes the images of one model. client.ts implements it. */
import type { EncodeTask, LayoutPart, Size, VisionFacts } from '../../engine/protocol/vision-messages.js';

export type { EncodeTask, LayoutPart, Size, VisionFacts } from '../../engine/protocol/vision-messages.js';

/**
 * cold: loading, or between two processes; ready: takes images; lost: the projector cannot be used, or it was closed.
 */
export type VisionState = 'cold' | 'ready' | 'lost';

export type Layout =
  | { readonly kind: 'layout'; readonly parts: readonly LayoutPart[] }
  /** The projector takes no image of this size, or its process ended over it. */
  | { readonly kind: 'failed' }
  /** There is no process now. */
  | { readonly kind: 'unavailable' };

export type Encoded =
  /** One for each part of the layout with embeddings, in order. */
  | { readonly kind: 'encoded'; readonly embeddings: readonly Float32Array[] }
  /** The file is not what its head says. */
  | { readonly kind: 'undecodable' }
  /** The process ended or hung over it, or there are too many. */
  | { readonly kind: 'failed' };

/** An image that is encoded, or waits for it. */
export interface Encoding {
  /** Never rejects; never settles after `cancel`. */
  readonly result: Promise<Encoded>;
  /** The image is no longer needed. One that is being encoded is finished and kept. Idempotent. */
  readonly cancel: () => void;
}

export interface Vision {
  readonly state: VisionState;
  /** Until it may be ready, ms. */
  readonly readyInMs: number;
  /** Set from the first `ready` on. */
  readonly facts: VisionFacts | undefined;
  /** The most tokens of an image. */
  readonly maxTokens: number;
  /** Random bytes of this sidecar. Digests of images are made with them, so that no caller can choose one or find one out. */
  readonly secret: Uint8Array;
  /** What an image of this size becomes in a prompt. Never rejects. */
  layout(size: Size): Promise<Layout>;
  /** Accounts take turns. */
  encode(task: EncodeTask, account: string): Encoding;
}
