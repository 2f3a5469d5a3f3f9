/**
 * One writer for one spool. The lock is a file that names a process: its id, when it started and in which boot, so that
 * neither a crash nor an id given out again leaves it held. It cannot see processes of another machine or container:
 * two of those must not share a data folder.
 */
import { randomUUID } from 'node:crypto';
import { link, readFile, rm, writeFile } from 'node:fs/promises';
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
  // Linked into place whole: a lock is never seen half written.
  const draft = `${path}.${randomUUID()}`;
  await writeFile(draft, JSON.stringify(await ownerOf(process.pid)), { mode: 0o600, flag: 'wx' });
  try {
    if (await linked(draft, path)) return locked(path);
    return (await heldBy(path)) ?? (await takeOver(draft, path));
  } finally {
    await rm(draft, { force: true });
  }
}

/**
 * Replaces a dead owner's lock. Only who holds the claim removes one, so that nobody removes the lock of one who was
 * faster.
 */
async function takeOver(draft: string, path: string): Promise<Locked> {
  const claim = `${path}.claim`;
  if (!(await linked(draft, claim))) {
    const claimed = await heldBy(claim);
    if (claimed) return claimed;
    // Its owner died within the few system calls below.
    await rm(claim, { force: true });
    if (!(await linked(draft, claim))) return (await heldBy(claim)) ?? UNKNOWN;
  }
  try {
    const held = await heldBy(path);
    if (held) return held;
    await rm(path, { force: true });
    return (await linked(draft, path)) ? locked(path) : ((await heldBy(path)) ?? UNKNOWN);
  } finally {
    await rm(claim, { force: true });
  }
}

/** Held a moment ago by a process that is gone by now: whoever starts again finds out. */
const UNKNOWN: Locked = { kind: 'held', pid: 0 };

function locked(path: string): Locked {
  let mine = true;
  return {
    kind: 'locked',
    release: async () => {
      if (mine) await rm(path, { force: true });
      mine = false;
    },
  };
}

async function heldBy(path: string): Promise<Locked | undefined> {
  const pid = await liveOwner(path);
  return pid === undefined ? undefined : { kind: 'held', pid };
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
