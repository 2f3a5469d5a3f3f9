import { NO_REPORT, type EngineReport } from '../../engine/protocol/messages.js';
import { EngineChild } from './child.js';
import type { ChildEnd } from './exit-reason.js';
import type {
  CacheScope,
  EngineFacts,
  EngineState,
  GenerateJob,
  GenerationReceiver,
  JobHandle,
  ScoreJob,
  ScoreReceiver,
} from './engine.js';
import { IdleWatch } from './idle-watch.js';
import { LoadEstimate } from './load-estimate.js';
import { failSoon, NOT_READY } from './mux.js';
import { NO_PREFIXES, type ReplicaPrefixes } from './prefix-index.js';
import type { EngineReplica } from './replicated-engine.js';
import { RestartPolicy } from './restart-policy.js';
import { endFields, pidField, problemOf } from './exit-report.js';
import { StartGate } from './start-gate.js';
import { closeMsOf, type EngineProcessOptions } from './supervisor-options.js';

/**
 * A supervised engine process, one replica of its model's engine: it is forked, watched, and forked again after it ended,
 * until close() or until its model cannot be served. The next is forked only when the previous has ended.
 *
 *                    start, wake          ready
 *      unloaded ----------------> cold ----------> ready
 *         ^  (lazy, or idle)      |  ^               |
 *         |                       |  '--- it died ---|
 *         '---- no request ------|------------------'
 *                                 '--> lost: no further try would do better
 */
export class EngineProcess implements EngineReplica {
  readonly #options: EngineProcessOptions;
  readonly #policy: RestartPolicy;
  readonly #gate: StartGate;
  #state: EngineState;
  #problem: string | undefined;
  #onDemand: boolean;
  #facts: EngineFacts | undefined;
  #child: EngineChild | undefined;
  /** Settles when an unloaded process has ended. */
  #leaving: Promise<void> | undefined;
  #closed: Promise<void> | undefined;
  #started = false;
  #cancelRestart: () => void = () => undefined;
  #leaveGate: () => void = () => undefined;
  #idle: IdleWatch | undefined;
  readonly #estimate: LoadEstimate;

  constructor(options: EngineProcessOptions) {
    const { timing, random, onDemand } = options;
    this.#options = options;
    this.#gate = options.gate ?? new StartGate();
    this.#onDemand = onDemand?.lazy ?? false;
    this.#state = this.#onDemand ? 'unloaded' : 'cold';
    this.#policy = new RestartPolicy(timing, random, this.#onDemand);
    this.#estimate = new LoadEstimate(timing.startTimeoutMs);
  }

  get state(): EngineState {
    return this.#state;
  }

  get problem(): string | undefined {
    return this.#problem;
  }

  get onDemand(): boolean {
    return this.#onDemand;
  }

  get facts(): EngineFacts | undefined {
    return this.#facts;
  }

  get readyInMs(): number {
    if (this.#state === 'ready' || this.#state === 'lost') return 0;
    return this.#estimate.readyInMs(this.#options.clock.now(), this.#state === 'unloaded');
  }

  /** The id of the current process. */
  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Forks the engine for the first time, unless it is lazy. */
  start(): void {
    if (this.#started) return;
    this.#started = true;
    if (this.#state === 'cold') this.#load();
  }

  wake(): void {
    // After a load that failed the next one is delayed: callers retry.
    const now = this.#options.clock.now();
    if (this.#state !== 'unloaded' || now < this.#estimate.forkAt) return;
    this.#state = 'cold';
    this.#estimate.forksAt(now);
    if (this.#leaving === undefined) this.#load();
    else void this.#leaving.then(() => this.#load());
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  generate(job: GenerateJob, receiver: GenerationReceiver): JobHandle {
    const child = this.#taking();
    return child ? child.mux.generate(job, receiver) : failSoon(receiver, NOT_READY, this.#threw);
  }

  score(job: ScoreJob, receiver: ScoreReceiver): JobHandle {
    const child = this.#taking();
    return child ? child.mux.score(job, receiver) : failSoon(receiver, NOT_READY, this.#threw);
  }

  touch(): void {
    this.#idle?.touch();
  }

  /** The process that accepts jobs now. */
  #taking(): EngineChild | undefined {
    this.touch();
    return this.#state === 'ready' ? this.#child : undefined;
  }

  heldPrefixes(): ReplicaPrefixes {
    return (this.#state === 'ready' && this.#child?.heldPrefixes) || NO_PREFIXES;
  }

  get report(): EngineReport {
    return (this.#state === 'ready' && this.#child?.report) || NO_REPORT;
  }

  forget(scope: CacheScope): void {
    this.#child?.forget(scope);
  }

  async #close(): Promise<void> {
    this.#state = 'lost';
    this.#cancelRestart();
    this.#leaveGate();
    this.#idle?.stop();
    this.#child?.mux.lost('lost');
    await this.#child?.close(closeMsOf(this.#options.timing));
  }

  /** Forks as soon as no other engine is loading. */
  #load(): void {
    if (this.#closed !== undefined) return;
    this.#leaveGate = this.#gate.enter(() => this.#fork());
  }

  #fork(): void {
    const { entry, setup, timing, clock, log, names, environment, mappedElsewhere, events } = this.#options;
    this.#estimate.forked(clock.now());
    const memory = mappedElsewhere && { mappedElsewhere: mappedElsewhere() };
    const child = new EngineChild(
      { entry, setup: memory ? { ...setup, memory } : setup, timing, clock, ...(environment && { environment }) },
      {
        ready: (facts) => this.#ready(facts),
        ended: (end) => this.#ended(child, end),
        capacity: events,
        threw: this.#threw,
        failed: (reason) => log.warn('job failed', { ...names, reason }),
      },
    );
    this.#child = child;
    // A child that could not be forked has no pid, and is reported as lost.
    if (child.pid !== undefined) log.info('engine forked', { ...names, pid: child.pid });
  }

  #ready(facts: EngineFacts): void {
    const { clock, log, names, events, onDemand } = this.#options;
    this.#estimate.ready(clock.now());
    this.#facts = facts;
    this.#problem = undefined;
    this.#state = 'ready';
    if (onDemand && onDemand.idleUnloadMs > 0) {
      const busy = (): boolean => (this.#child?.mux.open ?? 0) > 0 || onDemand.wanted();
      this.#idle = new IdleWatch(clock, onDemand.idleUnloadMs, busy, () => this.#unload());
    }
    const { seats, gpu } = facts;
    const { loadMs } = this.#estimate;
    log.info('engine ready', { ...names, seats, backend: gpu || 'cpu', durationMs: Math.round(loadMs) });
    events.seats(seats);
    // Last: the next one counts what this one has.
    this.#leaveGate();
  }

  /** No request waits and no job runs, so the next request finds it unloaded and wakes it. */
  #unload(): void {
    const { log, names, events } = this.#options;
    const child = this.#child;
    if (this.#state !== 'ready' || child === undefined) return;
    this.#onDemand = true;
    this.#state = 'unloaded';
    log.info('engine unloaded', { ...names, ...pidField(child.pid) });
    events.seats(0);
    this.#leave(child.close(closeMsOf(this.#options.timing)));
  }

  #ended(child: EngineChild, end: ChildEnd): void {
    const { clock, log, names, events } = this.#options;
    this.#idle?.stop();
    const now = clock.now();
    const readyMs = this.#estimate.readyForMs(now);
    const next = this.#policy.after(end, readyMs);
    const final = next.kind === 'final';
    this.#problem = final ? next.why : problemOf(end, readyMs !== undefined);
    // A lazy engine that found no room is tried again when a request needs it, and by itself while one still does.
    const asked = this.#options.onDemand?.wanted() ?? false;
    const waits = this.#onDemand && end.reason === 'unable' && !asked;
    this.#state = final ? 'lost' : waits ? 'unloaded' : 'cold';
    this.#estimate.forksAt(now + (final ? 0 : next.waitMs));
    const fields = { ...names, count: child.mux.open, ...endFields(end, child.pid) };
    log.error(final ? 'engine cannot serve its model' : 'engine lost', fields);
    events.seats(0);
    if (final) events.unservable(next.why, next.unfit);
    child.mux.lost(end.reason === 'protocol' ? 'protocol' : 'lost');
    // Only when its memory is free again.
    void child.gone.then(this.#leaveGate);
    if (next.kind === 'final') return;
    if (waits) this.#leave(child.gone);
    else void child.gone.then(() => this.#restartIn(next.waitMs));
  }

  #leave(gone: Promise<void>): void {
    this.#leaving = gone.then(() => {
      this.#leaving = undefined;
      this.#child = undefined;
    });
  }

  #restartIn(waitMs: number): void {
    if (this.#closed !== undefined) return;
    const { clock, events } = this.#options;
    this.#estimate.forksAt(clock.now() + waitMs);
    this.#cancelRestart = clock.after(waitMs, () => this.#load());
    events.restarting(waitMs);
  }

  readonly #threw = (fault: unknown): void => {
    this.#options.log.error('an engine receiver threw', { ...this.#options.names, fault });
  };
}
