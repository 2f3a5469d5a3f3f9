import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { readHead, type Head } from './gguf-head.js';

export type ModelFile =
  | Extract<Head, { kind: 'head' }>
  /** `problem`: one line for the operator, without the path. `mayMend`: it may be gone at the next try. */
  | { readonly kind: 'bad'; readonly problem: string; readonly mayMend: boolean };

/** What the operating system's commonest refusals mean for whoever configured the path. */
const REFUSALS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  ENOTDIR: 'does not exist',
  EACCES: 'may not be read by this user',
  EPERM: 'may not be read by this user',
  EISDIR: 'is a folder',
  ELOOP: 'is a link that leads nowhere',
  ENAMETOOLONG: 'has too long a name',
};

/**
 * Looks at a model's file before anything native does: can it be read, is it a GGUF, is it whole as far as its head tells.
 * Synchronous, and short: a head is a few megabytes.
 */
export function checkModelFile(path: string): ModelFile {
  try {
    // Without O_NONBLOCK the open of a FIFO waits for a writer.
    const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = fstatSync(file);
      if (!stat.isFile()) return bad(`is ${stat.isDirectory() ? 'a folder' : 'no ordinary file'}`);
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

/** A file that shrinks while it is read gives what is left, and zeros. */
function readAll(file: number, offset: number, length: number): Buffer {
  const buffer = Buffer.alloc(length);
  for (let done = 0; done < length;) {
    const read = readSync(file, buffer, done, length - done, offset + done);
    if (read === 0) break;
    done += read;
  }
  return buffer;
}
