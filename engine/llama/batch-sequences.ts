import type { AddonContext } from './addon-context.js';
import type { Internals } from './addon.js';
import { StateCheckpoint } from './checkpoint.js';
import { SequencePositions } from './sequence-positions.js';
import { StateInFile } from './whole-state.js';
import { decodeOne } from './decode-one.js';
import { NOT_NUMBERS } from './not-a-number.js';
import type { Checkpoint, OpenedState, Part, PartResult, StateNotes, WholeState } from '../scheduler/decoder.js';
import { EngineFault, UncleanSequence } from '../scheduler/faults.js';
import type { StateElsewhere } from '../protocol/shared-state.js';

/**
 * The states of a context's sequences, on the addon's layer: their lengths, truncation, copies and checkpoints.
 *
 * Where llama.cpp has one state per position, positions may be removed at the end, one by one, at no cost. A recurrent layer
 * has one state for all positions, and a layer with a sliding window has dropped the oldest (llama.cpp gives some
 * architectures a window that their files do not name): such a sequence is only appended to, or emptied.
 */
export class BatchSequences {
  readonly #context: AddonContext;
  readonly #Checkpoint: Internals['Checkpoint'];
  readonly #savable: boolean;
  readonly #clear: (context: AddonContext) => void;
  /** Where the tokens of whole states lie. */
  readonly #saved = new WeakMap<Checkpoint, SequencePositions>();
  readonly #positions: readonly SequencePositions[];
  /** Sequences of copies that llama.cpp makes at its next decode. */
  readonly #copying = new Set<number>();
  /** Sequences whose cells have what is no number. */
  readonly #spoiled = new Set<number>();

  /**
   * `context` stays the caller's. All `count` sequences are empty. `savable`: whether whole states can be saved. `clear`: empties
   * all sequences and overwrites their cells.
   */
  constructor(
    context: AddonContext,
    Checkpoint: Internals['Checkpoint'],
    count: number,
    savable: boolean,
    clear: (context: AddonContext) => void,
  ) {
    this.#clear = clear;
    this.#context = context;
    this.#Checkpoint = Checkpoint;
    this.#savable = savable;
    this.#positions = Array.from({ length: count }, () => new SequencePositions());
  }

  /** Tokens in the sequence of each part, for {@link ran} and {@link undo}. */
  lengths(parts: readonly Part[]): number[] {
    return parts.map(({ sequence }) => this.#at(sequence).length);
  }

  /** Counts a part's tokens in its sequence; returns their start position, of embeddings that of their image. */
  extend(part: Part): number {
    return this.#at(part.sequence).extend(part);
  }

  /** Where a token of a sequence would come next; undefined: none can, since llama.cpp still copies it or it ends within an image. */
  next(sequence: number): number | undefined {
    return this.#copying.has(sequence) ? undefined : this.#at(sequence).next;
  }

  /** A run has made `steps` steps of one token a part, from these lengths. */
  ran(parts: readonly Part[], before: readonly number[], steps: number): void {
    for (const [i, { sequence }] of parts.entries()) this.#at(sequence).become((before[i] ?? 0) + steps);
  }

  /** A decode succeeded, so llama.cpp has made the copies. */
  decoded(): void {
    this.#copying.clear();
  }

  /** Remembers the sequences of parts whose logits were not numbers: their cells are to be overwritten. */
  judge(parts: readonly Part[], results: readonly PartResult[]): void {
    for (const [i, { sequence }] of parts.entries()) if (results[i] === NOT_NUMBERS) this.#spoiled.add(sequence);
  }

  /** Takes a failed decode back. For each part, whether its sequence has its previous state again. */
  undo(parts: readonly Part[], before: readonly number[]): boolean[] {
    return parts.map((part, i) => this.#undo(part, before[i] ?? 0));
  }

  /** See SequenceStates. */
  async truncate(sequence: number, length: number): Promise<void> {
    const held = this.#at(sequence);
    if (length === 0) {
      // Also if nothing was counted: after a fault, the sequence's state is unknown.
      if (this.#spoiled.has(sequence)) await this.#overwrite(sequence);
      this.#context.disposeSequence(sequence);
      // Up to the last position that there is: all embeddings of an image of which only a part is there have its first one.
    } else if (length < held.length && !this.#remove(sequence, held.at(length), held.last + 1)) {
      throw new Error('the sequence cannot be truncated there');
    }
    held.become(Math.min(length, held.length));
  }

  /** See SequenceStates. */
  async copy(target: number, source: number): Promise<void> {
    const held = this.#at(source);
    this.#at(target).become(0);
    // llama.cpp copies a sequence's whole capacity; the target's own state is lost.
    const last = await this.#context.copySequenceStateFromOtherSequence(target, source);
    if (last !== Math.max(0, held.last)) throw new EngineFault('the sequence was not copied');
    this.#at(target).copy(held);
    this.#copying.add(target).add(source);
    // All of its cells are written over.
    this.#spoiled.delete(target);
  }

  /** See SequenceStates. */
  async save(sequence: number): Promise<Checkpoint> {
    await this.#finishCopies(sequence);
    return await StateCheckpoint.save(this.#context, this.#Checkpoint, sequence, this.#at(sequence));
  }

  /** See SequenceStates. */
  async restore(sequence: number, checkpoint: Checkpoint): Promise<void> {
    const { length } = checkpoint;
    const held = this.#at(sequence);
    const restorable = length > 0 && length <= held.length;
    if (!restorable || !(checkpoint instanceof StateCheckpoint)) throw new EngineFault('the state cannot be restored');
    await this.#finishCopies(sequence);
    await checkpoint.restore(this.#context, sequence);
    held.become(length);
  }

  /** See SequenceStates. */
  async saveWhole(sequence: number, notes?: StateNotes): Promise<WholeState> {
    const held = this.#at(sequence);
    if (!this.#savable || held.length === 0) throw new EngineFault('the state cannot be saved');
    await this.#finishCopies(sequence);
    const positions = new SequencePositions();
    positions.copy(held);
    const state = await StateInFile.save(this.#context, sequence, positions, notes);
    this.#saved.set(state, positions);
    return state;
  }

  /** See SequenceStates. */
  async restoreWhole(sequence: number, state: WholeState): Promise<void> {
    // What it does not write over would spoil it.
    if (this.#spoiled.has(sequence)) throw new UncleanSequence('the sequence has cells that hold no number');
    const positions = this.#saved.get(state);
    if (!(state instanceof StateInFile) || !positions) throw new EngineFault('the state cannot be restored');
    this.#at(sequence).become(0);
    await this.#finishCopies(sequence);
    await state.restore(this.#context, sequence);
    this.#at(sequence).copy(positions);
  }

  /** See SequenceStates. No image is in it, so each token has a position of its own. */
  openWhole(elsewhere: StateElsewhere): OpenedState {
    const opened = StateInFile.open(elsewhere);
    const positions = new SequencePositions();
    positions.become(opened.state.length);
    this.#saved.set(opened.state, positions);
    return opened;
  }

  /**
   * Has llama.cpp make the copies of a sequence now, if it has not: its state would be saved without what is still to be copied, and a
   * copy would take what is restored, or write over it. llama.cpp makes them when it begins a decode, and here none may follow. Rejects
   * where no sequence is empty, in which a token could be decoded.
   */
  async #finishCopies(sequence: number): Promise<void> {
    if (!this.#copying.has(sequence)) return;
    const empty = this.#positions.findIndex(({ length }, id) => length === 0 && !this.#spoiled.has(id));
    if (empty < 0) throw new UncleanSequence('the sequence is not copied yet');
    this.#context.disposeSequence(empty);
    try {
      await decodeOne(this.#context, empty);
      this.#copying.clear();
    } finally {
      this.#context.disposeSequence(empty);
    }
  }

  /**
   * Writes another sequence's cells over those of a spoiled one: attention reads cells of no token too, and only masks what they
   * give, which leaves what is no number. Where all are spoiled, none has anything to keep, and all are cleared.
   */
  async #overwrite(sequence: number): Promise<void> {
    const others = [...this.#positions.keys()].filter((other) => other !== sequence && !this.#spoiled.has(other));
    const source = others.find((other) => this.#at(other).length > 0) ?? others[0];
    if (source === undefined) {
      this.#clear(this.#context);
      for (const held of this.#positions) held.become(0);
      this.#spoiled.clear();
      return;
    }
    // The addon copies no sequence without a token.
    const isEmpty = this.#at(source).length === 0;
    if (isEmpty) await decodeOne(this.#context, source);
    await this.#context.copySequenceStateFromOtherSequence(sequence, source);
    if (isEmpty) this.#context.disposeSequence(source);
    this.#copying.add(sequence).add(source);
    this.#spoiled.delete(sequence);
  }

  /**
   * Takes back what a failed decode may have left of a part: llama.h promises untouched memory only where it found no room
   * or refused the batch; after any other error the pieces that were done remain. A sequence that still ends where it did is
   * whole: what llama.cpp wrote over meanwhile lay outside every window. False: it cannot be taken back.
   */
  #undo(part: Part, before: number): boolean {
    const { sequence, tokens } = part;
    const held = this.#at(sequence);
    held.become(before);
    // What came before of such an image is at the same position.
    if (part.kind === 'embeddings' && part.image.columns > 0 && part.image.index > 0) return false;
    if (this.#context.getSequenceKvCacheMaxPosition(sequence) === held.last) return true;
    return this.#remove(sequence, held.at(before), held.at(before) + tokens.length);
  }

  #at(sequence: number): SequencePositions {
    const found = this.#positions[sequence];
    if (!found) throw new RangeError(`no sequence ${sequence}`);
    return found;
  }

  /** Truncates the end. False: the remaining state could not be continued. */
  #remove(sequence: number, from: number, to: number): boolean {
    const whole = from === 0 || this.#context.getSequenceKvCacheMinPosition(sequence) <= 0;
    return whole && this.#context.removeTokenCellsFromSequence(sequence, from, to);
  }
}
