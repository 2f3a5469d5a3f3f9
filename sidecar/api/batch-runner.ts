/**
 * Which batches run: MOST_RUNNING at once, ACCOUNT_RUNNING of an account, in turns of TURN_MS if more are to run. Each is a machine of its
 * own (running-batch.ts); they share the slots of the models (batch-slots.ts).
 */
import { hasEnded, type BatchProblem, type BatchRecord } from '../batch/batch-store.js';
import { NO_TOKENS } from '../domain/money.js';
import { every } from '../lib/clock.js';
import { BatchSlots, PREPARED } from './batch-slots.js';
import { RunningBatch, type BatchRunOptions } from './running-batch.js';
import type { BatchControl } from './services.js';

const MOST_RUNNING = 16;
const ACCOUNT_RUNNING = 2;

/** A batch has its place for so long at least while others wait for one, ms. Its next turn reads its files again. */
const TURN_MS = 600_000;

/** After this time a batch is tried again that could not go on, such as because the disk is full, ms. */
const FAULT_PAUSE_MS = 30_000;

/** How often batches are forgotten, ms: their lines once they have ended, for which a process ends, and records that are too old. */
const FORGET_MS = 10_000;

/** The least time between two times at which lines are forgotten, ms: while it forgets them the sidecar answers no request. */
const FORGET_AGAIN_MS = 60_000;

/** After the end of a batch some texts of its last lines are held for some seconds, but for less than this, ms. */
const LET_GO_MS = 10_000;

const NO_SUMS = { completed: 0, failed: 0, used: NO_TOKENS, picodollars: '0' } as const;

export class BatchRunner implements BatchControl {
  readonly #options: BatchRunOptions;
  readonly #slots: BatchSlots;
  /** The one that began first first. */
  readonly #running = new Map<string, RunningBatch>();
  /** Clock readings at which those that run, or wait for another turn, last began. */
  readonly #begunAt = new Map<string, number>();
  #cancelTimer = (): void => undefined;
  readonly #cancelForgetting: () => void;
  /** When the first and the last batches ended whose lines are not forgotten. */
  #firstEndedAt = Infinity;
  #lastEndedAt = -Infinity;
  #forgottenAt = -Infinity;
  #closed = false;

  constructor(options: BatchRunOptions) {
    this.#options = options;
    this.#slots = new BatchSlots(options.clock, (model) => PREPARED + this.#lendable(model));
    this.#cancelForgetting = every(options.clock, FORGET_MS, () => {
      void options.store.sweep();
      const now = options.clock.now();
      if (now - this.#firstEndedAt < LET_GO_MS || now - this.#forgottenAt < FORGET_AGAIN_MS || !options.forget())
        return;
      this.#firstEndedAt = now - this.#lastEndedAt < LET_GO_MS ? this.#lastEndedAt : Infinity;
      this.#forgottenAt = now;
    });
  }

  runAll(): void {
    this.#next();
  }

  async cancel(record: BatchRecord): Promise<BatchRecord> {
    if (isEnding(record)) return record;
    this.#running.get(record.id)?.stop('cancelled');
    const changed = await this.#options.store.change(record.id, (now) =>
      isEnding(now) ? {} : { status: 'cancelling' },
    );
    this.#next();
    return changed;
  }

  sumsOf({ id, sums = NO_SUMS }: BatchRecord): ReturnType<BatchControl['sumsOf']> {
    return this.#running.get(id)?.sums ?? sums;
  }

  pauseOf(id: string): BatchProblem | undefined {
    return this.#running.get(id)?.pause;
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelTimer();
    this.#cancelForgetting();
    const running = [...this.#running.values()];
    for (const batch of running) batch.stop('closing');
    await Promise.all(running.map(({ over }) => over));
  }

  /** Begins the next batches, and has those leave that keep others waiting. */
  #next(): void {
    if (this.#closed) return;
    const { clock, store, services } = this.#options;
    const now = services().date().getTime();
    let waitMs = Infinity;
    for (;;) {
      const waiting = store.unfinished().filter(({ id }) => !this.#running.has(id));
      const next = this.#first(waiting.filter((record) => this.#hasPlace(record, now)));
      if (next) {
        this.#begin(next);
        continue;
      }
      for (const { expiresAt } of waiting) waitMs = Math.min(waitMs, expiresAt * 1000 - now);
      const first = this.#first(waiting);
      if (first) waitMs = Math.min(waitMs, this.#leaveFor(first));
      break;
    }
    this.#cancelTimer();
    if (waitMs < Infinity) this.#cancelTimer = clock.after(Math.max(0, waitMs), () => this.#next());
  }

  #begin(record: BatchRecord): void {
    const batch = new RunningBatch(record, this.#options, this.#slots);
    this.#running.set(record.id, batch);
    this.#begunAt.set(record.id, this.#options.clock.now());
    void batch.over.then((isFault) => {
      const goOn = (): void => {
        this.#running.delete(record.id);
        if (batch.isDone) {
          this.#lastEndedAt = this.#options.clock.now();
          this.#firstEndedAt = Math.min(this.#firstEndedAt, this.#lastEndedAt);
          this.#begunAt.delete(record.id);
        }
        this.#next();
      };
      if (isFault && !this.#closed) this.#options.clock.after(FAULT_PAUSE_MS, goOn);
      else goOn();
    });
  }

  /** One that is only to be ended waits for no place. */
  #hasPlace({ account, status, expiresAt, ending }: BatchRecord, now: number): boolean {
    if (ending || status === 'cancelling' || expiresAt * 1000 <= now) return true;
    return this.#running.size < MOST_RUNNING && this.#runningOf(account) < ACCOUNT_RUNNING;
  }

  /** Of accounts with the fewest running ones the one that has waited longest. */
  #first(waiting: readonly BatchRecord[]): BatchRecord | undefined {
    const rank = ({ id, account, createdAt }: BatchRecord): readonly number[] => [
      this.#runningOf(account),
      this.#begunAt.get(id) ?? -Infinity,
      createdAt,
    ];
    const ranked = waiting.map((record) => [record, rank(record)] as const);
    ranked.sort(
      ([, a], [, b]) => a.map((each, i) => each - (b[i] ?? 0)).find((more) => more !== 0 && !Number.isNaN(more)) ?? 0,
    );
    return ranked[0]?.[0];
  }

  /** Has a batch leave that has had its turn, in favour of one that waits. Returns the time until one has, ms. */
  #leaveFor({ account }: BatchRecord): number {
    const isOwn = this.#runningOf(account) >= ACCOUNT_RUNNING;
    let waitMs = Infinity;
    for (const [id, batch] of this.#running) {
      if ((isOwn && batch.account !== account) || !batch.mayLeave) continue;
      const leftMs = (this.#begunAt.get(id) ?? 0) + TURN_MS - this.#options.clock.now();
      if (leftMs <= 0) {
        batch.stop('leaving');
        return Infinity;
      }
      waitMs = Math.min(waitMs, leftMs);
    }
    return waitMs;
  }

  #runningOf(account: string): number {
    return [...this.#running.values()].filter((batch) => batch.account === account).length;
  }

  #lendable(model: string): number {
    const report = this.#options.services().models.get(model)?.queue.report(0);
    return report === undefined ? 0 : Math.max(0, report.seats - report.lent.headroom);
  }
}

/** Whether a batch cannot be cancelled any more. */
function isEnding(record: BatchRecord): boolean {
  return hasEnded(record) || record.status === 'cancelling' || record.status === 'finalizing';
}
