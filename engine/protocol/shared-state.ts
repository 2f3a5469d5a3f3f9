/**
 * A sequence's state in a file in memory that has no name. It belongs to the engine process that saved it, and other engine
 * processes of this host open it by that process's descriptor. In the file are llama.cpp's state, a gap, and at its end the ids
 * of its tokens and the ends of the chunks in which these were evaluated, 4 bytes each.
 */
export interface SharedState {
  /** The descriptor. */
  readonly file: number;
  /** Distinguishes it from a later file with the same descriptor. */
  readonly inode: number;
  /** Of the whole file. */
  readonly bytes: number;
  readonly tokens: number;
  readonly ends: number;
  /** The file's `MemoryFile.changedAt` once it was complete: with another one it is another file, or was written to since. */
  readonly changedAt: number;
}

/** Files in this folder stay in memory (tmpfs, on Linux). */
export const MEMORY_FILES = '/dev/shm';

/** The path of another process's file. */
export interface StateElsewhere extends SharedState {
  readonly pid: number;
}
