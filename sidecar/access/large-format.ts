import type { FileFormat } from '../lib/checked-file.js';

/** Entries in one part: to add 500 keys takes some milliseconds. */
const PART = 500;

/** The format of a file that may have a million entries. */
export interface LargeFormat<T> extends FileFormat<T> {
  /** What a file says, in parts that each take little time to add to what is in force. */
  readonly parts: (value: T) => Iterable<T>;
}

/** The entries, {@link PART} at a time. */
export function* inParts<T>(entries: readonly T[]): Generator<readonly T[]> {
  for (let from = 0; from < entries.length; from += PART) yield entries.slice(from, from + PART);
}
