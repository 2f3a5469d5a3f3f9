/** Replaces a file atomically: readers see the old file or the new one, also after a crash. */
import { randomUUID } from 'node:crypto';
import { mkdir, open, rename, rm, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';

/** Options of one replacement. */
export interface Replacing {
  /**
   * No other process replaces this file, so each draft may overwrite one that a crash left. Otherwise every draft has a
   * unique name.
   */
  readonly soleWriter?: boolean;
  /** Called when the draft is durable and before the rename. If it rejects, the old file stays. */
  readonly mayReplace?: () => Promise<void>;
}

/**
 * Replaces `file` by the content that `write` writes to its file handle. Creates the folder; both are accessible to
 * their owner only. The file is durable once the promise resolves. Rejects with the error of `write` or of the system;
 * the old file is then unchanged.
 */
export async function replaceFile(
  file: string,
  write: (draft: FileHandle) => Promise<void>,
  { soleWriter = false, mayReplace = () => Promise.resolve() }: Replacing = {},
): Promise<void> {
  const folder = dirname(file);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const draft = soleWriter ? `${file}.tmp` : `${file}.${randomUUID()}.tmp`;
  try {
    const handle = await open(draft, soleWriter ? 'w' : 'wx', 0o600);
    try {
      await write(handle);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await mayReplace();
    await rename(draft, file);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
  await syncFolder(folder);
}

/** Without it, a power failure can restore the old file. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
