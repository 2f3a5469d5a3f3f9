import type { Checkpoint } from './decoder.js';
import { digestOf } from './sequence-tokens.js';
import { EngineFault } from './faults.js';

/** A checkpoint, and how many sequences it can be restored to: those that have the same tokens up to it. */
export class SavedState {
  readonly checkpoint: Checkpoint;
  /** Of the tokens up to it. */
  readonly digest: number;
  /** Tokens that it spares more than the checkpoint before it. */
  readonly gain: number;
  /** When it was last saved or restored, as a count. */
  usedAt = 0;
  holders = 0;
  /** Its memory was freed. */
  evicted = false;

  constructor(checkpoint: Checkpoint, tokens: Uint32Array, gain: number) {
    this.checkpoint = checkpoint;
    this.digest = digestOf(tokens.subarray(0, checkpoint.length));
    this.gain = gain;
  }

  get length(): number {
    return this.checkpoint.length;
  }

  /** Throws where it is not of these tokens: a bug, which is not to become another caller's text. */
  check(tokens: Uint32Array): void {
    if (this.evicted || this.length > tokens.length || digestOf(tokens.subarray(0, this.length)) !== this.digest) {
      throw new EngineFault('a checkpoint of other tokens');
    }
  }
}

/**
 * All checkpoints of an engine, within so many bytes. For a new one those go that are worth least: the tokens that one spares
 * over how many others were used since it was. The sequences see that it is evicted when they look for it.
 */
export class CheckpointStore {
  readonly #limit: number;
  readonly #states = new Set<SavedState>();
  #bytes = 0;
  #uses = 0;

  /** `limit`: bytes. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Bytes of all of them. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether there is room for any. */
  get open(): boolean {
    return this.#limit > 0;
  }

  /** Takes one over, held once. False: it is larger than all that there may be, and is disposed. */
  add(state: SavedState): boolean {
    const { bytes } = state.checkpoint;
    if (bytes > this.#limit) {
      state.evicted = true;
      state.checkpoint.dispose();
      return false;
    }
    while (this.#bytes + bytes > this.#limit) this.#evictLeast();
    this.#states.add(state);
    this.#bytes += bytes;
    state.holders = 1;
    this.used(state);
    return true;
  }

  used(state: SavedState): void {
    state.usedAt = ++this.#uses;
  }

  /** A sequence cannot go back to it any more; the last one to say so frees it. */
  drop(state: SavedState): void {
    state.holders -= 1;
    if (state.holders === 0) this.#evict(state);
  }

  #evictLeast(): void {
    let least: SavedState | undefined;
    for (const state of this.#states) if (!least || this.#worth(state) < this.#worth(least)) least = state;
    if (least) this.#evict(least);
  }

  #worth({ gain, usedAt }: SavedState): number {
    return gain / (1 + this.#uses - usedAt);
  }

  #evict(state: SavedState): void {
    if (!this.#states.delete(state)) return;
    this.#bytes -= state.checkpoint.bytes;
    state.evicted = true;
    state.checkpoint.dispose();
  }
}
