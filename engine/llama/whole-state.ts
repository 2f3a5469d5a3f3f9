import type { AddonCheckpoint, AddonContext } from './native.js';
import { MemoryFile } from './memory/memory-file.js';
import type { OpenedState, StateNotes, WholeState } from '../scheduler/decoder.js';
import { EngineFault } from '../scheduler/faults.js';
import type { SharedState, StateElsewhere } from '../protocol/cache-key.js';

/** Tokens of a sequence, and the last of llama.cpp's positions. */
interface SequenceExtent {
  readonly length: number;
  readonly last: number;
}

/** What a context's states are like. */
export interface StateFacts {
  /** Whether whole states can be saved. */
  readonly savable: boolean;
  /** Whether each layer keeps all of the past, so that it can be truncated anywhere; undefined: unknown. */
  readonly uniform: boolean | undefined;
}

/** A file's magic number, version and number of tokens; a checkpoint's magic number and sequence. */
const FILE_HEAD = 12;
const CHECKPOINT_HEAD = 8;

const NO_TOKENS = new Uint32Array(0);
const WORD = Uint32Array.BYTES_PER_ELEMENT;

/**
 * Measures this with one token on sequence 0, which is emptied again: a checkpoint leaves out what can be truncated where a
 * model has other layers besides, and is then smaller than the whole state. Not every file names its model's window.
 */
export async function stateFacts(context: AddonContext, Make: new () => AddonCheckpoint): Promise<StateFacts> {
  const file = MemoryFile.make();
  if (!file) return { savable: false, uniform: undefined };
  const checkpoint = new Make();
  try {
    context.initBatch(1);
    context.addToBatch(0, 0, Uint32Array.of(0), new Uint32Array(0));
    await context.decodeBatch();
    await checkpoint.init(context, 0);
    const bytes = await context.saveSequenceStateToFile(file.path, 0, NO_TOKENS);
    return { savable: true, uniform: bytes - FILE_HEAD === checkpoint.size - CHECKPOINT_HEAD };
  } catch {
    return { savable: false, uniform: undefined };
  } finally {
    checkpoint.dispose();
    file.close();
    context.disposeSequence(0);
  }
}

/**
 * All that a sequence holds, in a file in memory. llama.cpp writes and reads it by name. After it is complete
 * nothing writes to it: it has no name, other processes open it for reading only, and it is mapped into no process. Before a restore its
 * length and the time of its last change are compared with those at its completion, which detects a write without reading the file. The C library reads ahead for it and frees what it read as it is, so token ids are written farther behind
 * the state than that: otherwise they would stay in the memory of a process that forgets the state. (What it reads of the file's end, to
 * learn its length, is overwritten by what it reads from the beginning.)
 */
export class StateInFile implements WholeState {
  readonly length: number;
  readonly bytes: number;
  readonly #file: MemoryFile;
  readonly #last: number;
  /** Of what is after the state; absent: nothing is. */
  readonly #counts: Pick<SharedState, 'tokens' | 'ends'> | undefined;
  readonly #changedAt: number;

  private constructor(
    file: MemoryFile,
    { length, last }: SequenceExtent,
    counts?: Pick<SharedState, 'tokens' | 'ends'>,
  ) {
    this.length = length;
    this.bytes = file.bytes;
    this.#changedAt = file.changedAt;
    this.#file = file;
    this.#last = last;
    this.#counts = counts;
  }

  /** How other processes open it; undefined: they cannot. */
  get shared(): SharedState | undefined {
    if (!this.#counts) return undefined;
    const { descriptor: file, inode } = this.#file;
    return { file, inode, bytes: this.bytes, changedAt: this.#changedAt, ...this.#counts };
  }

  /**
   * Copies the state of a sequence. Rejects when it cannot. `notes`: by which other processes can open it; absent: they
   * cannot.
   */
  static async save(
    context: AddonContext,
    sequence: number,
    held: SequenceExtent,
    notes?: StateNotes,
  ): Promise<StateInFile> {
    const file = MemoryFile.make();
    if (!file) throw new EngineFault('there is no memory for files');
    try {
      const written = await context.saveSequenceStateToFile(file.path, sequence, NO_TOKENS);
      if (file.bytes !== written) throw new EngineFault('the state was not written');
      if (notes) {
        const at = written + file.readAhead;
        file.write(notes.tokens, at);
        file.write(notes.ends, at + WORD * notes.tokens.length);
      }
      return new StateInFile(file, held, notes && { tokens: notes.tokens.length, ends: notes.ends.length });
    } catch (error) {
      file.close();
      throw error;
    }
  }

  /** Opens a state that another process saved. Throws where it no longer exists, or was changed since. */
  static open(elsewhere: StateElsewhere): OpenedState {
    const { bytes, tokens: length, ends } = elsewhere;
    const file = MemoryFile.ofProcess(elsewhere);
    try {
      const at = bytes - WORD * (length + ends);
      if (at <= FILE_HEAD || length === 0) throw new EngineFault('the state is of another shape');
      const notes = { tokens: file.read(length, at), ends: file.read(ends, at + WORD * length) };
      const state = new StateInFile(file, { length, last: length - 1 }, { tokens: length, ends });
      return { state, notes };
    } catch (error) {
      file.close();
      throw error;
    }
  }

  /** Restores it into a sequence, in place of what is there. Rejects when it cannot. */
  async restore(context: AddonContext, sequence: number): Promise<void> {
    if (this.#file.bytes !== this.bytes || this.#file.changedAt !== this.#changedAt)
      throw new EngineFault('the state has changed');
    // Room for one token: the file has none for llama.cpp, which with room for none would only count them.
    await context.loadSequenceStateFromFile(this.#file.path, sequence, 1);
    if (context.getSequenceKvCacheMaxPosition(sequence) !== this.#last)
      throw new EngineFault('the state was not restored');
  }

  dispose(): void {
    this.#file.close();
  }
}
