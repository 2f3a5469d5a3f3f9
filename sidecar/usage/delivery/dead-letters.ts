import { open, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { systemDisk } from '../disk.js';
import type { UsageEvent } from './cloud-event.js';

/** An event that the sink permanently rejects. */
export interface DeadLetter {
  /** When it was refused, ISO 8601. */
  readonly at: string;
  /** The sink's reason, an HTTP status. */
  readonly status: number;
  readonly event: UsageEvent;
}

/** Keeps rejected events for an operator. */
export interface DeadLetters {
  /** True: durable. False: there is no room, and nothing was written. Rejects if the disk fails. */
  append(letters: readonly DeadLetter[]): Promise<boolean>;
}

const NEWLINE = 10;

/**
 * Dead letters as JSON lines, appended and synced. The file is opened for each write, so that an operator can move it
 * away while the sidecar runs.
 */
export class DeadLetterFile implements DeadLetters {
  readonly #file: string;
  readonly #maxBytes: number;

  constructor(file: string, maxBytes: number) {
    this.#file = file;
    this.#maxBytes = maxBytes;
  }

  async append(letters: readonly DeadLetter[]): Promise<boolean> {
    const folder = dirname(this.#file);
    await systemDisk.makeDir(folder);
    const handle = await open(this.#file, 'a+', 0o600);
    try {
      const { size } = await handle.stat();
      const text = Buffer.from(letters.map((letter) => `${JSON.stringify(letter)}\n`).join(''));
      if (size + text.length > this.#maxBytes) return false;
      // A crash may have left half a line; new lines start after it.
      if (!(await endsLine(handle, size))) await handle.appendFile('\n');
      await handle.appendFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await systemDisk.syncDir(folder);
    return true;
  }
}

async function endsLine(handle: FileHandle, size: number): Promise<boolean> {
  if (size === 0) return true;
  const { buffer } = await handle.read(Buffer.alloc(1), 0, 1, size - 1);
  return buffer[0] === NEWLINE;
}
