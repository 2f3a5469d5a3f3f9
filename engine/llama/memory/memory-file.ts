import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  read,
  readlinkSync,
  readSync,
  statfsSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { randomUUID } from 'node:crypto';
import { promisify } from 'node:util';
import { crc32 } from 'node:zlib';
import { EngineFault } from '../../scheduler/faults.js';
import { MEMORY_FILES, type StateElsewhere } from '../../protocol/shared-state.js';

/** Read at once, bytes. */
const PIECE = 1 << 20;

const readAsync = promisify(read);

/** Bytes that files in memory can still take; undefined: this system has none. */
export function roomForMemoryFiles(): number | undefined {
  try {
    const { bavail, bsize } = statfsSync(MEMORY_FILES);
    return bavail * bsize;
  } catch {
    return undefined;
  }
}

/** A file in memory without a name, which ends with the last descriptor of it. Its owner closes it once. */
export class MemoryFile {
  readonly #file: number;
  #closed = false;
  /** Reads under way: the descriptor stays open until they end, since its number might be another file's then. */
  #reads = 0;

  private constructor(file: number) {
    this.#file = file;
  }

  /** An empty one; undefined: there can be none. */
  static make(): MemoryFile | undefined {
    const path = `${MEMORY_FILES}/ra-${process.pid}-${randomUUID()}`;
    try {
      const file = openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, 0o600);
      unlinkSync(path);
      return new MemoryFile(file);
    } catch {
      return undefined;
    }
  }

  /** One of another process of this user. Throws where it is gone. */
  static ofProcess({ pid, file, inode, bytes }: StateElsewhere): MemoryFile {
    const path = `/proc/${pid}/fd/${file}`;
    // Before it is opened: the number may be a pipe's by now.
    if (!readlinkSync(path).startsWith(`${MEMORY_FILES}/ra-${pid}-`)) throw new EngineFault('the state is gone');
    const opened = new MemoryFile(openSync(path, constants.O_RDONLY | constants.O_NONBLOCK));
    const found = fstatSync(opened.descriptor);
    if (found.isFile() && found.ino === inode && found.size === bytes) return opened;
    opened.close();
    throw new EngineFault('the state is gone');
  }

  get descriptor(): number {
    if (this.#closed) throw new EngineFault('the file is closed');
    return this.#file;
  }

  get inode(): number {
    return fstatSync(this.descriptor).ino;
  }

  get bytes(): number {
    return fstatSync(this.descriptor).size;
  }

  /** By which it can be opened in this process. */
  get path(): string {
    return `/proc/self/fd/${this.descriptor}`;
  }

  /** Writes these numbers, 4 bytes each, from byte `at` on. */
  write(numbers: Uint32Array, at: number): void {
    const bytes = Buffer.from(numbers.buffer, numbers.byteOffset, numbers.byteLength);
    for (let done = 0; done < bytes.length;) {
      done += writeSync(this.descriptor, bytes, done, bytes.length - done, at + done);
    }
  }

  /** The numbers there. Throws where there are fewer. */
  read(count: number, at: number): Uint32Array {
    const numbers = new Uint32Array(count);
    if (readSync(this.descriptor, numbers, 0, numbers.byteLength, at) === numbers.byteLength) return numbers;
    throw new EngineFault('the file is too short');
  }

  /** CRC-32 of all of it. One piece is read while the one before is summed up. */
  async digest(): Promise<number> {
    const file = this.descriptor;
    const buffers = [Buffer.allocUnsafeSlow(PIECE), Buffer.allocUnsafeSlow(PIECE)] as const;
    this.#reads += 1;
    try {
      let sum = 0;
      let [now, next] = buffers;
      let reading = readAsync(file, now, 0, PIECE, 0);
      for (let at = 0; ;) {
        const { bytesRead } = await reading;
        if (bytesRead === 0) return sum;
        at += bytesRead;
        reading = readAsync(file, next, 0, PIECE, at);
        sum = crc32(now.subarray(0, bytesRead), sum);
        [now, next] = [next, now];
      }
    } finally {
      // Token ids are in it.
      for (const buffer of buffers) buffer.fill(0);
      this.#reads -= 1;
      if (this.#closed && this.#reads === 0) closeSync(file);
    }
  }

  /** Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#reads === 0) closeSync(this.#file);
  }
}
