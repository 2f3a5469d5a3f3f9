/** The engines and the prompt hosts, which are separate processes, and the engines' prefix caches in host memory. */
import { stateSamples, type Instruments } from './instruments.js';

/** An engine's states, as in engine-client/engine.ts. */
const ENGINE_STATES = ['unloaded', 'cold', 'ready', 'lost'] as const;
type EngineState = (typeof ENGINE_STATES)[number];

export interface EngineReading {
  readonly state: EngineState;
  /** Tokens of running requests, and tokens kept for reuse. */
  readonly running: number;
  readonly kept: number;
  /** The capacity of the engine's KV cache in tokens. */
  readonly capacity: number;
}

export interface ReplicaReading {
  readonly state: EngineState;
  /** Seats that the queue may give; 0 while it is not ready. */
  readonly seats: number;
  /** Busy seats. */
  readonly busy: number;
  /** As the queue's (`Replica`); undefined if it is not known. */
  readonly tokenTimeRatio: number | undefined;
}

/** Declares the metrics of engines and prompt hosts. `ids`: of the configured models; `models`: their engines. */
export function processMetrics(
  instruments: Instruments,
  ids: readonly string[],
  models: ReadonlyMap<
    string,
    { readonly engine: () => EngineReading; readonly replicas: () => readonly ReplicaReading[] }
  >,
) {
  const engines = instruments.onceAScrape(() => Array.from(models, ([model, { engine }]) => ({ model, ...engine() })));
  const replicas = instruments.onceAScrape(() =>
    [...models].flatMap(([model, { replicas: read }]) =>
      read().map((reading, index) => ({ labels: { model, replica: String(index) }, ...reading })),
    ),
  );
  instruments.gauge('ra_sidecar_engine_state', '0 or 1', {
    labels: ['model', 'state'],
    help: '1 for the current state of the engine, of several replicas the best one.',
    advice: '`lost`: its model cannot be served; the log and the operators’ `/readyz` have the reason.',
    collect: () => engines().flatMap(({ model, state }) => stateSamples(ENGINE_STATES, state, { model })),
  });
  instruments.gauge('ra_sidecar_replica_state', '0 or 1', {
    labels: ['model', 'replica', 'state'],
    help: '1 for the current state of each engine process.',
    advice: '`lost`, or `cold` for long: the operators’ `/readyz` has the reason.',
    collect: () => replicas().flatMap(({ labels, state }) => stateSamples(ENGINE_STATES, state, labels)),
  });
  instruments.gauge('ra_sidecar_replica_seats', 'seats', {
    labels: ['model', 'replica'],
    help: 'Seats of each engine process; 0 while it is not ready.',
    advice: 'As `ra_sidecar_seats`.',
    collect: () => replicas().map(({ labels, seats }) => [labels, seats]),
  });
  instruments.gauge('ra_sidecar_replica_seats_busy', 'seats', {
    labels: ['model', 'replica'],
    help: 'Busy seats of each engine process.',
    advice: 'Uneven: conversations stay where their past turns are.',
    collect: () => replicas().map(({ labels, busy }) => [labels, busy]),
  });
  instruments.gauge('ra_sidecar_replica_token_time_ratio', 'ratio', {
    labels: ['model', 'replica'],
    help: 'How many times as long a token takes on each engine process as on the average one with as many busy seats.',
    advice: 'One far above the others: a slower device, or other work on it.',
    *collect() {
      for (const { labels, tokenTimeRatio } of replicas()) {
        if (tokenTimeRatio !== undefined) yield [labels, tokenTimeRatio];
      }
    },
  });
  const replicaRestarts = instruments.counter('ra_sidecar_replica_restarts_total', 'restarts', {
    labels: ['model', 'replica'],
    help: 'Restarts of each engine process, failed loads included.',
    advice: 'One far above the others: its device, or its cores.',
    // Their number is not known before.
    collect: () => replicas().map(({ labels }) => [labels, 0]),
  });
  const restarts = instruments.counter('ra_sidecar_engine_restarts_total', 'restarts', {
    labels: { model: ids },
    help: 'Restarts of engine processes, failed loads included.',
    advice: 'The log’s `engine lost` has the reason.',
  });
  const unconfirmed = instruments.counter('ra_sidecar_engine_unconfirmed_cancels_total', 'replies', {
    labels: { model: ids },
    help: 'Cancelled replies whose end an external server did not confirm in `engine.cancelWaitMs`.',
    advice: 'More than a few: the server computes on, or has other clients (docs/engines.md).',
  });
  instruments.gauge('ra_sidecar_kv_tokens', 'tokens', {
    labels: ['model', 'use'],
    help: 'Tokens in the KV memory of the ready replicas.',
    advice: '`running` near the capacity: conversations are as long as their seats allow.',
    *collect() {
      for (const { model, running, kept } of engines()) {
        yield [{ model, use: 'running' }, running];
        yield [{ model, use: 'kept' }, kept];
      }
    },
  });
  instruments.gauge('ra_sidecar_kv_capacity_tokens', 'tokens', {
    labels: ['model'],
    help: 'Tokens that the KV memory of the ready replicas can hold.',
    advice: 'It is the configuration.',
    collect: () => engines().map(({ model, capacity }) => [{ model }, capacity]),
  });
  const promptRestarts = instruments.counter('ra_sidecar_prompt_host_restarts_total', 'restarts', {
    help: 'Restarts of prompt hosts.',
    advice: 'The log’s `prompt host restarts` has the reason; the requests got `internal`.',
  });
  return {
    engineRestarted(model: string, replica: number): void {
      restarts.inc({ model });
      replicaRestarts.inc({ model, replica: String(replica) });
    },
    unconfirmedCancels: (model: string, count: number): void => unconfirmed.inc({ model }, count),
    promptHostRestarted: (): void => promptRestarts.inc(),
  };
}

/** Why an entry was dropped, as in engine/protocol/messages.ts. */
export const EVICTION_REASONS = ['room', 'replaced', 'age', 'forgotten', 'failed'] as const;

/** One engine process's cache at a scrape: sums since the process began, and its bytes now. */
export interface CacheReading {
  readonly hits: number;
  readonly restoredTokens: number;
  readonly bytes: number;
  readonly evictions: Readonly<Record<(typeof EVICTION_REASONS)[number], number>>;
}

/** Declares the metrics of prefix caches, as of the engines' last heartbeats. `models`: the caches of each, always in one order. */
export function cacheMetrics(
  instruments: Instruments,
  ids: readonly string[],
  models: ReadonlyMap<string, { readonly caches: () => readonly CacheReading[] }>,
): void {
  const readings = instruments.onceAScrape(() =>
    Array.from(models, ([model, { caches }]) => ({ model, caches: caches() })),
  );
  const grown = (count: (cache: CacheReading) => number) => {
    const by = growth();
    return () => readings().map(({ model, caches }) => [{ model }, by(model, caches.map(count))] as const);
  };
  const evicted = growth();
  instruments.counter('ra_sidecar_prefix_cache_hits_total', 'requests', {
    labels: { model: ids },
    help: 'Requests whose prefix was restored from host memory.',
    advice: 'Few, with many evictions for `room`: docs/sizing.md#memory-by-hand.',
    collect: grown(({ hits }) => hits),
  });
  instruments.counter('ra_sidecar_prefix_cache_restored_tokens_total', 'tokens', {
    labels: { model: ids },
    help: 'Prompt tokens restored from host memory, a part of `ra_sidecar_cached_tokens_total`.',
    advice: 'What the cache saves.',
    collect: grown(({ restoredTokens }) => restoredTokens),
  });
  instruments.gauge('ra_sidecar_prefix_cache_bytes', 'bytes', {
    labels: ['model'],
    help: 'Host memory of saved prefixes; one that replicas share counts in each.',
    advice: 'Far below `prefixCache.bytes`: a smaller bound would do.',
    collect: () =>
      readings().map(({ model, caches }) => [{ model }, caches.reduce((sum, { bytes }) => sum + bytes, 0)]),
  });
  instruments.counter('ra_sidecar_prefix_cache_evictions_total', 'prefixes', {
    labels: { model: ids, reason: EVICTION_REASONS },
    help: 'Saved prefixes that were dropped: for `room`, `replaced` by one that contains them, for `age`, `forgotten` with their account, `failed` to be restored.',
    advice: '`failed`: check the machine’s memory.',
    *collect() {
      for (const { model, caches } of readings()) {
        for (const reason of EVICTION_REASONS) {
          const counts = caches.map(({ evictions }) => evictions[reason]);
          yield [{ model, reason }, evicted(`${model} ${reason}`, counts)];
        }
      }
    },
  });
}

/**
 * Returns by how much the counts of a series have grown, in sum, since it was last asked for that series. A process whose count fell was
 * started again, and has counted from 0.
 */
function growth(): (series: string, counts: readonly number[]) => number {
  const last = new Map<string, readonly number[]>();
  return (series, counts) => {
    const before = last.get(series) ?? [];
    last.set(series, counts);
    return counts.reduce((sum, now, at) => {
      const then = before[at] ?? 0;
      return sum + (now < then ? now : now - then);
    }, 0);
  };
}
