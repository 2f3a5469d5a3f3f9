/**
 * The step loop: the one place that decides who decodes, who prefills, and in which order.
 *
 *     cancel -> free        pending -> take the lowest free sequence
 *        |                     |
 *        v                     v
 *     [ one decision chunk, alone ]      at most one a round, tasks in turn
 *     [ every reply's next token + prompt chunks, together, in sequence order ]
 *        |
 *        v
 *     one message with all outputs
 *
 * All live sequences step together, because llama.cpp decodes neighbours in one go and stragglers alone
 * (shared/engine.md section 1). Prompts enter in bounded chunks inside the same step, so that a long prompt cannot stall
 * the replies under way. Cancel takes effect before the next step, whatever the task was doing.
 */
import type { Decoder, Part, PartResult } from './decoder.js';
import { Generation } from './generation.js';
import type { GenerateJob, Output, ScoreJob } from './protocol.js';
import { Scoring } from './scoring.js';
import { Sequences } from './sequences.js';
import type { ModelTokens, Task } from './task.js';

export interface StepLimits {
  readonly seats: number;
  /** Tokens, prompt and completion, that one sequence can hold. */
  readonly contextPerSeat: number;
  /** Prompt tokens that one step may add, all sequences together; also the size of a decision's chunks. */
  readonly prefillTokensPerStep: number;
}

/** Called after each decode that produced something, with all of it; `step` counts decodes. */
export type Emit = (step: number, outputs: readonly Output[]) => void;

type Pending =
  | { readonly kind: 'generate'; readonly id: number; readonly job: GenerateJob }
  | { readonly kind: 'score'; readonly id: number; readonly job: ScoreJob };

export class StepLoop {
  readonly #decoder: Decoder;
  readonly #model: ModelTokens;
  readonly #limits: StepLimits;
  readonly #emit: Emit;
  readonly #sequences: Sequences;
  /** Jobs that wait for a sequence; the sidecar hands out no more leases than seats, so this stays short. */
  readonly #pending = new Map<number, Pending>();
  /** Live tasks by sequence. */
  readonly #tasks: (Task | undefined)[];
  readonly #cancelled = new Set<number>();
  /** The sequence whose task was alone last: the next one in order goes first. */
  #lastAlone = -1;
  #running: Promise<void> | undefined;
  #closed = false;
  #step = 0;

  constructor(decoder: Decoder, model: ModelTokens, limits: StepLimits, emit: Emit) {
    this.#decoder = decoder;
    this.#model = model;
    this.#limits = limits;
    this.#emit = emit;
    this.#sequences = new Sequences(limits.seats);
    this.#tasks = new Array<Task | undefined>(limits.seats).fill(undefined);
  }

  /** Decodes finished so far. */
  get steps(): number {
    return this.#step;
  }

  /** Jobs that hold a sequence or wait for one. */
  get live(): number {
    return this.#sequences.live + this.#pending.size;
  }

  /** Takes a job; its outputs come through `emit`. A job that cannot fit fails at once. */
  generate(id: number, job: GenerateJob): void {
    const fits = job.prompt.length > 0 && job.prompt.length + job.maxTokens <= this.#limits.contextPerSeat;
    this.#enqueue(fits, { kind: 'generate', id, job });
  }

  /** Takes a job; its outputs come through `emit`. A job that cannot fit fails at once. */
  score(id: number, job: ScoreJob): void {
    const fits =
      job.questions.length > 0 &&
      job.questions.every(
        ({ tail, labels }) =>
          labels.length > 0 && tail.length > 0 && job.input.length + tail.length <= this.#limits.contextPerSeat,
      );
    this.#enqueue(fits, { kind: 'score', id, job });
  }

  /** Ends a job before the next step. Nothing more is emitted of it from now on. */
  cancel(id: number): void {
    if (this.#pending.delete(id)) return;
    if (this.#tasks.some((task) => task?.id === id)) this.#cancelled.add(id);
  }

  /** Stops after the step under way; resolves when nothing decodes any more. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#running;
  }

  #enqueue(fits: boolean, pending: Pending): void {
    if (!fits) {
      this.#emit(this.#step, [{ id: pending.id, kind: 'failed', reason: 'does not fit the context' }]);
      return;
    }
    this.#pending.set(pending.id, pending);
    this.#running ??= this.#run();
  }

  async #run(): Promise<void> {
    while (!this.#closed) {
      // Everything that arrived in this turn of the event loop takes part in the coming step.
      await new Promise(setImmediate);
      this.#dropCancelled();
      await this.#admit();
      if (this.#sequences.live === 0) {
        if (this.#pending.size === 0) break;
        continue;
      }
      const alone = this.#nextAlone();
      if (alone) await this.#decode([alone]);
      const together = this.#tasks.filter(
        (task): task is Task => task !== undefined && !task.alone && !this.#cancelled.has(task.id),
      );
      if (together.length > 0) await this.#decode(together);
    }
    this.#running = undefined;
  }

  #dropCancelled(): void {
    if (this.#cancelled.size === 0) return;
    for (const task of this.#tasks) {
      if (task && this.#cancelled.has(task.id)) this.#retire(task);
    }
    this.#cancelled.clear();
  }

  async #admit(): Promise<void> {
    const out: Output[] = [];
    for (const pending of this.#pending.values()) {
      const sequence = this.#sequences.take();
      if (sequence === undefined) break;
      this.#pending.delete(pending.id);
      this.#tasks[sequence] = this.#newTask(pending, sequence);
      await this.#decoder.truncate(sequence, 0);
      out.push({ id: pending.id, kind: 'started', cachedTokens: 0 });
    }
    if (out.length > 0) this.#emit(this.#step, out);
  }

  #newTask(pending: Pending, sequence: number): Task {
    return pending.kind === 'generate'
      ? new Generation(pending.id, sequence, pending.job, this.#model, this.#decoder)
      : new Scoring(pending.id, sequence, pending.job, this.#limits.prefillTokensPerStep);
  }

  /** Tasks that decode alone take turns, in sequence order. */
  #nextAlone(): Task | undefined {
    const { seats } = this.#limits;
    for (let i = 1; i <= seats; i++) {
      const sequence = (this.#lastAlone + i) % seats;
      const task = this.#tasks[sequence];
      if (task?.alone) {
        this.#lastAlone = sequence;
        return task;
      }
    }
    return undefined;
  }

  async #decode(tasks: readonly Task[]): Promise<void> {
    const parts = this.#parts(tasks);
    const stepping = tasks.filter((_, i) => parts[i] !== undefined);
    const results = await this.#decoder.step(parts.filter((part) => part !== undefined));
    this.#step += 1;
    const out: Output[] = [];
    for (const [i, task] of stepping.entries()) {
      const result = results[i];
      if (this.#cancelled.has(task.id) || result === undefined) continue;
      await this.#deliver(task, result, out);
    }
    if (out.length > 0) this.#emit(this.#step, out);
  }

  /**
   * Every decoding task has its token; the prompt budget goes to those that have least left to prefill, so that a short
   * prompt is not held up by a long one. A task without budget sits this step out.
   */
  #parts(tasks: readonly Task[]): (Part | undefined)[] {
    let budget = this.#limits.prefillTokensPerStep;
    const parts = new Array<Part | undefined>(tasks.length).fill(undefined);
    const order = tasks.map((task, i) => ({ task, i, left: task.prefillLeft })).sort((a, b) => a.left - b.left);
    for (const { task, i, left } of order) {
      if (left > 0 && budget <= 0) continue;
      parts[i] = task.part(Math.max(1, budget));
      budget -= Math.min(left, budget);
    }
    return parts;
  }

  async #deliver(task: Task, result: PartResult, out: Output[]): Promise<void> {
    try {
      if (result.kind === 'fault') throw new Error(result.reason);
      task.accept(result, out);
      if (!task.done) {
        await task.rewind(this.#decoder);
        return;
      }
      out.push({ id: task.id, kind: 'done' });
    } catch (error) {
      out.push({ id: task.id, kind: 'failed', reason: error instanceof Error ? error.message : 'unknown' });
    }
    this.#retire(task);
  }

  #retire(task: Task): void {
    task.dispose();
    this.#tasks[task.sequence] = undefined;
    this.#sequences.free(task.sequence);
  }
}
