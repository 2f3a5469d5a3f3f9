import type { CacheScope } from '../../engine/protocol/cache-key.js';
import type { Output } from '../../engine/protocol/jobs.js';
import {
  ENGINE_EXIT,
  NO_REPORT,
  PROTOCOL_VERSION,
  type EngineReport,
  type FromEngine,
  type ToEngine,
} from '../../engine/protocol/messages.js';
import type { HashedFile } from '../../engine/protocol/file-key.js';
import type { EngineFacts, EngineSetup, GpuBackend } from '../../engine/protocol/setup.js';
import { usableCores } from '../../engine/protocol/usable-cores.js';
import { childEnvironment, ChildProcess, type ChildEnd } from '../lib/child-process.js';
import type { Clock } from '../lib/clock.js';
import type { EngineEvents } from './engine.js';
import { Mux } from './mux.js';
import { HeldPrefixes, NO_PREFIXES, type ReplicaPrefixes } from './prefixes.js';
import { readMessage } from './wire.js';

/** The longest line of an engine that is passed on, in characters. */
const MAX_REASON = 300;

/** In an engine's line: its cause is memory that other processes may free. */
const OF_MEMORY = /allocat|memory/i;

/** libuv's own default. */
const MIN_POOL_THREADS = 4;

/** More threads would only wait: a step samples at most one token per seat, and they share the memory bandwidth. */
const MAX_POOL_THREADS = 64;

/** How long lists of inputs keep a process that other weights are to replace, ms. Later parts find those, and their lists fail. */
const HOLD_MS = 60_000;

export interface ChildTiming {
  /** From the fork to `ready`, or from when its weights were hashed, ms. */
  readonly startTimeoutMs: number;
  /** A child that sends no messages, or has work and makes no step, for this long is killed. */
  readonly hangMs: number;
}

export interface EngineChildOptions {
  /** Path of the child's module. */
  readonly entry: string;
  readonly setup: EngineSetup;
  readonly timing: ChildTiming;
  readonly clock: Clock;
  /** Environment variables besides those of this process that an engine gets. */
  readonly environment?: Readonly<Record<string, string>>;
}

export interface EngineChildEvents {
  /**
   * Of a child whose setup says that its weights follow, at most once: the key of the file that it begins to load, if it is known.
   * Resolves with the file's key and hash, or with undefined where the child is to hash the file. Until then its time to start does not
   * run, and begins anew.
   */
  opens?(key: string | undefined): Promise<HashedFile | undefined>;
  /** At most once. */
  ready(facts: EngineFacts): void;
  /**
   * Exactly once unless close() came first; also if it had to be killed, then without waiting for its exit. Jobs are still in the mux: the
   * listener must fail them.
   */
  ended(end: ChildEnd): void;
  /** The external server that computes for it cannot be used now. `reason`: one line. */
  serverProblem(reason: string): void;
  /** Changes of its capacity after `ready`. */
  readonly capacity: Pick<EngineEvents, 'seats' | 'unconfirmed'>;
  threw(error: unknown): void;
  /** One job failed; `reason` is one short line of the engine's own. */
  failed(reason: string): void;
}

/** One engine process: handshake, messages, end. Never reused. */
export class EngineChild {
  readonly mux: Mux;
  readonly #events: EngineChildEvents;
  readonly #process: ChildProcess;
  readonly #clock: Clock;
  #held: HeldPrefixes | undefined;
  #facts: EngineFacts | undefined;
  #over = false;
  /** It has yet to report which file it begins to load. */
  #follow: boolean;
  /** The backend that it uses or tried last; false: the CPU. */
  #backend: GpuBackend | false = false;
  /** Its model has loaded, and its first step failed. */
  #noStep = false;
  #report = NO_REPORT;
  /** Decodes so far, as last reported. */
  #step = -1;
  #unconfirmed = 0;
  /** Why its external server cannot be used, as last reported. */
  #serverProblem: string | undefined;

  /** Forks at once; nothing is reported before the next tick. */
  constructor({ entry, setup, timing, clock, environment: own }: EngineChildOptions, events: EngineChildEvents) {
    this.#events = events;
    this.#clock = clock;
    this.#follow = setup.weightsFollow ?? false;
    this.mux = new Mux(
      (message) => this.#process.send(message),
      (error) => events.threw(error),
      (reason) => events.failed(oneLine(reason)),
    );
    // Read when its pool starts.
    const pool = { UV_THREADPOOL_SIZE: String(poolThreads(usableCores().cores)) };
    const environment = childEnvironment({ ...pool, ...own }, setup.remote === undefined ? 'computes' : 'requests');
    // A job whose image is still being encoded elsewhere has no steps.
    const hasWork = (): boolean => Math.max(this.mux.open, this.#report.live) > this.mux.awaitingImages;
    const { startTimeoutMs, hangMs } = timing;
    this.#process = new ChildProcess(
      {
        entry,
        environment,
        clock,
        startTimeoutMs,
        watch: { hangMs, hasWork },
      },
      { message: (raw) => this.#receive(raw), ended: (end) => this.#ended(end) },
    );
    this.#send({ v: PROTOCOL_VERSION, kind: 'start', setup });
  }

  /** The prefixes in its free sequences and its prefix cache; empty before `ready`. */
  get heldPrefixes(): ReplicaPrefixes {
    return this.#held ?? NO_PREFIXES;
  }

  /** As of its last heartbeat; of one that has ended, or is about to, as before the first one. */
  get report(): EngineReport {
    return this.#over ? NO_REPORT : this.#report;
  }

  /** Undefined if it could not be forked. */
  get pid(): number | undefined {
    return this.#process.pid;
  }

  /** Settles when the process is gone. Never rejects. */
  get exited(): Promise<void> {
    return this.#process.exited;
  }

  /**
   * The GPU's backend that failed in this child: its library ended the process, or its first step failed. Undefined: another cause, as
   * memory.
   */
  backendFailure(end: ChildEnd): GpuBackend | undefined {
    const { reason, hint, detail = '' } = end;
    if (this.#facts || hint === 'out-of-memory' || OF_MEMORY.test(detail)) return undefined;
    return reason === 'aborted' || reason === 'crashed' || this.#noStep ? this.#backend || undefined : undefined;
  }

  /** Keeps nothing that requests of this scope left; without one nothing that batches left as garbage. */
  forget(scope?: CacheScope): void {
    if (this.#facts) this.#send({ v: PROTOCOL_VERSION, kind: 'forget', ...(scope !== undefined && { scope }) });
  }

  /**
   * Other weights are to take its place, so that it is sent no other jobs but the next parts of lists, for {@link HOLD_MS} at most.
   * `keep`: it stays in its place, and lists keep it as before.
   */
  endJobs(): { readonly jobsEnded: Promise<void>; readonly keep: () => void } {
    const cancel = this.#clock.after(HOLD_MS, () => this.mux.letHold(false));
    const jobsEnded = new Promise<void>((ended) => this.mux.whenIdle(ended)).finally(cancel);
    const keep = (): void => {
      cancel();
      this.mux.letHold(true);
    };
    return { jobsEnded, keep };
  }

  /**
   * Ends the child without a report: `shutdown`, then SIGKILL after `graceMs`, or at once while it loads. Settles when it has ended, or 2 s
   * after SIGKILL. Fail the mux's jobs first.
   */
  close(graceMs: number): Promise<void> {
    this.#over = true;
    this.mux.letHold(false);
    return this.#process.close(graceMs, { v: PROTOCOL_VERSION, kind: 'shutdown' } satisfies ToEngine);
  }

  /** A message to a child that has ended is dropped: its end is reported by its process. */
  #send(message: ToEngine): void {
    this.#process.send(message);
  }

  #receive(raw: unknown): void {
    const message = readMessage(raw);
    const violation = 'violation' in message ? message.violation : this.#handle(message);
    if (violation !== undefined) this.#process.kill({ reason: 'protocol', detail: violation });
  }

  /** Returns undefined, or the protocol violation. */
  #handle(message: FromEngine): string | undefined {
    switch (message.kind) {
      case 'ready':
        if (this.#facts) return 'ready-twice';
        this.#begin(message.facts);
        return undefined;
      case 'opens':
        if (!this.#follow) return 'opens-unasked';
        this.#follow = false;
        void this.#sendWeights(message.key);
        return undefined;
      case 'unable':
        this.#noStep = message.noStep ?? false;
        this.#process.kill({ reason: 'unable', detail: oneLine(message.reason), mayMend: message.mayMend });
        return undefined;
      case 'tries':
        this.#backend = message.backend;
        return undefined;
      case 'serverProblem':
        this.#serverProblem = oneLine(message.reason);
        this.#events.serverProblem(this.#serverProblem);
        return undefined;
      case 'capacity':
        if (!this.#facts) return 'capacity-before-ready';
        this.#resize(this.#facts, message);
        return undefined;
      case 'heartbeat':
        this.#report = message;
        this.#progressed(message.step, false);
        return undefined;
      case 'step':
        this.#progressed(message.step, message.outputs.length > 0);
        // The prefixes are applied first: a receiver that gets its job's end may ask for them.
        return this.#held?.apply(message.held) ?? this.#apply(message.outputs);
    }
  }

  async #sendWeights(key: string | undefined): Promise<void> {
    this.#process.holdStart();
    const weights = await this.#events.opens?.(key);
    this.#send({ v: PROTOCOL_VERSION, kind: 'weights', ...(weights && { weights }) });
    this.#process.resumeStart();
  }

  #apply(outputs: readonly Output[]): string | undefined {
    return this.#facts ? this.mux.apply(outputs) : 'step-before-ready';
  }

  /** Whether it has made a step, or had results within one. */
  #progressed(step: number, hadResults: boolean): void {
    if (step === this.#step && !hadResults) return;
    this.#step = step;
    this.#process.progressed();
  }

  #resize(facts: EngineFacts, { seats, unconfirmed }: Extract<FromEngine, { kind: 'capacity' }>): void {
    const { capacity } = this.#events;
    if (unconfirmed > this.#unconfirmed) capacity.unconfirmed(unconfirmed - this.#unconfirmed);
    this.#unconfirmed = unconfirmed;
    capacity.seats(Math.min(seats, facts.seats));
  }

  #begin(facts: EngineFacts): void {
    this.#facts = facts;
    this.mux.confirmsCancels = facts.confirmsCancels === true;
    this.mux.weightVersion = facts.weightVersion;
    this.#held = new HeldPrefixes(facts.seats, facts.contextPerSeat);
    this.#process.started();
    this.#events.ready(facts);
  }

  #ended(end: ChildEnd): void {
    this.#over = true;
    const detail = end.detail ?? this.#detailOf(end);
    this.#events.ended(detail === undefined ? end : { ...end, detail });
  }

  /** The meaning of the engine's own exit codes, and why it did not become ready. */
  #detailOf({ reason, code }: ChildEnd): string | undefined {
    if (code === ENGINE_EXIT.protocol) return 'it received an unknown message';
    if (code === ENGINE_EXIT.lost) return this.#serverProblem ?? 'its server is gone, or is another one';
    return reason === 'start-timeout' ? this.#serverProblem : undefined;
  }
}

/** Threads of the engine's libuv pool, on which a step's tokens are sampled in parallel: one per core, within bounds. */
export function poolThreads(cores: number): number {
  return Math.min(MAX_POOL_THREADS, Math.max(MIN_POOL_THREADS, cores));
}

function oneLine(text: string): string {
  return text.replace(/\p{Cc}+/gu, ' ').slice(0, MAX_REASON);
}
