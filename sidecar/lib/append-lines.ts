import { mkdir, open, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { syncFolder } from './replace-file.js';

/**
 * Appends whole lines to a file of at most `mostBytes`, and makes them durable. Resolves with false if there is no room. The file is opened
 * for each write, so that an operator may move it away meanwhile; `made` is called with a new one. Rejects if the disk fails.
 */
export async function appendLines(
  file: string,
  text: string,
  mostBytes: number,
  made: (handle: FileHandle) => Promise<void> = () => Promise.resolve(),
): Promise<boolean> {
  const folder = dirname(file);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const handle = await open(file, 'a+', 0o600);
  try {
    const { size } = await handle.stat();
    if (size + Buffer.byteLength(text) > mostBytes) return false;
    // A crash may have left half a line; new lines start after it.
    const isTorn = size > 0 && (await handle.read(Buffer.alloc(1), 0, 1, size - 1)).buffer.toString() !== '\n';
    if (size === 0) await made(handle);
    await handle.appendFile(isTorn ? `\n${text}` : text);
    await handle.sync();
    if (size === 0) await syncFolder(folder);
  } finally {
    await handle.close();
  }
  return true;
}
