import type { AddonCheckpoint, AddonContext, EngineAddon, Internals } from './addon.js';
import type { PagedStates, SequenceExtent } from './paged-states.js';
import { decodeOne, type StateCopies, StateInFile } from './state-file.js';
import { NOT_NUMBERS } from './batch-sampler.js';
import type {
  Checkpoint,
  OpenedState,
  StepPart,
  PartResult,
  SequenceStates,
  StateNotes,
  WholeState,
} from '../scheduler/decoder.js';
import { EngineFault, UncleanSequence } from '../scheduler/faults.js';
import type { StateElsewhere } from '../protocol/cache-key.js';

type StatesAddon = StateCopies & Pick<EngineAddon, 'raClearMemory'>;

/** Of the addon's layer what states need. */
type StatesLayer = Pick<Internals, 'context' | 'Checkpoint'> & { readonly addon: StatesAddon };

/** What a context's states are like. */
export interface StateTraits extends Pick<SequenceStates, 'truncatable'> {
  readonly restoredTruncatable: boolean;
  /** Whether whole states can be saved. */
  readonly savable: boolean;
  /** Where they are; absent: in files, which other processes can open. */
  readonly pages?: PagedStates;
}

/** A whole state that was saved or opened here. */
interface Saved {
  /** Where its tokens lie. */
  readonly positions: SequencePositions;
  readonly restore: (sequence: number) => Promise<void>;
}

/**
 * The states of a context's sequences, on the addon's layer: their lengths, truncation, copies and checkpoints.
 *
 * Where llama.cpp has one state per position, positions may be removed at the end, one by one, at no cost. A recurrent layer
 * has one state for all positions, and a layer with a sliding window has dropped the oldest (llama.cpp gives some
 * architectures a window that their files do not name): such a sequence is only appended to, or emptied.
 */
export class BatchSequences implements SequenceStates {
  readonly truncatable: boolean;
  readonly restoredTruncatable: boolean;
  readonly copyable = true;
  readonly #context: AddonContext;
  readonly #Checkpoint: Internals['Checkpoint'];
  readonly #savable: boolean;
  readonly #addon: StatesAddon;
  readonly #pages: PagedStates | undefined;
  readonly #saved = new WeakMap<Checkpoint, Saved>();
  readonly #positions: readonly SequencePositions[];
  /** Sequences of copies that llama.cpp makes at its next decode. */
  readonly #copying = new Set<number>();
  /** Sequences whose cells have what is no number. */
  readonly #spoiled = new Set<number>();

  /** The layer's context stays the caller's. All `count` sequences are empty. */
  constructor({ context, Checkpoint, addon }: StatesLayer, count: number, traits: StateTraits) {
    this.truncatable = traits.truncatable;
    this.restoredTruncatable = traits.restoredTruncatable;
    this.#addon = addon;
    this.#context = context;
    this.#Checkpoint = Checkpoint;
    this.#savable = traits.savable;
    this.#pages = traits.pages;
    this.#positions = Array.from({ length: count }, () => new SequencePositions());
  }

  /** Bytes that whole states may still take; undefined where they are in files. */
  get room(): number | undefined {
    return this.#pages?.room;
  }

  /** Tokens in the sequence of each part, for {@link ran} and {@link undo}. */
  lengths(parts: readonly StepPart[]): number[] {
    return parts.map(({ sequence }) => this.#at(sequence).length);
  }

  /** Counts a part's tokens in its sequence; returns their start position, of embeddings that of their image. */
  extend(part: StepPart): number {
    return this.#at(part.sequence).extend(part);
  }

  /** Where a token of a sequence would come next; undefined if none can, since llama.cpp still copies it or it ends within an image. */
  next(sequence: number): number | undefined {
    return this.#copying.has(sequence) ? undefined : this.#at(sequence).next;
  }

  /** After steps of a run the sequence of each part holds so many tokens. */
  ran(parts: readonly StepPart[], lengths: readonly number[]): void {
    for (const [i, { sequence }] of parts.entries()) this.#at(sequence).become(lengths[i] ?? 0);
  }

  /** A decode succeeded, so llama.cpp has made the copies. */
  decoded(): void {
    this.#copying.clear();
  }

  /** Remembers the sequences of parts whose logits were not numbers: their cells are to be overwritten. */
  judge(parts: readonly StepPart[], results: readonly PartResult[]): void {
    for (const [i, { sequence }] of parts.entries()) if (results[i] === NOT_NUMBERS) this.#spoiled.add(sequence);
  }

  /** Takes a failed decode back. For each part, whether its sequence has its previous state again. */
  undo(parts: readonly StepPart[], before: readonly number[]): boolean[] {
    return parts.map((part, i) => this.#undo(part, before[i] ?? 0));
  }

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

  async save(sequence: number): Promise<Checkpoint> {
    await this.#finishCopies(sequence);
    return await StateCheckpoint.save(this.#context, this.#Checkpoint, sequence, this.#at(sequence));
  }

  async restore(sequence: number, checkpoint: Checkpoint): Promise<void> {
    const { length } = checkpoint;
    const held = this.#at(sequence);
    const restorable = length > 0 && length <= held.length;
    if (!restorable || !(checkpoint instanceof StateCheckpoint)) throw new EngineFault('the state cannot be restored');
    await this.#finishCopies(sequence);
    await checkpoint.restore(this.#context, sequence);
    held.become(length);
  }

  async saveWhole(sequence: number, notes?: StateNotes): Promise<WholeState> {
    const held = this.#at(sequence);
    if (!this.#savable || held.length === 0) throw new EngineFault('the state cannot be saved');
    await this.#finishCopies(sequence);
    const positions = new SequencePositions();
    positions.copy(held);
    const context = this.#context;
    if (this.#pages) {
      const state = await this.#pages.save(context, sequence, positions);
      this.#saved.set(state, { positions, restore: (into) => state.restore(context, into) });
      return state;
    }
    return this.#inFile(await StateInFile.save(this.#addon, context, sequence, positions, notes), positions);
  }

  #inFile(state: StateInFile, positions: SequencePositions): StateInFile {
    this.#saved.set(state, { positions, restore: (into) => state.restore(this.#addon, this.#context, into) });
    return state;
  }

  async restoreWhole(sequence: number, state: WholeState): Promise<void> {
    // What it does not write over would spoil it.
    if (this.#spoiled.has(sequence)) throw new UncleanSequence('the sequence has cells that hold no number');
    const saved = this.#saved.get(state);
    if (!saved) throw new EngineFault('the state cannot be restored');
    this.#at(sequence).become(0);
    await this.#finishCopies(sequence);
    await saved.restore(sequence);
    this.#at(sequence).copy(saved.positions);
  }

  /** No image is in it, so each token has a position of its own. */
  openWhole(elsewhere: StateElsewhere): OpenedState {
    const opened = StateInFile.open(elsewhere);
    const positions = new SequencePositions();
    positions.become(opened.state.length);
    return { state: this.#inFile(opened.state, positions), notes: opened.notes };
  }

  /**
   * Has llama.cpp make the copies of a sequence now, if it has not: its state would be saved without what is still to be copied, and a copy
   * would take what is restored, or write over it. llama.cpp makes them when it begins a decode, and here none may follow, so a token is
   * decoded: in an empty sequence, or after what the shortest one holds, from which it is removed. Rejects where there is no such sequence.
   */
  async #finishCopies(sequence: number): Promise<void> {
    if (!this.#copying.has(sequence)) return;
    let shortest: number | undefined;
    for (const [id, { length }] of this.#positions.entries()) {
      const usable = !this.#spoiled.has(id) && (length === 0 || (this.truncatable && this.next(id) !== undefined));
      if (usable && length < (shortest === undefined ? Infinity : this.#at(shortest).length)) shortest = id;
    }
    if (shortest === undefined) throw new UncleanSequence('the sequence is not copied yet');
    const position = this.#at(shortest).next ?? 0;
    if (position === 0) this.#context.disposeSequence(shortest);
    try {
      await decodeOne(this.#context, shortest, position);
      this.#copying.clear();
    } finally {
      if (position === 0) this.#context.disposeSequence(shortest);
      else this.#context.removeTokenCellsFromSequence(shortest, position, position + 1);
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
      this.#addon.raClearMemory(this.#context);
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
  #undo(part: StepPart, before: number): boolean {
    const { sequence, tokens } = part;
    const held = this.#at(sequence);
    held.become(before);
    // What came before of such an image is at the same position.
    if (part.kind === 'embeddings' && part.image.columns > 0 && part.image.index > 0) return false;
    const last = this.#context.getSequenceKvCacheMaxPosition(sequence);
    // Further steps of a run may have gone on.
    return (
      last === held.last || this.#remove(sequence, held.at(before), Math.max(held.at(before) + tokens.length, last + 1))
    );
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

/**
 * What llama.cpp keeps of a sequence that cannot be truncated: the state of its recurrent layers, or the cells of its sliding windows.
 * The cells of layers that attend to everything are not in it. They stay in the sequence, so a checkpoint can only be restored
 * where the sequence still has them, which the scheduler knows (state-store.ts).
 */
class StateCheckpoint implements Checkpoint {
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

/** An image whose embeddings move positions by less than their number. */
interface Span {
  /** Its first token, and the number of them. */
  readonly at: number;
  readonly tokens: number;
  readonly positions: number;
}

/**
 * How many tokens a sequence has, and at which of llama.cpp's positions. The two differ after images of models whose
 * positions have two dimensions (M-RoPE): all embeddings of an image have its first position in time, and what follows
 * is after the longer of its sides. A sequence has a part of such an image only while it is evaluated.
 */
export class SequencePositions {
  #length = 0;
  #spans: Span[] = [];

  /** Tokens. */
  get length(): number {
    return this.#length;
  }

  /** The last position that llama.cpp has of it; -1: none. */
  get last(): number {
    const span = this.#spans.at(-1);
    const within = span !== undefined && this.#length <= span.at + span.tokens;
    return within ? this.at(span.at) : this.at(this.#length) - 1;
  }

  /** The position of the next token; undefined within an image, where there is none for a token. */
  get next(): number | undefined {
    const span = this.#spans.at(-1);
    return span !== undefined && this.#length < span.at + span.tokens ? undefined : this.at(this.#length);
  }

  /** The position of the token with this index, or of the one that comes next; within an image that of its first one. */
  at(token: number): number {
    let position = token;
    for (const { at, tokens, positions } of this.#spans) {
      if (token < at + tokens) return token > at ? position - (token - at) : position;
      position -= tokens - positions;
    }
    return position;
  }

  /** Counts a part's tokens; returns the position of the first, of embeddings that of their image. */
  extend(part: StepPart): number {
    const at = this.#length;
    const first = part.kind === 'embeddings' ? at - part.image.index : at;
    this.#length += part.tokens.length;
    if (part.kind === 'embeddings' && part.image.columns > 0 && part.image.index === 0) {
      this.#spans.push({ at, tokens: part.image.of, positions: part.image.positions });
    }
    return this.at(first);
  }

  /** The sequence now has this many tokens: fewer than before, or more that have one position each. */
  become(length: number): void {
    this.#length = length;
    this.#spans = this.#spans.filter(({ at }) => at < length);
  }

  /** The sequence now has the same tokens as the other one. */
  copy(other: SequencePositions): void {
    this.#length = other.#length;
    this.#spans = [...other.#spans];
  }
}
