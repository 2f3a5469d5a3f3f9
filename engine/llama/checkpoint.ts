import type { AddonCheckpoint, AddonContext } from './addon-context.js';
import type { Checkpoint } from '../scheduler/decoder.js';
import { EngineFault } from '../scheduler/faults.js';

/** Tokens of a sequence, and its last position. */
interface SequenceExtent {
  readonly length: number;
  readonly last: number;
}

/**
 * What llama.cpp keeps of a sequence that cannot be truncated: the state of its recurrent layers, or the cells of its sliding windows.
 * The cells of layers that attend to everything are not in it. They stay in the sequence, so a checkpoint can only be restored
 * where the sequence still has them, which the scheduler knows (sequence-tokens.ts).
 */
export class StateCheckpoint implements Checkpoint {
  readonly length: number;
  readonly bytes: number;
  readonly #state: AddonCheckpoint;
  /** Its last position. */
  readonly #last: number;

  private constructor(state: AddonCheckpoint, { length, last }: SequenceExtent) {
    this.#state = state;
    this.length = length;
    this.#last = last;
    this.bytes = state.size;
  }

  /**
   * Copies the state of a sequence that holds this. Rejects when llama.cpp has another last position.
   *
   * Of a sliding window llama.cpp restores the cells that are still seen, from the first place of its ring on. Where they
   * lie moves the last digits of what attends to them, so they are restored at once: a request that continues from here
   * finds them in the same places as one that restores them later.
   */
  static async save(
    context: AddonContext,
    Make: new () => AddonCheckpoint,
    sequence: number,
    held: SequenceExtent,
  ): Promise<StateCheckpoint> {
    const state = new Make();
    try {
      await state.init(context, sequence);
      if (state.maxPos !== held.last) throw new EngineFault('the state is of another position');
      const made = new StateCheckpoint(state, held);
      if (state.minPos !== state.maxPos) await made.restore(context, sequence);
      return made;
    } catch (error) {
      state.dispose();
      throw error;
    }
  }

  /** Copies the state back and removes what comes after it. Rejects when it cannot; the sequence is then to be emptied. */
  async restore(context: AddonContext, sequence: number): Promise<void> {
    if (this.#state.size !== this.bytes || this.#state.maxPos !== this.#last) {
      throw new EngineFault('the state is not the one that was saved');
    }
    if (!(await context.restoreCheckpoint(this.#state, this.#last, sequence))) {
      throw new EngineFault('the state was not restored');
    }
  }

  dispose(): void {
    this.#state.dispose();
  }
}
