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
 *
 * If answers are damaged or missing, their lines are not known, so none may run any more. That is made durable (`lose`) before the files
 * are repaired, after which nothing would show it.
 */
import { addTokens, NO_TOKENS, type TokenCounts } from '../domain/money.js';
import type { UsageRecord } from '../domain/usage-record.js';
import type { Position } from '../usage/spool-format.js';
import type { FileStore } from './file-store.js';
import { DamagedPieces, type PieceFile, type PieceHead } from './pieces.js';

/** Answers that are marked at a time. */
const MARKED_AT_ONCE = 256;

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

/** An answer that was not marked when its file was opened. */
interface Written extends PieceHead {
  readonly isDamaged: boolean;
  /** It, or something before it in its file, is damaged. */
  readonly afterDamage: boolean;
}

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
  /** Makes `position` durable: from now on the spool is needed from there. `kept`: answers that are marked, at least. */
  readonly save: (position: Position, kept: number, sums: BatchSums) => Promise<void>;
  /** Answers that were marked, as `save` had it last. */
  readonly kept: number;
  /** Makes durable that answers are lost. */
  readonly lose: () => Promise<void>;
}

export class Answers {
  readonly #options: AnswersOptions;
  readonly #files: Partial<Record<Kind, PieceFile>> = {};
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
  /** Answers that are marked. */
  #kept = 0;
  #isLost = false;

  private constructor(options: AnswersOptions) {
    this.#options = options;
    this.#saved = options.from;
  }

  /** Opens both files, and finds out which of their answers count. Rejects with the system's error. */
  static async open(options: AnswersOptions): Promise<Answers> {
    const answers = new Answers(options);
    try {
      await answers.#load();
      return answers;
    } catch (fault) {
      await answers.close();
      throw fault;
    }
  }

  async #load(): Promise<void> {
    const { spool, output, error, from, kept, save, lose } = this.#options;
    const written = { completed: await this.#reopen('completed', output), failed: await this.#reopen('failed', error) };
    const all = [...written.completed, ...written.failed];
    const billed = await billedOf(new Set(all.map(({ attempt }) => attempt)), spool, from);
    this.#saved = spool.position;
    const isLost = ({ attempt, afterDamage }: Written): boolean => afterDamage && billed.has(attempt);
    if (this.#isLost || this.#kept < kept || all.some(isLost)) await lose();
    for (const kind of ['completed', 'failed'] as const) {
      const marks: Record<'kept' | 'void', PieceHead[]> = { kept: [], void: [] };
      for (const head of written[kind]) {
        if (head.isDamaged) continue;
        const counts = kind === 'failed' || billed.has(head.attempt);
        if (counts) this.#count(kind, head);
        marks[counts ? 'kept' : 'void'].push(head);
      }
      await this.#files[kind]?.repair();
      for (const state of ['kept', 'void'] as const) await this.#files[kind]?.mark(marks[state], state);
      this.#kept += marks.kept.length;
    }
    await save(this.#saved, this.#kept, this.sums);
  }

  /**
   * Opens a file and counts the answers that are marked. Returns the others. A crash damages only what was not durable, so where something
   * is damaged that was marked or billed, or that comes before such an answer, it is lost.
   */
  async #reopen(kind: Kind, id: string): Promise<Written[]> {
    const { files } = this.#options;
    const written: Written[] = [];
    let afterDamage = false;
    try {
      if (!files.has(id)) return written;
      this.#files[kind] = await files.continue(id, (head, isDamaged) => {
        afterDamage ||= isDamaged;
        if (afterDamage && head?.state === 'kept') this.#isLost = true;
        if (head?.state === 'written') written.push({ ...head, isDamaged, afterDamage });
        else if (head?.state === 'kept' && !isDamaged) {
          this.#count(kind, head);
          this.#kept += 1;
        }
      });
    } catch (fault) {
      if (!(fault instanceof DamagedPieces)) throw fault;
      this.#isLost = true;
    }
    return written;
  }

  has(line: number): boolean {
    return this.#answered.has(line);
  }

  get sums(): BatchSums {
    return { ...this.#counts, used: this.#used, picodollars: this.#picodollars };
  }

  /** Bytes of the files' content. */
  get bytes(): Readonly<Record<Kind, number>> {
    return { completed: this.#files.completed?.contentBytes ?? 0, failed: this.#files.failed?.contentBytes ?? 0 };
  }

  /** Makes an answer durable, before its usage is closed. Rejects with the system's error if it cannot be. Overwrites its content. */
  async keep(kind: Kind, answer: Answer): Promise<void> {
    const { line, content, attempt, used, picodollars } = answer;
    const file = this.#files[kind];
    if (file === undefined) throw new Error('a file of answers is missing');
    const { files, output, error, spool } = this.#options;
    const { position } = spool;
    const facts = { line, attempt, used, picodollars };
    const appended = file.append([{ content, state: 'written', facts }]);
    const [offset = 0] = await appended.finally(() => content.fill(0));
    files.appended(kind === 'failed' ? error : output, content.length);
    this.#unsettled.set(nameOf(answer), { file, offset, length: content.length, position });
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
    for (const file of Object.values(this.#files)) await file.finish();
  }

  /** Closes the files. Idempotent. */
  async close(): Promise<void> {
    for (const file of Object.values(this.#files)) await file.close();
  }

  async #mark(): Promise<void> {
    const marked = this.#settled;
    const [oldest] = this.#unsettled.values();
    const position = oldest?.position ?? this.#options.spool.position;
    if (marked.length === 0 && position.segment === this.#saved.segment) return;
    this.#settled = [];
    try {
      for (const file of Object.values(this.#files)) {
        const own = marked.filter((each) => each.file === file);
        await file.mark(own, 'kept');
      }
      const kept = this.#kept + marked.length;
      await this.#options.save(position, kept, this.sums);
      [this.#saved, this.#kept] = [position, kept];
    } catch (error) {
      this.#settled.unshift(...marked);
      throw error;
    }
  }

  #count(kind: Kind, { line, used, picodollars }: Omit<Answer, 'content'>): void {
    this.#answered.add(line);
    this.#counts[kind] += 1;
    this.#picodollars += picodollars;
    this.#used = addTokens(this.#used, used);
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
