/**
 * The records of batches, as callers see them. What a caller wrote in one, its metadata, is sealed.
 *
 *     validating ──> in_progress ──> finalizing ──> completed, or expired
 *         │               └──> cancelling ──> cancelled
 *         └──> failed: a line is not valid; or its content was lost with the memory of an earlier process
 */
import { randomBytes } from 'node:crypto';
import type { Caller } from '../access/identity.js';
import { tokenLimitsOf } from '../access/limits.js';
import type { BatchEndpoint, BatchStatus } from '../contracts/batch-schemas.js';
import type { BatchRequest } from '../contracts/batches.js';
import { CLASS_WEIGHTS } from '../domain/service-class.js';
import { comparePositions, type Position } from '../usage/spool-format.js';
import type { BatchSums } from './answers.js';
import type { FileStore, NoRoom } from './file-store.js';
import { Records, type StoredRecord, type Vault } from './records.js';

export const BATCH_LINES = 100_000;

/** Batches of one account that have not ended, and all of them; a new one takes the place of the oldest that has ended. */
export const ACCOUNT_OPEN = 10;
const ACCOUNT_BATCHES = 1000;

/** The files of each batch. */
const ANSWER_FILES = ['output', 'error'] as const;

/** The time of a batch until it expires, and for which its record is kept once it has ended, s. */
const WINDOW_S = 86_400;
const KEPT_S = 2_592_000;

/** What is wrong with a batch or one of its lines. Without content of a caller. */
export interface BatchProblem {
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
  readonly line: number | null;
}

/** Unix times at which a batch got these statuses, s. */
export type BatchTimes = Readonly<Partial<Record<Exclude<BatchStatus, 'validating'>, number>>>;

export interface BatchRecord extends StoredRecord {
  readonly caller: ReturnType<typeof storedCaller>;
  readonly endpoint: BatchEndpoint;
  readonly status: BatchStatus;
  readonly inputFile: string;
  readonly outputFile: string;
  readonly errorFile: string;
  /** Unix time, s. */
  readonly createdAt: number;
  readonly expiresAt: number;
  /** Of its answers' files, once it has ended, s. */
  readonly outputLifeS: number;
  readonly times: BatchTimes;
  /** 0 until the lines are counted. */
  readonly lines: number;
  readonly problems: readonly BatchProblem[];
  /** From where the spool is needed (answers.ts). */
  readonly position: Position;
  /** Answers that are marked, at least (answers.ts). */
  readonly kept?: number;
  /** As they were when answers were last marked. Picodollars as text. */
  readonly sums?: Omit<BatchSums, 'picodollars'> & { readonly picodollars: string };
  /** All answers are marked: what it ends as, and the bytes of its files. From now on callers may see these, and delete them. */
  readonly ending?: {
    readonly change: Pick<BatchRecord, 'status'> & Partial<Pick<BatchRecord, 'problems'>>;
    readonly bytes: { readonly completed: number; readonly failed: number };
  };
  /** Of a batch that has ended: which of its files there are. */
  readonly files?: { readonly output: boolean; readonly error: boolean };
}

/** A change of a record; `problems`, `lines` and the like as they then are. */
export type BatchChange = Partial<Omit<BatchRecord, 'id' | 'account' | 'sealed' | 'caller'>>;

const ENDED: ReadonlySet<BatchStatus> = new Set(['failed', 'completed', 'expired', 'cancelled']);

export function hasEnded({ status }: Pick<BatchRecord, 'status'>): boolean {
  return ENDED.has(status);
}

export interface BatchStoreOptions {
  readonly date: () => Date;
  readonly vault: Vault;
  readonly dir: string;
  readonly files: FileStore;
  readonly onFault: (fault: unknown) => void;
}

export class BatchStore {
  readonly #options: BatchStoreOptions;
  readonly #records: Records<BatchRecord>;
  /** Changes are made one after another, so that none is lost. */
  #lastChange: Promise<unknown> = Promise.resolve();

  private constructor(options: BatchStoreOptions, records: Records<BatchRecord>) {
    this.#options = options;
    this.#records = records;
  }

  /** Reads the records, and removes answers' files of no batch. Batches fail whose content was in an earlier process's memory. */
  static async open(options: BatchStoreOptions): Promise<BatchStore> {
    const store = new BatchStore(options, await Records.open<BatchRecord>(options.dir));
    for (const record of store.unfinished()) {
      if (options.files.has(record.inputFile)) options.files.hold(record.inputFile);
      else await store.change(record.id, () => ({ status: 'failed', problems: [CONTENT_LOST] }));
    }
    await options.files.removeOpen(
      new Set(store.unfinished().flatMap((record) => [record.outputFile, record.errorFile])),
    );
    return store;
  }

  /** Undefined if this account has no such batch. */
  find(account: string, id: string): BatchRecord | undefined {
    const record = this.#records.get(id);
    return record?.account === account ? record : undefined;
  }

  get(id: string): BatchRecord | undefined {
    return this.#records.get(id);
  }

  /** The newest first. `account`: absent: of all. */
  list(account?: string): BatchRecord[] {
    const own = [...this.#records.all()].filter((record) => account === undefined || record.account === account);
    return own.sort((a, b) => b.createdAt - a.createdAt || (a.id < b.id ? 1 : -1));
  }

  unfinished(): BatchRecord[] {
    return [...this.#records.all()].filter((record) => !hasEnded(record));
  }

  metadataOf({ sealed, id }: BatchRecord): Readonly<Record<string, string>> | null {
    const text = this.#options.vault.unseal(sealed, id);
    return text === undefined ? null : (JSON.parse(text) as Readonly<Record<string, string>> | null);
  }

  /** The spool's records are needed from here; undefined if none is. */
  get keepFrom(): Position | undefined {
    // A batch whose lines are checked has no answers.
    const answered = this.unfinished().filter(({ status }) => status !== 'validating');
    return answered.map(({ position }) => position).sort(comparePositions)[0];
  }

  /** Or why it is not created; `batches`: too many of the account have not ended. Rejects with the system's error. */
  async create(caller: Caller, request: BatchRequest, position: Position): Promise<BatchRecord | NoRoom | 'batches'> {
    const { files } = this.#options;
    files.hold(request.inputFile);
    let created: BatchRecord | string = '';
    try {
      return (created = await this.#inTurn(() => this.#create(caller, request, position)));
    } finally {
      if (typeof created === 'string') files.release(request.inputFile);
    }
  }

  async #create(caller: Caller, request: BatchRequest, position: Position): ReturnType<BatchStore['create']> {
    const { account } = caller;
    const { files, vault } = this.#options;
    const own = this.list(account);
    if (own.filter((record) => !hasEnded(record)).length >= ACCOUNT_OPEN) return 'batches';
    const lack = files.roomFor(account, 0, ANSWER_FILES.length);
    if (lack !== undefined) return lack;
    for (const record of own.filter(hasEnded).slice(ACCOUNT_BATCHES - ACCOUNT_OPEN))
      await this.#records.remove(record.id);
    const id = `batch_${randomBytes(16).toString('hex')}`;
    const [createdAt, never] = [this.#now, Number.MAX_SAFE_INTEGER];
    const made: string[] = [];
    try {
      for (const kind of ANSWER_FILES) made.push((await files.createOpen(account, `${id}_${kind}.jsonl`, never)).id);
      const [outputFile = '', errorFile = ''] = made;
      const record: BatchRecord = {
        id,
        account,
        caller: storedCaller(caller),
        endpoint: request.endpoint,
        status: 'validating',
        inputFile: request.inputFile,
        outputFile,
        errorFile,
        createdAt,
        expiresAt: createdAt + WINDOW_S,
        outputLifeS: request.outputLifeS ?? KEPT_S,
        times: {},
        lines: 0,
        problems: [],
        position,
        sealed: vault.seal(JSON.stringify(request.metadata), id),
      };
      await this.#records.put(record);
      return record;
    } catch (error) {
      for (const file of made) await files.remove(file);
      throw error;
    }
  }

  /** Creations and changes are made one after another. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#lastChange.then(work);
    this.#lastChange = done.catch(() => undefined);
    return done;
  }

  /** Changes a record by what `make` says of it; a new status gets its time. Returns the changed one. Rejects with the system's error. */
  change(id: string, make: (record: BatchRecord) => BatchChange): Promise<BatchRecord> {
    return this.#inTurn(() => this.#change(id, make));
  }

  async #change(id: string, make: (record: BatchRecord) => BatchChange): Promise<BatchRecord> {
    const before = this.#records.get(id);
    if (before === undefined) throw new Error('a batch is missing');
    const change = make(before);
    const { status } = change;
    const times =
      status === undefined || status === before.status ? before.times : { ...before.times, [status]: this.#now };
    const record = Object.assign({}, before, { times }, change);
    await this.#records.put(record);
    return record;
  }

  /** Forgets a batch that has ended, with its answers. */
  async drop(record: BatchRecord): Promise<void> {
    const { files } = this.#options;
    for (const file of [record.outputFile, record.errorFile]) if (files.has(file)) await files.remove(file);
    await this.#records.remove(record.id);
  }

  get #now(): number {
    return Math.floor(this.#options.date().getTime() / 1000);
  }

  /** Removes records that are too old. Never rejects. */
  async sweep(): Promise<void> {
    const isOld = (record: BatchRecord): boolean => record.createdAt + WINDOW_S + KEPT_S < this.#now;
    for (const record of [...this.#records.all()])
      if (hasEnded(record) && isOld(record)) await this.#records.remove(record.id).catch(this.#options.onFault);
  }
}

const CONTENT_LOST: BatchProblem = {
  code: 'content_lost',
  message:
    'The server was restarted and keeps files in memory alone (batch.store). Store the file again and begin a new batch.',
  param: null,
  line: null,
};

/** Of a batch whose content is damaged or missing. */
export const UNREADABLE: BatchProblem = {
  code: 'content_lost',
  message: 'What was stored of the batch cannot be read any more. Store the file again and begin a new batch.',
  param: null,
  line: null,
};

/** The caller of a batch, from which its lines are authorized. Nothing of its key is kept. */
function storedCaller(caller: Caller) {
  const { keyId, environment, models, routes, cohort, accountTokens, vouched } = caller;
  return {
    ...tokenLimitsOf(caller),
    keyId,
    environment,
    models: models === 'all' ? models : [...models],
    ...(routes && { routes: [...routes] }),
    ...(cohort !== undefined && { cohort }),
    ...(accountTokens && { accountTokens }),
    ...(vouched && { vouched }),
  };
}

/** As its key was when the batch was created; of class `batch`. */
export function callerOf({ account, caller }: BatchRecord): Caller {
  const { models, routes, ...others } = caller;
  return {
    kind: 'caller',
    account,
    weight: CLASS_WEIGHTS.batch,
    ...others,
    models: models === 'all' ? models : new Set(models),
    ...(routes && { routes: new Set(routes) }),
  };
}
