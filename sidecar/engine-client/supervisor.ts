import type { EngineSetup } from '../../engine/protocol.js';
import type { Clock } from '../clock.js';
import { Backoff } from './backoff.js';
import { EngineChild, type ChildEnd, type ChildTiming } from './child.js';
import type { Cancel, Engine, EngineFacts, GenerateJob, GenerationSink, ScoreJob, ScoreSink } from './engine.js';
import type { Log } from '../telemetry/logger.js';
import { failSoon } from './mux.js';
import { NO_PREFIXES, type PrefixIndex } from './prefix-index.js';

/** How long an engine may take to leave after `shutdown`, ms, unless told otherwise. */
const CLOSE_MS = 2000;

/** The first guess of how long a model takes to load, ms. */
const FIRST_START_MS = 5000;

/** What `readyInMs` says at least while cold: loading may outlast its guess. */
const MIN_READY_IN_MS = 500;

export interface EngineTiming extends ChildTiming {
  /** The wait before a restart, from the first to the longest; a life that was ready for the longest resets it. */
  readonly backoffMinMs: number;
  readonly backoffMaxMs: number;
  /** From `shutdown` to SIGKILL when closing; 2,000 unless given. */
  readonly closeMs?: number;
}

/** Called on the event loop, never from inside start(), generate() or score(). They must not throw. */
export interface EngineEvents {
  /** It takes jobs from now on; also after each restart. `resume` the queue here. */
  onReady(facts: EngineFacts): void;
  /**
   * It died or was killed. Called before the sinks of its jobs fail, so that a queue paused here does not seat what they
   * give back. `final`: it stays lost, because the model cannot be served.
   */
  onLost(end: ChildEnd & { readonly final: boolean }): void;
  /** It will be forked again in so many ms. */
  onRestart?(inMs: number): void;
}

export interface EngineProcessOptions {
  /** Path of the engine's entry module, for fork. */
  readonly entry: string;
  readonly setup: EngineSetup;
  readonly timing: EngineTiming;
  readonly clock: Clock;
  /** From 0 to 1, for the spread of restarts. */
  readonly random: () => number;
  readonly log: Log;
  /** The model's id, for the log. */
  readonly model: string;
  readonly events: EngineEvents;
}

/**
 * An engine that is kept alive: its process is forked, watched, and forked again after it died, until close() or until
 * it says that its model cannot be served. One process at a time: the next is forked only when the last is gone.
 */
export class EngineProcess implements Engine {
  readonly #options: EngineProcessOptions;
  readonly #backoff: Backoff;
  #state: Engine['state'] = 'cold';
  #facts: EngineFacts | undefined;
  #child: EngineChild | undefined;
  #closed: Promise<void> | undefined;
  #cancelRestart: () => void = () => undefined;
  /** When the life now running, or the next one, was or will be forked. */
  #forkAt = 0;
  #readyAt: number | undefined;
  #lastStartMs: number;

  constructor(options: EngineProcessOptions) {
    const { backoffMinMs, backoffMaxMs, startTimeoutMs } = options.timing;
    this.#options = options;
    this.#backoff = new Backoff(backoffMinMs, backoffMaxMs, options.random);
    this.#lastStartMs = Math.min(FIRST_START_MS, startTimeoutMs);
  }

  get state(): Engine['state'] {
    return this.#state;
  }

  get facts(): EngineFacts | undefined {
    return this.#facts;
  }

  get readyInMs(): number {
    if (this.#state !== 'cold') return 0;
    return Math.max(this.#forkAt + this.#lastStartMs - this.#options.clock.now(), MIN_READY_IN_MS);
  }

  /** Of the process now running. */
  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Forks the engine for the first time. Again, or after close(), it does nothing. */
  start(): void {
    if (this.#child === undefined && this.#closed === undefined) this.#fork();
  }

  /** Ends the process and fails its jobs as lost. Settles when it is gone; may be called at any time and again. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  generate(job: GenerateJob, sink: GenerationSink): Cancel {
    if (this.#state === 'ready' && this.#child !== undefined) return this.#child.mux.generate(job, sink);
    return failSoon(sink, { kind: 'lost', started: false }, this.#threw);
  }

  score(job: ScoreJob, sink: ScoreSink): Cancel {
    if (this.#state === 'ready' && this.#child !== undefined) return this.#child.mux.score(job, sink);
    return failSoon(sink, { kind: 'lost', started: false }, this.#threw);
  }

  heldPrefixes(): PrefixIndex {
    return (this.#state === 'ready' && this.#child?.heldPrefixes) || NO_PREFIXES;
  }

  async #close(): Promise<void> {
    this.#state = 'lost';
    this.#cancelRestart();
    this.#child?.mux.lost('lost');
    await this.#child?.close(this.#options.timing.closeMs ?? CLOSE_MS);
  }

  #fork(): void {
    const { entry, setup, timing, clock, log, model } = this.#options;
    this.#forkAt = clock.now();
    this.#readyAt = undefined;
    const child = new EngineChild(
      { entry, setup, timing, clock },
      {
        ready: (facts) => this.#ready(facts),
        ended: (end) => this.#ended(child, end),
        threw: this.#threw,
      },
    );
    this.#child = child;
    log.info('engine forked', { model, ...pidOf(child) });
  }

  #ready(facts: EngineFacts): void {
    const { clock, log, model, events } = this.#options;
    this.#readyAt = clock.now();
    this.#lastStartMs = this.#readyAt - this.#forkAt;
    this.#facts = facts;
    this.#state = 'ready';
    log.info('engine ready', { model, seats: facts.seats, durationMs: Math.round(this.#lastStartMs) });
    events.onReady(facts);
  }

  #ended(child: EngineChild, end: ChildEnd): void {
    const { clock, timing, log, model, events } = this.#options;
    const final = end.reason === 'unable';
    this.#state = final ? 'lost' : 'cold';
    if (this.#readyAt !== undefined && clock.now() - this.#readyAt >= timing.backoffMaxMs) this.#backoff.reset();
    const waitMs = this.#backoff.next();
    this.#forkAt = clock.now() + waitMs;
    log.error(final ? 'engine cannot serve its model' : 'engine lost', {
      model,
      reason: [end.reason, end.detail, end.hint].filter(Boolean).join(': '),
      count: child.mux.pending,
      ...pidOf(child),
      ...(end.code !== null && { exitCode: end.code }),
      ...(end.signal !== null && { signal: end.signal }),
    });
    events.onLost({ ...end, final });
    child.mux.lost(end.reason === 'protocol' ? 'protocol' : 'lost');
    if (!final) void child.gone.then(() => this.#restartIn(waitMs));
  }

  #restartIn(waitMs: number): void {
    if (this.#closed !== undefined) return;
    const { clock, events } = this.#options;
    this.#forkAt = clock.now() + waitMs;
    this.#cancelRestart = clock.after(waitMs, () => this.#fork());
    events.onRestart?.(waitMs);
  }

  readonly #threw = (fault: unknown): void => {
    this.#options.log.error('an engine sink threw', { model: this.#options.model, fault });
  };
}

function pidOf({ pid }: EngineChild): { pid?: number } {
  return pid === undefined ? {} : { pid };
}
