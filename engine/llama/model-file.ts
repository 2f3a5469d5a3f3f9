import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { readHead, type Head } from './gguf-head.js';

export type ModelFile =
  | Extract<Head, { kind: 'head' }>
  /** `problem`: one line for the operator, without the path. `mayMend`: a later attempt may succeed. */
  | { readonly kind: 'bad'; readonly problem: string; readonly mayMend: boolean };

/** The operating system's most frequent errors, in words for the operator. */
const REFUSALS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  ENOTDIR: 'does not exist',
  EACCES: 'may not be read by this user',
  EPERM: 'may not be read by this user',
  EISDIR: 'is a folder',
  ELOOP: 'is a broken link',
  ENAMETOOLONG: 'has too long a name',
};

/**
 * Checks a model's file before native code opens it: is it readable, is it a GGUF, is it complete according to its
 * header. Synchronous, and short: a header has a few megabytes.
 */
export function checkModelFile(path: string): ModelFile {
  try {
    // Without O_NONBLOCK opening a FIFO would wait for a writer.
    const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = fstatSync(file);
      if (!stat.isFile()) return bad(`is ${stat.isDirectory() ? 'a folder' : 'not a regular file'}`);
      const head = readHead({ size: stat.size, read: (offset, length) => readAll(file, offset, length) });
      return head.kind === 'head' ? head : bad(head.problem);
    } finally {
      closeSync(file);
    }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === undefined) throw error;
    const known = REFUSALS[code];
    return known === undefined ? bad(`cannot be read (${code})`, true) : bad(known);
  }
}

function bad(problem: string, mayMend = false): ModelFile {
  return { kind: 'bad', problem: `the file ${problem}`, mayMend };
}

/** If the file shrinks while it is read, the rest reads as zeros. */
function readAll(file: number, offset: number, length: number): Buffer {
  const buffer = Buffer.alloc(length);
  for (let done = 0; done < length;) {
    const read = readSync(file, buffer, done, length - done, offset + done);
    if (read === 0) break;
    done += read;
  }
  return buffer;
}
