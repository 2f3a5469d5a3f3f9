import type { CacheCounts, HeldTokens } from '../../engine/protocol/messages.js';
import { PREFIX_CHUNK, type StateElsewhere } from '../../engine/protocol/cache-key.js';
import type { EngineSetup } from '../../engine/protocol/setup.js';
import type {
  CacheScope,
  Changes,
  Engine,
  EngineFacts,
  EngineJob,
  EngineState,
  JobHandle,
  ProcessHold,
  Replaced,
} from './engine.js';
import { NO_PREFIXES, type PrefixIndex } from './prefixes.js';
import type { EngineReplica } from './replica.js';

/** One replica, as {@link ReplicatedEngine} uses it. */
export type ReplicaPort = Readonly<Pick<EngineReplica, keyof EngineReplica>>;

/** In order of precedence: the engine's state is the first of these that one of its replicas has. */
const STATES: readonly EngineState[] = ['ready', 'cold', 'unloaded'];

/** A model's engine: one process or several with the same weights, each with seats of its own, among which the queue chooses. */
export class ReplicatedEngine implements Engine {
  readonly replicas: readonly ReplicaPort[];
  readonly contexts: readonly number[];
  readonly #prefixes: readonly PrefixIndex[];
  /** The replicas' facts from which `facts` was made. */
  #from: EngineFacts | undefined;
  #facts: EngineFacts | undefined;

  /** `contexts`: tokens that a seat of each replica can hold. */
  constructor(replicas: readonly ReplicaPort[], contexts: readonly number[]) {
    this.replicas = replicas;
    this.#prefixes = replicas.map((replica) => ({
      longestOf: (hashes) => longestReachable(replicas, replica, hashes),
    }));
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

  /** Tokens in the KV memory of its ready replicas, by their last reports. */
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

  /**
   * A replica loads other weights and gives new jobs to them: beside the present ones, or after these have ended their jobs, while other
   * replicas serve. At most one call at a time. Never rejects.
   */
  replace(replica: number, changes: Changes, how: 'beside' | 'after'): Promise<Replaced> {
    return this.#at(replica).replace(changes, how);
  }

  /** Tokens that the KV memory of its ready replicas can hold. */
  get capacityTokens(): number {
    // A replica keeps its facts while it has no process, and thus no memory.
    const seated = ({ state, facts }: ReplicaPort): number =>
      state === 'ready' && facts ? (facts.tokens ?? facts.seats * facts.contextPerSeat) : 0;
    return this.replicas.reduce((sum, replica) => sum + seated(replica), 0);
  }

  /** The prefix cache of each process, by its last report; it begins anew with each process. */
  get caches(): readonly CacheCounts[] {
    return this.replicas.map(({ report }) => report.cache);
  }

  /** Drops all state of requests of this scope, also of running ones once they end; without one what batches left as garbage. */
  forget(scope?: CacheScope): void {
    for (const replica of this.replicas) replica.forget(scope);
  }

  /** Begins to load, unless it waits to be woken. Again, or after close(), it does nothing. */
  start(): void {
    for (const replica of this.replicas) replica.start();
  }

  wake(): void {
    for (const replica of this.replicas) replica.wake();
  }

  run(job: EngineJob, replica: number, prefix: Uint32Array, hold?: ProcessHold): JobHandle {
    for (const each of this.replicas) each.touch();
    const taking = this.#at(replica);
    const isAlike = taking.state === 'ready' && taking.facts?.weightVersion === hold?.weightVersion;
    return (isAlike ? undefined : hold?.run(job)) ?? taking.run(this.#withOthers(job, taking, prefix));
  }

  heldPrefixes(replica: number): PrefixIndex {
    return this.#prefixes[replica] ?? NO_PREFIXES;
  }

  /** Fails its jobs as lost. Settles when all of its processes have ended. Idempotent; may be called at any time. */
  async close(): Promise<void> {
    await Promise.all(this.replicas.map((replica) => replica.close()));
  }

  /** The job with what it is to know of the other replicas. */
  #withOthers(asked: EngineJob, replica: ReplicaPort, prefix: Uint32Array): EngineJob {
    // No state of an input is kept.
    if (asked.kind === 'embed') return asked;
    const elsewhere = stateElsewhere(this.replicas, replica, prefix);
    const besideOthers = this.replicas.some((other) => other !== replica && other.jobs > 0);
    if (!elsewhere && !besideOthers) return asked;
    const others = Object.assign({}, elsewhere && { elsewhere }, besideOthers && { besideOthers });
    return asked.kind === 'generate'
      ? { kind: 'generate', receiver: asked.receiver, job: Object.assign({}, asked.job, others) }
      : { kind: 'score', receiver: asked.receiver, job: Object.assign({}, asked.job, others) };
  }

  #at(index: number): ReplicaPort {
    const replica = this.replicas[index];
    if (replica === undefined) throw new Error('a seat of a replica that the engine does not have');
    return replica;
  }
}

/** Leading tokens of a prompt that a replica has, or that others have saved and it can restore. */
function longestReachable(replicas: readonly ReplicaPort[], replica: ReplicaPort, hashes: Uint32Array): number {
  let most = replica.heldPrefixes().longestOf(hashes);
  for (const other of replicas) {
    if (other !== replica && canRestore(replica, other))
      most = Math.max(most, other.heldPrefixes().longestShared(hashes));
  }
  return most;
}

/** A state in another replica's cache that has more of a prompt than this replica has; undefined if there is none. */
function stateElsewhere(
  replicas: readonly ReplicaPort[],
  replica: ReplicaPort,
  hashes: Uint32Array,
): StateElsewhere | undefined {
  let most = replica.heldPrefixes().longestOf(hashes);
  let found: StateElsewhere | undefined;
  for (const other of replicas) {
    const { pid } = other;
    if (other === replica || pid === undefined || !canRestore(replica, other)) continue;
    const prefixes = other.heldPrefixes();
    const shared = prefixes.longestShared(hashes);
    const state = shared >= most + PREFIX_CHUNK ? prefixes.sharedState(hashes) : undefined;
    if (!state) continue;
    most = shared;
    found = { ...state, pid };
  }
  return found;
}

/**
 * Whether a replica can restore the states of another one: these have the same weights, KV type and shape, and fit its seats. A state has
 * at most as many tokens as a seat of the replica that saved it.
 */
function canRestore({ facts: own }: ReplicaPort, { facts: theirs }: ReplicaPort): boolean {
  if (own?.states === undefined || theirs?.states !== own.states) return false;
  return theirs.contextPerSeat <= own.contextPerSeat;
}
