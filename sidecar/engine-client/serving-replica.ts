import { ClosedScopes } from '../../engine/protocol/closed-scopes.js';
import { NO_REPORT, type EngineReport } from '../../engine/protocol/messages.js';
import type { EngineSetup } from '../../engine/protocol/setup.js';
import type { EngineChild } from './child.js';
import type { CacheScope, EngineFacts, EngineJob, EngineState, JobHandle } from './engine.js';
import { withTimeout } from '../lib/clock.js';
import { IdleWatch } from './idle-watch.js';
import { failSoon, NOT_READY, STALE } from './mux.js';
import { NO_PREFIXES, type ReplicaPrefixes } from './prefixes.js';
import { RetiredChildren } from './retired-children.js';
import { closeMsOf, type SupervisedReplicaOptions } from './supervisor-options.js';

/**
 * The part of a replica that takes jobs: its present process, if that is ready. Its supervisor (supervisor.ts) changes
 * the fields.
 */
export class ServingReplica {
  state: EngineState;
  problem: string | undefined;
  onDemand: boolean;
  facts: EngineFacts | undefined;
  /** The setup of the present process, or of the next one. */
  setup: EngineSetup;
  protected child: EngineChild | undefined;
  protected idle: IdleWatch | undefined;
  protected readonly threw: (fault: unknown) => void;
  /** Processes that were replaced and still have jobs. */
  protected readonly retired: RetiredChildren;
  readonly #options: SupervisedReplicaOptions;
  readonly #closedScopes = new ClosedScopes();

  constructor(options: SupervisedReplicaOptions) {
    const { setup, onDemand, log, names, timing } = options;
    this.#options = options;
    this.retired = new RetiredChildren(closeMsOf(timing));
    this.setup = setup;
    this.onDemand = onDemand?.lazy ?? false;
    this.state = this.onDemand ? 'unloaded' : 'cold';
    this.threw = (fault) => log.error('an engine receiver threw', { ...names, fault });
  }

  /** The id of the present process. */
  get pid(): number | undefined {
    return this.child?.pid;
  }

  run(job: EngineJob): JobHandle {
    const child = this.state === 'ready' ? this.child : undefined;
    if (child && !this.#stale(job)) return child.mux.run(job);
    return failSoon(job.receiver, child ? STALE : NOT_READY, this.threw);
  }

  touch(): void {
    this.idle?.touch();
  }

  heldPrefixes(): ReplicaPrefixes {
    return (this.state === 'ready' && this.child?.heldPrefixes) || NO_PREFIXES;
  }

  get jobs(): number {
    return this.child?.mux.open ?? 0;
  }

  /** Of the present process, which may be one that only ends its jobs: sums of it that fell would be added again. */
  get report(): EngineReport {
    return this.child?.report ?? NO_REPORT;
  }

  forget(scope: CacheScope): void {
    this.#closedScopes.close(scope);
    this.child?.forget(scope);
    this.retired.forget(scope);
  }

  /** Its process is ready: requests of accounts that were closed before may wait. */
  protected forgetClosed(): void {
    for (const scope of this.#closedScopes) this.child?.forget(scope);
  }

  /** `unload` is called once no request needed it for long enough; never if it is kept. */
  protected watchIdle(unload: () => void): void {
    const { clock, onDemand } = this.#options;
    if (onDemand === undefined || onDemand.idleUnloadMs === 0) return;
    // While it takes no jobs, cancelled ones that are not confirmed may be all that it waits for.
    const busy = (): boolean => this.jobs > 0 || this.state !== 'ready' || onDemand.wanted();
    this.idle = new IdleWatch(clock, onDemand.idleUnloadMs, busy, unload);
  }

  /**
   * Ends its process once its jobs have ended: this replica takes none until it is ready again. Returns false where they did not
   * end in time; then it takes jobs as before.
   */
  async #endAfterJobs(): Promise<boolean> {
    const { child, facts } = this;
    if (this.state !== 'ready' || child === undefined) return true;
    const { clock, timing, events } = this.#options;
    this.state = 'cold';
    this.problem = 'it loads other weights';
    events.seats(0);
    const jobsEnded = new Promise<void>((ended) => child.mux.whenIdle(ended));
    if (await withTimeout(clock, timing.reloadWaitMs, jobsEnded)) {
      this.idle?.stop();
      await child.close(closeMsOf(timing));
      return true;
    }
    this.state = 'ready';
    this.problem = undefined;
    events.seats(facts?.seats ?? 0);
    return false;
  }

  /**
   * Waits, within bounds, for the jobs of processes that were replaced before; with `after` for those of the present one too.
   * Returns why no other process may be loaded yet, or undefined.
   */
  protected async makeWay(how: 'beside' | 'after'): Promise<string | undefined> {
    const { clock, timing } = this.#options;
    const overdue = `still has jobs after ${timing.reloadWaitMs / 1000} s`;
    if (this.retired.busy && !(await withTimeout(clock, timing.reloadWaitMs, this.retired.gone)))
      return `the process that was replaced before ${overdue}`;
    return how === 'beside' || (await this.#endAfterJobs()) ? undefined : `its process ${overdue}`;
  }

  /** Its prompt was made with another tokenizer or template. */
  #stale({ job: { promptVersion: made } }: EngineJob): boolean {
    const own = this.facts?.promptVersion;
    return made !== undefined && own !== undefined && made !== own;
  }
}
