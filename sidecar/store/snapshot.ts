/**
 * A file that follows a document of the store, so that what reads it needs no store: the sidecar starts and serves with the last content
 * while the store does not answer.
 *
 *     notification ──┐
 *     poll ──────────┼──> the store is asked ──> another revision: the file is replaced, then `taken`
 *     sync() ────────┘         │    └──────────> the same: confirmed
 *                              └──no answer: the file stays, and is confirmed no more
 *
 * When the document was last confirmed is kept beside the file, so that a restart does not make an old content new.
 */
import { stat } from 'node:fs/promises';
import { AbortHandle } from '../lib/abort.js';
import type { Clock } from '../lib/clock.js';
import { replaceFile } from '../lib/replace-file.js';
import type { Log } from '../telemetry/logger.js';
import type { Database } from './database.js';
import { DOCUMENT_MS, type DocumentName, type DocumentRow } from './keys.js';
import { UNPREPARED } from './replica.js';

/** The time between two writes of when the document was confirmed, ms: a restart counts the rest of it as not confirmed. */
const MARK_MS = 60_000;

export interface SnapshotOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly database: Database;
  readonly name: DocumentName;
  readonly file: string;
  readonly pollMs: number;
  /** The file has a content that may be another one. If it rejects, the content is fetched and given again. */
  readonly taken: () => Promise<void>;
  /** Why the file's content is not in force; undefined if it is. The store does not confirm what is in force instead. Never rejects. */
  readonly refused?: () => Promise<string | undefined>;
}

/** Owned by what opens the store, which closes it. */
export class Snapshot {
  readonly #options: SnapshotOptions;
  #revision: string | undefined;
  /** Clock readings. */
  #confirmedAt = -Infinity;
  #markedAt = -Infinity;
  #problem: string | undefined;
  #syncing: Promise<void> | undefined;
  #wanted = false;
  #closed = false;
  #cancelPoll = (): void => undefined;
  /** Ends the question that runs. */
  #cancelling = new AbortHandle();

  constructor(options: SnapshotOptions) {
    this.#options = options;
  }

  /** Why the file may not be what the store has; undefined if it was when the store was last asked. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** How long ago the store confirmed the content, ms; Infinity: there is none. */
  get ageMs(): number {
    return this.#options.clock.now() - this.#confirmedAt;
  }

  /** Asks the store for the first time, and follows it from then on. */
  async begin(): Promise<void> {
    const { clock, file } = this.#options;
    const at = await Promise.all([stat(markOf(file)), stat(file)]).then(
      ([{ mtimeMs }]) => mtimeMs,
      () => -Infinity,
    );
    this.#confirmedAt = clock.now() - Math.max(0, Date.now() - at);
    await this.sync();
    this.#poll();
  }

  /** Asks the store, after the question that runs, if one does. Resolves when it has answered or not, and never rejects. */
  sync(): Promise<void> {
    this.#wanted = true;
    this.#syncing ??= (async () => {
      while (this.#wanted && !this.#closed) {
        this.#wanted = false;
        await this.#ask();
      }
      this.#syncing = undefined;
    })();
    return this.#syncing;
  }

  /** Asks no more; the file stays. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelPoll();
    this.#cancelling.abort();
    await this.#syncing;
  }

  #poll(): void {
    if (this.#closed) return;
    const { clock, pollMs } = this.#options;
    this.#cancelPoll = clock.after(pollMs, () => void this.sync().then(() => this.#poll()));
  }

  async #ask(): Promise<void> {
    const { clock, database, name, file, taken } = this.#options;
    const from = clock.now();
    const signal = (this.#cancelling = new AbortHandle());
    const answer = await database.call<DocumentRow>('document', [name, this.#revision ?? null], {
      withinMs: DOCUMENT_MS,
      signal,
    });
    const [row] = answer.kind === 'rows' ? answer.rows : [];
    if (!row) {
      this.#problem = `the store ${(answer.kind === 'down' && UNPREPARED[answer.why]) || 'does not answer'}`;
      return;
    }
    const { revision, content } = row;
    try {
      if (content !== null) {
        await replaceFile(file, (draft) => draft.writeFile(content));
        await taken();
      }
    } catch (error) {
      const problem = `${file} cannot be written: ${(error as NodeJS.ErrnoException).code ?? 'fault'}`;
      if (problem !== this.#problem)
        this.#options.log.error('copy of the store cannot be written', { file, fault: error });
      this.#problem = problem;
      return;
    }
    this.#revision = revision;
    this.#problem = await this.#options.refused?.();
    if (this.#problem !== undefined) return;
    this.#confirmedAt = from;
    if (from >= this.#markedAt + MARK_MS) {
      // Without it a restart counts a longer time as not confirmed.
      await replaceFile(markOf(file), () => Promise.resolve()).catch(() => undefined);
      this.#markedAt = from;
    }
  }
}

/** Its time is that of the last confirmation. */
function markOf(file: string): string {
  return `${file}.confirmed`;
}
