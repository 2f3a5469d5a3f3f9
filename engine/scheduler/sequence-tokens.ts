import type { PromptPlan } from './prompt-plan.js';
import { sameCache, type CacheKey } from '../protocol/cache-key.js';
import type { ImageSegment, PlacedImage } from '../protocol/prompt.js';

/**
 * How much of a sequence's state a plan may reuse. any: every shared token. same-split: only chunks that were evaluated
 * by themselves and that the plan has too, so that the state equals, bit for bit, what the plan would compute. none:
 * nothing.
 */
export type Reuse = 'any' | 'same-split' | 'none';

/** The tokens in one sequence, and which of them were evaluated in chunks by themselves. */
export class SequenceTokens {
  #buffer = new Uint32Array(0);
  #length = 0;
  /** Ends of chunks that were decoded by themselves, without a gap from the start. */
  #ends: number[] = [];
  /** Whose prompts may build on it; undefined if it never held anything. */
  #key: CacheKey | undefined;
  /** Of the prompt that it holds. Those past its length are not there. */
  #images: readonly PlacedImage[] = [];

  get length(): number {
    return this.#length;
  }

  /** A view, valid until the next change. */
  get tokens(): Uint32Array {
    return this.#buffer.subarray(0, this.#length);
  }

  /** `alone`: a chunk of a prompt that shared its decode with nothing else. */
  append(tokens: Uint32Array, alone: boolean): void {
    const length = this.#length + tokens.length;
    if (length > this.#buffer.length) this.#grow(length);
    this.#buffer.set(tokens, this.#length);
    if (alone && (this.#ends.at(-1) ?? 0) === this.#length) this.#ends.push(length);
    this.#length = length;
  }

  /** Tokens past the new length are overwritten with zeros. */
  truncate(length: number): void {
    if (length < this.#length) this.#buffer.fill(0, length, this.#length);
    this.#length = Math.min(this.#length, length);
    while ((this.#ends.at(-1) ?? 0) > this.#length) this.#ends.pop();
  }

  get key(): CacheKey | undefined {
    return this.#key;
  }

  /** Ends of chunks that were decoded by themselves. */
  get ends(): readonly number[] {
    return this.#ends;
  }

  /** Whether some of its tokens stand for an image. */
  get hasImages(): boolean {
    return this.#images.some(({ at }) => at < this.#length);
  }

  /** Holds what another process's sequence held, under this key and without images. */
  fill(tokens: Uint32Array, ends: Iterable<number>, key: CacheKey): void {
    this.wipe();
    this.append(tokens, false);
    this.#ends = [...ends];
    this.#key = key;
  }

  /** It holds nothing, and the memory of its tokens is overwritten with zeros. */
  wipe(): void {
    this.truncate(0);
    this.#key = undefined;
    this.#images = [];
  }

  /** FNV-1a over whole tokens. */
  get digest(): number {
    return digestOf(this.tokens);
  }

  /** Leading tokens that both hold, under an equal key. */
  sharedWith(other: SequenceTokens): number {
    if (!this.#key || !other.#key || !sameCache(this.#key, other.#key)) return 0;
    return this.#outsideImages(other.#images, this.#shared(other.tokens));
  }

  /** Whether it begins with all tokens that the other holds, under an equal key. */
  beginsWith(other: SequenceTokens): boolean {
    return this.couldShareMore(other.tokens, other.length - 1) && this.sharedWith(other) === other.length;
  }

  /**
   * Whether it may have more than `shared` leading tokens in common with these: the next one is equal. Most of many entries are
   * ruled out by it, however long the beginning is that all prompts have.
   */
  couldShareMore(tokens: Uint32Array, shared: number): boolean {
    return shared < this.#length && this.#buffer[shared] === tokens[shared];
  }

  /** Keeps its first `length` tokens for a plan, none of another key's. */
  keepFor({ key, images }: PromptPlan, length: number): void {
    this.truncate(length);
    this.#key = key;
    this.#images = images;
  }

  /** Holds from now on what the other holds now. */
  become(other: SequenceTokens): void {
    this.truncate(0);
    this.#key = other.#key;
    this.#images = other.#images;
    this.append(other.tokens, false);
    this.#ends = [...other.#ends];
  }

  /**
   * How many leading tokens of the plan it can give: never all, since the last one's logits are wanted. `lengths`: the only
   * ones that it can go back to; absent: any.
   */
  reusable(plan: PromptPlan, reuse: Reuse, lengths?: readonly number[]): number {
    if (reuse === 'none' || this.#key === undefined || !sameCache(this.#key, plan.key)) return 0;
    const shared = this.#outsideImages(plan.images, Math.min(this.#shared(plan.tokens), plan.tokens.length - 1));
    if (reuse === 'any') return lengths ? Math.max(0, ...lengths.filter((length) => length <= shared)) : shared;
    let same = 0;
    for (const [i, end] of this.#ends.entries()) {
      if (end > shared || end !== plan.ends[i]) break;
      // Where the plan would not save its state, a saved one may differ from its own.
      if (!lengths || (lengths.includes(end) && plan.saved.has(end))) same = end;
    }
    return same;
  }

  /**
   * `images`: those of another prompt, whose first `shared` ids equal the ones here. Returns how many of these are the same
   * tokens: ids of images are hints, so whole digests are compared. No state is reused from within an image.
   */
  #outsideImages(images: readonly PlacedImage[], shared: number): number {
    for (const { at, image } of images) {
      if (at >= shared) return shared;
      const held = this.#images.find((each) => each.at === at)?.image;
      if (at + image.tokens.length > shared || held === undefined || !sameImage(image, held)) return at;
    }
    return shared;
  }

  #shared(tokens: Uint32Array): number {
    const most = Math.min(this.#length, tokens.length);
    let i = 0;
    while (i < most && this.#buffer[i] === tokens[i]) i += 1;
    return i;
  }

  /** By doubling: most sequences never use their whole context. */
  #grow(length: number): void {
    const buffer = new Uint32Array(Math.max(length, 2 * this.#buffer.length));
    buffer.set(this.tokens);
    this.#buffer.fill(0);
    this.#buffer = buffer;
  }
}

function sameImage(a: ImageSegment, b: ImageSegment): boolean {
  return a.tokens.length === b.tokens.length && a.digest.every((byte, at) => byte === b.digest[at]);
}

/**
 * FNV-1a over whole tokens. The tokens themselves were compared before; this detects errors in the records of what
 * sequences have.
 */
export function digestOf(tokens: Uint32Array): number {
  let hash = 0x811c9dc5;
  for (const token of tokens) hash = Math.imul(hash ^ token, 0x01000193);
  return hash >>> 0;
}
