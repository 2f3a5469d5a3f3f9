/**
 * One replica of a model's engine: one process after another, until close() or until its model cannot be served.
 *
 * | state       | event                                                          | next state                              |
 * | ----------- | -------------------------------------------------------------- | --------------------------------------- |
 * | cold        | start: a process loads                                          | cold                                    |
 * | unloaded    | wake: a process loads, once the last one has exited             | cold                                    |
 * | cold        | its process is ready                                            | ready                                   |
 * | cold, ready | its process ended; another loads, after a wait and its exit     | cold                                    |
 * | cold, ready | its process ended for lack of memory, and no request needs it   | unloaded, if it is loaded on demand     |
 * | cold        | its GPU's backend failed; another loads at once, without it     | cold                                    |
 * | cold, ready | its process ended, and another would too                        | lost                                    |
 * | ready       | no request needed it for long enough                            | unloaded                                |
 * | ready       | replace after: its jobs end, and it takes no others             | cold, and ready again if they do not    |
 * | any         | replace: the successor is ready                                 | ready                                   |
 * | cold, lost  | replace: the successor ended; its own weights load again        | cold                                    |
 * | any         | close                                                           | lost, for good                          |
 *
 * Its processes have three roles. The present one takes the jobs. With other weights a successor loads beside it; once that is ready,
 * it becomes the present one, and the process before is retired: it ends with its last job. There is one of each at most.
 */
import { type CacheScope, ClosedScopes } from '../../engine/protocol/cache-key.js';
import type { HashedFile } from '../../engine/protocol/file-key.js';
import { NO_REPORT, type EngineReport } from '../../engine/protocol/messages.js';
import type { EngineSetup } from '../../engine/protocol/setup.js';
import type { ChildEnd } from '../lib/child-process.js';
import { withTimeout, type Clock } from '../lib/clock.js';
import { LoadEstimate } from '../lib/load-estimate.js';
import type { Log } from '../telemetry/logger.js';
import { EngineChild } from './child.js';
import type { Changes, EngineEvents, EngineFacts, EngineJob, EngineState, JobHandle, Replaced } from './engine.js';
import { failSoon, NOT_READY, STALE } from './mux.js';
import { NO_PREFIXES, type ReplicaPrefixes } from './prefixes.js';
import {
  CLOSE_MS,
  endFields,
  pidField,
  problemOf,
  reportBackend,
  reportReady,
  RestartPolicy,
  type EngineTiming,
  type OnDemand,
} from './restart-policy.js';
import { StartGate } from './start-gate.js';

export interface EngineReplicaOptions {
  /** Path of the engine's entry module, for fork. */
  readonly entry: string;
  readonly setup: EngineSetup;
  readonly timing: EngineTiming;
  readonly clock: Clock;
  /** From 0 to 1, to spread restarts. */
  readonly random: () => number;
  readonly log: Log;
  /** The model's id, and which of its replicas this is where there are several; for the log. */
  readonly names: { readonly model: string; readonly replica?: number };
  /** Environment variables of its process besides those of this process that an engine gets. */
  readonly environment?: Readonly<Record<string, string>>;
  readonly events: EngineEvents;
  /** Undefined if it is forked by start(), and never unloaded. */
  readonly onDemand?: OnDemand;
  /** Engines that must load one after another share one. */
  readonly gate?: StartGate;
  /** What it loads on, for the gate; absent: the host's memory, or all devices. */
  readonly devices?: readonly string[];
  /** Hashes the setup's file, of this key, while a process loads it; undefined if it cannot be. Absent: the engine hashes it. */
  readonly weights?: (setup: EngineSetup, key: string | undefined) => Promise<HashedFile | undefined>;
  /** The estimated time until a file's hash is known, ms. Absent: 0. */
  readonly hashMsLeft?: (file: string) => number;
  /** Called at each fork with the path of its file, for EngineSetup.memory; without it memory is not checked. */
  readonly mappedElsewhere?: (file: string) => number;
}

/** A process that loads other weights beside the present one. */
interface Successor {
  readonly setup: EngineSetup;
  /** When its load was requested. */
  readonly since: number;
  /** Settles the call of `replace`. */
  readonly settle: (replaced: Replaced) => void;
  /** Undefined if it waits until other engines have loaded. */
  child: EngineChild | undefined;
  leaveGate: () => void;
}

/** Checks per `idleUnloadMs`: the precision of the time since the last job. */
const IDLE_CHECKS = 8;

const CLOSED = 'the sidecar ends';

const nothing = (): void => undefined;

function kept(why: string, lacksMemory = false): Replaced {
  return { kind: 'kept', why, lacksMemory };
}

/** Its public fields are changed by itself alone. */
export class EngineReplica {
  state: EngineState;
  /** Why it is not ready, in one line for the operator, or undefined. */
  problem: string | undefined;
  onDemand: boolean;
  /** Of its present process, or of its last one; undefined if none was ready. */
  facts: EngineFacts | undefined;
  /** The setup of its present process, or of its next one. */
  setup: EngineSetup;
  readonly #options: EngineReplicaOptions;
  readonly #closeMs: number;
  readonly #policy: RestartPolicy;
  readonly #gate: StartGate;
  readonly #estimate: LoadEstimate;
  readonly #closedScopes = new ClosedScopes();
  /** The present process. */
  #child: EngineChild | undefined;
  #successor: Successor | undefined;
  #retired: EngineChild | undefined;
  #started = false;
  /** Settles when an unloaded process has ended. */
  #unloading: Promise<void> | undefined;
  #closed: Promise<void> | undefined;
  /** When a job or a request that waits was last seen. */
  #neededAt = 0;
  #cancelIdle = nothing;
  #cancelRestart = nothing;
  #leaveGate = nothing;

  constructor(options: EngineReplicaOptions) {
    const { setup, onDemand, timing, random, gate } = options;
    this.#options = options;
    this.#closeMs = timing.closeMs ?? CLOSE_MS;
    this.setup = setup;
    this.onDemand = onDemand?.lazy ?? false;
    this.state = this.onDemand ? 'unloaded' : 'cold';
    this.#gate = gate ?? new StartGate();
    this.#policy = new RestartPolicy(timing, random, this.onDemand);
    this.#estimate = new LoadEstimate(timing.startTimeoutMs);
  }

  /** The id of its present process. */
  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Jobs of its present process that have not ended. */
  get jobs(): number {
    return this.#child?.mux.open ?? 0;
  }

  /** Of its present process, which may be one that only ends its jobs: sums of it that fell would be added again. */
  get report(): EngineReport {
    return this.#child?.report ?? NO_REPORT;
  }

  heldPrefixes(): ReplicaPrefixes {
    return (this.state === 'ready' && this.#child?.heldPrefixes) || NO_PREFIXES;
  }

  /** As in {@link Engine.readyInMs}. */
  get readyInMs(): number {
    if (this.state === 'ready' || this.state === 'lost') return 0;
    return this.#estimate.readyInMs(this.#now(), this.#options.hashMsLeft?.(this.setup.file));
  }

  run(job: EngineJob): JobHandle {
    const child = this.state === 'ready' ? this.#child : undefined;
    if (child && !this.#isStale(job)) return child.mux.run(job);
    return failSoon(job.receiver, child ? STALE : NOT_READY, (fault) => this.#threw(fault));
  }

  /** Restarts its idle time. A job of any replica restarts that of all, so that they are unloaded together. */
  touch(): void {
    this.#neededAt = this.#now();
  }

  /** Drops all state of requests of this scope, also of running ones once they end; without one what batches left as garbage. */
  forget(scope?: CacheScope): void {
    if (scope !== undefined) this.#closedScopes.close(scope);
    this.#child?.forget(scope);
    this.#retired?.forget(scope);
  }

  /** Forks the engine for the first time, unless it is lazy. */
  start(): void {
    if (!this.#started && this.state === 'cold') this.#load();
    this.#started = true;
  }

  /** A request needs it. */
  wake(): void {
    // After a load that failed the next one is delayed: callers retry.
    if (this.state !== 'unloaded' || this.#now() < this.#estimate.forkAt) return;
    this.state = 'cold';
    this.#estimate.forksAt(this.#now());
    if (this.#unloading === undefined) this.#load();
    else void this.#unloading.then(() => this.#load());
  }

  /**
   * Loads other weights and gives new jobs to them: beside the present ones, or after the present jobs have ended, while other replicas
   * serve. At most one call at a time. Never rejects.
   */
  async replace(changes: Changes, how: 'beside' | 'after'): Promise<Replaced> {
    const occupied = await this.#makeRoom(how);
    if (this.#closed) return kept(CLOSED);
    if (occupied !== undefined) return kept(occupied);
    if (this.state !== 'ready') this.#stopLoading();
    const setup = { ...this.setup, ...changes };
    return new Promise((settle) => {
      const successor: Successor = { setup, since: this.#now(), settle, child: undefined, leaveGate: nothing };
      this.#successor = successor;
      successor.leaveGate = this.#gate.enter(() => (successor.child = this.#fork(setup)), this.#options.devices);
    });
  }

  /** Fails its jobs as lost. Settles when all of its processes have ended. Idempotent; may be called at any time. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    if (this.state !== 'lost') this.problem = undefined;
    this.state = 'lost';
    this.#cancelRestart();
    this.#leaveGate();
    this.#cancelIdle();
    const all = [this.#child, this.#retired];
    for (const child of all) child?.mux.lost('lost');
    const successor = this.#successor;
    this.#successor = undefined;
    successor?.leaveGate();
    successor?.settle(kept(CLOSED));
    await Promise.all([successor?.child?.close(0), ...all.map((child) => child?.close(this.#closeMs))]);
  }

  #now(): number {
    return this.#options.clock.now();
  }

  #threw(fault: unknown): void {
    this.#options.log.error('an engine receiver threw', { ...this.#options.names, fault });
  }

  /** Its prompt was made with another tokenizer or template. */
  #isStale({ job: { promptVersion: made } }: EngineJob): boolean {
    const own = this.facts?.promptVersion;
    return made !== undefined && own !== undefined && made !== own;
  }

  /** Forks as soon as no other engine is loading on its devices. Its weights are hashed while it loads. */
  #load(): void {
    if (this.#closed) return;
    this.#estimate.forksAt(this.#now());
    const { weights, devices } = this.#options;
    const begin = (): void => {
      this.#estimate.forked(this.#now());
      this.#child = this.#fork({ ...this.setup, ...(weights && { weightsFollow: true }) });
    };
    this.#leaveGate = this.#gate.enter(begin, devices);
  }

  async #hashFor(child: EngineChild, key: string | undefined): Promise<HashedFile | undefined> {
    const known = await this.#options.weights?.(this.setup, key);
    if (known && this.#child === child) this.setup = { ...this.setup, weights: known };
    return known;
  }

  /** The child's events are of the role that it has by then. */
  #fork(setup: EngineSetup): EngineChild {
    const { entry, timing, clock, log, names, events, environment, mappedElsewhere } = this.#options;
    const memory = mappedElsewhere && { mappedElsewhere: mappedElsewhere(setup.file) };
    const child: EngineChild = new EngineChild(
      { entry, setup: memory ? { ...setup, memory } : setup, timing, clock, ...(environment && { environment }) },
      {
        opens: (key) => this.#hashFor(child, key),
        ready: (facts) => {
          if (child === this.#successor?.child) this.#succeed(this.#successor, child, facts);
          else this.#ready(facts);
        },
        ended: (end) => {
          if (child === this.#successor?.child) this.#successorEnded(this.#successor, child, end);
          else if (child === this.#retired) this.#retiredEnded(child, end);
          else this.#ended(child, end);
        },
        capacity: {
          seats: (count) => child === this.#child && events.seats(count),
          unconfirmed: (count) => events.unconfirmed(count),
        },
        serverProblem: (reason) => {
          if (child !== this.#child || this.state === 'ready') return;
          this.problem = reason;
          log.warn('external server cannot be used', { ...names, reason });
        },
        threw: (fault) => this.#threw(fault),
        failed: (reason) => log.warn('job failed', { ...names, reason }),
      },
    );
    // A child that could not be forked has no pid, and is reported as lost.
    if (child.pid !== undefined) log.info('engine forked', { ...names, pid: child.pid });
    return child;
  }

  #ready(facts: EngineFacts): void {
    const { log, names, events } = this.#options;
    this.#estimate.ready(this.#now());
    this.facts = facts;
    this.problem = undefined;
    this.state = 'ready';
    this.#watchIdle();
    reportReady(log, names, facts, this.setup, this.#estimate.loadMs);
    // Requests of accounts that were closed before may wait.
    for (const scope of this.#closedScopes) this.#child?.forget(scope);
    events.seats(facts.seats);
    // Last: the next one counts what this one has.
    this.#leaveGate();
  }

  /** The present process ended. */
  #ended(child: EngineChild, end: ChildEnd): void {
    const { log, names, events, onDemand } = this.#options;
    this.#cancelIdle();
    if (this.#leavesBackend(child, end)) return;
    const now = this.#now();
    const readyMs = this.#estimate.readyForMs(now);
    const next = this.#policy.after(end, readyMs);
    const final = next.kind === 'final';
    this.problem = final ? next.why : problemOf(end, readyMs !== undefined);
    // A lazy engine that found no room is tried again when a request comes. One that was ready before is also tried again
    // while requests wait: the memory of its last process may be free only later.
    const asked = this.facts !== undefined && (onDemand?.wanted() ?? false);
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
    if (final) return;
    events.restarting(next.waitMs);
    if (waits) this.#unloadedAfter(child.exited);
    else void child.exited.then(() => this.#child === child && this.#loadIn(next.waitMs));
  }

  /**
   * Whether `gpu: auto` goes on with the next backend, since the one of this process failed before a first step: then it is loaded at
   * once. Not where devices are named, since another backend numbers them otherwise or has none.
   */
  #leavesBackend(child: EngineChild, end: ChildEnd): boolean {
    const { log, names, events, devices = [] } = this.#options;
    const { gpu, failedBackends = [] } = this.setup;
    const failed = child.backendFailure(end);
    if (failed === undefined || gpu !== 'auto' || devices.length > 0 || this.facts !== undefined) return false;
    this.setup = { ...this.setup, failedBackends: [...failedBackends, failed] };
    reportBackend(log, names, failed, end, child.pid);
    events.restarting(0);
    void child.exited.then(() => {
      this.#leaveGate();
      if (this.#child === child) this.#load();
    });
    return true;
  }

  #loadIn(waitMs: number): void {
    if (this.#closed) return;
    this.#estimate.forksAt(this.#now() + waitMs);
    this.#cancelRestart = this.#options.clock.after(waitMs, () => this.#load());
  }

  /** Unloads it once no request needed it for long enough. It checks periodically, so that jobs cost nothing. */
  #watchIdle(): void {
    const { clock, onDemand } = this.#options;
    if (onDemand === undefined || onDemand.idleUnloadMs === 0) return;
    const { idleUnloadMs: idleMs, wanted } = onDemand;
    const check = (): void => {
      // While it takes no jobs, cancelled ones that are not confirmed may be all that it waits for.
      if (this.jobs > 0 || this.state !== 'ready' || wanted()) this.touch();
      if (this.#now() - this.#neededAt >= idleMs) this.#unload();
      else this.#cancelIdle = clock.after(idleMs / IDLE_CHECKS, check);
    };
    this.touch();
    this.#cancelIdle = clock.after(idleMs, check);
  }

  /** No request waits and no job runs, so the next request finds it unloaded and wakes it. */
  #unload(): void {
    const { log, names, events } = this.#options;
    const child = this.#child;
    if (this.state !== 'ready' || child === undefined) return;
    this.onDemand = true;
    this.state = 'unloaded';
    this.#estimate.forksAt(this.#now());
    log.info('engine unloaded', { ...names, ...pidField(child.pid) });
    events.seats(0);
    this.#unloadedAfter(child.close(this.#closeMs));
  }

  #unloadedAfter(gone: Promise<void>): void {
    const child = this.#child;
    this.#unloading = gone.then(() => {
      this.#unloading = undefined;
      if (this.#child === child) this.#child = undefined;
    });
  }

  /** Ends what would make a process that is not ready ready. */
  #stopLoading(): void {
    this.#cancelRestart();
    this.#leaveGate();
    void this.#child?.close(0);
    this.#child = undefined;
    if (this.state === 'lost') this.state = 'cold';
  }

  /**
   * Waits, within bounds, for the jobs of the retired process; with `after` for those of the present one too. Returns why no other process
   * may be loaded yet, or undefined.
   */
  async #makeRoom(how: 'beside' | 'after'): Promise<string | undefined> {
    const { clock, timing } = this.#options;
    const overdue = `still has jobs after ${timing.reloadWaitMs / 1000} s`;
    const retired = this.#retired?.exited;
    if (retired && !(await withTimeout(clock, timing.reloadWaitMs, retired)))
      return `the process that was replaced before ${overdue}`;
    return how === 'beside' || (await this.#endAfterJobs()) ? undefined : `its process ${overdue}`;
  }

  /**
   * Ends the present process once its jobs have ended: the replica takes none until it is ready again. Returns false where they did not end
   * in time; then it takes jobs as before.
   */
  async #endAfterJobs(): Promise<boolean> {
    const child = this.#child;
    if (this.state !== 'ready' || child === undefined) return true;
    const { clock, timing, events } = this.#options;
    this.state = 'cold';
    this.problem = 'it loads other weights';
    events.seats(0);
    const { jobsEnded, keep } = child.endJobs();
    if (await withTimeout(clock, timing.reloadWaitMs, jobsEnded)) {
      this.#cancelIdle();
      await child.close(this.#closeMs);
      return true;
    }
    if (this.#closed) return false;
    keep();
    this.state = 'ready';
    this.problem = undefined;
    events.seats(this.facts?.seats ?? 0);
    return false;
  }

  /** New jobs go to the successor; the process before it ends its own. */
  #succeed({ setup, since, settle, leaveGate }: Successor, child: EngineChild, facts: EngineFacts): void {
    this.#successor = undefined;
    if (this.state === 'ready' && this.#child) this.#retire(this.#child);
    else this.#stopLoading();
    this.#cancelIdle();
    this.setup = setup;
    this.#child = child;
    this.#leaveGate = leaveGate;
    this.#estimate.forked(since);
    this.#ready(facts);
    settle({ kind: 'replaced' });
  }

  #successorEnded(successor: Successor, child: EngineChild, { reason, detail, mayMend }: ChildEnd): void {
    // Only when its memory is free again.
    void child.exited.then(() => {
      if (this.#successor !== successor) return;
      this.#successor = undefined;
      successor.leaveGate();
      if (this.state === 'cold') {
        this.#stopLoading();
        this.#load();
      }
      // The kernel kills processes when memory runs out.
      successor.settle(kept(detail ?? reason, mayMend === true || reason === 'killed'));
    });
  }

  #retire(child: EngineChild): void {
    this.#retired = child;
    void child.endJobs().jobsEnded.then(async () => {
      await child.close(this.#closeMs);
      if (this.#retired === child) this.#retired = undefined;
    });
  }

  #retiredEnded(child: EngineChild, end: ChildEnd): void {
    const { log, names } = this.#options;
    const count = child.mux.open;
    this.#retired = undefined;
    child.mux.lost('lost');
    if (count > 0) log.error('engine lost', { ...names, count, ...endFields(end, child.pid) });
  }
}
