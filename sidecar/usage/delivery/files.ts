/** What is kept beside the spool of the positions in it, and what delivery cannot send. Only the holder of the spool's lock writes them. */
import { open, readFile, type FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { replaceFile } from '../../lib/replace-file.js';
import { isMissing, systemDisk } from '../disk.js';
import { isPosition, type Position } from '../spool-format.js';
import type { UsageEvent } from './sink.js';

/** `lost`: the cursor exists but is invalid; `why` is one word for the log. */
export type LoadedCursor =
  | { readonly kind: 'at'; readonly position: Position }
  | { readonly kind: 'none' }
  | { readonly kind: 'lost'; readonly why: string };

/** A position in the spool, of delivery or of another reader, kept over restarts in a JSON file that is replaced atomically. */
export class CursorFile {
  readonly #file: string;

  constructor(file: string) {
    this.#file = file;
  }

  /** Rejects if the disk fails. */
  async load(): Promise<LoadedCursor> {
    let text: string;
    try {
      text = await readFile(this.#file, 'utf8');
    } catch (error) {
      if (isMissing(error)) return { kind: 'none' };
      throw error;
    }
    const position = parsed(text);
    return position === undefined ? { kind: 'lost', why: 'unreadable' } : { kind: 'at', position };
  }

  /** Durable when it resolves. After a crash the next load() returns this position or the previous one. */
  async save({ segment, offset }: Position): Promise<void> {
    const write = (draft: FileHandle): Promise<void> =>
      draft.writeFile(`${JSON.stringify({ version: 1, segment, offset })}\n`);
    await replaceFile(this.#file, write, { soleWriter: true });
  }
}

/**
 * Of a data folder whose credit is or was in the store of a fleet: a position up to which the store has posted its spool, some time ago.
 * In a spool that was pruned without regard to the store, what is missing after it charges nothing.
 */
export function postedFile(dir: string): CursorFile {
  return new CursorFile(join(dir, 'posted.json'));
}

function parsed(text: string): Position | undefined {
  try {
    const value = JSON.parse(text) as unknown;
    if (!isPosition(value) || (value as { readonly version?: unknown }).version !== 1) return undefined;
    return { segment: value.segment, offset: value.offset };
  } catch {
    return undefined;
  }
}

/** An event that the sink permanently rejects, kept for an operator. */
export interface DeadLetter {
  /** When it was refused, ISO 8601. */
  readonly at: string;
  /** The sink's reason: an HTTP status, or JetStream's error number. */
  readonly status: number;
  readonly event: UsageEvent;
}

const NEWLINE = 10;

/**
 * Dead letters as JSON lines, appended and synced. The file is opened for each write, so that an operator can move it
 * away while the sidecar runs.
 */
export class DeadLetterFile {
  readonly #file: string;
  readonly #maxBytes: number;

  constructor(file: string, maxBytes: number) {
    this.#file = file;
    this.#maxBytes = maxBytes;
  }

  /** True: durable. False: there is no room, and nothing was written. Rejects if the disk fails. */
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
