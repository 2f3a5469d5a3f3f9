import { closeSync, constants, fstatSync, openSync, unlinkSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import type { AddonCheckpoint, AddonContext } from './addon.js';
import type { Checkpoint } from '../scheduler/decoder.js';
import { EngineFault } from '../scheduler/faults.js';

/**
 * All that a sequence holds, in host memory. The addon has two ways: a checkpoint, which leaves out what can be cut where a model
 * has other layers besides, and a file. Which of them is the whole state is found when a context is made ({@link waysOf}).
 */
export interface WholeStates {
  /** Copies what `sequence` holds. Rejects when it cannot, or when that is not what it should be. */
  save(context: AddonContext, sequence: number, held: Held): Promise<WholeState>;
}

/** Tokens of a sequence, and the last of llama.cpp's positions. */
interface Held {
  readonly length: number;
  readonly last: number;
}

export interface WholeState extends Checkpoint {
  /** Makes a sequence hold it, whatever it held. Rejects when it cannot. */
  restore(context: AddonContext, sequence: number): Promise<void>;
}

/** Whether a state was made here. */
export function isWhole(state: Checkpoint): state is WholeState {
  return state instanceof StateInMemory || state instanceof StateInFile;
}

/** Memory that is a file: what is written there stays in memory, and a file without a name ends with its descriptor. */
const MEMORY_FILES = '/dev/shm';

/** A file's magic number, version and number of tokens; a checkpoint's magic number and sequence. */
const FILE_HEAD = 12;
const CHECKPOINT_HEAD = 8;

/**
 * The way in which whole states of this context are saved, found with one token on sequence 0, which is emptied again. Undefined:
 * there is none.
 */
export async function waysOf(context: AddonContext, Make: new () => AddonCheckpoint): Promise<WholeStates | undefined> {
  try {
    context.initBatch(1);
    context.addToBatch(0, 0, Uint32Array.of(0), new Uint32Array(0));
    await context.decodeBatch();
    const checkpoint = new Make();
    await checkpoint.init(context, 0);
    const file = memoryFile();
    const inFile = file === undefined ? undefined : await saved(context, file, 0).finally(() => closeSync(file));
    const inMemory = checkpoint.size;
    checkpoint.dispose();
    if (inFile !== undefined && inFile - FILE_HEAD === inMemory - CHECKPOINT_HEAD) return new InMemory(Make);
    return inFile === undefined ? undefined : new InFiles();
  } catch {
    return undefined;
  } finally {
    context.disposeSequence(0);
  }
}

/** The checkpoint is the whole state. */
class InMemory implements WholeStates {
  readonly #Make: new () => AddonCheckpoint;

  constructor(Make: new () => AddonCheckpoint) {
    this.#Make = Make;
  }

  async save(context: AddonContext, sequence: number, held: Held): Promise<WholeState> {
    const state = new this.#Make();
    try {
      await state.init(context, sequence);
      if (state.maxPos !== held.last) throw new EngineFault('the state is of another position');
      return new StateInMemory(state, held);
    } catch (error) {
      state.dispose();
      throw error;
    }
  }
}

class StateInMemory implements WholeState {
  readonly length: number;
  readonly bytes: number;
  readonly #state: AddonCheckpoint;
  readonly #last: number;

  constructor(state: AddonCheckpoint, { length, last }: Held) {
    this.#state = state;
    this.#last = last;
    this.length = length;
    this.bytes = state.size;
  }

  async restore(context: AddonContext, sequence: number): Promise<void> {
    if (this.#state.size !== this.bytes || this.#state.maxPos !== this.#last)
      throw new EngineFault('the state has changed');
    if (!(await context.restoreCheckpoint(this.#state, this.#last, sequence))) {
      throw new EngineFault('the state was not restored');
    }
  }

  dispose(): void {
    this.#state.dispose();
  }
}

class InFiles implements WholeStates {
  async save(context: AddonContext, sequence: number, held: Held): Promise<WholeState> {
    const file = memoryFile();
    if (file === undefined) throw new EngineFault('there is no memory for files');
    try {
      const bytes = await saved(context, file, sequence);
      return new StateInFile(file, held, bytes);
    } catch (error) {
      closeSync(file);
      throw error;
    }
  }
}

class StateInFile implements WholeState {
  readonly length: number;
  readonly bytes: number;
  readonly #last: number;
  #file: number | undefined;

  constructor(file: number, { length, last }: Held, bytes: number) {
    this.#file = file;
    this.#last = last;
    this.length = length;
    this.bytes = bytes;
  }

  async restore(context: AddonContext, sequence: number): Promise<void> {
    if (this.#file === undefined || fstatSync(this.#file).size !== this.bytes)
      throw new EngineFault('the state has changed');
    // Room for one token: the file has none, and with room for none llama.cpp would only count them.
    await context.loadSequenceStateFromFile(pathOf(this.#file), sequence, 1);
    if (context.getSequenceKvCacheMaxPosition(sequence) !== this.#last)
      throw new EngineFault('the state was not restored');
  }

  dispose(): void {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }
}

/** The descriptor of a file in memory without a name; undefined: this system has none. */
function memoryFile(): number | undefined {
  const path = `${MEMORY_FILES}/ra-${process.pid}-${randomUUID()}`;
  try {
    const file = openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, 0o600);
    unlinkSync(path);
    return file;
  } catch {
    return undefined;
  }
}

/** llama.cpp opens files by name. */
function pathOf(file: number): string {
  return `/proc/self/fd/${file}`;
}

/** Bytes written. No token ids are in it. */
async function saved(context: AddonContext, file: number, sequence: number): Promise<number> {
  return await context.saveSequenceStateToFile(pathOf(file), sequence, new Uint32Array(0));
}
