import type { EngineSetup } from '../../engine/protocol/setup.js';
import { LoadEstimate } from '../lib/load-estimate.js';
import type { EngineChild } from './child.js';
import type { ChildEnd } from '../lib/child-process.js';
import type { Changes, EngineFacts, Replaced } from './engine.js';
import { forkChild } from './fork-child.js';
import type { EngineReplica } from './replicated-engine.js';
import { reportReady } from './ready-report.js';
import { RestartPolicy } from './restart-policy.js';
import { endFields, pidField, problemOf } from './exit-report.js';
import { ServingReplica } from './serving-replica.js';
import { StartGate } from './start-gate.js';
import { Successor, type ReadySuccessor, type SuccessorEvents } from './successor.js';
import { closeMsOf, type SupervisedReplicaOptions } from './supervisor-options.js';

const CLOSED = 'the sidecar ends';
const kept = (why: string): Replaced => ({ kind: 'kept', why, lacksMemory: false });

/**
 * A replica of a model's engine: its process is forked, watched, and forked again once it is gone, until close() or until its model
 * cannot be served. Other weights may load in a process beside the present one (`replace`).
 *
 *                    start, wake          ready
 *      unloaded ----------------> cold ----------> ready
 *         ^  (lazy, or idle)      |  ^               |
 *         |                       |  '--- it died ---|
 *         '---- no request ------|------------------'
 *                                 '--> lost: no further try would do better
 */
export class SupervisedReplica extends ServingReplica implements EngineReplica {
  readonly #options: SupervisedReplicaOptions;
  readonly #policy: RestartPolicy;
  readonly #gate: StartGate;
  #successor: Successor | undefined;
  /** Settles when an unloaded process has ended. */
  #unloading: Promise<void> | undefined;
  #closed: Promise<void> | undefined;
  #started = false;
  #cancelRestart: () => void = () => undefined;
  #leaveGate: () => void = () => undefined;
  readonly #estimate: LoadEstimate;

  constructor(options: SupervisedReplicaOptions) {
    const { timing, random } = options;
    super(options);
    this.#options = options;
    this.#gate = options.gate ?? new StartGate();
    this.#policy = new RestartPolicy(timing, random, this.onDemand);
    this.#estimate = new LoadEstimate(timing.startTimeoutMs);
  }

  get readyInMs(): number {
    if (this.state === 'ready' || this.state === 'lost') return 0;
    return this.#estimate.readyInMs(this.#options.clock.now(), this.#options.hashMsLeft?.(this.setup.file));
  }

  /** Forks the engine for the first time, unless it is lazy. */
  start(): void {
    if (this.#started) return;
    this.#started = true;
    if (this.state === 'cold') this.#load();
  }

  wake(): void {
    // After a load that failed the next one is delayed: callers retry.
    const now = this.#options.clock.now();
    if (this.state !== 'unloaded' || now < this.#estimate.forkAt) return;
    this.state = 'cold';
    this.#estimate.forksAt(now);
    if (this.#unloading === undefined) this.#load();
    else void this.#unloading.then(() => this.#load());
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async replace(changes: Changes, how: 'beside' | 'after'): Promise<Replaced> {
    const occupied = await this.makeWay(how);
    if (occupied !== undefined) return kept(occupied);
    if (this.#ends()) return kept(CLOSED);
    if (this.state !== 'ready') this.#abandon();
    const next = { ...this.setup, ...changes };
    const since = this.#options.clock.now();
    const enter = (begin: () => void): (() => void) => this.#gate.enter(begin, this.#options.devices);
    this.#successor = new Successor(enter, (events) => this.#fork(next, events));
    const outcome = await this.#successor.outcome;
    this.#successor = undefined;
    if (outcome.kind === 'ready') return this.#adopt(outcome, next, since);
    if (this.state === 'cold') {
      this.#abandon();
      this.#load();
    }
    return { kind: 'kept', why: outcome.why, lacksMemory: outcome.lacksMemory };
  }

  #ends(): boolean {
    return this.#closed !== undefined;
  }

  async #close(): Promise<void> {
    this.state = 'lost';
    this.#cancelRestart();
    this.#leaveGate();
    this.idle?.stop();
    this.child?.mux.lost('lost');
    const present = this.child?.close(closeMsOf(this.#options.timing));
    await Promise.all([present, this.retired.close(), this.#successor?.cancel(CLOSED)]);
  }

  /** Forks as soon as no other engine is loading on its devices. */
  #load(): void {
    if (this.#closed !== undefined) return;
    this.#estimate.forksAt(this.#options.clock.now());
    const { weights, devices } = this.#options;
    const begin = (): void => {
      this.#estimate.forked(this.#options.clock.now());
      this.child = this.#fork(this.setup, { ready: (facts) => this.#ready(facts), ended: () => undefined });
    };
    const enter = (): unknown => (this.#leaveGate = this.#gate.enter(begin, devices));
    if (weights === undefined) {
      enter();
      return;
    }
    let left = false;
    this.#leaveGate = () => (left = true);
    void weights(this.setup).then((known) => {
      if (left) return;
      if (known) this.setup = { ...this.setup, weights: known };
      enter();
    });
  }

  /** `first`: called until it is ready, or when one that is not the present one ends. */
  #fork(setup: EngineSetup, first: SuccessorEvents): EngineChild {
    const { events, log, names } = this.#options;
    const child = forkChild(this.#options, setup, {
      ready: (facts) => first.ready(facts),
      ended: (end) => {
        const count = child.mux.open;
        if (child === this.child) this.#ended(child, end);
        else if (!this.retired.ended(child)) first.ended(end);
        else if (count > 0) log.error('engine lost', { ...names, count, ...endFields(end, child.pid) });
      },
      capacity: {
        seats: (count) => child === this.child && events.seats(count),
        unconfirmed: (count) => events.unconfirmed(count),
      },
      serverProblem: (reason) => {
        if (child !== this.child || this.state === 'ready') return;
        this.problem = reason;
        log.warn('external server cannot be used', { ...names, reason });
      },
      threw: this.threw,
    });
    return child;
  }

  #ready(facts: EngineFacts): void {
    const { clock, log, names, events } = this.#options;
    this.#estimate.ready(clock.now());
    this.facts = facts;
    this.problem = undefined;
    this.state = 'ready';
    this.watchIdle(() => this.#unload());
    reportReady(log, names, facts, this.setup, this.#estimate.loadMs);
    this.forgetClosed();
    events.seats(facts.seats);
    // Last: the next one counts what this one has.
    this.#leaveGate();
  }

  /** No request waits and no job runs, so the next request finds it unloaded and wakes it. */
  #unload(): void {
    const { clock, log, names, events } = this.#options;
    const child = this.child;
    if (this.state !== 'ready' || child === undefined) return;
    this.onDemand = true;
    this.state = 'unloaded';
    this.#estimate.forksAt(clock.now());
    log.info('engine unloaded', { ...names, ...pidField(child.pid) });
    events.seats(0);
    this.#unloadedAfter(child.close(closeMsOf(this.#options.timing)));
  }

  #ended(child: EngineChild, end: ChildEnd): void {
    const { clock, log, names, events } = this.#options;
    this.idle?.stop();
    const now = clock.now();
    const readyMs = this.#estimate.readyForMs(now);
    const next = this.#policy.after(end, readyMs);
    const final = next.kind === 'final';
    this.problem = final ? next.why : problemOf(end, readyMs !== undefined);
    // A lazy engine that found no room is tried again when a request comes. One that was ready before is also tried again
    // while requests wait: the memory of its last process may be free only later.
    const asked = this.facts !== undefined && (this.#options.onDemand?.wanted() ?? false);
    const waits = this.onDemand && end.reason === 'unable' && !asked;
    this.state = final ? 'lost' : waits ? 'unloaded' : 'cold';
    this.#estimate.forksAt(now + (final ? 0 : next.waitMs));
    const fields = { ...names, count: child.mux.open, ...endFields(end, child.pid) };
    log.error(final ? 'engine cannot serve its model' : 'engine lost', fields);
    events.seats(0);
    if (final) events.unservable(next.why, next.unfit);
    child.mux.lost(end.reason === 'protocol' ? 'protocol' : 'lost');
    // Only when its memory is free again.
    void child.exited.then(this.#leaveGate);
    if (next.kind === 'final') return;
    events.restarting(next.waitMs);
    if (waits) this.#unloadedAfter(child.exited);
    else void child.exited.then(() => this.child === child && this.#restartIn(next.waitMs));
  }

  /** Ends what would make a process that is not ready ready. */
  #abandon(): void {
    this.#cancelRestart();
    this.#leaveGate();
    void this.child?.close(0);
    this.child = undefined;
    if (this.state === 'lost') this.state = 'cold';
  }

  /** New jobs go to this child; the one before it ends its own. */
  #adopt({ child, facts, leaveGate }: ReadySuccessor, setup: EngineSetup, since: number): Replaced {
    if (this.#ends()) {
      leaveGate();
      void child.close(0);
      return kept(CLOSED);
    }
    const before = this.child;
    if (this.state !== 'ready') this.#abandon();
    else if (before) this.retired.add(before);
    this.idle?.stop();
    this.setup = setup;
    this.child = child;
    this.#leaveGate = leaveGate;
    this.#estimate.forked(since);
    this.#ready(facts);
    return { kind: 'replaced' };
  }

  #unloadedAfter(gone: Promise<void>): void {
    const child = this.child;
    this.#unloading = gone.then(() => {
      this.#unloading = undefined;
      if (this.child === child) this.child = undefined;
    });
  }

  #restartIn(waitMs: number): void {
    if (this.#closed !== undefined) return;
    const { clock } = this.#options;
    this.#estimate.forksAt(clock.now() + waitMs);
    this.#cancelRestart = clock.after(waitMs, () => this.#load());
  }
}
