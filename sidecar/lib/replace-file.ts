/**
 * Replaces a file atomically: readers see the old file or the new one, also after a crash.
 *
 * Where several processes read a file and then replace it, they take turns by a lock: a file that only one of them can create. It is
 * held only while a small file is read and replaced; a much older lock belongs to a process that ended, and is removed. It uses the
 * system's clock, the only one that all processes share; waiting for the lock keeps a command's process alive.
 */
import { randomUUID } from 'node:crypto';
import type { Stats } from 'node:fs';
import { mkdir, open, readFile, realpath, rename, rm, stat, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ifPresent } from './missing.js';

export interface Replacing {
  /** No other process replaces this file, so each draft may overwrite one that a crash left. Otherwise every draft has a unique name. */
  readonly soleWriter?: boolean;
  /** Called when the draft is durable and before the rename. If it rejects, the old file stays. */
  readonly mayReplace?: () => Promise<void>;
}

/**
 * Replaces `file` by what `write` writes to its handle. Creates the folder; both are accessible to their owner only. Durable once it
 * resolves. Rejects with the error of `write` or the system; the old file is then unchanged.
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

/**
 * Replaces a file of the operator by `text`. Owner, group and mode stay, so that an operator's command does not make the file
 * unreadable for the service; if that is not possible, it rejects, and the old file stays. A symbolic link stays too: its target is
 * replaced. `mayReplace` as in {@link Replacing}.
 */
export async function replaceOperatorsFile(
  file: string,
  text: string,
  mayReplace: () => Promise<void> = () => Promise.resolve(),
): Promise<void> {
  const target = await realpath(file).catch(() => file);
  const before = await ifPresent(stat(target));
  const write = async (draft: FileHandle): Promise<void> => {
    if (before) await handOver(draft, before);
    await draft.writeFile(text);
  };
  await replaceFile(target, write, { mayReplace });
}

/** Changes only what differs: users other than root cannot change the owner, and need not. */
async function handOver(handle: FileHandle, { uid, gid, mode }: Stats): Promise<void> {
  const own = await handle.stat();
  if (own.uid !== uid || own.gid !== gid) await handle.chown(uid, gid);
  await handle.chmod(mode & 0o777);
}

/** Makes the names in a folder durable. Without it, a power failure can restore the old file. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Time between attempts to take the lock, ms. Its release causes no event. */
const RETRY_MS = 20;

/** The longest wait for the lock, ms: many times what a holder needs, and more than {@link STALE_MS}. */
const WAIT_MS = 15_000;

/** Age at which a lock is stale, ms. */
const STALE_MS = 10_000;

export class LockError extends Error {
  override readonly name = 'LockError';
}

/**
 * Runs `work` while this process holds the lock `path`, whose folder is created. Rejects with {@link LockError} if the
 * lock is not free within 15 s.
 *
 * Slow work may lose its lock as stale, and another process may then change the data. So `work` must call `stillHeld`
 * right before its change; it rejects with {@link LockError} if the lock was lost.
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
    // If this process was so slow that its lock was removed, it must not remove the next holder's.
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

/** Renamed and checked before it is removed, since another process may have replaced it since the first check. */
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
