import type { EngineReport } from '../../engine/protocol/messages.js';
import type { EngineSetup } from '../../engine/protocol/setup.js';
import type {
  CacheCounts,
  CacheScope,
  Changes,
  EngineFacts,
  EngineState,
  GenerateJob,
  GenerationReceiver,
  HeldTokens,
  HostedEngine,
  JobHandle,
  Replaced,
  Replica,
  ScoreJob,
  ScoreReceiver,
} from './engine.js';
import { NO_PREFIXES, type PrefixIndex, type ReplicaPrefixes } from './prefix-index.js';
import { ReachablePrefixes, stateElsewhere, type Sibling } from './shared-states.js';

/** One replica of a model's engine, as {@link ReplicatedEngine} sees it: one process after another. */
export interface EngineReplica extends Replica, Sibling {
  readonly onDemand: boolean;
  /** The setup of its next process. */
  readonly setup: EngineSetup;
  readonly readyInMs: number;
  /** Of its present process, in any state. */
  readonly report: EngineReport;
  /** Jobs of its present process that have not ended. */
  readonly jobs: number;
  wake(): void;
  /** Restarts its idle time. A job of any replica restarts that of all, so that they are unloaded together. */
  touch(): void;
  generate(job: GenerateJob, receiver: GenerationReceiver): JobHandle;
  score(job: ScoreJob, receiver: ScoreReceiver): JobHandle;
  heldPrefixes(): ReplicaPrefixes;
  forget(scope: CacheScope): void;
  start(): void;
  /**
   * Loads other weights and gives new jobs to them: beside the present ones, or after the present jobs have ended,
   * while other replicas serve. At most one call at a time.
   */
  replace(changes: Changes, how: 'beside' | 'after'): Promise<Replaced>;
  close(): Promise<void>;
}

/** In order of precedence: the engine's state is the first of these that one of its replicas has. */
const STATES: readonly EngineState[] = ['ready', 'cold', 'unloaded'];

/** A model's engine: one process or several with the same weights, each with seats of its own. The queue chooses among them. */
export class ReplicatedEngine implements HostedEngine {
  readonly replicas: readonly EngineReplica[];
  readonly contexts: readonly number[];
  readonly #prefixes: readonly PrefixIndex[];
  /** The replicas' facts from which `facts` was made. */
  #from: EngineFacts | undefined;
  #facts: EngineFacts | undefined;

  /** `contexts`: tokens that a seat of each replica can hold. */
  constructor(replicas: readonly EngineReplica[], contexts: readonly number[]) {
    this.replicas = replicas;
    this.#prefixes = replicas.map((_, at) => new ReachablePrefixes(replicas, at));
    this.contexts = [...new Set(contexts)].sort((a, b) => a - b);
  }

  get state(): EngineState {
    return STATES.find((state) => this.replicas.some((replica) => replica.state === state)) ?? 'lost';
  }

  get problem(): string | undefined {
    return this.replicas.find(({ problem }) => problem !== undefined)?.problem;
  }

  get onDemand(): boolean {
    return this.replicas.every(({ onDemand }) => onDemand);
  }

  get facts(): EngineFacts | undefined {
    const known = this.replicas.find(({ facts }) => facts !== undefined)?.facts;
    if (known !== this.#from) {
      this.#from = known;
      this.#facts = known && { ...known, contextPerSeat: Math.max(...this.contexts) };
    }
    return this.#facts;
  }

  get readyInMs(): number {
    const coming = this.replicas.filter(({ state }) => state !== 'lost');
    return coming.length === 0 ? 0 : Math.min(...coming.map(({ readyInMs }) => readyInMs));
  }

  get heldTokens(): HeldTokens {
    const held = { running: 0, kept: 0 };
    for (const { state, report } of this.replicas) {
      if (state !== 'ready') continue;
      held.running += report.tokens.running;
      held.kept += report.tokens.kept;
    }
    return held;
  }

  get setups(): readonly EngineSetup[] {
    return this.replicas.map(({ setup }) => setup);
  }

  replace(replica: number, changes: Changes, how: 'beside' | 'after'): Promise<Replaced> {
    return this.#at(replica).replace(changes, how);
  }

  get capacityTokens(): number {
    // A replica keeps its facts while it has no process, and thus no memory.
    const seated = ({ state, facts }: EngineReplica): number =>
      state === 'ready' && facts ? (facts.tokens ?? facts.seats * facts.contextPerSeat) : 0;
    return this.replicas.reduce((sum, replica) => sum + seated(replica), 0);
  }

  get caches(): readonly CacheCounts[] {
    return this.replicas.map(({ report }) => report.cache);
  }

  forget(scope: CacheScope): void {
    for (const replica of this.replicas) replica.forget(scope);
  }

  start(): void {
    for (const replica of this.replicas) replica.start();
  }

  wake(): void {
    for (const replica of this.replicas) replica.wake();
  }

  generate(job: GenerateJob, receiver: GenerationReceiver, replica: number, prefix: Uint32Array): JobHandle {
    return this.#taking(replica).generate({ ...job, ...this.#others(replica, prefix) }, receiver);
  }

  score(job: ScoreJob, receiver: ScoreReceiver, replica: number, prefix: Uint32Array): JobHandle {
    return this.#taking(replica).score({ ...job, ...this.#others(replica, prefix) }, receiver);
  }

  heldPrefixes(replica: number): PrefixIndex {
    return this.#prefixes[replica] ?? NO_PREFIXES;
  }

  async close(): Promise<void> {
    await Promise.all(this.replicas.map((replica) => replica.close()));
  }

  /** What a job of one replica is to know of the other ones. */
  #others(replica: number, prefix: Uint32Array): Pick<GenerateJob, 'elsewhere' | 'besideOthers'> {
    const elsewhere = stateElsewhere(this.replicas, replica, prefix);
    const besideOthers = this.replicas.some(({ jobs }, at) => at !== replica && jobs > 0);
    return { ...(elsewhere && { elsewhere }), ...(besideOthers && { besideOthers }) };
  }

  #taking(index: number): EngineReplica {
    for (const replica of this.replicas) replica.touch();
    return this.#at(index);
  }

  #at(index: number): EngineReplica {
    const replica = this.replicas[index];
    if (replica === undefined) throw new Error('a seat of a replica that the engine does not have');
    return replica;
  }
}
