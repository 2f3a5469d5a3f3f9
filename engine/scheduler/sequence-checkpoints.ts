import type { CheckpointStore, SavedState } from './checkpoint-store.js';

/** The checkpoints that one sequence can go back to, by their length. */
export class SequenceCheckpoints {
  readonly #store: CheckpointStore;
  #states: SavedState[] = [];

  constructor(store: CheckpointStore) {
    this.#store = store;
  }

  /** Lengths that it can go back to, ascending. */
  get lengths(): number[] {
    return this.#live().map(({ length }) => length);
  }

  at(length: number): SavedState | undefined {
    return this.#live().find((state) => state.length === length);
  }

  add(state: SavedState): void {
    if (this.#store.add(state)) this.#states.push(state);
  }

  /** Those of what the sequence held from token `length` on are of no more use to it. */
  truncate(length: number): void {
    for (const state of this.#live().filter((each) => each.length > length)) this.remove(state);
  }

  remove(state: SavedState): void {
    this.#states.splice(this.#states.indexOf(state), 1);
    this.#store.drop(state);
  }

  /** What the other can go back to, this one can from now on, having its tokens. */
  become(other: SequenceCheckpoints): void {
    this.truncate(0);
    for (const state of other.#live()) {
      state.holders += 1;
      this.#states.push(state);
    }
  }

  #live(): SavedState[] {
    if (this.#states.some(({ evicted }) => evicted)) this.#states = this.#states.filter(({ evicted }) => !evicted);
    return this.#states;
  }
}
