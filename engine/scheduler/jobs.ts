import type { BatchItem } from './batch-planner.js';
import type { PartResult } from './decoder.js';
import { EngineFault, faultReason } from './faults.js';
import type { Reuse } from './state-store.js';
import type { CacheScope } from '../protocol/cache-key.js';
import type { Output, ReplyLimit } from '../protocol/jobs.js';
import type { PrefixReuse } from '../protocol/setup.js';
import type { Sequences } from './sequences.js';
import type { RunningItem, RunningJob, Work } from './job.js';

const NOTHING = new Uint32Array(0);

/** Number of steps in the results of a decode, of which each part has as many. */
export function stepsOf([first]: readonly PartResult[]): number {
  if (first === undefined || first.kind === 'none') return 0;
  return first.kind === 'token' && first.speculation ? first.speculation.steps : 1 + thenOf(first).length;
}

function thenOf(result: PartResult): readonly number[] {
  return result.kind === 'token' ? (result.then ?? []) : [];
}

/**
 * The jobs of an engine from arrival to end: waiting, running on sequences, cancelled. It decodes nothing: the step
 * loop passes it the results, between decodes and one at a time.
 */
export class Jobs {
  readonly #sequences: Sequences;
  readonly #sequenceCount: number;
  readonly #prefixReuse: PrefixReuse;
  /** Jobs that wait for a sequence; the sidecar grants no more leases than seats, so this stays short. */
  readonly #waiting = new Map<number, RunningJob>();
  readonly #started = new Map<number, RunningJob>();
  /** Since the last clean-up. */
  readonly #cancelled = new Set<number>();
  /** Those whose next item waits for the next round, since there is no time for another copy before a decode. */
  readonly #putOff = new Set<RunningJob>();
  /** Those of which a reply waited for a limit that has come. */
  readonly #limited = new Set<RunningJob>();
  /** The value of {@link running}; undefined if it has changed since. Most steps change nothing. */
  #running: readonly RunningItem[] | undefined;

  constructor(sequences: Sequences, seats: number, prefixReuse: PrefixReuse) {
    this.#sequences = sequences;
    this.#sequenceCount = seats;
    this.#prefixReuse = prefixReuse;
  }

  /** Jobs that have a sequence or wait for one. */
  get live(): number {
    return this.#started.size + this.#waiting.size;
  }

  /** Seats that jobs have, those that wait for a sequence included. */
  get seats(): number {
    let seats = 0;
    for (const jobs of [this.#started, this.#waiting]) for (const job of jobs.values()) seats += job.seats;
    return seats;
  }

  /** Items that have sequences and continue, in sequence order. */
  get running(): readonly RunningItem[] {
    return (this.#running ??= [...this.#started.values()]
      .filter((job) => this.runs(job))
      .flatMap((job) => job.branches.map((branch) => ({ job, branch })))
      .sort((a, b) => a.branch.sequence - b.branch.sequence));
  }

  /** Whether a job of this scope has not ended. */
  uses(scope: CacheScope): boolean {
    const all = [...this.#started.values(), ...this.#waiting.values()];
    return all.some(({ work }) => work.terms.scope === scope);
  }

  runs({ id }: RunningJob): boolean {
    return this.#started.has(id) && !this.#cancelled.has(id);
  }

  add(job: RunningJob): void {
    this.#waiting.set(job.id, job);
  }

  /** Takes effect at the next clean-up; outputs until then must not be sent, see {@link reports}. */
  cancel(id: number): void {
    // Also for a job that has just ended: its outputs may not be sent yet.
    const { work } = this.#waiting.get(id) ?? {};
    work?.stop?.();
    work?.wipe?.();
    if (!this.#waiting.delete(id)) this.#cancelled.add(id);
    this.#running = undefined;
  }

  /** A job uses one sequence less from now on, except its last; the seat is freed once nothing runs there. */
  reduceSeats(id: number): void {
    (this.#waiting.get(id) ?? this.#started.get(id))?.reduceSeats();
  }

  /** How many tokens each reply of a job may have. Returns whether a reply waited for that. */
  limit(id: number, limit: ReplyLimit): boolean {
    const job = this.#started.get(id);
    if (job?.work.limit?.(limit) !== true) return false;
    this.#limited.add(job);
    return true;
  }

  /** Ends the replies that waited for more tokens and get none. */
  async endLimited(out: Output[]): Promise<void> {
    const limited = [...this.#limited];
    this.#limited.clear();
    for (const job of limited) {
      if (!this.runs(job)) continue;
      for (const branch of job.branches) branch.endLimited?.(out);
      if (job.moves) await this.guard(job, out, () => this.advance(job, out));
    }
  }

  /** The embeddings of an image of a running job. */
  supply(id: number, image: number, values: Float32Array): void {
    this.#started.get(id)?.work.supply?.(image, values);
  }

  /** Ends what was cancelled. */
  cleanUp(): void {
    for (const id of this.#cancelled) {
      const job = this.#started.get(id);
      job?.work.stop?.();
      if (job) this.#retire(job);
    }
    this.#cancelled.clear();
  }

  /** Whether a job that could have started in this round was put off to the next one. */
  get hasPutOff(): boolean {
    return this.#putOff.size > 0;
  }

  /** Whether a job's outputs are to be sent. */
  reports(id: number): boolean {
    return !this.#cancelled.has(id);
  }

  /** Starts those that wait, as far as there are sequences. */
  async admit(out: Output[]): Promise<void> {
    const putOff = [...this.#putOff].filter((job) => this.runs(job));
    this.#putOff.clear();
    for (const job of putOff) {
      if (this.hasPutOff) this.#putOff.add(job);
      else await this.#start(job, out);
    }
    for (const job of this.#waiting.values()) {
      if (this.hasPutOff || this.#sequences.live === this.#sequenceCount) break;
      this.#waiting.delete(job.id);
      this.#started.set(job.id, job);
      await this.#start(job, out);
    }
  }

  /** Starts a job's items, the first one or further ones, as far as there is time for their copies. */
  async #start(job: RunningJob, out: Output[]): Promise<void> {
    const { id, work } = job;
    const reuse = this.#reuse(work);
    await this.guard(job, out, async () => {
      if (job.branches.length === 0) {
        const keep = await this.#begin(job, () => reuse);
        if (keep === undefined) return;
        out.push({ id, kind: 'started', cachedTokens: keep });
      }
      await this.#spread(job);
      this.#askForImages(job, out);
    });
  }

  /** Runs a step of a job; if it throws, only that job fails. */
  async guard(job: RunningJob, out: Output[], act: () => void | Promise<void>): Promise<void> {
    try {
      await act();
    } catch (error) {
      this.fail(job, out, error);
    }
  }

  /** Ends a single failed job. */
  fail(job: RunningJob, out: Output[], error: unknown): void {
    out.push({ id: job.id, kind: 'failed', reason: faultReason(error) });
    this.#retire(job);
  }

  /**
   * Passes the results of a decode to their branches, and records the tokens in the sequences. `fed`: the input of each result;
   * afterwards the input of the run's next step. Outputs of the jobs are added to `out`. Returns whether a reply has ended, so
   * that a run is not to go on.
   */
  deliver(items: readonly BatchItem[], results: readonly PartResult[], fed: Uint32Array[], out: Output[]): boolean {
    // All are recorded first: a job that fails wipes its prompt, of which other parts may be.
    for (const [i, result] of results.entries()) {
      const sequence = items[i]?.branch.sequence;
      if (sequence === undefined || result.kind === 'none') continue;
      const tokens = fed[i] ?? NOTHING;
      if (result.kind === 'fault') this.#sequences.invalidated(sequence);
      else this.#sequences.evaluated(sequence, tokens, items.length === 1 && result.kind === 'filled');
      if (result.kind !== 'token') continue;
      const chosen = [result.token, ...thenOf(result)];
      fed[i] = Uint32Array.of(...chosen.slice(-1));
      if (chosen.length > 1) this.#sequences.evaluated(sequence, Uint32Array.from(chosen.slice(0, -1)), false);
    }
    let ended = false;
    for (const [i, result] of results.entries()) {
      const each = items[i];
      // An earlier step of the run has ended it.
      if (!each || !this.#goesOn(each)) continue;
      const { job, branch } = each;
      try {
        if (result.kind === 'fault') throw new EngineFault(result.reason);
        branch.accept(result, out);
      } catch (error) {
        this.fail(job, out, error);
      }
      ended ||= !this.#goesOn(each);
    }
    return ended;
  }

  /** Saves the states of prompts that have come to where they are to be saved. One that cannot be fails its job. */
  async saveAll(items: readonly BatchItem[], out: Output[]): Promise<void> {
    for (const each of items) {
      const { job, branch, count } = each;
      if (count === 0 || !branch.progress.saves || !this.#goesOn(each)) continue;
      await this.guard(job, out, () => this.#sequences.save(branch.sequence));
    }
  }

  #goesOn({ job, branch }: RunningItem): boolean {
    return this.runs(job) && !branch.over;
  }

  /** After a decode of parts of these jobs. */
  async advanceAll(jobs: Iterable<RunningJob>, out: Output[]): Promise<void> {
    for (const job of jobs) {
      if (job.moves && this.runs(job)) await this.guard(job, out, () => this.advance(job, out));
    }
  }

  /**
   * After a decode, for a job with changes: ended items free sequences for those not yet started. Throws for `guard`.
   */
  async advance(job: RunningJob, out: Output[]): Promise<void> {
    this.#running = undefined;
    for (const branch of job.branches.filter(({ over }) => over)) {
      const { sequence } = branch;
      const next = job.follows ? job.next : undefined;
      if (!next) {
        job.end(branch);
        this.#sequences.free(sequence, branch.ended);
        continue;
      }
      const keep = await this.#sequences.reopen(sequence, next, job.work.reuse);
      job.end(branch);
      this.#take(job, sequence, keep);
    }
    await this.#spread(job);
    this.#askForImages(job, out);
    if (job.done) {
      if (job.work.countsEach === true) out.push({ id: job.id, kind: 'cached', tokens: job.kept });
      out.push({ id: job.id, kind: 'done' });
      this.#retire(job);
      return;
    }
    for (let spare = job.releaseSpare(); spare > 0; spare--) out.push({ id: job.id, kind: 'seatFreed' });
  }

  /** How much state of other jobs a started job may reuse. */
  #reuse({ isolated, terms }: Work): Reuse {
    if (this.#prefixReuse === 'off') return 'none';
    if (isolated) return 'same-split';
    const { session, kept = [] } = terms.claims ?? {};
    // Not of a session's first turn, which each chat is: it would not repeat.
    const hasOthers = terms.besideOthers === true || (kept.length > 0 && this.#sequences.hasStateOf(session));
    const alone = this.#started.size === 1 && !hasOthers;
    return this.#prefixReuse === 'any' || !alone ? 'any' : 'same-split';
  }

  /** Starts a job's next item on a new sequence. Returns the reused tokens; undefined if no sequence is free, or it was put off. */
  async #begin(job: RunningJob, reuse: (sequence: number) => Reuse): Promise<number | undefined> {
    const { next, work } = job;
    if (!next) return undefined;
    const opened = await this.#sequences.open(next, reuse, work, this.running.length > 0);
    if (opened === 'later' || (opened === 'full' && job.branches.length === 0)) this.#putOff.add(job);
    if (opened === 'later' || opened === 'full') return undefined;
    this.#take(job, opened.sequence, opened.keep);
    return opened.keep;
  }

  #askForImages({ id, work }: RunningJob, out: Output[]): void {
    for (const image of work.neededImages?.() ?? []) out.push({ id, kind: 'needsImage', image });
  }

  /** Frees the sequence if no branch takes it. */
  #take(job: RunningJob, sequence: number, keep: number): void {
    this.#running = undefined;
    try {
      job.begin(sequence, keep);
    } catch (error) {
      this.#sequences.free(sequence);
      throw error;
    }
  }

  /** Starts further items beside the running ones, while there are seats and sequences. */
  async #spread(job: RunningJob): Promise<void> {
    const own = new Set(job.branches.map(({ sequence }) => sequence));
    const others = this.#reuse(job.work);
    while (job.spreads && this.runs(job)) {
      const keep = await this.#begin(job, (sequence) => (own.has(sequence) ? job.work.reuse : others));
      if (keep === undefined) break;
    }
  }

  #retire(job: RunningJob): void {
    this.#running = undefined;
    job.dispose();
    this.#started.delete(job.id);
    for (const { sequence } of job.branches) this.#sequences.free(sequence);
  }
}
