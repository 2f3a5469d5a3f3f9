/**
 * Sums over the closing records of a spool. They are only ever changed by reading the spool, from the last snapshot to the last
 * durable record, so that a snapshot never counts anything that is not in the spool:
 *
 *     snapshot ──> read the closes after it ──> sums at `position`
 *                      └─ every so many closes or ms, and when the sums are asked for: read on, write the next snapshot
 *
 * A snapshot has the position in the spool up to which it counts, so that older records are not needed any more.
 */
import { createHash } from 'node:crypto';
import { readFile, type FileHandle } from 'node:fs/promises';
import type { Check } from '../contracts/validator.js';
import type { UsageRecord } from '../domain/usage-record.js';
import type { Clock } from '../lib/clock.js';
import { isMissing } from '../lib/missing.js';
import { replaceFile } from '../lib/replace-file.js';
import type { Spool } from './spool.js';
import { comparePositions, type Position } from './spool-format.js';

export type CountedSpool = Pick<Spool, 'estimated' | 'position' | 'oldest' | 'read'>;

export interface SumsListener {
  /** Called with the number of bytes that are damaged and not counted. */
  damaged(bytes: number): void;
  /** A snapshot could not be written; the next attempt is at the usual time. */
  unwritten(fault: unknown): void;
  /** A snapshot was written: the spool's records before it are not needed any more. */
  saved?(): void;
}

export interface SumsOptions {
  readonly clock: Clock;
  readonly spool: CountedSpool;
  /** A snapshot is written after this time, if the spool has grown, ms. */
  readonly snapshotMs: number;
  /** And after this number of settled requests. */
  readonly snapshotCloses: number;
  /** Adds a durable close. `after`: the position behind it. */
  count(close: UsageRecord, after: Position): void;
  /** Writes a snapshot of what is counted, which is everything up to `position`. Rejects if it cannot be written. */
  save(position: Position): Promise<void>;
  readonly listener: SumsListener;
}

export class DurableSums {
  readonly #options: SumsOptions;
  /** Position up to which is counted. */
  #position: Position;
  /** The same for the snapshot on disk. */
  #kept: Position;
  /** Requests that were settled since the last snapshot began. */
  #settled = 0;
  #reading: Promise<void> | undefined;
  #writing: Promise<void> | undefined;
  #cancelTimer = (): void => undefined;
  #closed = false;

  /** Everything before `position` is counted. */
  constructor(options: SumsOptions, position: Position) {
    this.#options = options;
    this.#position = position;
    this.#kept = position;
  }

  /** The spool must keep its records from this position on: a start needs them. */
  get keepFrom(): Position {
    return this.#kept;
  }

  /** A request was settled, and its `close` is being written to the spool. */
  settled(): void {
    this.#settled += 1;
    if (!this.#closed && this.#settled >= this.#options.snapshotCloses) void this.snapshot();
  }

  /** Waits until the next snapshot is due by time. */
  begin(): void {
    this.#cancelTimer();
    this.#cancelTimer = this.#options.clock.after(this.#options.snapshotMs, () => void this.snapshot());
  }

  /** Counts the records that became durable since. Rejects if the spool cannot be read. */
  async readOn(): Promise<void> {
    const until = this.#options.spool.position;
    let isOwn: boolean;
    do {
      isOwn = this.#reading === undefined;
      this.#reading ??= this.#read().finally(() => {
        this.#reading = undefined;
      });
      await this.#reading;
      // Another one may have begun before the last records were durable.
    } while (!isOwn && comparePositions(this.#position, until) < 0);
  }

  /** Writes a snapshot now. Rejects if it cannot be written. */
  async save(): Promise<void> {
    const position = this.#position;
    await this.#options.save(position);
    this.#kept = position;
    this.#options.listener.saved?.();
  }

  /** Writes the last snapshot, up to the last durable record. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelTimer();
    await this.#writing;
    await this.snapshot();
  }

  /** Reads on, and writes a snapshot if there was more. Never rejects. One at a time; later requests are counted by the next. */
  snapshot(): Promise<void> {
    this.#writing ??= this.#write().finally(() => {
      this.#writing = undefined;
      if (!this.#closed) this.begin();
    });
    return this.#writing;
  }

  async #write(): Promise<void> {
    this.#cancelTimer();
    this.#settled = 0;
    try {
      await this.readOn();
      if (comparePositions(this.#position, this.#kept) !== 0) await this.save();
    } catch (fault) {
      this.#options.listener.unwritten(fault);
    }
  }

  /** A record and its position are counted together, so a failure in between loses none. */
  async #read(): Promise<void> {
    const { spool, listener } = this.#options;
    for await (const read of spool.read(this.#position, spool.position)) {
      if (read.kind === 'damage') {
        this.#position = { segment: read.segment, offset: read.offset + read.bytes };
        listener.damaged(read.bytes);
        continue;
      }
      this.#position = read.after;
      if (read.record.kind === 'close') this.#options.count(read.record, read.after);
    }
  }
}

/** The text before the checksum. No text inside the file can contain it, since quotes in texts are escaped. */
const CHECKSUM = ',"checksum":"';

/** SHA-256, hex. */
export function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Reads what {@link writeSealed} wrote. `damaged`: it cannot be read, does not pass `check`, or its checksum is wrong. */
export async function readSealed<T extends { readonly checksum: string }>(
  file: string,
  check: Check<T>,
): Promise<T | 'missing' | 'damaged'> {
  try {
    const text = await readFile(file, 'utf8');
    const checked = check(JSON.parse(text));
    const isWhole = checked.ok && checked.value.checksum === sha256(text.slice(0, text.lastIndexOf(CHECKSUM)));
    return isWhole ? checked.value : 'damaged';
  } catch (error) {
    return isMissing(error) ? 'missing' : 'damaged';
  }
}

/**
 * Writes the texts, which are together a JSON object without its closing brace, and a field `checksum` with the SHA-256 of what is
 * before it, since a changed digit would change a sum. Each text is made and written in a turn of the event loop of its own. Rejects if
 * the file cannot be written; the old file is then unchanged. Resolves once it is durable.
 */
export async function writeSealed(file: string, texts: Iterable<string>): Promise<void> {
  const write = async (draft: FileHandle): Promise<void> => {
    const hash = createHash('sha256');
    for (const text of texts) {
      hash.update(text);
      await draft.appendFile(text);
    }
    await draft.appendFile(`${CHECKSUM}${hash.digest('hex')}"}\n`);
  };
  // Only the holder of the spool's lock writes it.
  await replaceFile(file, write, { soleWriter: true });
}
