import { basename, dirname } from 'node:path';
import type { Disk, DiskFile } from '../../sidecar/usage/disk.js';

export type DiskCall =
  | 'makeDir'
  | 'list'
  | 'open'
  | 'remove'
  | 'syncDir'
  | 'free'
  | 'size'
  | 'read'
  | 'write'
  | 'truncate'
  | 'sync'
  | 'close';

interface FakeFile {
  /** What a process reads. */
  bytes: Buffer;
  /** What is certain to survive a crash. */
  durable: Buffer;
  /** The folder was synced since the file was made. */
  named: boolean;
}

/** An error as the system throws it. */
export function systemError(code: string, message = `${code}: injected`): NodeJS.ErrnoException {
  return Object.assign(new Error(message), { code, syscall: 'injected' });
}

/**
 * A file system in memory. Any call can be made to fail or to wait, and it can crash: then of what was not synced any
 * part is left, as on a real one.
 */
export class FakeDisk implements Disk {
  readonly files = new Map<string, FakeFile>();
  readonly calls: { readonly call: DiskCall; readonly name: string }[] = [];
  /** Asked before each call; what it returns is thrown. A failed write leaves its first half behind, as a full disk does. */
  fail: (call: DiskCall, name: string) => Error | undefined = () => undefined;
  /** Awaited before each call. */
  wait: (call: DiskCall, name: string) => Promise<void> | undefined = () => undefined;
  freeBytes = 1e12;
  /** Set by a crash: descriptors of before are of no use. */
  #life = 0;

  async makeDir(dir: string): Promise<void> {
    await this.#enter('makeDir', dir);
  }

  async list(dir: string): Promise<string[]> {
    await this.#enter('list', dir);
    return [...this.files.keys()].filter((path) => dirname(path) === dir).map((path) => basename(path));
  }

  async open(path: string, how: 'create' | 'change' | 'read'): Promise<DiskFile> {
    await this.#enter('open', path);
    const known = this.files.get(path);
    if (how === 'create' && known) throw systemError('EEXIST');
    if (how !== 'create' && !known) throw systemError('ENOENT');
    const file = known ?? { bytes: Buffer.alloc(0), durable: Buffer.alloc(0), named: false };
    this.files.set(path, file);
    return this.#opened(path, file);
  }

  async remove(path: string): Promise<void> {
    await this.#enter('remove', path);
    this.files.delete(path);
  }

  async syncDir(dir: string): Promise<void> {
    await this.#enter('syncDir', dir);
    for (const [path, file] of this.files) if (dirname(path) === dir) file.named = true;
  }

  async free(dir: string): Promise<number> {
    await this.#enter('free', dir);
    return this.freeBytes;
  }

  /**
   * The machine goes down. `kept` says of each file how many of its unsynced bytes are left, and whether a file whose
   * name was not synced is.
   */
  crash(kept: (path: string, unsynced: number) => number, named: (path: string) => boolean = () => true): void {
    this.#life++;
    for (const [path, file] of this.files) {
      if (!file.named && !named(path)) {
        this.files.delete(path);
        continue;
      }
      const { bytes, durable } = file;
      const left = bytes.length <= durable.length ? 0 : kept(path, bytes.length - durable.length);
      const base = bytes.length < durable.length && kept(path, 1) > 0 ? bytes : durable;
      file.bytes = Buffer.concat([base, bytes.subarray(durable.length, durable.length + left)]);
      file.durable = file.bytes;
      file.named = true;
    }
  }

  /** A file's content, to look at or to damage. */
  content(path: string): Buffer {
    const file = this.files.get(path);
    if (!file) throw new Error(`no file ${path}`);
    return file.bytes;
  }

  /** Puts a file there, synced. */
  put(path: string, bytes: Buffer): void {
    this.files.set(path, { bytes, durable: bytes, named: true });
  }

  #opened(path: string, file: FakeFile): DiskFile {
    const life = this.#life;
    const enter = (call: DiskCall): Promise<void> => this.#enter(call, path, life);
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
      },
      truncate: async (size) => {
        await enter('truncate');
        file.bytes = Buffer.from(file.bytes.subarray(0, size));
      },
      sync: async () => {
        await enter('sync');
        file.durable = file.bytes;
      },
      close: () => enter('close'),
    };
  }

  async #enter(call: DiskCall, name: string, life = this.#life): Promise<void> {
    this.calls.push({ call, name: basename(name) });
    await this.wait(call, basename(name));
    if (life !== this.#life) throw systemError('EIO', 'the machine went down');
    const error = this.fail(call, basename(name));
    if (error) throw error;
  }
}
