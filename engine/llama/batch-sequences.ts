import type { AddonContext, Internals } from './addon.js';
import { StateCheckpoint } from './checkpoint.js';
import type { Checkpoint, Part } from '../scheduler/decoder.js';
import { EngineFault } from '../scheduler/faults.js';

/**
 * The states of a context's sequences, on the addon's layer: their lengths, cuts, copies and checkpoints.
 *
 * Where llama.cpp has one state per position, positions may be cut off at the end, one by one, at no cost. A recurrent layer
 * has one state for all positions, and a layer with a sliding window has dropped the oldest (llama.cpp gives some
 * architectures a window that their files do not name): such a sequence is only appended to, or emptied.
 */
export class BatchSequences {
  readonly #context: AddonContext;
  readonly #Checkpoint: Internals['Checkpoint'];
  /** Positions in each sequence. */
  readonly #length: number[];
  /** Sequences of copies that llama.cpp makes at its next decode. */
  readonly #copying = new Set<number>();

  /** `context` stays the caller's. All `count` sequences are empty. */
  constructor(context: AddonContext, Checkpoint: Internals['Checkpoint'], count: number) {
    this.#context = context;
    this.#Checkpoint = Checkpoint;
    this.#length = new Array<number>(count).fill(0);
  }

  /** Positions in the sequence of each part, for {@link ran} and {@link undo}. */
  lengths(parts: readonly Part[]): number[] {
    return parts.map(({ sequence }) => this.#length[sequence] ?? 0);
  }

  /** Counts a part's tokens in its sequence; returns their start position. */
  extend({ sequence, tokens }: Part): number {
    const from = this.#length[sequence] ?? 0;
    this.#length[sequence] = from + tokens.length;
    return from;
  }

  /** A run has made `steps` steps of one token a part, from these lengths. */
  ran(parts: readonly Part[], before: readonly number[], steps: number): void {
    for (const [i, { sequence }] of parts.entries()) this.#length[sequence] = (before[i] ?? 0) + steps;
  }

  /** A decode succeeded, so llama.cpp has made the copies. */
  decoded(): void {
    this.#copying.clear();
  }

  /** Takes a failed decode back. For each part, whether its sequence has its previous state again. */
  undo(parts: readonly Part[], before: readonly number[]): boolean[] {
    return parts.map((part, i) => this.#undo(part, before[i] ?? 0));
  }

  /** See SequenceStates. */
  truncate(sequence: number, length: number): Promise<void> {
    const held = this.#length[sequence] ?? 0;
    // Also if nothing was counted: after a fault, the sequence's state is unknown.
    if (length === 0) this.#context.disposeSequence(sequence);
    else if (length < held && !this.#remove(sequence, length, held)) {
      return Promise.reject(new Error('the sequence cannot be cut'));
    }
    this.#length[sequence] = Math.min(length, held);
    return Promise.resolve();
  }

  /** See SequenceStates. */
  async copy(target: number, source: number): Promise<void> {
    const held = this.#length[source] ?? 0;
    this.#length[target] = 0;
    // llama.cpp copies a sequence's whole capacity; the target's own state is lost.
    const last = await this.#context.copySequenceStateFromOtherSequence(target, source);
    if (last !== Math.max(0, held - 1)) throw new EngineFault('the sequence was not copied');
    this.#length[target] = held;
    this.#copying.add(target).add(source);
  }

  /** See SequenceStates. */
  save(sequence: number): Promise<Checkpoint> {
    if (this.#copying.has(sequence)) return Promise.reject(new EngineFault('the sequence is not copied yet'));
    return StateCheckpoint.save(this.#context, this.#Checkpoint, sequence, this.#length[sequence] ?? 0);
  }

  /** See SequenceStates. A copy that is still to be made would take what is restored here, or write over it. */
  async restore(sequence: number, checkpoint: Checkpoint): Promise<void> {
    const { length } = checkpoint;
    const restorable = length > 0 && length <= (this.#length[sequence] ?? 0) && !this.#copying.has(sequence);
    if (!restorable || !(checkpoint instanceof StateCheckpoint)) throw new EngineFault('the state cannot be restored');
    await checkpoint.restore(this.#context, sequence);
    this.#length[sequence] = length;
  }

  /**
   * Takes back what a failed decode may have left of a part: llama.h promises untouched memory only where it found no room
   * or refused the batch; after any other error the pieces that were done remain. A sequence that still ends where it did is
   * whole: what llama.cpp wrote over meanwhile lay outside every window. False: it cannot be taken back.
   */
  #undo({ sequence, tokens }: Part, before: number): boolean {
    this.#length[sequence] = before;
    if (this.#context.getSequenceKvCacheMaxPosition(sequence) === before - 1) return true;
    return this.#remove(sequence, before, before + tokens.length);
  }

  /** Truncates the end. False: the remaining state could not be continued. */
  #remove(sequence: number, from: number, to: number): boolean {
    const whole = from === 0 || this.#context.getSequenceKvCacheMinPosition(sequence) <= 0;
    return whole && this.#context.removeTokenCellsFromSequence(sequence, from, to);
  }
}
