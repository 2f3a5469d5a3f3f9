/**
 * One writer for one spool. The lock is a file that names a process: its id, when it started and in which boot, so that
 * neither a crash nor an id given out again leaves it held. It cannot see processes of another machine or container:
 * two of those must not share a data folder.
 */
import { randomUUID } from 'node:crypto';
import { link, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** A process, as far as this system can tell it from all others. */
interface Owner {
  readonly pid: number;
  /** Clock ticks from boot to its start; absent where there is no /proc. */
  readonly started?: string;
  readonly boot?: string;
}

export type Locked =
  /** Held from now on. `release` may be called twice. */
  { readonly kind: 'locked'; release(): Promise<void> } | { readonly kind: 'held'; readonly pid: number };

/** Takes the lock of a folder, which must exist. One whose owner is gone is taken over. */
export async function lockDir(dir: string): Promise<Locked> {
  const path = lockPath(dir);
  const mine = JSON.stringify(await ownerOf(process.pid));
  // Linked into place whole: a lock is never seen half written.
  const draft = `${path}.${randomUUID()}`;
  await writeFile(draft, mine, { mode: 0o600, flag: 'wx' });
  try {
    // Twice: once more after a dead owner's lock was put aside.
    for (let tries = 0; tries < 2; tries++) {
      if (await linked(draft, path)) return { kind: 'locked', release: () => release(path, mine) };
      const pid = await liveOwner(path);
      if (pid !== undefined) return { kind: 'held', pid };
      await putAside(path);
    }
    // Others are faster.
    return { kind: 'held', pid: (await liveOwner(path)) ?? 0 };
  } finally {
    await rm(draft, { force: true });
  }
}

/** The process that holds the lock of a folder now; undefined: none that lives. */
export function lockOwner(dir: string): Promise<number | undefined> {
  return liveOwner(lockPath(dir));
}

function lockPath(dir: string): string {
  return join(dir, 'lock');
}

async function linked(from: string, to: string): Promise<boolean> {
  try {
    await link(from, to);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** Removes a dead owner's lock. A rename has one winner; one that caught a live lock meanwhile puts it back. */
async function putAside(path: string): Promise<void> {
  const aside = `${path}.${randomUUID()}`;
  try {
    await rename(path, aside);
  } catch {
    return;
  }
  if ((await liveOwner(aside)) !== undefined) await linked(aside, path);
  await rm(aside, { force: true });
}

async function release(path: string, mine: string): Promise<void> {
  if ((await readFile(path, 'utf8').catch(() => '')) === mine) await rm(path, { force: true });
}

async function liveOwner(path: string): Promise<number | undefined> {
  const owner = parsed(await readFile(path, 'utf8').catch(() => ''));
  if (!owner || !isAlive(owner.pid)) return undefined;
  const now = await ownerOf(owner.pid);
  return now.started === owner.started && now.boot === owner.boot ? owner.pid : undefined;
}

function parsed(text: string): Owner | undefined {
  try {
    const value = JSON.parse(text) as Partial<Owner>;
    return Number.isSafeInteger(value.pid) && Number(value.pid) > 0 ? (value as Owner) : undefined;
  } catch {
    return undefined;
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

async function ownerOf(pid: number): Promise<Owner> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  const boot = (await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => '')).trim();
  // The command's name, in brackets, may hold anything; the start time is the 20th field after it.
  const started = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
  return { pid, ...(started !== undefined && { started }), ...(boot !== '' && { boot }) };
}
