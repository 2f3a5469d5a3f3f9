/**
 * Opens the operator's files. A path may name anything: the open of a FIFO without a writer does not return, takes a thread
 * of libuv's pool with it, and the process cannot end before it; a device may be read without end.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync, type Stats } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';

/** Without O_NONBLOCK the open itself waits for a FIFO's writer. A regular file does not notice it. */
const HOW = constants.O_RDONLY | constants.O_NONBLOCK;

/** The path names something that is neither a regular file nor a folder. */
export class NotRegularFile extends Error {
  override readonly name = 'NotRegularFile';

  constructor() {
    super('is not a regular file');
  }
}

/** A file to read from, to be closed by the caller. Rejects with {@link NotRegularFile}, or as fs.open does. */
export async function openRegular(path: string): Promise<FileHandle> {
  const handle = await open(path, HOW);
  try {
    checkKind(await handle.stat());
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** The file's text. Rejects with {@link NotRegularFile}, or as fs.readFile does. */
export async function readRegular(path: string): Promise<string> {
  const handle = await openRegular(path);
  try {
    return await handle.readFile('utf8');
  } finally {
    await handle.close();
  }
}

/** The same at once, for what is read before anything else runs. */
export function readRegularSync(path: string): string {
  const file = openSync(path, HOW);
  try {
    checkKind(fstatSync(file));
    return readFileSync(file, 'utf8');
  } finally {
    closeSync(file);
  }
}

/** A folder is refused by its first read, with a code of its own. */
function checkKind(stat: Stats): void {
  if (!stat.isFile() && !stat.isDirectory()) throw new NotRegularFile();
}
