/**
 * Which batches run: MOST_RUNNING at once and ACCOUNT_RUNNING of an account, the oldest first. Each is a machine of its own
 * (running-batch.ts); they share the slots of the models (batch-slots.ts).
 */
import type { BatchSums } from '../batch/answers.js';
import { hasEnded, type BatchProblem, type BatchRecord } from '../batch/batch-store.js';
import { BatchSlots, PREPARED } from './batch-slots.js';
import { RunningBatch, type BatchRunOptions } from './running-batch.js';
import type { BatchControl } from './services.js';

/** Batches that run at once. */
const MOST_RUNNING = 16;
const ACCOUNT_RUNNING = 2;

/** After this time a batch is tried again that could not go on, such as because the disk is full, ms. */
const FAULT_PAUSE_MS = 30_000;

export class BatchRunner implements BatchControl {
  readonly #options: BatchRunOptions;
  readonly #slots: BatchSlots;
  readonly #running = new Map<string, RunningBatch>();
  #closed = false;

  constructor(options: BatchRunOptions) {
    this.#options = options;
    this.#slots = new BatchSlots(options.clock, (model) => PREPARED + this.#lendable(model));
  }

  /** Runs what is not finished. Call it once work is accepted. */
  start(): void {
    this.#next();
  }

  submitted(): void {
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

  sumsOf(id: string): BatchSums | undefined {
    return this.#running.get(id)?.sums;
  }

  pauseOf(id: string): BatchProblem | undefined {
    return this.#running.get(id)?.pause;
  }

  /** Stops all lines, which cost nothing and run again after the next start. Resolves once all batches have stopped. */
  async close(): Promise<void> {
    this.#closed = true;
    const running = [...this.#running.values()];
    for (const batch of running) batch.stop('closing');
    await Promise.all(running.map(({ over }) => over));
  }

  /** Begins the next batches: of accounts with the fewest running ones, the oldest first. */
  #next(): void {
    if (this.#closed) return;
    const waiting = this.#options.store.unfinished().filter(({ id }) => !this.#running.has(id));
    waiting.sort((a, b) => a.createdAt - b.createdAt);
    for (const record of waiting) {
      // A batch that is only to be ended waits for none.
      const isFull = this.#running.size >= MOST_RUNNING || this.#runningOf(record.account) >= ACCOUNT_RUNNING;
      if (isFull && record.status !== 'cancelling') continue;
      const batch = new RunningBatch(record, this.#options, this.#slots);
      this.#running.set(record.id, batch);
      void batch.over.then(() => {
        const goOn = (): void => {
          this.#running.delete(record.id);
          this.#next();
        };
        if (batch.isDone || this.#closed) goOn();
        else this.#options.clock.after(FAULT_PAUSE_MS, goOn);
      });
    }
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
