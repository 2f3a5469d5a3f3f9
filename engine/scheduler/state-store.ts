/**
 * States of one kind in host memory, the rule by which they are evicted, and what a sequence or a saved state holds: tokens, and the
 * checkpoints that it can go back to.
 */
import type { Checkpoint } from './decoder.js';
import { EngineFault } from './faults.js';
import { digestOf, SequenceTokens } from './sequence-tokens.js';
import type { Eviction } from '../protocol/messages.js';

/** A state, as its store sees it. */
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

  /** Bytes of all of them. */
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
