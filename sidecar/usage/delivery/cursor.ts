import { readFile, type FileHandle } from 'node:fs/promises';
import { replaceFile } from '../../lib/replace-file.js';
import type { Position } from '../segments.js';

/** The position of delivery in the spool, kept over restarts. */
export interface CursorStore {
  /** `lost`: the cursor exists but is invalid; `why` is one word for the log. Rejects if the disk fails. */
  load(): Promise<
    | { readonly kind: 'at'; readonly position: Position }
    | { readonly kind: 'none' }
    | { readonly kind: 'lost'; readonly why: string }
  >;
  /** Durable when it resolves. After a crash the next load() returns this position or the previous one. */
  save(position: Position): Promise<void>;
}

/** The cursor in a JSON file, which is replaced atomically. */
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
    // Only the holder of the spool's lock writes it.
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
