/**
 * States of one kind in host memory, the rule by which they are evicted, and what a sequence or a saved state holds: tokens, and the
 * checkpoints that it can go back to.
 */
import type { Checkpoint } from './decoder.js';
import { EngineFault } from './faults.js';
import type { PromptPlan } from './prompt-plan.js';
import { sameCache, type CacheKey } from '../protocol/cache-key.js';
import type { Eviction } from '../protocol/messages.js';
import type { ImageSegment, PlacedImage } from '../protocol/prompt.js';

export interface StoredState {
  readonly bytes: number;
  /** Tokens that it spares a prompt. */
  readonly spares: number;
  /** The store's count of uses at its last one. */
  use: number;
}

/**
 * States of one kind, within so many bytes. For a new one those go that are worth least: what one spares for its bytes, over how
 * many uses of others there were since its own.
 */
export class StateStore<State extends StoredState> {
  readonly limit: number;
  readonly #most: number;
  readonly #evicted: (state: State, why: Eviction) => void;
  readonly #states = new Set<State>();
  #bytes = 0;
  #uses = 0;

  /** `limit`: bytes; `most`: states. `evicted`: frees the memory of one that is no longer in the store, once. */
  constructor(limit: number, most: number, evicted: (state: State, why: Eviction) => void) {
    this.limit = limit;
    this.#most = most;
    this.#evicted = evicted;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get all(): ReadonlySet<State> {
    return this.#states;
  }

  /** Takes one over, for which there is room once it is {@link shrink}. False: it is larger than what there may be. */
  add(state: State): boolean {
    if (this.#bytes + state.bytes > this.limit) return false;
    this.#states.add(state);
    this.#bytes += state.bytes;
    this.used(state);
    return true;
  }

  used(state: State): void {
    state.use = ++this.#uses;
  }

  /** Nothing happens to one that is not in the store any more. */
  drop(state: State, why: Eviction): void {
    if (!this.#states.delete(state)) return;
    this.#bytes -= state.bytes;
    this.#evicted(state, why);
  }

  /**
   * Evicts until there are at most so many bytes, and one state less than there may be. `kept`: is not evicted; `isElsewhere`: whether
   * all of one is in another place too, so that it is worth nothing.
   */
  shrink(bytes: number, kept?: State, isElsewhere: (state: State) => boolean = () => false): void {
    while (this.#states.size > 0 && (this.#bytes > bytes || this.#states.size >= this.#most)) {
      let least: State | undefined;
      let worth = Infinity;
      for (const state of this.#states) {
        if (state === kept) continue;
        const here = isElsewhere(state) ? 0 : state.spares / state.bytes / (1 + this.#uses - state.use);
        if (least && here >= worth) continue;
        least = state;
        worth = here;
      }
      if (!least) return;
      this.drop(least, 'room');
    }
  }
}

/** A checkpoint, and how many sequences and saved states can go back to it: those that have the same tokens up to it. */
export class SavedCheckpoint implements StoredState {
  readonly checkpoint: Checkpoint;
  /** Of the tokens up to it. */
  readonly digest: number;
  readonly spares: number;
  use = 0;
  holders = 1;
  /** Its memory was freed. */
  evicted = false;

  /** `spares`: tokens more than the checkpoint before it. */
  constructor(checkpoint: Checkpoint, tokens: Uint32Array, spares: number) {
    this.checkpoint = checkpoint;
    this.digest = digestOf(tokens.subarray(0, checkpoint.length));
    this.spares = spares;
  }

  get length(): number {
    return this.checkpoint.length;
  }

  get bytes(): number {
    return this.checkpoint.bytes;
  }

  /** Throws where it is not of these tokens: a bug, which is not to become another caller's text. */
  check(tokens: Uint32Array): void {
    if (this.evicted || this.length > tokens.length || digestOf(tokens.subarray(0, this.length)) !== this.digest) {
      throw new EngineFault('a checkpoint of other tokens');
    }
  }
}

/** The store of all checkpoints. `limit`: bytes. */
export function checkpointStore(limit: number): StateStore<SavedCheckpoint> {
  return new StateStore(limit, Infinity, (state) => {
    state.evicted = true;
    state.checkpoint.dispose();
  });
}

/** The checkpoints that one sequence or saved state can go back to, by their length. Those that were evicted are not among them. */
export class Checkpoints {
  readonly #store: StateStore<SavedCheckpoint>;
  #states: SavedCheckpoint[] = [];

  constructor(store: StateStore<SavedCheckpoint>) {
    this.#store = store;
  }

  /** Lengths that it can go back to, ascending. */
  get lengths(): number[] {
    return this.#live().map(({ length }) => length);
  }

  at(length: number): SavedCheckpoint | undefined {
    return this.#live().find((state) => state.length === length);
  }

  /** Takes one over, and disposes it where it is larger than all that there may be. */
  add(state: SavedCheckpoint): void {
    if (state.bytes <= this.#store.limit) this.#store.shrink(this.#store.limit - state.bytes);
    if (this.#store.add(state)) this.#states.push(state);
    else {
      state.evicted = true;
      state.checkpoint.dispose();
    }
  }

  /** Those of what was held from token `length` on are of no more use here; one that is of none anywhere is freed. */
  truncate(length: number): void {
    for (const state of this.#live().filter((each) => each.length > length)) {
      this.#states.splice(this.#states.indexOf(state), 1);
      state.holders -= 1;
      if (state.holders === 0) this.#store.drop(state, 'replaced');
    }
  }

  /** What the other can go back to, this one can from now on, having its tokens. */
  become(other: Checkpoints): void {
    this.truncate(0);
    for (const state of other.#live()) {
      state.holders += 1;
      this.#states.push(state);
    }
  }

  #live(): SavedCheckpoint[] {
    if (this.#states.some(({ evicted }) => evicted)) this.#states = this.#states.filter(({ evicted }) => !evicted);
    return this.#states;
  }
}

/** What a sequence or a saved state holds: its tokens, and the checkpoints that it can go back to. */
export class Held {
  readonly tokens = new SequenceTokens();
  readonly checkpoints: Checkpoints;

  constructor(store: StateStore<SavedCheckpoint>) {
    this.checkpoints = new Checkpoints(store);
  }

  /** Lengths that it can go back to where its state cannot be truncated: what it holds now is among them. */
  get lengths(): readonly number[] {
    return [...this.checkpoints.lengths, this.tokens.length];
  }

  truncate(length: number): void {
    this.tokens.truncate(length);
    this.checkpoints.truncate(length);
  }

  /** Holds from now on what the other holds now. */
  become(other: Held): void {
    this.tokens.become(other.tokens);
    this.checkpoints.become(other.checkpoints);
  }

  /** It holds nothing, and the memory of its tokens is overwritten with zeros. */
  wipe(): void {
    this.checkpoints.truncate(0);
    this.tokens.wipe();
  }
}

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
