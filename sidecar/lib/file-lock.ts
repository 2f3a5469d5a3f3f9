/**
 * A lock between processes: a file that only one of them can create. It is held for the moment that a small file takes to
 * be read and replaced; one that is much older belongs to a process that died, and is broken. Time here is the system's:
 * no other is common to all processes, and a command that waits is to be kept alive by it.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, open, readFile, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** How often a lock that is taken is tried again, ms: nothing tells of its end. */
const RETRY_MS = 20;

/** Patience with whoever holds it, ms: many times what a holder needs, and more than {@link STALE_MS}. */
const WAIT_MS = 15_000;

/** A lock as old as this is held by nobody, ms. */
const STALE_MS = 10_000;

export class LockError extends Error {
  override readonly name = 'LockError';
}

/**
 * Runs `work` while nobody else holds `path`; its folder is made. Rejects with {@link LockError} after 15 s in vain.
 *
 * Work that was slow may have lost its lock, and somebody else may have changed what it has read: right before it makes its
 * change it calls `stillHeld`, which rejects with {@link LockError} then.
 */
export async function withLock<T>(
  path: string,
  work: (stillHeld: () => Promise<void>) => Promise<T>,
  waitMs = WAIT_MS,
): Promise<T> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const mark = randomUUID();
  const until = Date.now() + waitMs;
  while (!(await created(path, mark))) {
    if (Date.now() >= until) throw new LockError(`${path} is held by another process; try again`);
    await breakIfStale(path);
    await sleep(RETRY_MS);
  }
  const held = async (): Promise<boolean> => (await readFile(path, 'utf8').catch(() => '')) === mark;
  try {
    return await work(async () => {
      if (!(await held())) throw new LockError(`${path} was lost to another process; try again`);
    });
  } finally {
    // One that was so slow that its lock was broken must not take away the next one's.
    if (await held()) await rm(path, { force: true });
  }
}

async function created(path: string, mark: string): Promise<boolean> {
  try {
    const handle = await open(path, 'wx', 0o600);
    try {
      await handle.writeFile(mark);
    } finally {
      await handle.close();
    }
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** Moved aside and looked at before it is removed: between the first look and the move another may have broken it. */
async function breakIfStale(path: string): Promise<void> {
  const found = await stat(path).catch(() => undefined);
  if (!found || Date.now() - found.mtimeMs < STALE_MS) return;
  const aside = `${path}.${randomUUID()}.stale`;
  try {
    await rename(path, aside);
  } catch {
    return;
  }
  if ((await stat(aside)).ino === found.ino) await rm(aside, { force: true });
  else await rename(aside, path);
}
