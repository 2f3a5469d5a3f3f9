import { createHash } from 'node:crypto';
import { IMAGE_IDS, type Prompt, type PromptSegment } from '../../engine/protocol/prompt.js';
import type { LayoutPart } from '../../engine/protocol/vision-messages.js';

export interface ImageLayout {
  readonly parts: readonly LayoutPart[];
  /** Of its embeddings; no other image's are equal. */
  readonly digest: Uint8Array;
}

/** Which part of which image of a request the embeddings segment at an index of the prompt is. */
export interface PlacedPart {
  readonly image: number;
  /** Among the image's parts with embeddings. */
  readonly part: number;
}

/**
 * A prompt with images: `texts` has a segment before, between and after them. Texts side by side become one segment, as
 * llama-server evaluates them. `whole`: see ImageSegment. `placed`: by the index of the prompt's images.
 */
export function placeImages(texts: Prompt, images: readonly ImageLayout[], whole: boolean) {
  const segments: PromptSegment[] = [];
  const placed: PlacedPart[] = [];
  let text: Uint32Array[] = [];
  const flush = (): void => {
    const tokens = concatenated(text);
    if (tokens.length > 0) segments.push({ kind: 'tokens', tokens });
    text = [];
  };
  for (const [at, { tokens }] of texts.entries()) {
    text.push(tokens);
    let part = 0;
    for (const each of images[at]?.parts ?? []) {
      if (each.kind === 'tokens') {
        text.push(each.tokens);
        continue;
      }
      flush();
      const digest = partDigest(images[at]?.digest, part);
      const { count, positions, columns } = each;
      segments.push({ kind: 'image', tokens: idsOf(digest, count), digest, positions, columns, whole });
      placed.push({ image: at, part });
      part += 1;
    }
  }
  flush();
  return { prompt: segments, placed };
}

/** The same id for each place: what follows an image differs from it. */
function idsOf(digest: Uint8Array, count: number): Uint32Array {
  const hint = new DataView(digest.buffer, digest.byteOffset).getUint32(0) % IMAGE_IDS;
  return new Uint32Array(count).fill(IMAGE_IDS + hint);
}

function partDigest(digest: Uint8Array = new Uint8Array(0), part: number): Uint8Array {
  return createHash('sha256')
    .update(digest)
    .update(Uint8Array.of(part & 0xff, part >> 8))
    .digest();
}

function concatenated(parts: readonly Uint32Array[]): Uint32Array {
  const [only] = parts;
  if (only && parts.length === 1) return only;
  const all = new Uint32Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
