import { basename, dirname } from 'node:path';
import type { Disk, DiskFile } from '../../sidecar/usage/disk.js';

export type DiskCall =
  | 'makeDir'
  | 'list'
  | 'open'
  | 'remove'
  | 'rename'
  | 'syncDir'
  | 'free'
  | 'size'
  | 'read'
  | 'write'
  | 'at'
  | 'truncate'
  | 'sync'
  | 'close';

interface FakeFile {
  /** What a process reads. */
  bytes: Buffer;
  /** What certainly survives a crash. */
  durable: Buffer;
  /** The folder was synced since the file was created. */
  named: boolean;
}

/** An error as the operating system reports it. */
export function systemError(code: string, message = `${code}: injected`): NodeJS.ErrnoException {
  return Object.assign(new Error(message), { code, syscall: 'injected' });
}

/**
 * A file system in memory. Any call can fail or wait, and it can crash: then of what was not synced any part may be
 * left, as on a real one.
 */
export class FakeDisk implements Disk {
  readonly files = new Map<string, FakeFile>();
  readonly calls: { readonly call: DiskCall; readonly name: string }[] = [];
  /** Called before each call; what it returns is thrown. A failed write leaves its first half, as on a full disk. */
  fail: (call: DiskCall, name: string) => Error | undefined = () => undefined;
  /** Awaited before each call. */
  wait: (call: DiskCall, name: string) => Promise<void> | undefined = () => undefined;
  freeBytes = 1e12;
  /** Set by a crash: earlier descriptors are invalid. */
  #life = 0;

  makeDir(dir: string): Promise<void> {
    return this.mount().makeDir(dir);
  }

  list(dir: string): Promise<string[]> {
    return this.mount().list(dir);
  }

  open(path: string, how: 'create' | 'change' | 'read'): Promise<DiskFile> {
    return this.mount().open(path, how);
  }

  sizeOf(path: string): Promise<number | undefined> {
    return this.mount().sizeOf(path);
  }

  remove(path: string): Promise<void> {
    return this.mount().remove(path);
  }

  rename(from: string, to: string): Promise<void> {
    return this.mount().rename(from, to);
  }

  syncDir(dir: string): Promise<void> {
    return this.mount().syncDir(dir);
  }

  free(dir: string): Promise<number> {
    return this.mount().free(dir);
  }

  /** The disk as a process sees it until the next crash; from then on every call of that process fails. */
  mount(): Disk {
    const life = this.#life;
    return {
      makeDir: (dir) => this.#enter('makeDir', dir, life),
      list: async (dir) => {
        await this.#enter('list', dir, life);
        return [...this.files.keys()].filter((path) => dirname(path) === dir).map((path) => basename(path));
      },
      open: async (path, how) => {
        await this.#enter('open', path, life);
        const known = this.files.get(path);
        if (how === 'create' && known) throw systemError('EEXIST');
        if (how !== 'create' && !known) throw systemError('ENOENT');
        const file = known ?? { bytes: Buffer.alloc(0), durable: Buffer.alloc(0), named: false };
        this.files.set(path, file);
        return this.#opened(path, file, life, how === 'create');
      },
      sizeOf: async (path) => {
        await this.#enter('size', path, life);
        return this.files.get(path)?.bytes.length;
      },
      remove: async (path) => {
        await this.#enter('remove', path, life);
        this.files.delete(path);
      },
      rename: async (from, to) => {
        await this.#enter('rename', to, life);
        const file = this.files.get(from);
        if (!file) throw systemError('ENOENT');
        this.files.delete(from);
        this.files.set(to, file);
      },
      syncDir: async (dir) => {
        await this.#enter('syncDir', dir, life);
        for (const [path, file] of this.files) if (dirname(path) === dir) file.named = true;
      },
      free: async (dir) => {
        await this.#enter('free', dir, life);
        return this.freeBytes;
      },
    };
  }

  /**
   * The machine crashes. `left` returns for each file how many of its unsynced bytes at its end are left, and `named`
   * whether a file whose name was not synced exists.
   */
  crash(left: (unsynced: Buffer) => Buffer, named: () => boolean = () => true): void {
    this.#life++;
    for (const [path, file] of this.files) {
      if (!file.named && !named()) {
        this.files.delete(path);
        continue;
      }
      const { bytes, durable } = file;
      const tail = left(bytes.subarray(durable.length));
      // A truncation may have reached the disk or not.
      const base = bytes.length < durable.length && named() ? bytes : durable;
      file.bytes = file.durable = Buffer.concat([base, tail]);
      file.named = true;
    }
  }

  /** A file’s content, to read or to damage. */
  content(path: string): Buffer {
    const file = this.files.get(path);
    if (!file) throw new Error(`no file ${path}`);
    return file.bytes;
  }

  /** Creates a file, synced. */
  put(path: string, bytes: Buffer): void {
    this.files.set(path, { bytes, durable: bytes, named: true });
  }

  /** `durable`: a write and its sync are two calls here, so that each can fail. */
  #opened(path: string, file: FakeFile, life: number, durable: boolean): DiskFile {
    const enter = (call: DiskCall): Promise<void> => this.#enter(call, path, life);
    const sync = async (): Promise<void> => {
      await enter('sync');
      file.durable = file.bytes;
    };
    return {
      size: async () => {
        await enter('size');
        return file.bytes.length;
      },
      read: async (into, position) => {
        await enter('read');
        return file.bytes.copy(into, 0, position, position + into.length);
      },
      write: async (bytes, position) => {
        const put = (part: Uint8Array): void => {
          const head = Buffer.alloc(position);
          file.bytes.copy(head, 0, 0, position);
          file.bytes = Buffer.concat([head, part, file.bytes.subarray(position + part.length)]);
        };
        try {
          await enter('write');
        } catch (error) {
          if (life === this.#life) put(bytes.subarray(0, bytes.length >> 1));
          throw error;
        }
        put(bytes);
        if (durable) await sync();
      },
      at: async (there) => {
        await this.#enter('at', there, life);
        const found = this.files.get(there);
        if (!found) return 'gone';
        return found === file ? 'here' : 'other';
      },
      truncate: async (size) => {
        await enter('truncate');
        file.bytes = Buffer.from(file.bytes.subarray(0, size));
      },
      sync,
      close: () => enter('close'),
    };
  }

  async #enter(call: DiskCall, name: string, life: number): Promise<void> {
    this.calls.push({ call, name: basename(name) });
    await this.wait(call, basename(name));
    if (life !== this.#life) throw systemError('EIO', 'the machine went down');
    const error = this.fail(call, basename(name));
    if (error) throw error;
  }
}
