/** What the stand-in of a vision process (vision-stub.ts) does: the name of its projector's file, as JSON. */
import { fileURLToPath } from 'node:url';
import type { Confinement, Size } from '../../engine/protocol/vision-messages.js';

export const VISION_STUB = fileURLToPath(new URL('./vision-stub.js', import.meta.url));

export interface VisionScript {
  readonly start?:
    | 'ready'
    /** Takes the start and never answers it. */
    | 'silent'
    /** The projector is not for this model. */
    | 'misfit'
    | 'exit'
    | 'wrong-version';
  /** Sends no heartbeats. */
  readonly deaf?: boolean;
  readonly confinement?: Partial<Confinement>;
  /** Sent besides, after its answer to the start where it gives one. */
  readonly says?: readonly object[];
}

/** Images of these widths are not encoded at once, px. */
export const STUB_WIDTH = {
  /** It ends over it. */
  dies: 31,
  undecodable: 32,
  /** Encoded once an image of a new size comes. */
  held: 33,
} as const;

const SIDE = 28;

/** Tokens of its embeddings; two more are around them. */
export function stubImageTokens({ width, height }: Size): number {
  return Math.ceil(width / SIDE) * Math.ceil(height / SIDE);
}

/** A projector's path, which is no file. */
export function stubProjector(script: VisionScript = {}): string {
  return JSON.stringify(script);
}
