/**
 * The answers of one batch: a file of results and a file of errors, a piece a line (pieces.ts). Each answer is delivered once and billed
 * once, whenever this process ends:
 *
 *     keep: the answer is durable ──> the closing usage record is durable ──settled──> marked `kept`, with others
 *
 * After a crash an answer that is not marked is looked up in the spool by the id of its usage record: with a record of a finished request
 * it was billed, and is kept; without one it is void, the record that recovery makes costs nothing, and its line runs again. So lines that
 * ran at a crash **run** twice, and none is delivered or billed twice. `position` is from where the spool has to be read for that; it keeps
 * its segments from being deleted.
 */
import { NO_TOKENS, type TokenCounts } from '../domain/money.js';
import type { UsageRecord } from '../domain/usage-record.js';
import type { Position } from '../usage/spool-format.js';
import type { FileStore } from './file-store.js';
import { DamagedPieces, type PieceFile, type PieceHead } from './pieces.js';

/** Answers that are marked at a time, and the pieces that one write has at most. */
const MARKED_AT_ONCE = 256;
const GROUP = 64;

/** Sums over the answers of a batch. */
export interface BatchSums {
  readonly completed: number;
  readonly failed: number;
  readonly used: TokenCounts;
  readonly picodollars: bigint;
}

export interface Answer {
  readonly line: number;
  /** One line of the file, with its line break. */
  readonly content: Uint8Array;
  /** The id of its usage record; empty: it has none. */
  readonly attempt: string;
  readonly used: TokenCounts;
  readonly picodollars: bigint;
}

/** What is used of the spool. */
export interface RecordedUsage {
  readonly position: Position;
  read(from: Position, until: Position): AsyncIterable<{ readonly kind: string; readonly record?: UsageRecord }>;
}

type Kind = 'completed' | 'failed';

/** An answer that is not marked. */
interface Unmarked {
  readonly file: PieceFile;
  readonly offset: number;
  readonly length: number;
  /** Of the spool, before its usage was closed. */
  readonly position: Position;
}

export interface AnswersOptions {
  readonly files: FileStore;
  readonly spool: RecordedUsage;
  /** Ids of the files. A file that is not there had no answers. */
  readonly output: string;
  readonly error: string;
  readonly from: Position;
  /** Makes `position` durable: from now on the spool is needed from there. */
  readonly save: (position: Position) => Promise<void>;
}

export class Answers {
  /** Set if the content of a file is missing. Its lines are not known, so none may run; those of the other file are. */
  readonly lost: DamagedPieces | undefined;
  readonly #spool: RecordedUsage;
  readonly #options: AnswersOptions;
  readonly #files: Readonly<Record<Kind, GroupedFile | undefined>>;
  readonly #answered = new Set<number>();
  readonly #counts: Record<Kind, number> = { completed: 0, failed: 0 };
  #used = NO_TOKENS;
  #picodollars = 0n;
  /** By attempt, or by line where there is none; the oldest first. */
  readonly #unsettled = new Map<string, Unmarked>();
  #settled: Unmarked[] = [];
  #marking: Promise<void> | undefined;
  /** The position that was made durable last. */
  #saved: Position;

  private constructor(
    options: AnswersOptions,
    saved: Position,
    files: Readonly<Record<Kind, PieceFile | undefined>>,
    lost: DamagedPieces | undefined,
  ) {
    this.lost = lost;
    this.#spool = options.spool;
    this.#options = options;
    this.#saved = saved;
    const grouped = (file: PieceFile | undefined): GroupedFile | undefined => file && new GroupedFile(file);
    this.#files = { completed: grouped(files.completed), failed: grouped(files.failed) };
  }

  /** Opens both files, and finds out which of their answers count. Rejects with the system's error. */
  static async open(options: AnswersOptions): Promise<Answers> {
    const { files, spool, output, error, from } = options;
    const kept: [Kind, PieceHead][] = [];
    const written: [Kind, PieceHead][] = [];
    let lost: DamagedPieces | undefined;
    const reopened = async (kind: Kind, id: string): Promise<PieceFile | undefined> => {
      const found = (head: PieceHead): void => {
        if (head.state !== 'void') (head.state === 'kept' ? kept : written).push([kind, head]);
      };
      try {
        return files.has(id) ? await files.continue(id, found) : undefined;
      } catch (fault) {
        if (!(fault instanceof DamagedPieces)) throw fault;
        lost = fault;
        return undefined;
      }
    };
    const opened = { completed: await reopened('completed', output), failed: await reopened('failed', error) };
    const billed = await billedOf(new Set(written.map(([, { attempt }]) => attempt)), spool, from);
    const marks: Record<Kind, Record<'kept' | 'void', PieceHead[]>> = {
      completed: { kept: [], void: [] },
      failed: { kept: [], void: [] },
    };
    for (const [kind, head] of written) {
      const counts = (kind === 'failed' || billed.has(head.attempt)) && (await opened[kind]?.isIntact(head)) === true;
      marks[kind][counts ? 'kept' : 'void'].push(head);
      if (counts) kept.push([kind, head]);
    }
    const until = spool.position;
    for (const kind of ['completed', 'failed'] as const)
      for (const state of ['kept', 'void'] as const) await opened[kind]?.mark(marks[kind][state], state);
    await options.save(until);
    const answers = new Answers(options, until, opened, lost);
    for (const [kind, head] of kept) answers.#count(kind, head);
    return answers;
  }

  has(line: number): boolean {
    return this.#answered.has(line);
  }

  get sums(): BatchSums {
    return { ...this.#counts, used: this.#used, picodollars: this.#picodollars };
  }

  /** Bytes of the files' content. */
  get bytes(): Readonly<Record<Kind, number>> {
    return { completed: this.#files.completed?.bytes ?? 0, failed: this.#files.failed?.bytes ?? 0 };
  }

  /** Makes an answer durable, before its usage is closed, and overwrites its content. Rejects with the system's error if it cannot be. */
  async keep(kind: Kind, answer: Answer): Promise<void> {
    const { line, content, attempt, used, picodollars } = answer;
    const file = this.#files[kind];
    if (file === undefined) throw new Error('a file of answers is missing');
    const { position } = this.#spool;
    const facts = { line, attempt, used, picodollars };
    const { offset } = await file.append({ content, state: 'written', facts });
    content.fill(0);
    const { files, output, error } = this.#options;
    files.appended(kind === 'failed' ? error : output, content.length);
    this.#unsettled.set(nameOf(answer), { file: file.pieces, offset, length: content.length, position });
    this.#count(kind, facts);
  }

  /** The usage of an answer is durable. Never rejects; a failure to mark it is repaired at the next call. */
  async settled(answer: Pick<Answer, 'line' | 'attempt'>): Promise<void> {
    const name = nameOf(answer);
    const unmarked = this.#unsettled.get(name);
    if (unmarked === undefined) return;
    this.#unsettled.delete(name);
    this.#settled.push(unmarked);
    if (this.#settled.length >= MARKED_AT_ONCE) await this.mark().catch(() => undefined);
  }

  /**
   * Marks what is settled. Also where that is nothing, the spool is then needed only from its present segment, unless an answer waits for
   * its record. Rejects with the system's error.
   */
  mark(): Promise<void> {
    this.#marking ??= this.#mark().finally(() => (this.#marking = undefined));
    return this.#marking;
  }

  /** Nothing more is kept: marks all. */
  async finish(): Promise<void> {
    await this.#marking?.catch(() => undefined);
    await this.mark();
    for (const file of Object.values(this.#files)) await file?.pieces.finish();
  }

  /** Closes the files. Idempotent. */
  async close(): Promise<void> {
    for (const file of Object.values(this.#files)) await file?.pieces.close();
  }

  async #mark(): Promise<void> {
    const marked = this.#settled;
    const [oldest] = this.#unsettled.values();
    const position = oldest?.position ?? this.#spool.position;
    if (marked.length === 0 && position.segment === this.#saved.segment) return;
    this.#settled = [];
    try {
      for (const file of new Set(marked.map(({ file: each }) => each)))
        await file.mark(
          marked.filter((each) => each.file === file),
          'kept',
        );
      await this.#options.save(position);
      this.#saved = position;
    } catch (error) {
      this.#settled.unshift(...marked);
      throw error;
    }
  }

  #count(kind: Kind, { line, used, picodollars }: Omit<Answer, 'content'>): void {
    this.#answered.add(line);
    this.#counts[kind] += 1;
    this.#picodollars += picodollars;
    this.#used = {
      promptTokens: this.#used.promptTokens + used.promptTokens,
      cachedTokens: this.#used.cachedTokens + used.cachedTokens,
      completionTokens: this.#used.completionTokens + used.completionTokens,
    };
  }
}

function nameOf({ attempt, line }: Pick<Answer, 'line' | 'attempt'>): string {
  return attempt === '' ? String(line) : attempt;
}

/** Those of the usage records that closed a finished request. */
async function billedOf(attempts: ReadonlySet<string>, spool: RecordedUsage, from: Position): Promise<Set<string>> {
  const billed = new Set<string>();
  if (attempts.size === 0) return billed;
  for await (const { record } of spool.read(from, spool.position))
    if (record?.kind === 'close' && record.outcome === 'done' && attempts.has(record.id)) billed.add(record.id);
  return billed;
}

interface Waiting {
  readonly piece: Parameters<PieceFile['append']>[0][number];
  readonly resolve: (at: { readonly offset: number }) => void;
  readonly reject: (error: Error) => void;
}

/** Appends what comes at the same time in one write, with one sync. */
class GroupedFile {
  readonly pieces: PieceFile;
  #waiting: Waiting[] = [];
  #writing = false;

  constructor(pieces: PieceFile) {
    this.pieces = pieces;
  }

  get bytes(): number {
    return this.pieces.contentBytes;
  }

  append(piece: Waiting['piece']): Promise<{ readonly offset: number }> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ piece, resolve, reject });
      if (!this.#writing) void this.#write();
    });
  }

  async #write(): Promise<void> {
    this.#writing = true;
    while (this.#waiting.length > 0) {
      const group = this.#waiting.splice(0, GROUP);
      try {
        const offsets = await this.pieces.append(group.map(({ piece }) => piece));
        group.forEach(({ resolve }, i) => resolve({ offset: offsets[i] ?? 0 }));
      } catch (error) {
        for (const { reject } of group) reject(error as Error);
      }
    }
    this.#writing = false;
  }
}
