/**
 * The state that the console shows at one moment. Its numbers are from the same counters as /metrics and /admission; in
 * addition it has the holder of each seat. Names of models and accounts are the operator's own; it contains nothing of
 * a request or a key.
 */
import type { Clock } from '../lib/clock.js';
import { admissionPage } from '../api/admission.js';
import type { AdmissionPage } from '../api/admission-page.js';
import { readinessOf } from '../api/operators.js';
import type { HostedModel, Services } from '../api/services.js';
import type { ReplicaStatus } from '../engine-client/engine.js';
import type { PromptHostState } from '../prompts/lanes.js';
import {
  CACHED_TOKENS,
  CANCELS,
  FIRST_TOKEN,
  INTER_TOKEN,
  MODEL_REQUEST_DURATION,
  TOKEN_USAGE,
} from '../telemetry/definitions/gen-ai.js';
import { REQUEST_DURATION, STREAM_BUFFERED, STREAMS_RUNNING } from '../telemetry/definitions/http.js';
import { CACHE_BYTES, CACHE_EVICTIONS, CACHE_HITS, CACHE_TOKENS } from '../telemetry/definitions/prefix-cache.js';
import {
  ENGINE_RESTARTS,
  KV_CAPACITY,
  KV_TOKENS,
  PROMPT_RESTARTS,
  REPLICA_RESTARTS,
} from '../telemetry/definitions/processes.js';
import { REFUSALS } from '../telemetry/definitions/queue.js';
import {
  BACKLOG,
  DEAD_LETTERS,
  DELIVERED,
  LAST_SUCCESS,
  LATE_CLOSES,
  OLDEST,
  OLDEST_UNSYNCED,
  RETRIES,
  SPOOL_BYTES,
  SPOOL_ERRORS,
  SPOOL_HEALTHY,
  UNSYNCED,
} from '../telemetry/definitions/usage.js';
import type { Metrics } from '../telemetry/metrics.js';
import { NAMED_ACCOUNTS } from '../telemetry/queue-metrics.js';
import { namesOf, type Reading } from '../telemetry/reading.js';
import type { PlacedHolder, SeatPlan } from './seat-plan.js';
import type { EngineView, HolderView, ModelView, ReplicaView, Snapshot, SpoolView } from './views.js';

/** As long as in `system_fingerprint`. */
const SHOWN_OF_A_HASH = 12;

/** prom-client's own name. */
const RESIDENT = 'process_resident_memory_bytes';

const READ = [
  ...namesOf([CACHED_TOKENS, CANCELS, FIRST_TOKEN, INTER_TOKEN, MODEL_REQUEST_DURATION, TOKEN_USAGE]),
  ...namesOf([REQUEST_DURATION, STREAM_BUFFERED, STREAMS_RUNNING]),
  ...namesOf([CACHE_BYTES, CACHE_EVICTIONS, CACHE_HITS, CACHE_TOKENS]),
  ...namesOf([ENGINE_RESTARTS, KV_CAPACITY, KV_TOKENS, PROMPT_RESTARTS, REFUSALS, REPLICA_RESTARTS]),
  ...namesOf([BACKLOG, DEAD_LETTERS, DELIVERED, LAST_SUCCESS, LATE_CLOSES, OLDEST, OLDEST_UNSYNCED, RETRIES]),
  ...namesOf([SPOOL_BYTES, SPOOL_ERRORS, SPOOL_HEALTHY, UNSYNCED]),
  RESIDENT,
];

/** The sources of a snapshot. */
export type WatchedServices = Pick<Services, 'leaving' | 'spool' | 'credit' | 'models' | 'board'> & {
  readonly promptHosts: () => readonly PromptHostState[];
};

export interface SnapshotParts {
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly startedAt: number;
  readonly intervalMs: number;
  /** The seat plan of each model, by id. */
  readonly plan: (model: string) => SeatPlan;
}

/** The current state. Changes nothing except the plans. */
export async function takeSnapshot(parts: SnapshotParts, watched: WatchedServices): Promise<Snapshot> {
  // Everything up to the first await is from one moment.
  const reading = parts.metrics.read(READ);
  const now = parts.clock.now();
  const models = Array.from(watched.models.values(), (model) => ({
    model,
    queue: admissionPage(model.queue.report(NAMED_ACCOUNTS)),
    holders: parts.plan(model.id).place(watched.board.holders(model.id)),
  }));
  const { startedAt, intervalMs } = parts;
  const at = Date.now();
  const { status, reasons } = readinessOf(watched);
  const promptHosts = watched.promptHosts();
  const { health } = watched.spool;
  const engines = models.map(({ model: { engine }, queue }) => ({
    state: engine.state,
    readyInMs: engine.readyInMs,
    replicas: engine.replicas.map((replica, index) => replicaView(replica, queue.replicas[index])),
  }));
  const read = await reading;
  return {
    v: 3,
    at,
    startedAt,
    upMs: Math.round(now),
    intervalMs,
    readiness: { status, reasons },
    models: models.map(({ model, queue, holders }, i) => ({
      model: model.id,
      kind: model.kind,
      engine: engineView(model, engines[i] ?? { state: model.engine.state, readyInMs: 0, replicas: [] }, read),
      queue,
      holders: holders.map((placed) => holderView(placed, now)),
      ...counted(model.id, read),
    })),
    errors: errorsOf(read),
    promptHosts,
    promptHostRestarts: read.value(PROMPT_RESTARTS.name) ?? 0,
    spool: spoolView(health.ok ? null : health.why, read),
    residentBytes: read.value(RESIDENT) ?? 0,
    streams: read.value(STREAMS_RUNNING.name) ?? 0,
    bufferedBytes: read.value(STREAM_BUFFERED.name) ?? 0,
  };
}

function holderView({ holder, id, seats }: PlacedHolder, now: number): HolderView {
  const { phase } = holder.context;
  return {
    id,
    seats,
    account: holder.account,
    class: holder.class,
    state: phase === 'waiting' ? 'starting' : phase,
    ageMs: Math.round(now - holder.since),
  };
}

type ReplicaWithoutRestarts = Omit<ReplicaView, 'restarts'>;

function replicaView(
  { state, problem, facts }: ReplicaStatus,
  { seats, busy, up }: Omit<AdmissionPage['replicas'][number], 'tokenTimeRatio'> = { seats: 0, busy: 0, up: false },
): ReplicaWithoutRestarts {
  const weights = facts?.weightVersion.slice(0, SHOWN_OF_A_HASH) ?? null;
  return { state, problem: problem ?? null, seats: up ? seats : 0, busy, weights };
}

function engineView(
  { id, engine }: HostedModel,
  {
    state,
    readyInMs,
    replicas,
  }: Pick<EngineView, 'state' | 'readyInMs'> & { readonly replicas: readonly ReplicaWithoutRestarts[] },
  read: Reading,
): EngineView {
  const { facts, problem } = engine;
  return {
    state,
    problem: state === 'ready' ? null : (problem ?? null),
    readyInMs: Math.round(readyInMs),
    restarts: read.value(ENGINE_RESTARTS.name, { model: id }) ?? 0,
    runsOn: facts ? (facts.gpu === false ? 'CPU' : facts.gpu) : null,
    contextPerSeat: facts?.contextPerSeat ?? null,
    runningTokens: read.value(KV_TOKENS.name, { model: id, use: 'running' }) ?? 0,
    keptTokens: read.value(KV_TOKENS.name, { model: id, use: 'kept' }) ?? 0,
    capacityTokens: read.value(KV_CAPACITY.name, { model: id }) ?? 0,
    cache: {
      bytes: read.value(CACHE_BYTES.name, { model: id }) ?? 0,
      hits: read.value(CACHE_HITS.name, { model: id }) ?? 0,
      restoredTokens: read.value(CACHE_TOKENS.name, { model: id }) ?? 0,
      evictions: read.by(CACHE_EVICTIONS.name, 'reason', { model: id }),
    },
    replicas: replicas.map((replica, index) => ({
      ...replica,
      restarts: read.value(REPLICA_RESTARTS.name, { model: id, replica: String(index) }) ?? 0,
    })),
  };
}

function counted(
  model: string,
  read: Reading,
): Pick<ModelView, 'firstToken' | 'interToken' | 'refusals' | 'cancels' | 'ended' | 'tokens'> {
  const about = { gen_ai_request_model: model };
  const tokens = (type: string): number =>
    read.value(`${TOKEN_USAGE.name}_sum`, { ...about, gen_ai_token_type: type }) ?? 0;
  return {
    firstToken: read.histogram(FIRST_TOKEN, about),
    interToken: read.histogram(INTER_TOKEN, { model }),
    refusals: read.by(REFUSALS.name, 'reason', { model }),
    cancels: read.by(CANCELS.name, 'phase', { model }),
    ended: read.by(`${MODEL_REQUEST_DURATION.name}_count`, 'error_type', about),
    tokens: {
      input: tokens('input'),
      output: tokens('output'),
      cached: read.value(CACHED_TOKENS.name, { model }) ?? 0,
    },
  };
}

/** POST requests are those that ask for work, on both listeners. */
function errorsOf(read: Reading): Record<string, number> {
  const all = read.by(`${REQUEST_DURATION.name}_count`, 'error_type', { http_request_method: 'POST' });
  return Object.fromEntries(Object.entries(all).filter(([code]) => code !== ''));
}

function spoolView(why: string | null, read: Reading): SpoolView {
  const healthy = read.value(SPOOL_HEALTHY.name);
  return {
    healthy: healthy === undefined ? null : healthy === 1,
    why,
    bytes: read.value(SPOOL_BYTES.name) ?? null,
    unsynced: read.value(UNSYNCED.name) ?? null,
    oldestUnsyncedSeconds: read.value(OLDEST_UNSYNCED.name) ?? null,
    errors: read.value(SPOOL_ERRORS.name) ?? 0,
    lateCloses: read.value(LATE_CLOSES.name) ?? 0,
    backlogBytes: read.value(BACKLOG.name) ?? 0,
    oldestSeconds: read.value(OLDEST.name) ?? 0,
    delivered: read.value(DELIVERED.name) ?? 0,
    deadLetters: read.value(DEAD_LETTERS.name) ?? 0,
    retries: read.value(RETRIES.name) ?? 0,
    lastSuccess: read.value(LAST_SUCCESS.name) ?? 0,
  };
}
