/** Replacing a file whole: whoever reads it sees the old one or the new one, and after a crash there is one of the two. */
import { randomUUID } from 'node:crypto';
import { mkdir, open, rename, rm, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';

/** What is particular about one replacement. */
export interface Replacing {
  /**
   * Nobody else replaces this file, so that each draft may overwrite the one that a crash left. Otherwise every draft has a
   * name of its own.
   */
  readonly soleWriter?: boolean;
  /** Called when the draft is durable and before it takes the file's place; rejects: it does not, and the old file stays. */
  readonly mayReplace?: () => Promise<void>;
}

/**
 * Makes `file` what `write` writes into the handle that it is given; its folder is made, both for their owner alone. Durable
 * once it resolves. Rejects with what `write` threw or the system's error: then the old file is as it was.
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

/** Without it a power cut can bring the old file back. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
