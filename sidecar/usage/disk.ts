/** The file system functions that the spool needs, as a port so that tests can inject failures and crashes. */
import { constants } from 'node:fs';
import { mkdir, open, readdir, rename, rm, stat, statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { ifPresent } from '../lib/missing.js';
import { syncFolder } from '../lib/replace-file.js';

/** All calls reject with the system's own error. */
export interface Disk {
  /** Creates a folder for its owner only, with its parents. An existing one is left unchanged. */
  makeDir(dir: string): Promise<void>;
  /** Names in a folder, unordered. */
  list(dir: string): Promise<string[]>;
  /**
   * `create`: it must not exist yet, and what is written is durable when the write ends (O_DSYNC): a write and a sync would be two calls of
   * the system. `change`: it must exist, and is opened for reading and writing. The caller closes it.
   */
  open(path: string, how: 'create' | 'change' | 'read'): Promise<DiskFile>;
  /** Bytes of a file; undefined if it does not exist. */
  sizeOf(path: string): Promise<number | undefined>;
  /** Removes a file; succeeds if it does not exist. */
  remove(path: string): Promise<void>;
  /** Renames a file atomically; an existing file with the new name is replaced. */
  rename(from: string, to: string): Promise<void>;
  /** Makes a folder's entries durable. */
  syncDir(dir: string): Promise<void>;
  /** Free bytes for this process on the file system of a folder. */
  free(dir: string): Promise<number>;
}

export interface DiskFile {
  size(): Promise<number>;
  /** Bytes read, 0 at the end. */
  read(into: Uint8Array, position: number): Promise<number>;
  /** Writes all bytes; rejects if not all fit. */
  write(bytes: Uint8Array, position: number): Promise<void>;
  truncate(size: number): Promise<void>;
  /** Whether a path names this file (`here`), another one, or none (`gone`). */
  at(path: string): Promise<'here' | 'other' | 'gone'>;
  /** Makes what was changed durable (fdatasync). */
  sync(): Promise<void>;
  close(): Promise<void>;
}

const { O_RDONLY, O_RDWR, O_CREAT, O_EXCL, O_DSYNC } = constants;
const FLAGS = { create: O_RDWR | O_CREAT | O_EXCL | O_DSYNC, change: O_RDWR, read: O_RDONLY } as const;

export const systemDisk: Disk = {
  async makeDir(dir) {
    const made = await mkdir(dir, { recursive: true, mode: 0o700 });
    if (made !== undefined) await this.syncDir(dirname(dir));
  },
  list: (dir) => readdir(dir),
  open: (path, how) => openFile(path, how),
  sizeOf: async (path) => (await ifPresent(stat(path)))?.size,
  remove: (path) => rm(path, { force: true }),
  rename: (from, to) => rename(from, to),
  syncDir: syncFolder,
  async free(dir) {
    const { bavail, bsize } = await statfs(dir);
    return bavail * bsize;
  },
};

async function openFile(path: string, how: keyof typeof FLAGS): Promise<DiskFile> {
  const handle = await open(path, FLAGS[how], 0o600);
  return {
    size: async () => (await handle.stat()).size,
    read: async (into, position) => (await handle.read(into, 0, into.length, position)).bytesRead,
    async write(bytes, position) {
      for (let done = 0; done < bytes.length;) {
        const { bytesWritten } = await handle.write(bytes, done, bytes.length - done, position + done);
        if (bytesWritten === 0) throw new Error('nothing was written');
        done += bytesWritten;
      }
    },
    async at(path) {
      const found = await ifPresent(stat(path, { bigint: true }));
      if (!found) return 'gone';
      const { dev, ino } = await handle.stat({ bigint: true });
      return found.dev === dev && found.ino === ino ? 'here' : 'other';
    },
    truncate: (size) => handle.truncate(size),
    sync: () => handle.datasync(),
    close: () => handle.close(),
  };
}

/** Bytes per read and write when files are copied: each write waits for the disk. */
const COPY_BYTES = 2 * 1024 * 1024;

/**
 * Copies bytes of an open file to a new one, fewer if it ends before, and makes them durable; an existing file with this path is replaced.
 * The name is durable once its folder is synced. Rejects with the system's error.
 */
export async function copyToFile(
  disk: Disk,
  from: DiskFile,
  { offset, bytes }: { readonly offset: number; readonly bytes: number },
  path: string,
): Promise<void> {
  await disk.remove(path);
  const to = await disk.open(path, 'create');
  try {
    const chunk = Buffer.alloc(Math.min(COPY_BYTES, bytes));
    for (let done = 0; done < bytes;) {
      const read = await from.read(chunk.subarray(0, bytes - done), offset + done);
      if (read === 0) break;
      await to.write(chunk.subarray(0, read), done);
      done += read;
    }
  } finally {
    await to.close();
  }
}

/** More than a file system stores in an inode, so that a block must be allocated. */
const PROBE_BYTES = Buffer.alloc(4096, '.');

/** Writes a file in a folder durably, and removes it. Rejects with the system's error if one of these fails. */
export async function tryWriting(disk: Disk, dir: string): Promise<void> {
  const path = join(dir, 'probe');
  await disk.remove(path);
  const file = await disk.open(path, 'create');
  try {
    await file.write(PROBE_BYTES, 0);
  } finally {
    await file.close();
    await disk.remove(path);
  }
}
