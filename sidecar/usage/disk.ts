/** The file system as the spool needs it: a port, so that tests can let any call fail and any crash happen. */
import { constants } from 'node:fs';
import { mkdir, open, readdir, rename, rm, stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';

/** All calls reject with the system's own error. */
export interface Disk {
  /** Makes a folder for its owner alone, and those above it. One that exists is left as it is. */
  makeDir(dir: string): Promise<void>;
  /** Names in a folder, in no order. */
  list(dir: string): Promise<string[]>;
  /** `create`: it must not exist yet. `change`: it must, and can be read and written. The caller closes it. */
  open(path: string, how: 'create' | 'change' | 'read'): Promise<DiskFile>;
  /** Removes a file; one that does not exist is removed already. */
  remove(path: string): Promise<void>;
  /** Gives a file another name, atomically; one that has the name loses it. */
  rename(from: string, to: string): Promise<void>;
  /** Makes durable which names a folder holds. */
  syncDir(dir: string): Promise<void>;
  /** Bytes that this process may still write on the file system of a folder. */
  free(dir: string): Promise<number>;
}

export interface DiskFile {
  size(): Promise<number>;
  /** Bytes read, 0 at the end. */
  read(into: Uint8Array, position: number): Promise<number>;
  /** Writes all of it; rejects when less fits. */
  write(bytes: Uint8Array, position: number): Promise<void>;
  truncate(size: number): Promise<void>;
  /** Whether a path names this file (`here`), another one, or none (`gone`): open files outlive their names. */
  at(path: string): Promise<'here' | 'other' | 'gone'>;
  /** Makes what was written durable (fdatasync). */
  sync(): Promise<void>;
  close(): Promise<void>;
}

const { O_RDONLY, O_RDWR, O_CREAT, O_EXCL } = constants;
const FLAGS = { create: O_RDWR | O_CREAT | O_EXCL, change: O_RDWR, read: O_RDONLY } as const;

/** The machine's. */
export const systemDisk: Disk = {
  async makeDir(dir) {
    const made = await mkdir(dir, { recursive: true, mode: 0o700 });
    if (made !== undefined) await this.syncDir(dirname(dir));
  },
  list: (dir) => readdir(dir),
  open: (path, how) => openFile(path, how),
  remove: (path) => rm(path, { force: true }),
  rename: (from, to) => rename(from, to),
  async syncDir(dir) {
    const handle = await open(dir, O_RDONLY);
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  },
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
      const found = await stat(path, { bigint: true }).catch((error: unknown) => {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
        throw error;
      });
      if (!found) return 'gone';
      const { dev, ino } = await handle.stat({ bigint: true });
      return found.dev === dev && found.ino === ino ? 'here' : 'other';
    },
    truncate: (size) => handle.truncate(size),
    sync: () => handle.datasync(),
    close: () => handle.close(),
  };
}

/** Read and written at a time when bytes are copied. */
const COPY_BYTES = 256 * 1024;

/** Copies bytes of one file to the beginning of another; fewer where the file ends before. Rejects with the system's error. */
export async function copyBytes(from: DiskFile, offset: number, bytes: number, to: DiskFile): Promise<void> {
  for (let done = 0; done < bytes;) {
    const chunk = Buffer.alloc(Math.min(COPY_BYTES, bytes - done));
    const read = await from.read(chunk, offset + done);
    if (read === 0) return;
    await to.write(chunk.subarray(0, read), done);
    done += read;
  }
}
