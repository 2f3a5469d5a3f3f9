/**
 * The lock of a spool, which has one writer. A folder is marked as taken in two ways:
 *
 * - by a name that the kernel keeps for the owner, made of the folder's device and inode (lib/process-lock.ts). It decides
 *   between processes that start at the same moment, and depends on no file. It is visible in one network namespace.
 * - by the file `lock`, which identifies the owner by process id, start time and boot, so that neither a crash nor a reused
 *   process id leaves the folder locked. It is for people and commands, and for a process in another network namespace
 *   that sees the same process ids.
 *
 * A container that shares neither namespace sees neither: two such containers must not share a data folder. There the
 * later one takes the folder as if the earlier one had crashed, and the earlier one finds its claim in the file.
 */
import { randomUUID } from 'node:crypto';
import { readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { jsonIn } from '../lib/json-in.js';
import { holderOf, lockName, type ProcessLock } from '../lib/process-lock.js';

/** Identifies a process on this system. */
interface Owner {
  readonly pid: number;
  /** Clock ticks from boot to its start; absent where there is no /proc. */
  readonly started?: string;
  readonly boot?: string;
  /** Differs in each file that a sidecar wrote. */
  readonly claim?: string;
  /** It has ended, but its parent has not collected it. Never in a file. */
  readonly ended?: true;
}

/** `pid` 0: a process that could not be identified. */
export type HeldLock = { readonly kind: 'held'; readonly pid: number };

export interface Lock {
  readonly kind: 'locked';
  /**
   * Checks the lock: also locks a folder that was recreated, and restores a file that is missing or cannot be read
   * (`restored`). `held`: another process has the folder by now, and this one must not write; for good if it wrote a
   * claim into the file, since what this process knows of the folder is outdated even when the other has ended. Rejects
   * with the system's error.
   */
  check(): Promise<{ readonly kind: 'kept' | 'restored' } | HeldLock>;
  /** May be called twice. */
  release(): Promise<void>;
}

export type Locked = Lock | HeldLock;

/** Takes the lock of a folder, which must exist. If several processes call it at once, exactly one gets it. */
export async function lockDir(dir: string): Promise<Locked> {
  const name = await nameOf(dir);
  const lock = await lockName(name);
  if (!lock) return { kind: 'held', pid: (await lockOwner(dir)) ?? 0 };
  try {
    const pid = await otherOwner(dir);
    if (pid === undefined) return new DirLock(dir, name, lock, await writeOwner(dir));
    await lock.release();
    return { kind: 'held', pid };
  } catch (error) {
    await lock.release();
    throw error;
  }
}

class DirLock implements Lock {
  readonly kind = 'locked';
  readonly #dir: string;
  #name: string;
  #lock: ProcessLock;
  /** The content of the lock file that this process wrote. */
  #text: string;
  #released: Promise<void> | undefined;
  /** Another process wrote its claim over this one's. */
  #lost: HeldLock | undefined;

  constructor(dir: string, name: string, lock: ProcessLock, text: string) {
    this.#dir = dir;
    this.#name = name;
    this.#lock = lock;
    this.#text = text;
  }

  async check(): Promise<{ readonly kind: 'kept' | 'restored' } | HeldLock> {
    if (this.#lost) return this.#lost;
    const name = await nameOf(this.#dir);
    if (name !== this.#name) {
      const lock = await lockName(name);
      if (!lock) return { kind: 'held', pid: (await lockOwner(this.#dir)) ?? 0 };
      await this.#lock.release();
      this.#lock = lock;
      this.#name = name;
    }
    if (await this.#isOurs()) return { kind: 'kept' };
    const pid = await otherOwner(this.#dir);
    // Its process may be invisible here, so that it cannot be told from one that has ended.
    if (await this.#hasOtherClaim()) this.#lost = { kind: 'held', pid: pid ?? 0 };
    if (this.#lost) return this.#lost;
    if (pid !== undefined) return { kind: 'held', pid };
    // If it was released meanwhile, the next owner's file must not be overwritten.
    if (!this.#released) this.#text = await writeOwner(this.#dir);
    return { kind: 'restored' };
  }

  release(): Promise<void> {
    this.#released ??= this.#release();
    return this.#released;
  }

  async #release(): Promise<void> {
    try {
      if (await this.#isOurs()) await rm(lockPath(this.#dir), { force: true });
    } finally {
      await this.#lock.release();
    }
  }

  async #isOurs(): Promise<boolean> {
    return (await readLock(this.#dir)) === this.#text;
  }

  async #hasOtherClaim(): Promise<boolean> {
    const text = await readLock(this.#dir);
    return text !== this.#text && typeof parsed(text)?.claim === 'string';
  }
}

/** The process that has the lock of a folder, 0 if it cannot be identified; undefined if none is running. */
export async function lockOwner(dir: string): Promise<number | undefined> {
  const owner = await liveOwner(dir);
  if (owner !== undefined) return owner;
  const name = await nameOf(dir).catch(() => undefined);
  return name === undefined ? undefined : await holderOf(name);
}

/** Another running process that the lock file names. */
async function otherOwner(dir: string): Promise<number | undefined> {
  const pid = await liveOwner(dir);
  return pid === process.pid ? undefined : pid;
}

/** Writes the lock file, which only the holder of the folder's name does. Returns its text, which is unique. */
async function writeOwner(dir: string): Promise<string> {
  const claim = randomUUID();
  const text = JSON.stringify({ ...(await ownerOf(process.pid)), claim });
  const draft = `${lockPath(dir)}.${claim}`;
  try {
    await writeFile(draft, text, { mode: 0o600, flag: 'wx' });
    await rename(draft, lockPath(dir));
  } finally {
    await rm(draft, { force: true });
  }
  return text;
}

/** By device and inode: two paths to one folder give one name, and two folders with the same path in two containers give two. */
async function nameOf(dir: string): Promise<string> {
  const { dev, ino } = await stat(dir, { bigint: true });
  return `ra-sidecar/usage/${dev}/${ino}`;
}

/** The text of the lock file, empty if it cannot be read. */
function readLock(dir: string): Promise<string> {
  return readFile(lockPath(dir), 'utf8').catch(() => '');
}

function lockPath(dir: string): string {
  return join(dir, 'lock');
}

async function liveOwner(dir: string): Promise<number | undefined> {
  const owner = parsed(await readLock(dir));
  if (!owner || !isAlive(owner.pid)) return undefined;
  const now = await ownerOf(owner.pid);
  if (now.ended === true) return undefined;
  return now.started === owner.started && now.boot === owner.boot ? owner.pid : undefined;
}

function parsed(text: string): Owner | undefined {
  const value = jsonIn(text) as Partial<Owner> | null | undefined;
  return Number.isSafeInteger(value?.pid) && Number(value?.pid) > 0 ? (value as Owner) : undefined;
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
  // The command's name in brackets may contain anything; the state follows it, and the start time is the 20th field
  // after it.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [state = '', started] = [fields[0], fields[19]];
  return {
    pid,
    ...(started !== undefined && { started }),
    ...(boot !== '' && { boot }),
    ...(/^[ZX]/.test(state) && { ended: true }),
  };
}
