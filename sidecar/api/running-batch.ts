/**
 * Runs a batch: checks its lines, and sends each through the machine of its route as a request of class `batch` (batch-item.ts), on lent
 * seats where the model lends any.
 *
 *     all lines are checked ──> a line at a time: a turn, a slot ──> run ──> kept, or tried again
 *         └─ failed                                                   │
 *     window over, or cancelled: lines that run are stopped <─────────┘──> finalizing ──> completed, expired, cancelled
 *     others wait for its place: no further line begins <─────────────┘
 *
 * A line is tried again when it was refused for lack of room, when the account's credit or quota is used up or its answer cannot be stored
 * (the batch pauses), when the quota has too few tokens for this line, and at most FAULT_TRIES times after a fault of the service. What else
 * ends it is its answer, in the file of errors.
 *
 * Bounds: of each model as many lines as batch-slots.ts allows, each at most `LINE_BYTES` long; one more waits to begin, and some for a
 * quota.
 */
import { mayUse, type Caller } from '../access/identity.js';
import { Answers, type AnswersOptions, type BatchSums, type RecordedUsage } from '../batch/answers.js';
import {
  BATCH_LINES,
  callerOf,
  UNREADABLE,
  type BatchChange,
  type BatchProblem,
  type BatchRecord,
  type BatchStore,
} from '../batch/batch-store.js';
import type { FileStore } from '../batch/file-store.js';
import { DamagedPieces } from '../batch/pieces.js';
import type { BatchEndpoint } from '../contracts/batch-schemas.js';
import { parseBatchLine, type BatchLine } from '../contracts/batches.js';
import type { ContractError, ErrorCode } from '../domain/errors.js';
import { NO_TOKENS } from '../domain/money.js';
import { CLASS_WEIGHTS } from '../domain/service-class.js';
import { AbortHandle } from '../lib/abort.js';
import { every, type Clock } from '../lib/clock.js';
import type { Position } from '../usage/spool-format.js';
import { inputOf, LineCheck, NO_ROOM } from './batch-check.js';
import { answerLine, errorLine, ItemExchange, unsentLine, type BatchAttempt } from './batch-item.js';
import { BatchGate, pause, type BatchSlots, type Turn } from './batch-slots.js';
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

/** The wait of a line whose reply needs more tokens than could be reserved, ms. */
const CUT_PAUSE_MS = 5000;

/** Lines that get the answer `batch_expired` at a time, in one write. */
const EXPIRED_AT_ONCE = 64;

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
  /** Has what read lines of batches that have ended forget them. Returns false if it cannot be done now. */
  readonly forget: () => boolean;
  /** A batch could not go on; it is tried again. */
  readonly onFault: (fault: unknown) => void;
}

/** `leaving`: another batch needs its place. */
type StopReason = 'cancelled' | 'expired' | 'closing' | 'leaving';

type Ending = NonNullable<BatchRecord['ending']>;

/** How an attempt of a line ended. */
type AttemptEnd =
  /** `stopped`: by the batch, or without a trace. `waits`: the batch pauses. */
  | { readonly kind: 'answered' | 'stopped' | 'waits' }
  /** Its reply ended after `tokens`, since no more could be reserved. */
  | { readonly kind: 'cut'; readonly tokens: number }
  | { readonly kind: 'error'; readonly code: ErrorCode; readonly requestId: string; readonly error: ContractError };

/** One batch, from its turn to its end. */
export class RunningBatch {
  readonly account: string;
  /** Settles once it has ended or stopped: with whether it could not go on. Never rejects. */
  readonly over: Promise<boolean>;
  readonly #options: BatchRunOptions;
  readonly #slots: BatchSlots;
  /** Lines that run are stopped. */
  readonly #stopped = new AbortHandle();
  /** No further line begins. */
  readonly #leaving = new AbortHandle();
  readonly #gate: BatchGate;
  #caller: Caller;
  /** Why its key may call no more. */
  #denied: BatchProblem | undefined;
  readonly #route: WorkRoute;
  #record: BatchRecord;
  #why: StopReason | undefined;
  #answers: Answers | undefined;
  #isDone = false;
  /** Lines that run. */
  readonly #items = new Set<Promise<void>>();
  #fault: unknown;

  constructor(record: BatchRecord, options: BatchRunOptions, slots: BatchSlots) {
    this.#record = record;
    this.account = record.account;
    this.#options = options;
    this.#slots = slots;
    this.#gate = new BatchGate(options.clock);
    this.#caller = callerOf(record);
    this.#route = ROUTES[record.endpoint];
    if (record.status === 'cancelling') this.stop('cancelled');
    else if (record.expiresAt * 1000 <= this.#now()) this.stop('expired');
    this.over = this.#toEnd().then(
      () => false,
      (fault: unknown) => {
        options.onFault(fault);
        return true;
      },
    );
  }

  /** It has ended, and does not run again. */
  get isDone(): boolean {
    return this.#isDone;
  }

  get sums(): BatchSums | undefined {
    return this.#answers?.sums;
  }

  get pause(): BatchProblem | undefined {
    return this.#gate.problem;
  }

  /** Whether it would lose nothing but time if another one had its place. */
  get mayLeave(): boolean {
    return this.#record.status === 'in_progress' && this.#why === undefined;
  }

  /** No further line begins, and but for `leaving` those that run are stopped. Only the first reason counts, but for `closing` and `leaving`. */
  stop(why: StopReason): void {
    if (this.#why === undefined || this.#why === 'leaving' || why === 'closing') this.#why = why;
    this.#leaving.abort();
    if (why !== 'leaving') this.#stopped.abort();
  }

  async #toEnd(): Promise<void> {
    const { clock } = this.#options;
    const cancelExpiry = clock.after(Math.max(0, this.#record.expiresAt * 1000 - this.#now()), () =>
      this.stop('expired'),
    );
    let stopMarking = (): void => undefined;
    try {
      if (this.#record.ending) {
        await this.#close(this.#record.ending);
        return;
      }
      if (this.#record.status === 'validating' && !(await this.#check())) return;
      const answers = (this.#answers = await Answers.open(this.#answersOptions()));
      if (this.#record.problems.length > 0) throw new DamagedPieces('answers of a batch are damaged or missing');
      // What cannot be marked now is marked later, or found out at the next start.
      stopMarking = every(clock, MARK_MS, () => answers.mark().catch(() => undefined));
      await this.#runLines(answers);
      await Promise.all(this.#items);
      if (this.#fault !== undefined) throw this.#fault as Error;
      if (this.#why === 'closing' || this.#why === 'leaving') await answers.mark();
      else await this.#finish(answers);
    } catch (fault) {
      const isClosing = this.#why === 'closing';
      this.stop('closing');
      await Promise.all(this.#items);
      if (isClosing || !(fault instanceof DamagedPieces)) throw fault;
      this.#options.onFault(fault);
      await this.#lose();
    } finally {
      cancelExpiry();
      stopMarking();
      await this.#answers?.close();
    }
  }

  #answersOptions(): AnswersOptions {
    const { outputFile: output, errorFile: error, position: from, kept = 0 } = this.#record;
    const { files, spool } = this.#options;
    const save = (position: Position, marked: number, { picodollars, ...sums }: BatchSums): Promise<void> =>
      this.#change({ position, kept: marked, sums: { picodollars: String(picodollars), ...sums } });
    const lose = (): Promise<void> => this.#change({ problems: [UNREADABLE] });
    return { files, spool, output, error, from, kept, save, lose };
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
    const { endpoint } = this.#record;
    const services = this.#options.services();
    const check = new LineCheck({
      endpoint,
      route: this.#route,
      caller: this.#caller,
      services,
      signal: this.#stopped,
    });
    let lines = 0;
    let since = performance.now();
    for await (const line of inputOf(this.#options.files, this.#record)) {
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
    // Ended before its lines were checked, it has none.
    if (this.#why !== undefined) return true;
    if (problems.length === 0) {
      await this.#change({ status: 'in_progress', lines, position: this.#options.spool.position });
      return true;
    }
    await this.#ended({ status: 'failed', problems });
    return false;
  }

  async #runLines(answers: Answers): Promise<void> {
    if (this.#leaving.aborted) return;
    for await (const { number, request } of this.#unanswered(answers)) {
      const turn = await this.#turn(request.model, false);
      if (turn === undefined) {
        request.body.fill(0);
        return;
      }
      const item: Promise<void> = this.#runItem(answers, number, request, turn)
        .catch((fault: unknown) => {
          this.#fault = fault;
          this.stop('closing');
        })
        .finally(() => {
          request.body.fill(0);
          this.#items.delete(item);
        });
      this.#items.add(item);
    }
  }

  /** The lines that have no answer. Their bodies are to be overwritten. */
  async *#unanswered(answers: Answers): AsyncGenerator<{ readonly number: number; readonly request: BatchLine }> {
    for await (const { number, bytes } of inputOf(this.#options.files, this.#record)) {
      const parsed = bytes === undefined || answers.has(number) ? undefined : parseBatchLine(bytes);
      if (parsed?.kind === 'ok') yield { number, request: parsed.request };
    }
  }

  /** Resolves once a line may begin: it has a turn and a slot. Undefined: no further line begins. */
  async #turn(model: string, isRetry: boolean): Promise<Turn | undefined> {
    for (;;) {
      const turn = await this.#gate.enter(isRetry, this.#leaving);
      if (turn === undefined) return undefined;
      const isGiven = await this.#slots.acquire(model, this.account, isRetry, this.#leaving);
      if (isGiven && this.#gate.isOpenTo(turn)) return turn;
      if (isGiven) this.#slots.release(model, this.account, 'other');
      this.#gate.end(turn);
      if (!isGiven) return undefined;
    }
  }

  /** Runs a line until it has an answer, or the batch stops. It has a turn and a slot. */
  async #runItem(answers: Answers, line: number, request: BatchLine, first: Turn): Promise<void> {
    const { model, customId } = request;
    let faults = 0;
    let part: number | undefined;
    for (let turn: Turn | undefined = first; turn !== undefined;) {
      const end = await this.#attempt(answers, line, request, part);
      if (end.kind === 'error' && FAULTS.has(end.code)) faults += 1;
      const waitMs = this.#waitAfter(end);
      // After a pause for it, so that no other line begins in its place.
      this.#gate.end(turn);
      const isRefused = end.kind === 'error' && end.code === 'capacity_exceeded';
      this.#slots.release(model, this.account, end.kind === 'answered' ? end.kind : isRefused ? 'refused' : 'other');
      if (end.kind === 'answered' || this.#leaving.aborted) return;
      if (end.kind === 'error' && !mayTryAgain(end.code, faults)) {
        await this.#keepError(answers, line, () => errorLine(customId, end.requestId, end.error));
        return;
      }
      if (end.kind === 'cut') part = 2 * end.tokens;
      if (waitMs > 0 && !(await this.#gate.alone(waitMs, this.#leaving))) return;
      turn = await this.#turn(model, true);
    }
  }

  /** Pauses the batch if this end of an attempt concerns all its lines. Returns how long the line waits by itself, ms. */
  #waitAfter(end: AttemptEnd): number {
    if (end.kind === 'cut') return CUT_PAUSE_MS;
    if (end.kind !== 'error') return 0;
    const { code, retryAfterMs = STORE_PAUSE_MS } = end.error;
    if (code === 'insufficient_credit') this.#gate.pause(CREDIT_PAUSE_MS, problemOf(end.error));
    else if (code === 'quota_exceeded') {
      // Others may need fewer tokens.
      if (!this.#options.services().quotas.problem(this.#caller, 1)) return retryAfterMs;
      this.#gate.pause(retryAfterMs, problemOf(end.error));
    } else if (code !== 'capacity_exceeded' && NO_ROOM.has(code)) this.#gate.pause(retryAfterMs);
    return 0;
  }

  async #attempt(answers: Answers, line: number, { customId, body }: BatchLine, part?: number): Promise<AttemptEnd> {
    const services = this.#options.services();
    if (!this.#mayCall(services)) return { kind: 'stopped' };
    const lack = this.#options.files.roomFor(this.account, 1, 0);
    if (lack !== undefined) {
      this.#gate.pause(STORE_PAUSE_MS, problemOf(refusals.noFileRoom(lack)));
      return { kind: 'waits' };
    }
    const exchange = new ItemExchange(this.#record.endpoint, body, this.#stopped, services.clock.now());
    const { requestId } = exchange.head;
    let end: AttemptEnd | undefined;
    let kept: BatchAttempt | undefined;
    const item = {
      caller: this.#caller,
      ...(part !== undefined && { part }),
      keep: async (attempt: BatchAttempt): Promise<boolean> => {
        const content = answerLine(customId, attempt.id, requestId, exchange.answer ?? 'null');
        const { used, picodollars } = attempt;
        try {
          await answers.keep('completed', { line, content, attempt: attempt.id, used, picodollars });
          kept = attempt;
          return true;
        } catch (fault) {
          services.log.error('answer of a batch cannot be stored', { fault });
          this.#gate.pause(STORE_PAUSE_MS, problemOf(refusals.noFileRoom('store')));
          end = { kind: 'waits' };
          return false;
        }
      },
      cut: (tokens: number): void => {
        end = { kind: 'cut', tokens };
      },
    };
    const { error } = await this.#options
      .counted(() => run(this.#route, exchange, services, item))
      .then(() => exchange)
      .catch((fault: unknown) => {
        services.log.error('line of a batch failed', { fault });
        return { error: refusals.internal() };
      });
    if (kept) {
      await answers.settled({ line, attempt: kept.id });
      return { kind: 'answered' };
    }
    if (end) return end;
    return error === undefined ? { kind: 'stopped' } : { kind: 'error', code: error.code, requestId, error };
  }

  /**
   * Whether its key may still call; if not, the batch is stopped as if it was cancelled. What the key may do now holds for all further
   * lines. An expired key's batch goes on: the batch has a window of its own.
   */
  #mayCall({ identity }: Services): boolean {
    const now = this.#caller.vouched ? undefined : identity.ofKey?.(this.#caller.keyId, this.account);
    if (now?.kind === 'caller' && now.account === this.account)
      this.#caller = Object.assign({}, now, { weight: CLASS_WEIGHTS.batch });
    const isDenied = now?.kind === 'denied' && now.code !== 'expired_api_key';
    if (!isDenied && mayUse(this.#caller, 'batch')) return true;
    this.#denied = problemOf(isDenied ? refusals.denied(now) : refusals.routeNotEntitled());
    this.stop('cancelled');
    return false;
  }

  async #keepError(answers: Answers, line: number, make: () => Uint8Array): Promise<void> {
    for (;;) {
      try {
        await answers.keep('failed', { line, content: make(), attempt: '', used: NO_TOKENS, picodollars: 0n });
        await answers.settled({ line, attempt: '' });
        return;
      } catch (fault) {
        this.#options.services().log.error('answer of a batch cannot be stored', { fault });
        if (this.#why === 'closing' || this.#why === 'leaving') return;
        const until = this.#why === undefined ? this.#stopped : new AbortHandle();
        if (!(await pause(this.#options.clock, STORE_PAUSE_MS, until))) return;
      }
    }
  }

  /** All lines have ended, or the batch stops for good. */
  async #finish(answers: Answers): Promise<void> {
    if (this.#why === 'expired') await this.#expireLines(answers);
    if (this.#why === 'closing') return;
    const status = this.#why === 'cancelled' || this.#why === 'expired' ? this.#why : 'completed';
    await this.#endWith(answers, { status, ...(this.#denied && { problems: [this.#denied] }) });
  }

  /** Its input, or the answers so far, cannot be read any more, and never will be: it ends with the answers that there are. */
  async #lose(): Promise<void> {
    const change = { status: 'failed', problems: [UNREADABLE] } as const;
    if (this.#answers) await this.#endWith(this.#answers, change);
    else await this.#ended(change);
  }

  /** What it ends as is durable before its caller may delete its answers, after which nothing would show it. */
  async #endWith(answers: Answers, change: Ending['change']): Promise<void> {
    const { bytes } = answers;
    await answers.finish();
    const ending = { change, bytes };
    await this.#change({ status: change.status === 'cancelled' ? 'cancelling' : 'finalizing', ending });
    await this.#close(ending);
  }

  /** Idempotent. */
  async #close({ change, bytes }: Ending): Promise<void> {
    const { files } = this.#options;
    const until = Math.floor(this.#now() / 1000) + this.#record.outputLifeS;
    const { outputFile, errorFile } = this.#record;
    await files.close(outputFile, bytes.completed, until);
    await files.close(errorFile, bytes.failed, until);
    await this.#ended({ files: { output: bytes.completed > 0, error: bytes.failed > 0 }, ...change });
  }

  /** What did not run has an answer too: it is in the file of errors. A batch whose lines were not all checked has none. */
  async #expireLines(answers: Answers): Promise<void> {
    if (this.#record.lines === 0) return;
    let group: Promise<void>[] = [];
    for await (const { number, request } of this.#unanswered(answers)) {
      request.body.fill(0);
      group.push(this.#keepError(answers, number, () => unsentLine(request.customId)));
      if (group.length === EXPIRED_AT_ONCE) {
        await Promise.all(group);
        group = [];
      }
      if (this.#why === 'closing') break;
    }
    await Promise.all(group);
  }

  async #ended(change: BatchChange): Promise<void> {
    const { files } = this.#options;
    await this.#change(change);
    this.#isDone = true;
    const { inputFile, outputFile, errorFile } = this.#record;
    files.release(inputFile);
    // Otherwise they are its caller's.
    if (change.files !== undefined) return;
    for (const id of [outputFile, errorFile]) await files.remove(id);
  }
}

function problemOf({ code, message }: ContractError): BatchProblem {
  return { code, message, param: null, line: null };
}

function mayTryAgain(code: ErrorCode, faults: number): boolean {
  if (NO_ROOM.has(code) || code === 'insufficient_credit' || code === 'quota_exceeded') return true;
  return FAULTS.has(code) && faults < FAULT_TRIES;
}
