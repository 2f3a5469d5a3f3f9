/** Whole states of sequences, each in a file in memory that other engine processes of this host can open. */
import { randomUUID } from 'node:crypto';
import { close, constants, fstatSync, openSync, readlinkSync, readSync, unlinkSync, writeSync } from 'node:fs';
import type { AddonContext, EngineAddon } from './addon.js';
import { PagedStates, type SequenceExtent } from './paged-states.js';
import { MEMORY_FILES, type SharedState, type StateElsewhere } from '../protocol/cache-key.js';
import type { OpenedState, StateNotes, WholeState } from '../scheduler/decoder.js';
import { EngineFault } from '../scheduler/faults.js';

/** What a context's states are like. */
export interface StateFacts {
  /** Whether whole states can be saved. */
  readonly savable: boolean;
  /** Whether each layer keeps all of the past, so that it can be truncated anywhere; undefined if it is unknown. */
  readonly uniform: boolean | undefined;
  /** Where whole states are saved; absent: in files. Owned by the caller. */
  readonly pages?: PagedStates;
}

/** Of memory that a GPU copies to and from by itself. */
export interface PageLimits {
  /** At most; 0: none. */
  readonly bytes: number;
  /** For tests and benches: any memory will do. Absent: false. */
  readonly plain?: boolean;
}

const WORD = Uint32Array.BYTES_PER_ELEMENT;

export type StateCopies = Pick<EngineAddon, 'raSaveState' | 'raRestoreState'>;

/**
 * Measures this with one token on sequence 0, which is emptied again: a checkpoint leaves out what can be truncated where a
 * model has other layers besides, and is then smaller than the whole state. Not every file names its model's window.
 */
export async function stateFacts(
  context: AddonContext,
  { raStateSize: sizeOf, RaStatePages: Pages }: Pick<EngineAddon, 'raStateSize' | 'RaStatePages'>,
  { bytes, plain = false }: PageLimits,
): Promise<StateFacts> {
  const file = MemoryFile.make();
  file?.close();
  try {
    await decodeOne(context, 0);
    const uniform = sizeOf(context, 0, false) === sizeOf(context, 0, true);
    const pages = bytes > 0 ? new Pages(context, plain) : undefined;
    const paged = pages?.found === true && { pages: new PagedStates(pages, bytes, sizeOf) };
    return { savable: file !== undefined || paged !== false, uniform, ...paged };
  } catch {
    return { savable: false, uniform: undefined };
  } finally {
    context.disposeSequence(0);
  }
}

const NO_LOGITS = new Uint32Array(0);
/** Any token of which nothing is read. */
const ANY_TOKEN = Uint32Array.of(0);

/** Decodes any token after what a sequence holds. Rejects as the addon does. */
export function decodeOne(context: AddonContext, sequence: number, position = 0): Promise<void> {
  context.initBatch(1);
  context.addToBatch(sequence, position, ANY_TOKEN, NO_LOGITS);
  return context.decodeBatch();
}

/**
 * All that a sequence holds, in a file in memory, which is mapped only while it is copied. After it is complete nothing writes to it: it
 * has no name, and other processes open it for reading only. Before a restore its length and the time of its last change are compared with
 * those at its completion, which detects a write without reading the file. Behind the state are the ids of its tokens.
 */
export class StateInFile implements WholeState {
  readonly length: number;
  readonly bytes: number;
  readonly #file: MemoryFile;
  readonly #last: number;
  /** Of llama.cpp's state alone. */
  readonly #stateBytes: number;
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
    this.#stateBytes = this.bytes - WORD * ((counts?.tokens ?? 0) + (counts?.ends ?? 0));
    this.#counts = counts;
  }

  /** How other processes open it; undefined if they cannot. */
  get shared(): SharedState | undefined {
    if (!this.#counts) return undefined;
    const { descriptor: file, inode } = this.#file;
    return { file, inode, bytes: this.bytes, changedAt: this.#changedAt, ...this.#counts };
  }

  /** Copies the state of a sequence. Rejects when it cannot. `notes`: by which other processes can open it; absent: they cannot. */
  static async save(
    { raSaveState: save }: StateCopies,
    context: AddonContext,
    sequence: number,
    held: SequenceExtent,
    notes?: StateNotes,
  ): Promise<StateInFile> {
    const file = MemoryFile.make();
    if (!file) throw new EngineFault('there is no memory for files');
    try {
      const saved = await save(context, sequence, file.descriptor);
      if (file.bytes !== saved) throw new EngineFault('the state was not saved');
      if (notes) {
        file.write(notes.tokens, saved);
        file.write(notes.ends, saved + WORD * notes.tokens.length);
      }
      return new StateInFile(file, held, notes && { tokens: notes.tokens.length, ends: notes.ends.length });
    } catch (error) {
      file.close();
      throw error;
    }
  }

  /** Opens a state that another process saved. Throws where it no longer exists, or was changed since. */
  static open(elsewhere: StateElsewhere): OpenedState & { readonly state: StateInFile } {
    const { bytes, tokens: length, ends } = elsewhere;
    const file = MemoryFile.ofProcess(elsewhere);
    try {
      const at = bytes - WORD * (length + ends);
      if (at <= 0 || length === 0) throw new EngineFault('the state is of another shape');
      const notes = { tokens: file.read(length, at), ends: file.read(ends, at + WORD * length) };
      const state = new StateInFile(file, { length, last: length - 1 }, { tokens: length, ends });
      return { state, notes };
    } catch (error) {
      file.close();
      throw error;
    }
  }

  /** Restores it into a sequence, in place of what is there. Rejects when it cannot. */
  async restore({ raRestoreState: restore }: StateCopies, context: AddonContext, sequence: number): Promise<void> {
    if (this.#file.bytes !== this.bytes || this.#file.changedAt !== this.#changedAt)
      throw new EngineFault('the state has changed');
    await restore(context, sequence, this.#file.descriptor, this.#stateBytes);
    if (context.getSequenceKvCacheMaxPosition(sequence) !== this.#last)
      throw new EngineFault('the state was not restored');
  }

  dispose(): void {
    this.#file.close();
  }
}

/** The number of whole numbers from 0 on that a double has exactly. */
const SAFE_INTEGERS = 1n << 53n;

/** A file in memory without a name. The kernel frees it when its last descriptor is closed. Its owner closes it once. */
class MemoryFile {
  readonly #file: number;
  #closed = false;

  private constructor(file: number) {
    this.#file = file;
  }

  /** Creates an empty file; undefined if this system has no files in memory. */
  static make(): MemoryFile | undefined {
    const path = `${MEMORY_FILES}/ra-${process.pid}-${randomUUID()}`;
    try {
      const file = openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, 0o600);
      unlinkSync(path);
      return new MemoryFile(file);
    } catch {
      return undefined;
    }
  }

  /** One of another process of this user. Throws where it is gone. */
  static ofProcess({ pid, file, inode, bytes, changedAt }: StateElsewhere): MemoryFile {
    const path = `/proc/${pid}/fd/${file}`;
    // Before it is opened: the number may be a pipe's by now. The file may be a third process's, from which that one has it.
    if (!readlinkSync(path).startsWith(`${MEMORY_FILES}/ra-`)) throw new EngineFault('the state is gone');
    const opened = new MemoryFile(openSync(path, constants.O_RDONLY | constants.O_NONBLOCK));
    const found = fstatSync(opened.descriptor);
    const isIt = found.isFile() && found.ino === inode && found.size === bytes;
    if (isIt && opened.changedAt === changedAt) return opened;
    opened.close();
    throw new EngineFault('the state is gone');
  }

  get descriptor(): number {
    if (this.#closed) throw new EngineFault('the file is closed');
    return this.#file;
  }

  get inode(): number {
    return fstatSync(this.descriptor).ino;
  }

  get bytes(): number {
    return fstatSync(this.descriptor).size;
  }

  /** Writes these numbers, 4 bytes each, from byte `at` on. */
  write(numbers: Uint32Array, at: number): void {
    const bytes = Buffer.from(numbers.buffer, numbers.byteOffset, numbers.byteLength);
    for (let done = 0; done < bytes.length;) {
      done += writeSync(this.descriptor, bytes, done, bytes.length - done, at + done);
    }
  }

  /** Reads the numbers there. Throws where there are fewer. */
  read(count: number, at: number): Uint32Array {
    const numbers = new Uint32Array(count);
    if (readSync(this.descriptor, numbers, 0, numbers.byteLength, at) === numbers.byteLength) return numbers;
    throw new EngineFault('the file is too short');
  }

  /**
   * When the file's content or length was last changed, in nanoseconds of the kernel's clock, modulo 2^53. The kernel sets it at each
   * write, to the precision of its tick (1 to 10 ms), and no process can set it to an earlier time. Reading it takes one system call.
   */
  get changedAt(): number {
    return Number(fstatSync(this.descriptor, { bigint: true }).ctimeNs % SAFE_INTEGERS);
  }

  /** Idempotent. On another thread: to free the pages of a large state takes the kernel tens of milliseconds. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    close(this.#file, () => undefined);
  }
}
