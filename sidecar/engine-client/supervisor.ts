import { EngineChild, type ChildEnd } from './child.js';
import type {
  EngineFacts,
  EngineState,
  GenerateJob,
  GenerationSink,
  HeldTokens,
  HostedEngine,
  JobHandle,
  ScoreJob,
  ScoreSink,
} from './engine.js';
import { IdleWatch } from './idle-watch.js';
import { failSoon } from './mux.js';
import { NO_PREFIXES, type PrefixIndex } from './prefix-index.js';
import { RestartPolicy } from './restart-policy.js';
import { StartGate } from './start-gate.js';
import type { EngineProcessOptions } from './supervisor-options.js';

export type { EngineProcessOptions, EngineTiming, OnDemand } from './supervisor-options.js';

/** How long an engine may take to leave after `shutdown`, ms, unless the options say otherwise. */
const CLOSE_MS = 2000;

/** The initial estimate of a model's load time, ms. */
const FIRST_START_MS = 5000;

/** The least value of `readyInMs` while cold, since loading may take longer than estimated. */
const MIN_READY_IN_MS = 500;

/**
 * A supervised engine: its process is forked, watched, and forked again after it ended, until close() or until its
 * model cannot be served. There is one process at a time: the next is forked only when the previous has ended.
 *
 *                    start, wake          ready
 *      unloaded ----------------> cold ----------> ready
 *         ^  (lazy, or idle)      |  ^               |
 *         |                       |  '--- it died ---|
 *         '---- no request ------|------------------'
 *                                 '--> lost: no further try would do better
 */
export class EngineProcess implements HostedEngine {
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
  /** When the current or next process was or will be forked. */
  #forkAt = 0;
  #readyAt: number | undefined;
  #lastStartMs: number;

  constructor(options: EngineProcessOptions) {
    const { timing, random, onDemand } = options;
    this.#options = options;
    this.#gate = options.gate ?? new StartGate();
    this.#onDemand = onDemand?.lazy ?? false;
    this.#state = this.#onDemand ? 'unloaded' : 'cold';
    this.#policy = new RestartPolicy(timing, random, this.#onDemand);
    this.#lastStartMs = Math.min(FIRST_START_MS, timing.startTimeoutMs);
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
    const now = this.#options.clock.now();
    const forkAt = this.#state === 'unloaded' ? Math.max(this.#forkAt, now) : this.#forkAt;
    return Math.max(forkAt + this.#lastStartMs - now, MIN_READY_IN_MS);
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
    if (this.#state !== 'unloaded' || this.#options.clock.now() < this.#forkAt) return;
    this.#state = 'cold';
    this.#forkAt = this.#options.clock.now();
    if (this.#leaving === undefined) this.#load();
    else void this.#leaving.then(() => this.#load());
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  generate(job: GenerateJob, sink: GenerationSink): JobHandle {
    const child = this.#taking();
    return child ? child.mux.generate(job, sink) : failSoon(sink, NOT_READY, this.#threw);
  }

  score(job: ScoreJob, sink: ScoreSink): JobHandle {
    const child = this.#taking();
    return child ? child.mux.score(job, sink) : failSoon(sink, NOT_READY, this.#threw);
  }

  /** The process that accepts jobs now. */
  #taking(): EngineChild | undefined {
    this.#idle?.touch();
    return this.#state === 'ready' ? this.#child : undefined;
  }

  heldPrefixes(): PrefixIndex {
    return (this.#state === 'ready' && this.#child?.heldPrefixes) || NO_PREFIXES;
  }

  get heldTokens(): HeldTokens {
    return (this.#state === 'ready' && this.#child?.heldTokens) || NO_TOKENS;
  }

  get capacityTokens(): number {
    return this.#facts ? this.#facts.seats * this.#facts.contextPerSeat : 0;
  }

  async #close(): Promise<void> {
    this.#state = 'lost';
    this.#cancelRestart();
    this.#leaveGate();
    this.#idle?.stop();
    this.#child?.mux.lost('lost');
    await this.#child?.close(this.#closeMs);
  }

  get #closeMs(): number {
    return this.#options.timing.closeMs ?? CLOSE_MS;
  }

  /** Forks as soon as no other engine is loading. */
  #load(): void {
    if (this.#closed !== undefined) return;
    this.#leaveGate = this.#gate.enter(() => this.#fork());
  }

  #fork(): void {
    const { entry, setup, timing, clock, log, model, mappedElsewhere } = this.#options;
    this.#forkAt = clock.now();
    this.#readyAt = undefined;
    const memory = mappedElsewhere && { mappedElsewhere: mappedElsewhere() };
    const child = new EngineChild(
      { entry, setup: memory ? { ...setup, memory } : setup, timing, clock },
      {
        ready: (facts) => this.#ready(facts),
        ended: (end) => this.#ended(child, end),
        threw: this.#threw,
        failed: (reason) => log.warn('job failed', { model, reason }),
      },
    );
    this.#child = child;
    // A child that could not be forked has no pid, and is reported as lost.
    if (child.pid !== undefined) log.info('engine forked', { model, pid: child.pid });
  }

  #ready(facts: EngineFacts): void {
    const { clock, log, model, events, onDemand } = this.#options;
    this.#readyAt = clock.now();
    this.#lastStartMs = this.#readyAt - this.#forkAt;
    this.#facts = facts;
    this.#problem = undefined;
    this.#state = 'ready';
    if (onDemand && onDemand.idleUnloadMs > 0) {
      const busy = (): boolean => (this.#child?.mux.pending ?? 0) > 0 || onDemand.wanted();
      this.#idle = new IdleWatch(clock, onDemand.idleUnloadMs, busy, () => this.#unload());
    }
    const { seats, gpu } = facts;
    log.info('engine ready', { model, seats, backend: gpu || 'cpu', durationMs: Math.round(this.#lastStartMs) });
    events.seats(seats);
    // Last: the next one counts what this one has.
    this.#leaveGate();
  }

  /** No request waits and no job runs, so the next request finds it unloaded and wakes it. */
  #unload(): void {
    const { log, model, events } = this.#options;
    const child = this.#child;
    if (this.#state !== 'ready' || child === undefined) return;
    this.#onDemand = true;
    this.#state = 'unloaded';
    log.info('engine unloaded', { model, ...pidOf(child) });
    events.seats(0);
    this.#leave(child.close(this.#closeMs));
  }

  #ended(child: EngineChild, end: ChildEnd): void {
    const { clock, log, model, events } = this.#options;
    this.#idle?.stop();
    const now = clock.now();
    const next = this.#policy.after(end, this.#readyAt === undefined ? undefined : now - this.#readyAt);
    const final = next.kind === 'final';
    this.#problem = final
      ? next.why
      : end.reason === 'unstartable'
        ? `cannot be forked: ${end.detail ?? ''}`
        : undefined;
    // A lazy engine that found no room is tried again when a request needs it, and by itself while one still does.
    const asked = this.#options.onDemand?.wanted() ?? false;
    const waits = this.#onDemand && end.reason === 'unable' && !asked;
    this.#state = final ? 'lost' : waits ? 'unloaded' : 'cold';
    this.#forkAt = now + (final ? 0 : next.waitMs);
    log.error(final ? 'engine cannot serve its model' : 'engine lost', {
      model,
      reason: [end.reason, end.detail, end.hint].filter(Boolean).join(': '),
      count: child.mux.pending,
      ...pidOf(child),
      ...(end.code !== null && { exitCode: end.code }),
      ...(end.signal !== null && { signal: end.signal }),
    });
    events.seats(0);
    if (final) events.unservable(next.why);
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
    this.#forkAt = clock.now() + waitMs;
    this.#cancelRestart = clock.after(waitMs, () => this.#load());
    events.restarting(waitMs);
  }

  readonly #threw = (fault: unknown): void => {
    this.#options.log.error('an engine sink threw', { model: this.#options.model, fault });
  };
}

const NO_TOKENS: HeldTokens = { running: 0, kept: 0 };

const NOT_READY = { kind: 'lost', started: false } as const;

function pidOf({ pid }: EngineChild): { pid?: number } {
  return pid === undefined ? {} : { pid };
}
