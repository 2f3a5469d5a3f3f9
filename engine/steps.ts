/**
 * The step loop: the one place that decides who decodes, who prefills, and in which order.
 *
 *     cancel -> free        pending -> take the fittest free sequence (choice.ts), keep what it has of the prompt
 *        |                     |
 *        v                     v
 *     [ one isolated question's chunk, alone ]                      at most one a round, jobs in turn
 *     [ every reply's next token + ends of prompts, together, in sequence order ]
 *     [ one prompt's chunk, alone ]                                 whole, or what replies leave time for (pace.ts)
 *        |
 *        v
 *     items that are over -> the job's next one on that sequence, or free it
 *     a job with seats left -> its next items on copies of its prompt's state
 *
 * All live sequences step together, because llama.cpp decodes neighbours in one go and stragglers alone
 * (shared/engine.md section 1); a chunk of a prompt would be split off into a decode of its own anyway, so it gets one,
 * and what it leaves behind is the same whoever runs beside it. Cancel takes effect before the next step, whatever the job
 * was doing.
 */
import type { Decoder, Part } from './decoder.js';
import { Generation } from './generation.js';
import type { Reuse } from './held.js';
import { Pace } from './pace.js';
import type { GenerateJob, HeldPrefix, Output, PrefixReuse, ScoreJob } from './protocol.js';
import { Round, type Stepping } from './round.js';
import { Scoring } from './scoring.js';
import { Sequences } from './sequences.js';
import { Task, type ModelTokens, type Work } from './task.js';

export interface StepLimits {
  readonly seats: number;
  /** Tokens, prompt and completion, that one sequence can hold. */
  readonly contextPerSeat: number;
  /** Where prompts are split, and the most prompt tokens in one decode. */
  readonly prefillTokensPerStep: number;
  /** Time for prompts beside running replies, in percent of what their next tokens take. */
  readonly prefillShare: number;
  readonly prefixReuse: PrefixReuse;
}

/**
 * Called after each decode that produced something, with all of it, and with the free sequences whose prefixes changed;
 * `step` counts decodes.
 */
export type Emit = (step: number, outputs: readonly Output[], held: readonly HeldPrefix[]) => void;

/** A job that waits for a sequence. */
interface Pending {
  readonly id: number;
  readonly work: Work;
  readonly seats: number;
}

export class StepLoop {
  readonly #decoder: Decoder;
  readonly #model: ModelTokens;
  readonly #limits: StepLimits;
  readonly #emit: Emit;
  /** Milliseconds that only go forward. */
  readonly #now: () => number;
  readonly #sequences: Sequences;
  readonly #pace: Pace;
  readonly #round: Round;
  /** Jobs that wait for a sequence; the sidecar hands out no more leases than seats, so this stays short. */
  readonly #pending = new Map<number, Pending>();
  readonly #tasks = new Map<number, Task>();
  readonly #cancelled = new Set<number>();
  #running: Promise<void> | undefined;
  #closed = false;
  #step = 0;

  constructor(
    decoder: Decoder,
    model: ModelTokens,
    limits: StepLimits,
    emit: Emit,
    now: () => number = () => performance.now(),
  ) {
    this.#decoder = decoder;
    this.#model = model;
    this.#limits = limits;
    this.#emit = emit;
    this.#now = now;
    this.#sequences = new Sequences(decoder, limits.seats);
    this.#pace = new Pace(limits.prefillShare / 100, limits.prefillTokensPerStep);
    this.#round = new Round(limits.prefillTokensPerStep, this.#pace);
  }

  /** Decodes finished so far. */
  get steps(): number {
    return this.#step;
  }

  /** Jobs that hold a sequence or wait for one. */
  get live(): number {
    return this.#tasks.size + this.#pending.size;
  }

  /** Takes a job; its outputs come through `emit`. A job that cannot fit fails at once. */
  generate(id: number, job: GenerateJob): void {
    const fits = job.prompt.length > 0 && job.prompt.length + job.maxTokens <= this.#limits.contextPerSeat;
    const chunk = this.#limits.prefillTokensPerStep;
    this.#enqueue(fits && job.n > 0, id, job.seats, () => new Generation(id, job, chunk, this.#model, this.#decoder));
  }

  /** Takes a job; its outputs come through `emit`. A job that cannot fit fails at once. */
  score(id: number, job: ScoreJob): void {
    const fits =
      job.questions.length > 0 &&
      job.questions.every(
        ({ tail, labels }) =>
          labels.length > 0 && tail.length > 0 && job.input.length + tail.length <= this.#limits.contextPerSeat,
      );
    const seats = job.isolate ? 1 : job.seats;
    this.#enqueue(fits, id, seats, () => new Scoring(id, job, this.#limits.prefillTokensPerStep));
  }

  /** Ends a job before the next step. Nothing more is emitted of it from now on. */
  cancel(id: number): void {
    if (this.#pending.delete(id)) return;
    // Also one that has just ended: what it said may not be out yet.
    if (this.#running) this.#cancelled.add(id);
  }

  /** Stops after the step under way; resolves when nothing decodes any more. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#running;
  }

  #enqueue(fits: boolean, id: number, seats: number, work: () => Work): void {
    if (!fits) {
      this.#emit(this.#step, [{ id, kind: 'failed', reason: 'does not fit the context' }], []);
      return;
    }
    this.#pending.set(id, { id, seats, work: work() });
    this.#running ??= this.#run();
  }

  async #run(): Promise<void> {
    while (!this.#closed) {
      // Everything that arrived in this turn of the event loop takes part in the coming step.
      await new Promise(setImmediate);
      this.#dropCancelled();
      await this.#admit();
      if (this.#tasks.size === 0) {
        if (this.#pending.size === 0) break;
        continue;
      }
      await this.#decode(this.#round.isolated(this.#ongoing()));
      await this.#decode(this.#round.together(this.#ongoing()));
      await this.#decode(this.#round.chunk(this.#ongoing()));
    }
    this.#running = undefined;
  }

  /** The jobs that go on. */
  #ongoing(): Task[] {
    return [...this.#tasks.values()].filter(({ id }) => !this.#cancelled.has(id));
  }

  #dropCancelled(): void {
    for (const id of this.#cancelled) {
      const task = this.#tasks.get(id);
      if (task) this.#retire(task);
    }
    this.#cancelled.clear();
  }

  async #admit(): Promise<void> {
    const out: Output[] = [];
    for (const { id, work, seats } of this.#pending.values()) {
      if (this.#sequences.live === this.#limits.seats) break;
      const reuse = this.#reuse(work, this.#tasks.size === 0);
      this.#pending.delete(id);
      const task = new Task(id, work, seats);
      this.#tasks.set(id, task);
      await this.#guard(task, out, async () => {
        const keep = await this.#begin(task, () => reuse);
        out.push({ id, kind: 'started', cachedTokens: keep ?? 0 });
        await this.#spread(task);
      });
    }
    this.#flush(out);
  }

  /** How far a job may build on what other jobs left; `byItself`: no other one runs. */
  #reuse({ alone }: Work, byItself: boolean): Reuse {
    const { prefixReuse } = this.#limits;
    if (prefixReuse === 'off') return 'none';
    if (alone) return 'same-split';
    return prefixReuse === 'any' || !byItself ? 'any' : 'same-split';
  }

  /** Starts a task's next item on a sequence of its own. Returns what was kept; undefined: no sequence is free. */
  async #begin(task: Task, reuse: (sequence: number) => Reuse): Promise<number | undefined> {
    const { next } = task;
    const berth = next && (await this.#sequences.open(next, reuse));
    if (berth) task.begin(berth.sequence, berth.keep);
    return berth?.keep;
  }

  /** Starts further items beside those under way, while there are seats and sequences. */
  async #spread(task: Task): Promise<void> {
    const own = new Set(task.branches.map(({ sequence }) => sequence));
    const others = this.#reuse(task.work, this.#tasks.size === 1);
    while (task.spreads && !this.#cancelled.has(task.id)) {
      const keep = await this.#begin(task, (sequence) => (own.has(sequence) ? task.work.reuse : others));
      if (keep === undefined) break;
    }
  }

  async #decode(stepping: readonly Stepping[]): Promise<void> {
    if (stepping.length === 0) return;
    const parts = stepping.map(({ branch, count }): Part => branch.part(count));
    const from = this.#now();
    const results = await this.#decoder.step(parts);
    const ms = this.#now() - from;
    this.#step += 1;
    const prompt = stepping.reduce((sum, { count }) => sum + count, 0);
    if (prompt === 0) this.#pace.decoded(ms);
    else if (stepping.every(({ count }) => count > 0)) this.#pace.prefilled(prompt, ms);

    for (const [i, { sequence, kind, tokens }] of parts.entries()) {
      if (results[i]?.kind === 'fault') this.#sequences.spoiled(sequence);
      else this.#sequences.evaluated(sequence, tokens, parts.length === 1 && kind === 'prefill');
    }
    const out: Output[] = [];
    for (const [i, { task, branch }] of stepping.entries()) {
      const result = results[i];
      if (!this.#goesOn(task) || result === undefined) continue;
      await this.#guard(task, out, () => {
        if (result.kind === 'fault') throw new Error(result.reason);
        branch.accept(result, out);
      });
    }
    for (const task of new Set(stepping.map((each) => each.task))) {
      if (this.#goesOn(task)) await this.#guard(task, out, () => this.#goOn(task, out));
    }
    this.#flush(out);
  }

  /** What is over makes room for what has not begun. */
  async #goOn(task: Task, out: Output[]): Promise<void> {
    for (const branch of task.branches.filter(({ over }) => over)) {
      const { sequence } = branch;
      const { next } = task;
      if (!next) {
        task.end(branch);
        this.#sequences.free(sequence);
        continue;
      }
      const keep = await this.#sequences.reopen(sequence, next, task.work.reuse);
      task.end(branch);
      task.begin(sequence, keep);
    }
    await this.#spread(task);
    if (this.#cancelled.has(task.id)) return;
    if (task.done) {
      out.push({ id: task.id, kind: 'done' });
      this.#retire(task);
      return;
    }
    for (let spare = task.spare(); spare > 0; spare--) out.push({ id: task.id, kind: 'freed' });
  }

  /** Runs a step of a job's life; what it throws ends that job alone. */
  async #guard(task: Task, out: Output[], act: () => void | Promise<void>): Promise<void> {
    try {
      await act();
    } catch (error) {
      out.push({ id: task.id, kind: 'failed', reason: error instanceof Error ? error.message : 'unknown' });
      this.#retire(task);
    }
  }

  #goesOn(task: Task): boolean {
    return this.#tasks.has(task.id) && !this.#cancelled.has(task.id);
  }

  #retire(task: Task): void {
    task.dispose();
    this.#tasks.delete(task.id);
    for (const { sequence } of task.branches) this.#sequences.free(sequence);
  }

  #flush(outputs: readonly Output[]): void {
    const out = outputs.filter(({ id }) => !this.#cancelled.has(id));
    const changes = this.#sequences.changes();
    const held = this.#limits.prefixReuse === 'off' ? [] : changes;
    if (out.length > 0 || held.length > 0) this.#emit(this.#step, out, held);
  }
}
