import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { partsOf } from '../protocol/file-key.js';
import { readHead, type GgufHead } from './gguf-head.js';

export type ModelFile =
  | Extract<GgufHead, { kind: 'head' }>
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
 * header. Of a split model all files, whose tensors are counted together. Synchronous, and short: a header has a few megabytes.
 */
export function checkModelFile(path: string): ModelFile {
  const [, ...others] = partsOf(path);
  const first = checkFile(path, 'the file');
  if (first.kind === 'bad') return first;
  let { tensors } = first;
  for (const [i, part] of others.entries()) {
    const checked = checkFile(part, `part ${i + 2} of ${others.length + 1}`, false);
    if (checked.kind === 'bad') return checked;
    tensors += checked.tensors;
  }
  return { ...first, tensors };
}

/** `name`: of the file in the line for the operator. */
function checkFile(path: string, name: string, isFirst = true): ModelFile {
  const bad = (problem: string, mayMend = false): ModelFile => ({
    kind: 'bad',
    problem: `${name} ${problem}`,
    mayMend,
  });
  try {
    // Without O_NONBLOCK opening a FIFO would wait for a writer.
    const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = fstatSync(file);
      if (!stat.isFile()) return bad(`is ${stat.isDirectory() ? 'a folder' : 'not a regular file'}`);
      const bytes = { size: stat.size, read: (offset: number, length: number) => readAll(file, offset, length) };
      const head = readHead(bytes, isFirst);
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
