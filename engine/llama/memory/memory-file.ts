import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readlinkSync,
  readSync,
  statfsSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { randomUUID } from 'node:crypto';
import { EngineFault } from '../../scheduler/faults.js';
import { MEMORY_FILES, type StateElsewhere } from '../../protocol/cache-key.js';

/** glibc's BUFSIZ, bytes. Its buffer of a file has this size or that of a block of the file; musl's has 1,024 bytes. */
const C_BUFFER = 8192;

/** The number of whole numbers from 0 on that a double has exactly. */
const SAFE_INTEGERS = 1n << 53n;

/** Bytes that files in memory can take, of all processes together, and still now; undefined: this system has none. */
export function roomForMemoryFiles(): { readonly total: number; readonly free: number } | undefined {
  try {
    const { blocks, bavail, bsize } = statfsSync(MEMORY_FILES);
    return { total: blocks * bsize, free: bavail * bsize };
  } catch {
    return undefined;
  }
}

/**
 * A file in memory without a name. The kernel frees it when its last descriptor is closed. Its owner closes it once.
 */
export class MemoryFile {
  readonly #file: number;
  #closed = false;

  private constructor(file: number) {
    this.#file = file;
  }

  /** Creates an empty file; undefined: this system has no files in memory. */
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
  static ofProcess({ pid, file, inode, bytes, changedAt }: StateElsewhere): MemoryFile {
    const path = `/proc/${pid}/fd/${file}`;
    // Before it is opened: the number may be a pipe's by now. The file may be a third process's, from which that one has it.
    if (!readlinkSync(path).startsWith(`${MEMORY_FILES}/ra-`)) throw new EngineFault('the state is gone');
    const opened = new MemoryFile(openSync(path, constants.O_RDONLY | constants.O_NONBLOCK));
    const found = fstatSync(opened.descriptor);
    const isIt = found.isFile() && found.ino === inode && found.size === bytes;
    if (isIt && opened.changedAt === changedAt) return opened;
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

  /** Bytes that a C library may read at once, after those that were asked for: its buffer of a file. */
  get readAhead(): number {
    return Math.max(C_BUFFER, fstatSync(this.descriptor).blksize);
  }

  /** The path by which this process can open it. */
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

  /** Reads the numbers there. Throws where there are fewer. */
  read(count: number, at: number): Uint32Array {
    const numbers = new Uint32Array(count);
    if (readSync(this.descriptor, numbers, 0, numbers.byteLength, at) === numbers.byteLength) return numbers;
    throw new EngineFault('the file is too short');
  }

  /**
   * When the file's content or length was last changed, in nanoseconds of the kernel's clock, modulo 2^53. The kernel sets it at each
   * write, to the precision of its tick (1 to 10 ms), and no process can set it to an earlier time. Reading it takes one system call.
   */
  get changedAt(): number {
    return Number(fstatSync(this.descriptor, { bigint: true }).ctimeNs % SAFE_INTEGERS);
  }

  /** Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    closeSync(this.#file);
  }
}
