/** What is kept beside the spool of the positions in it, and what delivery cannot send. Only the holder of the spool's lock writes them. */
import { readFile, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { appendLines } from '../../lib/append-lines.js';
import { jsonIn } from '../../lib/json-in.js';
import { ifPresent } from '../../lib/missing.js';
import { replaceFile } from '../../lib/replace-file.js';
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
    const text = await ifPresent(readFile(this.#file, 'utf8'));
    if (text === undefined) return { kind: 'none' };
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
  const value = jsonIn(text);
  if (!isPosition(value) || (value as { readonly version?: unknown }).version !== 1) return undefined;
  return { segment: value.segment, offset: value.offset };
}

/** An event that the sink permanently rejects, kept for an operator. */
export interface DeadLetter {
  /** When it was refused, ISO 8601. */
  readonly at: string;
  /** The sink's reason: an HTTP status, or JetStream's error number. */
  readonly status: number;
  readonly event: UsageEvent;
}

/** Appends dead letters as JSON lines. True: durable. False: no room, nothing was written. Rejects if the disk fails. */
export type Bury = (letters: readonly DeadLetter[]) => Promise<boolean>;

export function buryIn(file: string, maxBytes: number): Bury {
  return (letters) => appendLines(file, letters.map((letter) => `${JSON.stringify(letter)}\n`).join(''), maxBytes);
}
