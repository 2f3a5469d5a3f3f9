/**
 * A prompt: what a reply continues from, as segments in their order. Every segment has one id for each of its places, so that
 * lengths, prefix hashes and the reuse of a held prefix need no knowledge of kinds.
 */
export type Prompt = readonly PromptSegment[];

export type PromptSegment = TokenSegment | ImageSegment;

/** Tokens that are evaluated as such. */
export interface TokenSegment {
  readonly kind: 'tokens';
  readonly tokens: Uint32Array;
}

/** An image, or one of the parts that the projector makes of it: embeddings are evaluated in place of tokens. */
export interface ImageSegment {
  readonly kind: 'image';
  /** Ids from {@link IMAGE_IDS} on, made of `digest`: hints, which other images may share. */
  readonly tokens: Uint32Array;
  /** 32 bytes that no other embeddings have. Never logged. */
  readonly digest: Uint8Array;
  /** By how much it moves the positions of what follows: at most its tokens. */
  readonly positions: number;
  /** Embeddings of a row where positions have two dimensions; 0: they have one. */
  readonly columns: number;
  /** Its embeddings attend to each other, so that one decode must have them all. */
  readonly whole: boolean;
}

/** Ids from here on are those of images; no vocabulary is as large. */
export const IMAGE_IDS = 2 ** 31;

export const DIGEST_BYTES = 32;

/** A prompt of text alone, over the same memory. */
export function tokenPrompt(tokens: Uint32Array): Prompt {
  return [{ kind: 'tokens', tokens }];
}

/** Places of a context that it takes. */
export function promptLength(prompt: Prompt): number {
  let length = 0;
  for (const { tokens } of prompt) length += tokens.length;
  return length;
}

/** One id a place: two prompts whose ids begin alike have a prefix in common. A view where there is one segment. */
export function promptIds(prompt: Prompt): Uint32Array {
  const [first] = prompt;
  if (first && prompt.length === 1) return first.tokens;
  const ids = new Uint32Array(promptLength(prompt));
  let at = 0;
  for (const { tokens } of prompt) {
    ids.set(tokens, at);
    at += tokens.length;
  }
  return ids;
}

/** An image's segment and the place of its first id. */
export interface PlacedImage {
  readonly at: number;
  readonly image: ImageSegment;
}

export function imagesOf(prompt: Prompt): readonly PlacedImage[] {
  const placed: PlacedImage[] = [];
  let at = 0;
  for (const segment of prompt) {
    if (segment.kind === 'image') placed.push({ at, image: segment });
    at += segment.tokens.length;
  }
  return placed;
}
