/**
 * Opens files of the operator, which must be regular files. Opening a FIFO without a writer would block a thread of
 * libuv's pool and prevent the process from ending; reading a device may never end.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync, type Stats } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';

/** Without O_NONBLOCK the open would wait for a FIFO's writer. It does not affect regular files. */
const HOW = constants.O_RDONLY | constants.O_NONBLOCK;

/** The path names something that is neither a regular file nor a folder. */
export class NotRegularFile extends Error {
  override readonly name = 'NotRegularFile';

  constructor() {
    super('is not a regular file');
  }
}

/** Opens a file for reading; the caller closes it. Rejects with {@link NotRegularFile}, or as fs.open does. */
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

/** The synchronous form, for files that are read at the start. */
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
