/** The images of a chat: their places in its prompt before it is admitted, and their embeddings when its engine requests them. */
import { createHash } from 'node:crypto';
import type { ContractError } from '../domain/errors.js';
import type { Prompt } from '../engine-client/engine.js';
import type { RequestImage } from '../prompts/prompt-maker.js';
import { placeImages, type ImageLayout, type PlacedPart } from '../vision/place-images.js';
import type { EncodeTask, Encoding, Layout, Size, Vision } from '../vision/client.js';
import { imageFailed, imageTooLong, imageUnreadable, starting } from './refusals.js';

/** With `detail: low` an image is shrunk to sides of this many pixels, where that saves tokens. */
const LOW_SIDE = 512;

/** Why there are no embeddings of an image. */
export interface ImageFailure {
  readonly kind: 'image-failed';
  readonly error: ContractError;
}

export type JobImages = Pick<Encodings, 'embeddings' | 'close'>;

export type ImagePrompt =
  | { readonly kind: 'placed'; readonly prompt: Prompt; readonly images: JobImages }
  | { readonly kind: 'refused'; readonly error: ContractError };

/** Whose images they are: the account, the scope of its cache (see CacheKey), and what a refusal names. */
export interface ImagesOf {
  readonly account: string;
  readonly scope: string;
  readonly param: string;
}

/** Counts a request's images and puts them into its prompt. */
export async function placeInPrompt(
  vision: Vision,
  texts: Prompt,
  images: readonly RequestImage[],
  of: ImagesOf,
): Promise<ImagePrompt> {
  const { scope, param } = of;
  const layouts: ImageLayout[] = [];
  const tasks: EncodeTask[] = [];
  for (const image of images) {
    const found = await layoutOf(vision, image);
    if (found.kind === 'unavailable')
      return refused(starting({ state: vision.state === 'lost' ? 'lost' : 'cold', readyInMs: vision.readyInMs }));
    const { facts } = vision;
    if (found.kind === 'failed' || !facts) return refused(imageFailed());
    const { parts, shrunk } = found;
    // The projector's own bound counts embeddings too.
    const own = parts.reduce((sum, part) => sum + (part.kind === 'tokens' ? 0 : part.count), 0);
    if (own > vision.maxTokens) return refused(imageTooLong(param, own, vision.maxTokens));
    const digest = digestOf(image, shrunk, [scope, facts.projectorVersion, vision.maxTokens], vision.secret);
    layouts.push({ parts, digest });
    tasks.push({ digest, scope, bytes: image.bytes, size: image.size, shrunk });
  }
  const { prompt, placed } = placeImages(texts, layouts, vision.facts?.whole === true);
  return { kind: 'placed', prompt, images: new Encodings(vision, tasks, placed, of) };
}

function refused(error: ContractError): ImagePrompt {
  return { kind: 'refused', error };
}

type FoundLayout =
  Exclude<Layout, { kind: 'layout' }> | (Extract<Layout, { kind: 'layout' }> & { readonly shrunk: Size });

async function layoutOf(vision: Vision, { size, low }: RequestImage): Promise<FoundLayout> {
  const full = await vision.layout(size);
  if (full.kind !== 'layout') return full;
  const scale = LOW_SIDE / Math.max(size.width, size.height);
  if (!low || scale >= 1) return { kind: 'layout', parts: full.parts, shrunk: size };
  const side = (length: number): number => Math.max(1, Math.round(length * scale));
  const small = { width: side(size.width), height: side(size.height) };
  const less = await vision.layout(small);
  if (less.kind !== 'layout' || tokensOf(less.parts) >= tokensOf(full.parts))
    return { kind: 'layout', parts: full.parts, shrunk: size };
  return { kind: 'layout', parts: less.parts, shrunk: small };
}

function tokensOf(parts: ImageLayout['parts']): number {
  return parts.reduce((sum, part) => sum + (part.kind === 'tokens' ? part.tokens.length : part.count), 0);
}

/** `of`: what embeddings depend on besides the image, and which accounts may share them. */
function digestOf(
  { sha256 }: RequestImage,
  { width, height }: Size,
  of: readonly (string | number)[],
  secret: Uint8Array,
): Uint8Array {
  const settings = JSON.stringify([...of, width, height]);
  return createHash('sha256').update(secret).update(settings).update(sha256).digest();
}

interface OpenEncoding {
  readonly encoding: Encoding;
  /** Parts whose embeddings were passed on. */
  readonly given: Set<number>;
}

/** Each image is encoded once, when its first part is requested, and released with its last. */
class Encodings {
  readonly #vision: Vision;
  readonly #tasks: readonly EncodeTask[];
  readonly #placed: readonly PlacedPart[];
  readonly #of: ImagesOf;
  readonly #encodings = new Map<number, OpenEncoding>();
  #closed = false;

  constructor(vision: Vision, tasks: readonly EncodeTask[], placed: readonly PlacedPart[], of: ImagesOf) {
    this.#vision = vision;
    this.#tasks = tasks;
    this.#placed = placed;
    this.#of = of;
  }

  /** The embeddings of a part of an image, by the part's index in the prompt, until `close`. */
  async embeddings(at: number): Promise<Float32Array | ImageFailure> {
    const { image, part } = this.#placed[at] ?? { image: -1, part: 0 };
    const task = this.#tasks[image];
    if (!task || this.#closed) return noEmbeddings(imageFailed());
    const encoded = this.#encodings.get(image) ?? {
      encoding: this.#vision.encode(task, this.#of.account),
      given: new Set<number>(),
    };
    this.#encodings.set(image, encoded);
    const result = await encoded.encoding.result;
    if (result.kind === 'undecodable') return noEmbeddings(imageUnreadable(this.#of.param));
    const values = result.kind === 'encoded' ? result.embeddings[part] : undefined;
    if (result.kind !== 'encoded' || !values) return noEmbeddings(imageFailed());
    // They may be hundreds of megabytes.
    if (encoded.given.add(part).size === result.embeddings.length) this.#encodings.delete(image);
    return values;
  }

  /** They are not needed any more. Idempotent. */
  close(): void {
    this.#closed = true;
    for (const { encoding } of this.#encodings.values()) encoding.cancel();
    this.#encodings.clear();
  }
}

function noEmbeddings(error: ContractError): ImageFailure {
  return { kind: 'image-failed', error };
}
