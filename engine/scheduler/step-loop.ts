/**
 * The step loop, which decides which sequences decode, which prefill, and in which order.
 *
 *     cancel -> free        waiting job -> take the best free sequence (sequences.ts), reuse its prefix of the prompt
 *        |                       |
 *        v                       v
 *     [ one isolated question's chunk, alone ]                      at most one per round, jobs in turn
 *     [ every reply's next token + ends of prompts, together, in sequence order ]
 *     [ one prompt's chunk, alone ]                                 whole, or within the budget (batch-planner.ts)
 *        |
 *        v
 *     ended items -> the job's next one on that sequence, or free it
 *     a job with unused seats -> its next items on copies of its prompt's state
 *
 * All running sequences step together, because llama.cpp decodes contiguous sequence ids in one go and others one by one
 * (docs/engine.md#a-step). A chunk of a prompt has its own decode, so that its state does not depend on the other requests.
 * A cancel takes effect before the next step, whatever the job's phase.
 *
 * While only replies are running, the decoder computes their steps in a run without this loop, which reads the chosen tokens
 * meanwhile; any call from outside stops the run after the current step. A reply with an expensive grammar skips steps while
 * its mask is computed on another thread, a prompt while its image is encoded elsewhere. After a round that freed seats, the
 * next one may wait briefly for jobs that take them over ({@link RefillWait}). Beside replies states of prefixes are saved and restored
 * for at most as long as a step takes (copy-times.ts). While nothing runs, next prompts are evaluated ahead (prefill-ahead.ts).
 */
import type { Decoder, StepPart } from './decoder.js';
import type { CacheScope } from '../protocol/cache-key.js';
import { processClock, type Clock } from '../protocol/clock.js';
import { Jobs, stepsOf } from './jobs.js';
import { type Emit, Outbox, SEND_MS } from './outbox.js';
import { PrefillAhead } from './prefill-ahead.js';
import { BatchPlanner, depthOf, PrefillBudget, runOf, type BatchItem, type Planner } from './batch-planner.js';
import { StepPlanner } from './step-planner.js';
import type { GenerateJob, ReplyLimit, ScoreJob } from '../protocol/jobs.js';
import type { EngineReport } from '../protocol/messages.js';
import { Sequences } from './sequences.js';
import {
  generationFits,
  RunningJob,
  scoringFits,
  type ModelTokens,
  type RunningItem,
  type StepLimits,
  type Work,
} from './job.js';
import { Generation } from './generation.js';
import { Scoring } from './scoring.js';

/** The step loop of an engine process: takes jobs, decodes them, and emits their outputs. */
export class StepLoop {
  readonly #decoder: Decoder;
  readonly #model: ModelTokens;
  readonly #limits: StepLimits;
  readonly #emit: Emit;
  readonly #clock: Clock;
  readonly #sequences: Sequences;
  readonly #planner: Planner;
  readonly #jobs: Jobs;
  readonly #outbox: Outbox;
  readonly #refillWait: RefillWait;
  readonly #upkeep: Upkeep;
  readonly #prefillAhead: PrefillAhead;
  readonly #pendingWait = new PendingWait();
  #running: Promise<void> | undefined;
  #closed = false;
  #step = 0;

  constructor(decoder: Decoder, model: ModelTokens, limits: StepLimits, emit: Emit, clock: Clock = processClock) {
    this.#decoder = decoder;
    this.#model = model;
    this.#limits = limits;
    this.#emit = emit;
    this.#clock = clock;
    const { prefillShare, prefillTokensPerStep: chunk, stepMs } = limits;
    this.#planner =
      stepMs === undefined
        ? new BatchPlanner(chunk, new PrefillBudget(prefillShare / 100, chunk))
        : new StepPlanner(chunk, stepMs);
    this.#sequences = new Sequences(decoder.states, limits.seats, limits, clock, this.#planner);
    this.#jobs = new Jobs(this.#sequences, limits.seats, limits.prefixReuse);
    this.#upkeep = new Upkeep(this.#sequences, this.#jobs);
    this.#outbox = new Outbox(emit, limits.sendMs ?? SEND_MS, clock, (id) => this.#jobs.reports(id));
    this.#refillWait = new RefillWait(clock);
    this.#prefillAhead = new PrefillAhead(decoder, this.#sequences, model, limits, clock);
  }

  /** Decodes finished so far. */
  get steps(): number {
    return this.#step;
  }

  /** Jobs that hold a sequence or wait for one. */
  get live(): number {
    return this.#jobs.live;
  }

  /** What there is now, and sums of its prefix cache. */
  get report(): EngineReport {
    return { live: this.#jobs.live, tokens: this.#sequences.tokens, cache: this.#sequences.counts };
  }

  /** Adds a job; its outputs are passed to `emit`. A job that cannot fit fails at once. */
  generate(id: number, job: GenerateJob): void {
    const make = (): Work => new Generation(id, job, this.#limits, this.#model, this.#decoder, this.#sequences.stopped);
    this.#enqueue(id, job.seats, generationFits(job, this.#limits) && make());
  }

  /** As {@link generate}. */
  score(id: number, job: ScoreJob): void {
    const fits = scoringFits(job, this.#limits);
    this.#enqueue(id, job.isolate ? 1 : job.seats, fits && new Scoring(id, job, this.#limits));
  }

  /** Gives a job the embeddings of an image that it needs (`needsImage`). */
  supply(...given: Parameters<Jobs['supply']>): void {
    this.#jobs.supply(...given);
    this.#halt();
  }

  /** Sets how many tokens each reply of a job may have. A run of steps ends for it only where a reply waits. */
  limit(id: number, limit: ReplyLimit): void {
    if (this.#jobs.limit(id, limit)) this.#halt();
  }

  /** Ends a job before the next step. It emits nothing from now on. */
  cancel(id: number): void {
    if (this.#running) this.#jobs.cancel(id);
    this.#halt();
  }

  /** A job continues with one sequence less, but its last, and emits `seatFreed` once that one is free. */
  reduceSeats(id: number): void {
    this.#jobs.reduceSeats(id);
    this.#halt();
  }

  /** Keeps nothing that jobs of this scope left, nor what its running ones will leave. */
  forget(scope: CacheScope): Promise<void> {
    this.#sequences.forget(scope);
    return this.tidy(true);
  }

  /** Drops what was kept for too long; to be called from time to time. Settles when it is dropped. `now`: a prefill ahead ends for it. */
  tidy(now = false): Promise<void> {
    const done = this.#upkeep.request(now);
    this.#halt();
    if (!this.#closed) this.#running ??= this.#run();
    return done;
  }

  /** Stops after the current step; resolves when nothing decodes any more. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#refillWait.stop();
    this.#prefillAhead.stop();
    this.#halt();
    await this.#running;
  }

  /** `work`: false where it does not fit the context. */
  #enqueue(id: number, seats: number, work: Work | false): void {
    if (!work) {
      this.#emit(this.#step, [{ id, kind: 'failed', reason: 'does not fit the context' }], []);
      return;
    }
    this.#prefillAhead.stop();
    this.#jobs.add(new RunningJob(id, work, seats));
    this.#refillWait.arrived(seats);
    if (this.#sequences.closed.has(work.terms.scope)) void this.forget(work.terms.scope);
    this.#halt();
    this.#running ??= this.#run();
  }

  /** A call from outside: a run must stop so that it is considered. */
  #halt(): void {
    this.#pendingWait.interrupt();
    this.#decoder.halt();
  }

  /** `ahead`: nothing has run for long. */
  async #run(ahead = false): Promise<void> {
    if (ahead) await this.#prefillAhead.run(() => this.#closed || this.#jobs.live > 0 || this.#upkeep.urgent);
    await burst(() => this.#jobs.live);
    let freed = 0;
    while (!this.#closed) {
      await this.#awaitRefill(freed);
      // All calls of this turn of the event loop take part in the next step.
      await new Promise(setImmediate);
      this.#pendingWait.nextRound();
      this.#outbox.dropCancelled();
      this.#jobs.cleanUp();
      await this.#upkeep.round();
      await this.#jobs.admit(this.#outbox.outputs);
      await this.#jobs.endLimited(this.#outbox.outputs);
      if (this.#jobs.live === 0 && !this.#upkeep.due) break;
      const { seats } = this.#jobs;
      const isolated = await this.#decode(this.#planner.isolated(this.#jobs.running));
      const together = await this.#decode(this.#planner.together(this.#jobs.running));
      const chunk = await this.#decode(this.#planner.chunk(this.#jobs.running));
      freed = seats - this.#jobs.seats;
      if (isolated || together || chunk) continue;
      this.#sequences.renewCopies();
      if (this.#jobs.hasPutOff) continue;
      await this.#pendingWait.forOne(this.#jobs.running, () => this.#flush());
    }
    this.#flush();
    this.#running = undefined;
    if (!this.#closed) this.#prefillAhead.idle(() => (this.#running ??= this.#run(true)));
  }

  /** Waits briefly for jobs that take over the seats freed by the last round, so that they take part in the next one. */
  async #awaitRefill(freed: number): Promise<void> {
    if (freed <= 0 || this.#jobs.seats === 0 || !this.#refillWait.expects(this.#planner.decodeMs)) return;
    this.#flush();
    await this.#refillWait.wait(freed, this.#planner.decodeMs);
  }

  /** False: there was nothing to decode. */
  async #decode(items: readonly BatchItem[]): Promise<boolean> {
    if (items.length === 0 || this.#closed) return false;
    const parts = items.map(({ branch, count }): StepPart => branch.part(count));
    const counts = items.map(({ count, fills }) => (fills ? 0 : count));
    const depth = depthOf(items);
    const fed = parts.map(({ tokens }) => tokens);
    const single = this.#pendingWait.interrupted || this.#jobs.hasPutOff;
    const run = runOf(items, this.#jobs.running);
    let from = this.#clock.now();
    // A prompt may take long: outputs are sent before it.
    const due = this.#outbox.due(from) || counts.some((count) => count > 0);
    const { stepMs, sendMs: everyMs = SEND_MS } = this.#limits;
    const checked = items.some(({ branch }) => branch.stepwise === true);
    // A step that no other follows is a run too where it may have drafts: which steps have some is not to depend on calls from outside.
    const runs = run && (this.#limits.speculation === 'auto' || (!single && !checked && run.once !== true));
    const asked = runs && { everyMs, stepMs, ...run, ...(single && { once: true }), ...(checked && { checked }) };
    const decoding = this.#decoder.step(parts, asked || undefined);
    let next = decoding.next();
    // While llama.cpp computes on another thread, so that it costs no extra time.
    if (due) this.#flush();
    for (;;) {
      const { value: results, done } = await next;
      const now = this.#clock.now();
      const steps = stepsOf(results);
      this.#step += steps;
      // A step that failed may come just after those before it.
      if (steps > 0 && !results.some(({ kind }) => kind === 'fault'))
        this.#planner.learn(counts, steps, depth, now - from);
      from = now;
      if (this.#jobs.deliver(items, results, fed, this.#outbox.outputs)) this.#decoder.halt();
      if (done === true) break;
      if (steps > 0 || this.#outbox.due(now)) this.#flush();
      next = decoding.next();
    }
    this.#sequences.renewCopies();
    await this.#jobs.saveAll(items, this.#outbox.outputs);
    await this.#jobs.advanceAll(new Set(items.map(({ job }) => job)), this.#outbox.outputs);
    // There may be no further decode.
    if (this.#jobs.live === 0) this.#flush();
    return true;
  }

  #flush(): void {
    const changes = this.#sequences.changes();
    this.#outbox.send(this.#step, this.#limits.prefixReuse === 'off' ? [] : changes);
  }
}

/** Turns of the event loop without a new job after which a burst is over, some 0.1 ms; and turns at most. */
const STILL_TURNS = 20;
const MOST_TURNS = 400;

/**
 * Waits until no more jobs arrive: those that arrive together start together, since otherwise the others would join the
 * first one a few at each step. `live`: the number of jobs so far.
 */
async function burst(live: () => number): Promise<void> {
  let before = 0;
  for (let turns = 0, still = 0; turns < MOST_TURNS && still < STILL_TURNS; turns++) {
    await new Promise(setImmediate);
    const now = live();
    still = now > before ? 0 : still + 1;
    before = now;
  }
}

/**
 * Calls from outside of a step loop, and the wait in which nothing can be decoded before one comes: its replies wait
 * for their grammars' masks, its prompts for images' embeddings.
 */
class PendingWait {
  /** A call from outside since the round began. */
  interrupted = false;
  #wake: () => void = () => undefined;

  nextRound(): void {
    this.interrupted = false;
  }

  /** A call from outside, which ends the wait. */
  interrupt(): void {
    this.interrupted = true;
    this.#wake();
  }

  /**
   * Settles with the next call, or when one of the masks or embeddings that the loop waits for is ready; at once if it
   * waits for none, or one was ready. `waits`: called before the wait.
   */
  async forOne(running: readonly RunningItem[], waits: () => void): Promise<void> {
    const pending = running.flatMap(({ branch }) => branch.pending ?? branch.awaitsImage ?? []);
    if (pending.length === 0 || this.interrupted) return;
    waits();
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      for (const each of pending) void each.then(resolve);
    });
    this.#wake = () => undefined;
  }
}

/**
 * Decides when the step loop drops states that are too old or whose account is forgotten: in the round after it was
 * asked to, and while jobs of a forgotten scope run.
 */
class Upkeep {
  /** Whether it is to run in the next round. */
  due = false;
  /** Whether a prefill ahead of the next request has to end, so that the states are dropped at once. */
  urgent = false;
  readonly #sequences: Sequences;
  readonly #jobs: Jobs;
  /** Called at its end. */
  readonly #dropped: (() => void)[] = [];

  constructor(sequences: Sequences, jobs: Jobs) {
    this.#sequences = sequences;
    this.#jobs = jobs;
  }

  /** Settles when all that was to be dropped is dropped; never, if the loop is closed before. */
  request(urgent: boolean): Promise<void> {
    this.due = true;
    this.urgent ||= urgent;
    return new Promise((resolve) => this.#dropped.push(resolve));
  }

  /** Once a round, between decodes. */
  async round(): Promise<void> {
    if (!this.due) return;
    this.due = this.urgent = false;
    const dropped = this.#dropped.splice(0);
    if (await this.#sequences.tidy((scope) => this.#jobs.uses(scope))) {
      this.due = true;
      this.#dropped.unshift(...dropped);
    } else for (const each of dropped) each();
  }
}

/**
 * The longest wait of a step for jobs that take over free seats, as a share of the step. A job that arrives just after
 * a step began waits for the whole step with its seat idle; waiting delays the other replies' next token.
 */
const OF_STEP = 1 / 4;
/** Timers have whole milliseconds, and receiving a job takes one or two. */
const LEAST_MS = 2;
/** The absolute bound, ms: jobs that take longer do not come from a queue. */
const MOST_MS = 25;
/** The weight of the newest wait in the average: about the last eight count. */
const NEWEST = 1 / 8;
/**
 * If fewer of the free seats than this were refilled in time recently, only one opportunity in eight is used as a
 * probe. A successful probe is followed by another, so that a dozen suffice when load returns.
 */
const LIKELY = 3 / 4;
const TRY_EVERY = 8;

/**
 * Waits for jobs to refill free seats, if that is likely judging by previous waits. If jobs queue outside, or callers
 * continue at once, a free seat is requested again within some milliseconds: the time to report it and to receive the
 * next job.
 */
export class RefillWait {
  readonly #clock: Clock;
  /** The share of recently free seats that were refilled in time; initially 1. */
  #likely = 1;
  /** Opportunities to skip until the next probe. */
  #untilTry = 0;
  /** The current wait: seats of arrived jobs, and how many are enough. */
  #waiting: { arrived: number; readonly enough: number; readonly end: () => void } | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether free seats between steps of this length are worth a wait. Called once per opportunity. */
  expects(stepMs: number): boolean {
    if (within(stepMs) < LEAST_MS) return false;
    if (this.#likely >= LIKELY || this.#untilTry === 0) return true;
    this.#untilTry -= 1;
    return false;
  }

  /**
   * Resolves when as many of these seats are refilled as is likely, or at the time limit. The sidecar has just been
   * notified.
   */
  async wait(seats: number, stepMs: number): Promise<void> {
    const enough = Math.ceil(seats * Math.max(this.#likely, LIKELY));
    const waiting = await new Promise<{ readonly arrived: number }>((resolve) => {
      const cancel = this.#clock.after(within(stepMs), () => this.stop());
      const waits = {
        arrived: 0,
        enough,
        end: (): void => {
          cancel();
          resolve(waits);
        },
      };
      this.#waiting = waits;
    });
    const well = waiting.arrived >= enough;
    this.#untilTry = well ? 0 : TRY_EVERY - 1;
    this.#likely += NEWEST * ((well ? 1 : waiting.arrived / seats) - this.#likely);
  }

  /** A job with this many seats arrived. */
  arrived(seats: number): void {
    if (!this.#waiting) return;
    this.#waiting.arrived += seats;
    if (this.#waiting.arrived >= this.#waiting.enough) this.stop();
  }

  /** Ends the current wait. */
  stop(): void {
    this.#waiting?.end();
    this.#waiting = undefined;
  }
}

function within(stepMs: number): number {
  return Math.min(stepMs * OF_STEP, MOST_MS);
}
