import { readFile, type FileHandle } from 'node:fs/promises';
import { replaceFile } from '../../lib/replace-file.js';
import type { Position } from '../segments.js';

/** Where delivery stands in the spool, kept over restarts. */
export interface CursorStore {
  /** `lost`: there is something, and it cannot be used; `why` is one word for the log. Rejects when the disk fails. */
  load(): Promise<
    | { readonly kind: 'at'; readonly position: Position }
    | { readonly kind: 'none' }
    | { readonly kind: 'lost'; readonly why: string }
  >;
  /** Durable when it resolves. After a crash the next load() finds this position or the one before, never a mixture. */
  save(position: Position): Promise<void>;
}

/** The cursor in a JSON file, which is replaced whole. */
export class CursorFile implements CursorStore {
  readonly #file: string;

  constructor(file: string) {
    this.#file = file;
  }

  async load(): ReturnType<CursorStore['load']> {
    let text: string;
    try {
      text = await readFile(this.#file, 'utf8');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { kind: 'none' };
      throw error;
    }
    const position = parsed(text);
    return position === undefined ? { kind: 'lost', why: 'unreadable' } : { kind: 'at', position };
  }

  async save({ segment, offset }: Position): Promise<void> {
    const write = (draft: FileHandle): Promise<void> =>
      draft.writeFile(`${JSON.stringify({ version: 1, segment, offset })}\n`);
    // Whoever holds the spool's lock.
    await replaceFile(this.#file, write, { soleWriter: true });
  }
}

function parsed(text: string): Position | undefined {
  try {
    const { version, segment, offset } = JSON.parse(text) as Readonly<Record<string, unknown>>;
    return version === 1 && isCount(segment) && isCount(offset) ? { segment, offset } : undefined;
  } catch {
    return undefined;
  }
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
