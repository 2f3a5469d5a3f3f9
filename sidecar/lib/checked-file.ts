/**
 * Reads files of the operator, and checks them. They must be regular files: opening a FIFO without a writer would block a thread of
 * libuv's pool and prevent the process from ending; reading a device may never end.
 */
import { createHash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readFileSync, type Stats } from 'node:fs';
import { open } from 'node:fs/promises';

/** Without O_NONBLOCK the open would wait for a FIFO's writer. It does not affect regular files. */
const HOW = constants.O_RDONLY | constants.O_NONBLOCK;

/** The path names something that is neither a regular file nor a folder. */
export class NotRegularFile extends Error {
  override readonly name = 'NotRegularFile';

  constructor() {
    super('is not a regular file');
  }
}

/** The text of a file that is read at the start. Throws {@link NotRegularFile}, or as fs.readFileSync does. */
export function readRegularSync(path: string): string {
  const file = openSync(path, HOW);
  try {
    checkKind(fstatSync(file));
    return readFileSync(file, 'utf8');
  } finally {
    closeSync(file);
  }
}

/** A folder is refused by its first read, with its own error code. */
function checkKind(stat: Stats): void {
  if (!stat.isFile() && !stat.isDirectory()) throw new NotRegularFile();
}

/** The file cannot be used. `problem` is one line that names neither the file nor what is in it. */
export class FileProblem extends Error {
  override readonly name: string = 'FileProblem';
  readonly problem: string;

  /** `what` is the file's name in messages, for example `keys`. */
  constructor(what: string, problem: string, file: string) {
    super(`${what}: ${problem} (file ${file})`);
    this.problem = problem;
  }
}

/** The file is there and could not be read just now: the same file may be readable later. */
export class UnreadFile extends FileProblem {
  /** `why`: a short constant, such as the system's error code. */
  constructor(what: string, why: string, file: string) {
    super(what, `cannot be read: ${why}`, file);
  }
}

/** A kind of file: what a reader must know to check one. */
export interface FileFormat<T> {
  /** The file's name in messages, for example `keys`. */
  readonly what: string;
  /** A longer file is refused: it was probably named by mistake. */
  readonly maxBytes: number;
  /** Parses the text of `file`. Throws {@link FileProblem}. */
  readonly parse: (text: string, file: string) => T;
}

/** Throws {@link FileProblem} for a text that no reader would accept as the content of `file`, since it is too long. */
export function checkLength({ what, maxBytes }: Omit<FileFormat<never>, 'parse'>, text: string, file: string): void {
  const bytes = Buffer.byteLength(text);
  if (bytes > maxBytes) throw new FileProblem(what, `would have ${bytes} bytes, and may have ${maxBytes}`, file);
}

/** The result of one check; `sign` distinguishes states. */
export type CheckResult<T> =
  | { readonly kind: 'good'; readonly sign: string; readonly value: T }
  | { readonly kind: 'bad'; readonly sign: string; readonly problem: FileProblem };

/** The sign of a missing file. */
export const ABSENT = 'none';

/** Reads and checks `file`. The parser runs in one piece: see access/large-file.ts for files that may be long. */
export async function readChecked<T>(file: string, { what, maxBytes, parse }: FileFormat<T>): Promise<CheckResult<T>> {
  let sign = ABSENT;
  try {
    const text = await readText(what, file, maxBytes);
    if (text === undefined) return { kind: 'bad', sign, problem: new FileProblem(what, 'does not exist', file) };
    sign = createHash('sha256').update(text).digest('hex');
    return { kind: 'good', sign, value: parse(text, file) };
  } catch (error) {
    if (!(error instanceof FileProblem)) throw error;
    return { kind: 'bad', sign: `${sign} ${error.problem}`, problem: error };
  }
}

/** The file's text, or undefined if it does not exist. Throws {@link FileProblem} if it cannot be read or is longer than `maxBytes`. */
export async function readText(what: string, file: string, maxBytes: number): Promise<string | undefined> {
  try {
    const handle = await open(file, HOW);
    try {
      const stat = await handle.stat();
      checkKind(stat);
      if (stat.size > maxBytes) throw new FileProblem(what, `is longer than ${maxBytes} bytes`, file);
      return await handle.readFile('utf8');
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof FileProblem) throw error;
    if (error instanceof NotRegularFile) throw new FileProblem(what, error.message, file);
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return undefined;
    throw new UnreadFile(what, code ?? 'unknown', file);
  }
}
