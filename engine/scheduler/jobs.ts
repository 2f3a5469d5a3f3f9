import { faultReason } from './faults.js';
import type { Reuse } from './sequence-tokens.js';
import type { CacheScope } from '../protocol/cache-key.js';
import type { Output } from '../protocol/job-output.js';
import type { PrefixReuse } from '../protocol/setup.js';
import type { Sequences } from './sequences.js';
import { Task, type Running, type WaitingJob, type Work } from './task.js';

/**
 * The jobs of an engine from arrival to end: waiting, running on sequences, cancelled. It decodes nothing: the step
 * loop passes it the results, between decodes and one at a time.
 */
export class Jobs {
  readonly #sequences: Sequences;
  readonly #seats: number;
  readonly #prefixReuse: PrefixReuse;
  /** Jobs that wait for a sequence; the sidecar grants no more leases than seats, so this stays short. */
  readonly #waiting = new Map<number, WaitingJob>();
  readonly #tasks = new Map<number, Task>();
  /** Since the last clean-up. */
  readonly #cancelled = new Set<number>();
  /** Those whose next item waits for the next round, since there is no time for another copy before a decode. */
  readonly #putOff = new Set<Task>();
  /** The value of {@link running}; undefined: it has changed since. Most steps change nothing. */
  #running: readonly Running[] | undefined;

  constructor(sequences: Sequences, seats: number, prefixReuse: PrefixReuse) {
    this.#sequences = sequences;
    this.#seats = seats;
    this.#prefixReuse = prefixReuse;
  }

  /** Jobs that have a sequence or wait for one. */
  get live(): number {
    return this.#tasks.size + this.#waiting.size;
  }

  /** Seats that jobs have, those that wait for a sequence included. */
  get seats(): number {
    let seats = 0;
    for (const task of this.#tasks.values()) seats += task.seats;
    for (const pending of this.#waiting.values()) seats += pending.seats;
    return seats;
  }

  /** Items that have sequences and continue, in sequence order. */
  get running(): readonly Running[] {
    return (this.#running ??= [...this.#tasks.values()]
      .filter((task) => this.runs(task))
      .flatMap((task) => task.branches.map((branch) => ({ task, branch })))
      .sort((a, b) => a.branch.sequence - b.branch.sequence));
  }

  /** Whether a job of this scope has not ended. */
  uses(scope: CacheScope): boolean {
    const all = [...this.#tasks.values(), ...this.#waiting.values()];
    return all.some(({ work }) => work.scope === scope);
  }

  runs({ id }: Task): boolean {
    return this.#tasks.has(id) && !this.#cancelled.has(id);
  }

  add(pending: WaitingJob): void {
    this.#waiting.set(pending.id, pending);
  }

  /** Takes effect at the next clean-up; outputs until then must not be sent, see {@link reports}. */
  cancel(id: number): void {
    // Also for a job that has just ended: its outputs may not be sent yet.
    this.#waiting.get(id)?.work.wipe?.();
    if (!this.#waiting.delete(id)) this.#cancelled.add(id);
    this.#running = undefined;
  }

  /** A job uses one sequence less from now on, except its last; the seat is freed once nothing runs there. */
  reduceSeats(id: number): void {
    const pending = this.#waiting.get(id);
    if (pending) {
      const { work, seats, limit } = pending;
      this.#waiting.set(id, { id, work, seats, limit: Math.max(1, limit - 1) });
    }
    this.#tasks.get(id)?.reduceSeats();
  }

  /** The embeddings of an image of a running job. */
  supply(id: number, image: number, values: Float32Array): void {
    this.#tasks.get(id)?.work.supply?.(image, values);
  }

  /** Ends what was cancelled. */
  cleanUp(): void {
    for (const id of this.#cancelled) {
      const task = this.#tasks.get(id);
      if (task) this.#retire(task);
    }
    this.#cancelled.clear();
  }

  /** Whether a job that could have started in this round was put off to the next one. */
  get heldBack(): boolean {
    return this.#putOff.size > 0;
  }

  /** Whether a job's outputs are to be sent. */
  reports(id: number): boolean {
    return !this.#cancelled.has(id);
  }

  /** Starts those that wait, as far as there are sequences. */
  async admit(out: Output[]): Promise<void> {
    const putOff = [...this.#putOff].filter((task) => this.runs(task));
    this.#putOff.clear();
    for (const task of putOff) {
      if (this.heldBack) this.#putOff.add(task);
      else await this.#start(task, out);
    }
    for (const { id, work, seats, limit } of this.#waiting.values()) {
      if (this.heldBack || this.#sequences.live === this.#seats) break;
      this.#waiting.delete(id);
      const task = new Task(id, work, seats, limit);
      this.#tasks.set(id, task);
      await this.#start(task, out);
    }
  }

  /** Starts a task's items, the first one or further ones, as far as there is time for their copies. */
  async #start(task: Task, out: Output[]): Promise<void> {
    const { id, work } = task;
    const reuse = this.#reuse(work, this.#tasks.size === 1);
    await this.guard(task, out, async () => {
      if (task.branches.length === 0) {
        const keep = await this.#begin(task, () => reuse);
        if (keep === undefined) return;
        out.push({ id, kind: 'started', cachedTokens: keep });
      }
      await this.#spread(task);
      this.#ask(task, out);
    });
  }

  /** Runs a step of a job; if it throws, only that job fails. */
  async guard(task: Task, out: Output[], act: () => void | Promise<void>): Promise<void> {
    try {
      await act();
    } catch (error) {
      this.fail(task, out, error);
    }
  }

  /** Ends a single failed job. */
  fail(task: Task, out: Output[], error: unknown): void {
    out.push({ id: task.id, kind: 'failed', reason: faultReason(error) });
    this.#retire(task);
  }

  /** After a decode of parts of these tasks. */
  async advanceAll(tasks: Iterable<Task>, out: Output[]): Promise<void> {
    for (const task of tasks) {
      if (task.moves && this.runs(task)) await this.guard(task, out, () => this.advance(task, out));
    }
  }

  /**
   * After a decode, for a task with changes: ended items free sequences for those not yet started. Throws for `guard`.
   */
  async advance(task: Task, out: Output[]): Promise<void> {
    this.#running = undefined;
    for (const branch of task.branches.filter(({ over }) => over)) {
      const { sequence } = branch;
      const next = task.follows ? task.next : undefined;
      if (!next) {
        task.end(branch);
        this.#sequences.free(sequence);
        continue;
      }
      const keep = await this.#sequences.reopen(sequence, next, task.work.reuse);
      task.end(branch);
      this.#take(task, sequence, keep);
    }
    await this.#spread(task);
    this.#ask(task, out);
    if (task.done) {
      out.push({ id: task.id, kind: 'done' });
      this.#retire(task);
      return;
    }
    for (let spare = task.spare(); spare > 0; spare--) out.push({ id: task.id, kind: 'seatFreed' });
  }

  /** How much state of other jobs a job may reuse; `byItself`: no other one runs. */
  #reuse({ alone }: Work, byItself: boolean): Reuse {
    if (this.#prefixReuse === 'off') return 'none';
    if (alone) return 'same-split';
    return this.#prefixReuse === 'any' || !byItself ? 'any' : 'same-split';
  }

  /** Starts a task's next item on a new sequence. Returns the reused tokens; undefined: no sequence is free, or it was put off. */
  async #begin(task: Task, reuse: (sequence: number) => Reuse): Promise<number | undefined> {
    const { next, work } = task;
    const free = next && (await this.#sequences.open(next, reuse, work, this.running.length > 0));
    const possible = task.branches.length === 0 || this.#sequences.live < this.#seats;
    if (next && !free && possible) this.#putOff.add(task);
    if (free) this.#take(task, free.sequence, free.keep);
    return free?.keep;
  }

  #ask({ id, work }: Task, out: Output[]): void {
    for (const image of work.asks?.() ?? []) out.push({ id, kind: 'wants', image });
  }

  /** Frees the sequence if no branch takes it. */
  #take(task: Task, sequence: number, keep: number): void {
    this.#running = undefined;
    try {
      task.begin(sequence, keep);
    } catch (error) {
      this.#sequences.free(sequence);
      throw error;
    }
  }

  /** Starts further items beside the running ones, while there are seats and sequences. */
  async #spread(task: Task): Promise<void> {
    const own = new Set(task.branches.map(({ sequence }) => sequence));
    const others = this.#reuse(task.work, this.#tasks.size === 1);
    while (task.spreads && this.runs(task)) {
      const keep = await this.#begin(task, (sequence) => (own.has(sequence) ? task.work.reuse : others));
      if (keep === undefined) break;
    }
  }

  #retire(task: Task): void {
    this.#running = undefined;
    task.dispose();
    this.#tasks.delete(task.id);
    for (const { sequence } of task.branches) this.#sequences.free(sequence);
  }
}
