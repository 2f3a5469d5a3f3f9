/**
 * The loop of an engine that makes one vector or score of each input.
 *
 * A step is one decode of whole inputs, of any jobs, up to `stepTokens` tokens and `stepInputs` inputs; one longer input has a step of
 * its own. Which inputs a step has is decided by weighted fair queuing between the scopes of accounts: each scope has a virtual time
 * that grows by the tokens of its inputs over its weight, and the next input is one of the scope with the lowest (start-time fair
 * queuing, P. Goyal et al., 1996). So an input of an account that had none is in the next step, however many inputs others have waiting,
 * and accounts that always have some get tokens in the ratio of their weights. Within a scope every second input is of the oldest job,
 * and the others are of the one with the fewest tokens left: parts of lists end one after another, so that a seat is soon free, and
 * neither lists nor single inputs of an account wait for all of the others.
 *
 * A new scope begins at the lowest virtual time. One that has had some keeps its own, so that an account whose next list arrives a moment
 * after its last one was done loses nothing by the pause, and none gains by pauses: it then has steps for itself until it has its share
 * again. It is forgotten once it is behind by more than two steps add to the one with the least weight. A scope that had no inputs may be
 * as far before the others, and its first one is still in the next step, so that a single input does not wait for those who catch up.
 * Such inputs have half of a step, so that those of many accounts do not stop one that is behind them all.
 *
 * Where a step begins with jobs that fit into one, as a single input does, longer jobs fill it to half, or with as many tokens as those
 * have. One longer input may pass that where the step and the one before are a step and a half at most, within which a single input is done.
 *
 * A step's outputs are sent while the next step computes. No later step can read what an input left in llama.cpp's KV memory; once the
 * loop has had nothing to do for some time that memory is overwritten. Encoders have none.
 */
import type { CacheScope } from '../protocol/cache-key.js';
import { processClock, type Clock } from '../protocol/clock.js';
import type { EmbedJob, Output, PairTexts } from '../protocol/jobs.js';
import { NO_CACHE, type EngineReport } from '../protocol/messages.js';
import { EngineFault, faultReason } from './faults.js';
import type { Emit } from './outbox.js';

/** Idle time after which the memory is overwritten, ms: it may take some 200 ms, which a request that comes then waits. */
export const CLEAR_MS = 5000;

/** Steps for which an account's share is made up for, or is given before it is due. */
const ALLOWED_STEPS = 2;

/** What computes. Made by engine/llama/pooling.ts. */
export interface Pooling {
  /** Numbers of each result: of a vector, or 1. */
  readonly width: number;
  /**
   * One decode. `tokens`: of all inputs, one after another; `pairs`: the same as texts, where the jobs have these. Resolves with the
   * results, one after another. Rejects if it fails.
   */
  decode(tokens: Uint32Array, lengths: Uint32Array, pairs: readonly PairTexts[]): Promise<Float32Array>;
  /** Writes zeros over what the last decode left. Not during a decode. */
  clear(): void;
}

/** What a loop is made with. */
export interface PoolingLimits {
  /** Tokens of a step, unless it has one input alone. */
  readonly stepTokens: number;
  readonly stepInputs: number;
  /** Tokens of one input. */
  readonly contextPerSeat: number;
  readonly vocabulary: number;
}

/** A job that has not ended. */
interface Running {
  readonly id: number;
  readonly job: EmbedJob;
  /** Inputs that are in a step or done, and their tokens. */
  taken: number;
  takenTokens: number;
  /** Inputs whose results were made. */
  done: number;
}

/** The jobs of one scope that have inputs which no step has had. */
interface ScopeJobs {
  readonly weight: number;
  virtualTokens: number;
  /** No step has had an input of it since it had none. */
  isFirst: boolean;
  /** The oldest one is first. */
  readonly jobs: Set<Running>;
  isOldestNext: boolean;
}

/** Consecutive inputs of one job in a step. */
interface InputRun {
  readonly running: Running;
  /** Of the job. */
  readonly firstToken: number;
  inputs: number;
  tokens: number;
}

/** The step loop of an engine process that makes vectors or scores: takes jobs and emits their outputs. */
export class PoolingLoop {
  readonly #pooling: Pooling;
  readonly #limits: PoolingLimits;
  readonly #emit: Emit;
  readonly #clock: Clock;
  readonly #running = new Map<number, Running>();
  readonly #scopes = new Map<CacheScope, ScopeJobs>();
  /** The lowest virtual time when an input was chosen last. */
  #servedTokens = 0;
  #outputs: Output[] = [];
  #step = 0;
  #loop: Promise<void> | undefined;
  #closed = false;
  #keep: () => void = () => undefined;

  constructor(pooling: Pooling, limits: PoolingLimits, emit: Emit, clock: Clock = processClock) {
    this.#pooling = pooling;
    this.#limits = limits;
    this.#emit = emit;
    this.#clock = clock;
  }

  /** Decodes finished so far. */
  get steps(): number {
    return this.#step;
  }

  /** What there is now. Tokens: of inputs that no step has had. */
  get report(): EngineReport {
    let running = 0;
    for (const { job, takenTokens } of this.#running.values()) running += job.tokens.length - takenTokens;
    return { live: this.#running.size, tokens: { running, kept: 0 }, cache: NO_CACHE };
  }

  /** Adds a job; its outputs are passed to `emit`. A job with an input that cannot be computed fails at once. */
  embed(id: number, job: EmbedJob): void {
    const problem = problemOf(job, this.#limits);
    if (problem !== undefined) {
      this.#emit(this.#step, [{ id, kind: 'failed', reason: problem }], []);
      return;
    }
    const running: Running = { id, job, taken: 0, takenTokens: 0, done: 0 };
    this.#running.set(id, running);
    this.#scopeOf(job).jobs.add(running);
    if (!this.#closed) this.#loop ??= this.#run();
  }

  /** Ends a job: no further input of it is computed, and it emits nothing from now on. */
  cancel(id: number): void {
    const running = this.#running.get(id);
    if (running) this.#end(running);
    this.#outputs = this.#outputs.filter((output) => output.id !== id);
  }

  /** Stops after the current step; resolves when nothing decodes any more. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#keep();
    await this.#loop;
  }

  async #run(): Promise<void> {
    this.#keep();
    // All jobs of this turn of the event loop take part in the first step.
    await new Promise(setImmediate);
    for (let parts = this.#choose([]); parts.length > 0 && !this.#closed; parts = this.#choose(parts)) {
      const decoding = this.#decode(parts);
      // While llama.cpp computes on another thread.
      this.#flush();
      await decoding;
      this.#forgetIdle();
    }
    this.#flush();
    this.#scopes.clear();
    this.#loop = undefined;
    if (!this.#closed) this.#keep = this.#clock.after(CLEAR_MS, () => this.#pooling.clear());
  }

  /** Its weight is that of the last request that found it without inputs. */
  #scopeOf({ scope, weight }: EmbedJob): ScopeJobs {
    const known = this.#scopes.get(scope);
    if (known && known.jobs.size > 0) return known;
    this.#forgetIdle();
    const virtualTokens = this.#scopes.get(scope)?.virtualTokens ?? this.#servedTokens;
    const made = { weight, virtualTokens, isFirst: true, jobs: new Set<Running>(), isOldestNext: false };
    this.#scopes.set(scope, made);
    return made;
  }

  #forgetIdle(): void {
    const least = (this.#lowest()?.virtualTokens ?? this.#servedTokens) - this.#allowance();
    for (const [scope, { jobs, virtualTokens }] of this.#scopes)
      if (jobs.size === 0 && virtualTokens < least) this.#scopes.delete(scope);
  }

  /** How far a scope's virtual time may be from the lowest one and be kept, or be served first. */
  #allowance(): number {
    const weights = Array.from(this.#scopes.values(), ({ weight }) => weight);
    return (ALLOWED_STEPS * this.#limits.stepTokens) / Math.min(...weights);
  }

  /** The inputs of the next step, by job; `last`: those of the step before. Each job that begins emits `started`. */
  #choose(last: readonly InputRun[]): InputRun[] {
    const { stepTokens, stepInputs } = this.#limits;
    const parts = new Map<Running, InputRun>();
    const lastTokens = last.reduce((sum, part) => sum + part.tokens, 0);
    let [tokens, inputs, early, short] = [0, 0, 0, 0];
    while (inputs < stepInputs) {
      const lowest = this.#lowest();
      if (!lowest) break;
      const first = this.#lowest(true);
      const isNear = first !== undefined && first.virtualTokens <= lowest.virtualTokens + this.#allowance();
      const scope = isNear && early < stepTokens / 2 ? first : lowest;
      const running = nextOf(scope);
      if (!running) break;
      const { id, job } = running;
      const length = job.lengths[running.taken] ?? 0;
      // It is first in the next step. Shorter inputs of others don't fill this one: they would get more than their share.
      const isLong = job.tokens.length > stepTokens;
      const isHeldBack = isLong && short > 0 && (short < tokens || lastTokens + tokens + length > 1.5 * stepTokens);
      const most = isHeldBack ? Math.max(stepTokens / 2, 2 * short) : stepTokens;
      if (inputs > 0 && tokens + length > Math.min(most, stepTokens)) break;
      if (running.taken === 0) this.#outputs.push({ id, kind: 'started', cachedTokens: 0 });
      const part = parts.get(running) ?? { running, firstToken: running.takenTokens, inputs: 0, tokens: 0 };
      parts.set(running, part);
      part.inputs += 1;
      part.tokens += length;
      running.taken += 1;
      running.takenTokens += length;
      this.#servedTokens = lowest.virtualTokens;
      scope.virtualTokens += length / scope.weight;
      if (scope !== lowest) early += length;
      scope.isFirst = false;
      scope.isOldestNext = !scope.isOldestNext;
      if (running.taken === job.lengths.length) scope.jobs.delete(running);
      if (!isLong && short === tokens) short += length;
      inputs += 1;
      tokens += length;
    }
    return [...parts.values()];
  }

  /** The scope with the lowest virtual time of those that have inputs, or of those of them that had none. */
  #lowest(isFirst = false): ScopeJobs | undefined {
    let lowest: ScopeJobs | undefined;
    for (const scope of this.#scopes.values()) {
      if (scope.jobs.size === 0 || (isFirst && !scope.isFirst)) continue;
      if (lowest === undefined || scope.virtualTokens < lowest.virtualTokens) lowest = scope;
    }
    return lowest;
  }

  /** One step. What llama.cpp cannot compute together is tried job by job, so that only those fail that it cannot compute. */
  async #decode(parts: readonly InputRun[]): Promise<void> {
    const together = await this.#attempt(parts);
    if (together === 'done') return;
    for (const part of parts) {
      if (!this.#running.has(part.running.id)) continue;
      const alone = parts.length === 1 ? together : await this.#attempt([part]);
      if (alone !== 'done') this.#fail(part.running, alone.fault);
    }
  }

  /** Computes these inputs and delivers their results, or returns why it cannot. */
  async #attempt(parts: readonly InputRun[]): Promise<'done' | { readonly fault: unknown }> {
    const tokens = new Uint32Array(parts.reduce((sum, part) => sum + part.tokens, 0));
    const lengths = new Uint32Array(parts.reduce((sum, { inputs }) => sum + inputs, 0));
    const pairs: PairTexts[] = [];
    let [at, input] = [0, 0];
    for (const { running, firstToken, inputs, tokens: count } of parts) {
      const { job, taken } = running;
      tokens.set(job.tokens.subarray(firstToken, firstToken + count), at);
      lengths.set(job.lengths.subarray(taken - inputs, taken), input);
      if (job.pairs)
        pairs.push({ query: job.pairs.query, documents: job.pairs.documents.slice(taken - inputs, taken) });
      at += count;
      input += inputs;
    }
    try {
      const values = await this.#pooling.decode(tokens, lengths, pairs);
      this.#step += 1;
      if (!values.every(Number.isFinite)) return { fault: new EngineFault('a result is not a number') };
      this.#deliver(parts, values);
      return 'done';
    } catch (fault) {
      return { fault };
    } finally {
      tokens.fill(0);
    }
  }

  #deliver(parts: readonly InputRun[], values: Float32Array): void {
    let from = 0;
    for (const { running, inputs: count } of parts) {
      const { id, job } = running;
      const own = values.slice(from, (from += count * this.#pooling.width));
      if (!this.#running.has(id)) continue;
      this.#outputs.push({ id, kind: 'vectors', count, values: own });
      running.done += count;
      if (running.done < job.lengths.length) continue;
      this.#outputs.push({ id, kind: 'done' });
      this.#end(running);
    }
  }

  #fail(running: Running, fault: unknown): void {
    if (!this.#running.has(running.id)) return;
    this.#outputs.push({ id: running.id, kind: 'failed', reason: faultReason(fault) });
    this.#end(running);
  }

  #end(running: Running): void {
    const { id, job } = running;
    this.#running.delete(id);
    this.#scopes.get(job.scope)?.jobs.delete(running);
    job.tokens.fill(0);
  }

  #flush(): void {
    const outputs = this.#outputs;
    this.#outputs = [];
    if (outputs.length > 0) this.#emit(this.#step, outputs, []);
  }
}

/** The job whose input is the next one of a scope. */
function nextOf({ jobs, isOldestNext }: ScopeJobs): Running | undefined {
  const [oldest] = jobs;
  if (oldest === undefined || isOldestNext) return oldest;
  const left = ({ job, takenTokens }: Running): number => job.tokens.length - takenTokens;
  return [...jobs].reduce((least, each) => (left(each) < left(least) ? each : least), oldest);
}

/** Why a job must not be passed to llama.cpp, or undefined: a token outside the vocabulary fails its whole batch. */
function problemOf(
  { tokens, lengths, weight }: EmbedJob,
  { contextPerSeat, vocabulary }: PoolingLimits,
): string | undefined {
  if (!tokens.every((token) => token < vocabulary)) return 'a token outside the vocabulary';
  const sum = lengths.reduce((total, length) => total + length, 0);
  if (lengths.length === 0 || lengths.includes(0) || sum !== tokens.length) return 'an input without tokens';
  if (lengths.some((length) => length > contextPerSeat)) return 'does not fit the context';
  return weight > 0 ? undefined : 'no weight';
}
