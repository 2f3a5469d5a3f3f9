/**
 * Runs a batch: checks its lines, and sends each through the machine of its route as a request of class `batch` (batch-item.ts), on lent
 * seats where the model lends any.
 *
 *     all lines are checked ──> a line at a time: a slot ──> run ──> kept, or tried again
 *         └─ failed                                           │
 *     window over, or cancelled: lines that run are stopped <─┘──> finalizing ──> completed, expired, cancelled
 *
 * A line is tried again when it was refused for lack of room, when the account's credit or quota is used up (the batch pauses), when its
 * answer could not be stored, and at most FAULT_TRIES times after a fault of the service. What else ends it is its answer, in the file of
 * errors.
 *
 * Bounds: of each model as many lines as batch-slots.ts allows; one more line waits for a slot, at most `LINE_BYTES` long.
 */
import type { Caller } from '../access/identity.js';
import { Answers, type AnswersOptions, type BatchSums, type RecordedUsage } from '../batch/answers.js';
import {
  ACCOUNT_LINES,
  BATCH_LINES,
  callerOf,
  type BatchChange,
  type BatchProblem,
  type BatchRecord,
  type BatchStore,
} from '../batch/batch-store.js';
import type { FileStore } from '../batch/file-store.js';
import { linesOf, type FileLine } from '../batch/lines.js';
import type { BatchEndpoint } from '../contracts/batch-schemas.js';
import { parseBatchLine, type BatchLine } from '../contracts/batches.js';
import type { ContractError, ErrorCode } from '../domain/errors.js';
import { NO_TOKENS } from '../domain/money.js';
import { CLASS_WEIGHTS } from '../domain/service-class.js';
import { AbortHandle } from '../lib/abort.js';
import type { Clock } from '../lib/clock.js';
import { LineCheck, NO_ROOM, pause } from './batch-check.js';
import { answerLine, errorLine, ItemExchange, unsentLine, type BatchAttempt } from './batch-item.js';
import type { BatchSlots } from './batch-slots.js';
import { CHAT } from './chat.js';
import { DECISIONS } from './decisions.js';
import { EMBEDDINGS } from './embeddings.js';
import * as refusals from './refusals.js';
import { RESPONSES } from './responses.js';
import type { WorkRoute } from './route.js';
import { run } from './run.js';
import type { Services } from './services.js';

/** How often a line is tried that the service fails at. */
const FAULT_TRIES = 3;

/** The pause of a batch whose account has no credit, or whose answers cannot be stored, ms. */
const CREDIT_PAUSE_MS = 10_000;
const STORE_PAUSE_MS = 5000;

/** The same while a quota has too few tokens for a line, ms. */
const QUOTA_PAUSE_MS = 5000;

/** Problems of one batch that are reported. */
const MOST_PROBLEMS = 100;

/** Lines are checked for this long, ms, before other work of the process has its turn. */
const CHECK_MS = 5;

/** Answers are marked at least so often, ms. */
const MARK_MS = 5000;

const ROUTES: Readonly<Record<BatchEndpoint, WorkRoute>> = {
  '/v1/chat/completions': CHAT,
  '/v1/responses': RESPONSES,
  '/v1/decisions': DECISIONS,
  '/v1/embeddings': EMBEDDINGS,
};

/** Failures of the service at a line. */
const FAULTS: ReadonlySet<ErrorCode> = new Set(['bad_gateway', 'upstream_contract_violation', 'internal', 'timeout']);

export interface BatchRunOptions {
  readonly clock: Clock;
  readonly store: BatchStore;
  readonly files: FileStore;
  readonly spool: RecordedUsage;
  readonly services: () => Services;
  /** Counts a line as a running request. */
  readonly counted: (work: () => Promise<void>) => Promise<void>;
  /** A batch could not go on; it is tried again. */
  readonly onFault: (fault: unknown) => void;
}

type StopReason = 'cancelled' | 'expired' | 'closing';

/** One batch, from its turn to its end. */
export class RunningBatch {
  readonly account: string;
  /** Settles once it has ended or stopped. Never rejects. */
  readonly over: Promise<void>;
  readonly #options: BatchRunOptions;
  readonly #slots: BatchSlots;
  readonly #stopped = new AbortHandle();
  #caller: Caller;
  /** Why its key may call no more. */
  #denied: BatchProblem | undefined;
  readonly #route: WorkRoute;
  #record: BatchRecord;
  #why: StopReason | undefined;
  #answers: Answers | undefined;
  #pausedUntil = 0;
  #pause: BatchProblem | undefined;
  #isDone = false;
  /** Lines that run. */
  readonly #items = new Set<Promise<void>>();
  #fault: unknown;

  constructor(record: BatchRecord, options: BatchRunOptions, slots: BatchSlots) {
    this.#record = record;
    this.account = record.account;
    this.#options = options;
    this.#slots = slots;
    this.#caller = callerOf(record);
    this.#route = ROUTES[record.endpoint];
    if (record.status === 'cancelling') this.stop('cancelled');
    this.over = this.#toEnd().catch((fault: unknown) => options.onFault(fault));
  }

  /** It has ended, and does not run again. */
  get isDone(): boolean {
    return this.#isDone;
  }

  get sums(): BatchSums | undefined {
    return this.#answers?.sums;
  }

  get pause(): BatchProblem | undefined {
    return this.#pause;
  }

  /** Lines that run are stopped, and no further one begins. Only the first reason counts, but for `closing`. */
  stop(why: StopReason): void {
    if (this.#why === undefined || why === 'closing') this.#why = why;
    this.#stopped.abort();
  }

  async #toEnd(): Promise<void> {
    const { clock } = this.#options;
    const cancelExpiry = clock.after(Math.max(0, this.#record.expiresAt * 1000 - this.#now()), () =>
      this.stop('expired'),
    );
    let marking: () => void = () => undefined;
    try {
      if (this.#record.status === 'validating' && !(await this.#check())) return;
      const answers = (this.#answers = await Answers.open(this.#answersOptions()));
      const mark = (): void => {
        marking = clock.after(MARK_MS, () => {
          // What cannot be marked now is marked later, or found out at the next start.
          void answers.mark().catch(() => undefined);
          mark();
        });
      };
      mark();
      if (this.#record.status !== 'finalizing') await this.#runLines(answers);
      await Promise.all(this.#items);
      if (this.#fault !== undefined) throw this.#fault as Error;
      if (this.#why === 'closing') await answers.mark();
      else await this.#finish(answers);
    } catch (fault) {
      this.stop('closing');
      await Promise.all(this.#items);
      throw fault;
    } finally {
      cancelExpiry();
      marking();
      await this.#answers?.close();
    }
  }

  #answersOptions(): AnswersOptions {
    const { outputFile: output, errorFile: error, position: from } = this.#record;
    const { files, spool } = this.#options;
    return { files, spool, output, error, from, save: (position) => this.#change({ position }) };
  }

  async #change(change: BatchChange): Promise<void> {
    this.#record = await this.#options.store.change(this.#record.id, () => change);
  }

  #now(): number {
    return this.#options.services().date().getTime();
  }

  /** Checks all lines. Returns false if the batch ends or stops now. */
  async #check(): Promise<boolean> {
    const problems: BatchProblem[] = [];
    const add = (problem: Omit<BatchProblem, 'param'> & { readonly param?: string | null }): void => {
      if (problems.length < MOST_PROBLEMS) problems.push({ param: null, ...problem });
    };
    const check = new LineCheck(
      this.#record.endpoint,
      this.#route,
      this.#caller,
      this.#options.services(),
      this.#stopped,
    );
    let lines = 0;
    let since = performance.now();
    for await (const line of this.#input()) {
      if (this.#stopped.aborted || problems.length >= MOST_PROBLEMS) break;
      lines += 1;
      if (lines > BATCH_LINES) {
        add({ code: 'too_many_tasks', message: `A batch has at most ${BATCH_LINES} lines.`, line: line.number });
        break;
      }
      const problem = await check.problemOf(line);
      if (problem) add(Object.assign({ line: line.number }, problem));
      if (performance.now() - since > CHECK_MS) {
        await new Promise((resolve) => setImmediate(resolve));
        since = performance.now();
      }
    }
    if (this.#why === 'closing') return false;
    if (lines === 0) add({ code: 'empty_file', message: 'The input file has no lines.', line: null });
    const { id, account } = this.#record;
    if (lines + this.#options.store.linesOf(account, id) > ACCOUNT_LINES) {
      const message = `The account’s batches that have not ended have at most ${ACCOUNT_LINES} lines. Wait for one of them to end.`;
      add({ code: 'too_many_tasks', message, line: null });
    }
    if (this.#why !== undefined) {
      await this.#change({ lines: this.#why === 'expired' ? lines : 0 });
      return true;
    }
    if (problems.length === 0) {
      await this.#change({ status: 'in_progress', lines });
      return true;
    }
    await this.#ended({ status: 'failed', problems });
    return false;
  }

  async *#input(): AsyncGenerator<FileLine> {
    const { files } = this.#options;
    const record = files.find(this.#record.account, this.#record.inputFile) ?? files.held(this.#record.inputFile);
    const reader = record && (await files.read(record));
    if (!record || !reader) throw new Error('the input file of a batch is missing');
    try {
      yield* linesOf(reader.contents(record.bytes));
    } finally {
      await reader.close();
    }
  }

  async #runLines(answers: Answers): Promise<void> {
    if (this.#stopped.aborted) return;
    for await (const line of this.#input()) {
      if (answers.has(line.number) || line.bytes === undefined) continue;
      const parsed = parseBatchLine(line.bytes);
      if (parsed.kind === 'invalid') continue;
      const isGiven =
        (await this.#unpaused()) &&
        (await this.#slots.acquire(parsed.request.model, this.account, false, this.#stopped));
      if (!isGiven) return;
      const item: Promise<void> = this.#runItem(answers, line.number, parsed.request)
        .catch((fault: unknown) => {
          this.#fault = fault;
          this.stop('closing');
        })
        .finally(() => this.#items.delete(item));
      this.#items.add(item);
    }
  }

  /** Runs a line until it has an answer, or the batch stops. It has a slot. */
  async #runItem(answers: Answers, line: number, request: BatchLine): Promise<void> {
    let faults = 0;
    for (;;) {
      const end = await this.#attempt(answers, line, request);
      const isRefused = typeof end === 'object' && end.code === 'capacity_exceeded';
      this.#slots.release(request.model, this.account, end === 'answered' ? end : isRefused ? 'refused' : 'other');
      if (end === 'answered' || this.#stopped.aborted) return;
      if (typeof end === 'object' && FAULTS.has(end.code)) faults += 1;
      if (typeof end === 'object' && !mayTryAgain(end.code, faults)) {
        const { requestId, error } = end;
        await this.#keepError(answers, line, errorLine(request.customId, requestId, error));
        return;
      }
      if (typeof end === 'object') this.#pauseFor(end.error);
      else if (end === 'unstored') this.#pauseUntil(STORE_PAUSE_MS);
      const isGiven =
        (await this.#unpaused()) && (await this.#slots.acquire(request.model, this.account, true, this.#stopped));
      if (!isGiven) return;
    }
  }

  async #attempt(
    answers: Answers,
    line: number,
    { customId, body }: BatchLine,
  ): Promise<
    | 'answered'
    | 'unstored'
    | 'stopped'
    | { readonly code: ErrorCode; readonly requestId: string; readonly error: ContractError }
  > {
    const services = this.#options.services();
    if (!this.#mayCall(services)) return 'stopped';
    const exchange = new ItemExchange(this.#record.endpoint, body, this.#stopped, services.clock.now());
    const { requestId } = exchange.head;
    let kept: BatchAttempt | undefined;
    const keep = async (attempt: BatchAttempt): Promise<boolean> => {
      const content = answerLine(customId, attempt.id, requestId, exchange.answer ?? 'null');
      const { used, picodollars } = attempt;
      try {
        if (!(await this.#options.files.hasSpace())) throw new Error('the disk is nearly full');
        await answers.keep('completed', { line, content, attempt: attempt.id, used, picodollars });
        kept = attempt;
        return true;
      } catch (fault) {
        services.log.error('answer of a batch cannot be stored', { fault });
        exchange.isUnstored = true;
        return false;
      }
    };
    const { error } = await this.#options
      .counted(() => run(this.#route, exchange, services, { caller: this.#caller, keep }))
      .then(() => exchange)
      .catch((fault: unknown) => {
        services.log.error('line of a batch failed', { fault });
        return { error: refusals.internal() };
      });
    if (kept) {
      this.#pause = undefined;
      await answers.settled({ line, attempt: kept.id });
      return 'answered';
    }
    if (exchange.isUnstored) return 'unstored';
    return error === undefined ? 'stopped' : { code: error.code, requestId, error };
  }

  /**
   * Whether its key may still call; if not, the batch is stopped as if it was cancelled. What the key may do now holds for all further
   * lines. An expired key's batch goes on: the batch has a window of its own.
   */
  #mayCall({ identity }: Services): boolean {
    const now = this.#caller.vouched ? undefined : identity.ofKey?.(this.#caller.keyId, this.account);
    if (now?.kind === 'caller' && now.account === this.account)
      this.#caller = Object.assign({}, now, { weight: CLASS_WEIGHTS.batch });
    if (now?.kind !== 'denied' || now.code === 'expired_api_key') return true;
    const { code, message } = refusals.denied(now);
    this.#denied = { code, message, param: null, line: null };
    this.stop('cancelled');
    return false;
  }

  async #keepError(answers: Answers, line: number, content: Uint8Array): Promise<void> {
    for (;;) {
      try {
        await answers.keep('failed', { line, content, attempt: '', used: NO_TOKENS, picodollars: 0n });
        await answers.settled({ line, attempt: '' });
        return;
      } catch (fault) {
        this.#options.services().log.error('answer of a batch cannot be stored', { fault });
        if (this.#why === 'closing' || !(await this.#wait(STORE_PAUSE_MS, this.#why !== undefined))) return;
      }
    }
  }

  #pauseFor(error: ContractError): void {
    const { code, message } = error;
    if (code === 'insufficient_credit') {
      this.#pauseUntil(CREDIT_PAUSE_MS);
      this.#pause = { code, message, param: null, line: null };
    } else if (code !== 'capacity_exceeded' && (NO_ROOM.has(code) || code === 'quota_exceeded'))
      this.#pauseUntil(error.retryAfterMs ?? STORE_PAUSE_MS);
  }

  #pauseUntil(ms: number): void {
    this.#pausedUntil = Math.max(this.#pausedUntil, this.#options.clock.now() + ms);
  }

  /** Resolves with true once the batch may go on: with false if it stops. */
  async #unpaused(): Promise<boolean> {
    for (;;) {
      const quotaMs = this.#quotaWaitMs();
      const waitMs = Math.max(quotaMs, this.#pausedUntil - this.#options.clock.now());
      if (waitMs <= 0) return !this.#stopped.aborted;
      if (!(await this.#wait(waitMs))) return false;
    }
  }

  /** Until the quotas of its key and its account have tokens again, as far as it is known, ms; 0: they have some. */
  #quotaWaitMs(): number {
    if (this.#caller.vouched) return 0;
    const problem = this.#options.services().quotas.problem(this.#caller, 1);
    return problem === undefined ? 0 : (refusals.quotaExceeded(problem).retryAfterMs ?? QUOTA_PAUSE_MS);
  }

  /** Resolves with false if the batch stops meanwhile. `isStopped`: it has stopped in any case. */
  #wait(ms: number, isStopped = false): Promise<boolean> {
    return pause(this.#options.clock, ms, isStopped ? new AbortHandle() : this.#stopped);
  }

  /** All lines have ended, or the batch stops for good. */
  async #finish(answers: Answers): Promise<void> {
    const { files } = this.#options;
    // A start that finds it finalizing does nothing else.
    const isExpired = this.#why === 'expired' && this.#record.status !== 'finalizing';
    if (isExpired) await this.#expireLines(answers);
    if (this.#why === 'closing') return;
    const isCancelled = this.#why === 'cancelled';
    if (!isCancelled && !isExpired && this.#record.status !== 'finalizing')
      await this.#change({ status: 'finalizing' });
    const { bytes, sums } = answers;
    await answers.finish();
    const until = Math.floor(this.#now() / 1000) + this.#record.outputLifeS;
    const { outputFile, errorFile } = this.#record;
    await files.close(outputFile, bytes.completed, until);
    await files.close(errorFile, bytes.failed, until);
    const { completed, failed, used, picodollars } = sums;
    await this.#ended({
      status: isCancelled ? 'cancelled' : isExpired ? 'expired' : 'completed',
      sums: { completed, failed, used, picodollars: String(picodollars) },
      files: { output: bytes.completed > 0, error: bytes.failed > 0 },
      ...(this.#denied && { problems: [this.#denied] }),
    });
  }

  /** What did not run has an answer too: it is in the file of errors. */
  async #expireLines(answers: Answers): Promise<void> {
    for await (const line of this.#input()) {
      if (answers.has(line.number) || line.bytes === undefined) continue;
      const parsed = parseBatchLine(line.bytes);
      if (parsed.kind === 'ok') await this.#keepError(answers, line.number, unsentLine(parsed.request.customId));
      if (this.#why === 'closing') return;
    }
  }

  async #ended(change: BatchChange): Promise<void> {
    const { files } = this.#options;
    await this.#change(change);
    this.#isDone = true;
    const { inputFile, outputFile, errorFile } = this.#record;
    files.release(inputFile);
    if (change.status !== 'failed') return;
    for (const id of [outputFile, errorFile]) await files.remove(id);
  }
}

function mayTryAgain(code: ErrorCode, faults: number): boolean {
  if (NO_ROOM.has(code) || code === 'insufficient_credit' || code === 'quota_exceeded') return true;
  return FAULTS.has(code) && faults < FAULT_TRIES;
}
