/** What the console shows at one moment, from the counters of /metrics and /admission; nothing of a request's content or a key. */
import type { Clock } from '../lib/clock.js';
import { readinessOf } from '../api/health.js';
import type { AdmissionPage } from '../api/admission-page.js';
import { admissionPage } from '../api/operators.js';
import type { BatchServices, HostedModel, SeatHolder, Services } from '../api/services.js';
import { usdNumber } from '../domain/money.js';
import type { ReplicaStatus } from '../engine-client/engine.js';
import type { PromptHostState } from '../prompts/lanes.js';
import type { Metrics } from '../telemetry/metrics.js';
import { FLEET_STATES } from '../telemetry/access-metrics.js';
import { NAMED_ACCOUNTS } from '../telemetry/queue-metrics.js';
import type { Reading } from '../telemetry/instruments.js';
import type { DaySum, Totals } from '../usage/totals.js';
import type {
  AccountBatchesView,
  EngineView,
  HolderView,
  ModelView,
  ReplicaView,
  Snapshot,
  SpoolView,
  UsageSumView,
  UsageView,
} from './views.js';

/** As long as in `system_fingerprint`. */
const SHOWN_OF_A_HASH = 12;

const READ = {
  cachedTokens: 'ra_sidecar_cached_tokens_total',
  draftedTokens: 'ra_sidecar_drafted_tokens_total',
  acceptedTokens: 'ra_sidecar_accepted_tokens_total',
  cancels: 'ra_sidecar_cancels_total',
  firstToken: 'gen_ai_server_time_to_first_token_seconds',
  interToken: 'ra_sidecar_inter_token_seconds',
  modelRequests: 'gen_ai_server_request_duration_seconds',
  tokens: 'gen_ai_client_token_usage',
  httpRequests: 'http_server_request_duration_seconds',
  buffered: 'ra_sidecar_stream_buffered_bytes',
  streams: 'ra_sidecar_streams_running',
  cacheBytes: 'ra_sidecar_prefix_cache_bytes',
  cacheEvictions: 'ra_sidecar_prefix_cache_evictions_total',
  cacheHits: 'ra_sidecar_prefix_cache_hits_total',
  cacheTokens: 'ra_sidecar_prefix_cache_restored_tokens_total',
  engineRestarts: 'ra_sidecar_engine_restarts_total',
  kvCapacity: 'ra_sidecar_kv_capacity_tokens',
  kvTokens: 'ra_sidecar_kv_tokens',
  promptRestarts: 'ra_sidecar_prompt_host_restarts_total',
  refusals: 'ra_sidecar_refusals_total',
  replicaRestarts: 'ra_sidecar_replica_restarts_total',
  backlogBytes: 'ra_sidecar_usage_backlog_bytes',
  deadLetters: 'ra_sidecar_usage_dead_letters_total',
  delivered: 'ra_sidecar_usage_delivered_total',
  lastSuccess: 'ra_sidecar_usage_delivery_last_success_timestamp_seconds',
  retries: 'ra_sidecar_usage_delivery_retries_total',
  oldest: 'ra_sidecar_usage_oldest_seconds',
  lateCloses: 'ra_sidecar_spool_late_closes_total',
  oldestUnsynced: 'ra_sidecar_spool_oldest_unsynced_seconds',
  spoolBytes: 'ra_sidecar_spool_bytes',
  spoolErrors: 'ra_sidecar_spool_errors_total',
  spoolHealthy: 'ra_sidecar_spool_healthy',
  postingLag: 'ra_sidecar_credit_posting_lag_seconds',
  storeReplicas: 'ra_sidecar_store_replicas',
  storeState: 'ra_sidecar_store_state',
  unsynced: 'ra_sidecar_spool_unsynced_records',
  residentBytes: 'process_resident_memory_bytes',
} as const;

export type WatchedServices = Pick<
  Services,
  'leaving' | 'spool' | 'credit' | 'models' | 'board' | 'totals' | 'batch'
> & { readonly promptHosts: () => readonly PromptHostState[] };

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
  const reading = parts.metrics.read(Object.values(READ));
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
  const usage = await usageView(watched.totals?.(), new Date(at).toISOString().slice(0, 10));
  return {
    v: 3,
    at,
    startedAt,
    upMs: Math.round(now),
    intervalMs,
    readiness: { status, reasons },
    fleet: fleetView(read),
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
    promptHostRestarts: read.value(READ.promptRestarts) ?? 0,
    spool: spoolView(health.ok ? null : health.why, read),
    usage,
    batches: batchesView(watched.batch),
    residentBytes: read.value(READ.residentBytes) ?? 0,
    streams: read.value(READ.streams) ?? 0,
    bufferedBytes: read.value(READ.buffered) ?? 0,
  };
}

function fleetView(read: Reading): Snapshot['fleet'] {
  const state = FLEET_STATES.find((each) => read.value(READ.storeState, { state: each }) === 1);
  if (state === undefined) return null;
  return { state, sidecars: read.value(READ.storeReplicas) ?? null, lateSeconds: read.value(READ.postingLag) ?? 0 };
}

function holderView({ holder, id, seats }: PlacedHolder, now: number): HolderView {
  const { phase } = holder.context;
  return {
    id,
    seats,
    account: holder.account,
    class: holder.class,
    lent: holder.lease.lent,
    state: phase === 'waiting' ? 'starting' : phase,
    ageMs: Math.round(now - holder.since),
  };
}

type ReplicaWithoutRestarts = Omit<ReplicaView, 'restarts'>;

function replicaView(
  { state, problem, facts }: ReplicaStatus,
  { seats, busy, up }: Pick<AdmissionPage['replicas'][number], 'seats' | 'busy' | 'up'> = {
    seats: 0,
    busy: 0,
    up: false,
  },
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
    restarts: read.value(READ.engineRestarts, { model: id }) ?? 0,
    runsOn: facts ? (facts.gpu === false ? 'CPU' : facts.gpu) : null,
    contextPerSeat: facts?.contextPerSeat ?? null,
    runningTokens: read.value(READ.kvTokens, { model: id, use: 'running' }) ?? 0,
    keptTokens: read.value(READ.kvTokens, { model: id, use: 'kept' }) ?? 0,
    capacityTokens: read.value(READ.kvCapacity, { model: id }) ?? 0,
    cache: {
      bytes: read.value(READ.cacheBytes, { model: id }) ?? 0,
      hits: read.value(READ.cacheHits, { model: id }) ?? 0,
      restoredTokens: read.value(READ.cacheTokens, { model: id }) ?? 0,
      evictions: read.by(READ.cacheEvictions, 'reason', { model: id }),
    },
    replicas: replicas.map((replica, index) => ({
      ...replica,
      restarts: read.value(READ.replicaRestarts, { model: id, replica: String(index) }) ?? 0,
    })),
  };
}

function counted(
  model: string,
  read: Reading,
): Pick<ModelView, 'firstToken' | 'interToken' | 'refusals' | 'cancels' | 'ended' | 'tokens'> {
  const about = { gen_ai_request_model: model };
  const tokens = (type: string): number => read.histogram(READ.tokens, { ...about, gen_ai_token_type: type }).sum;
  return {
    firstToken: read.histogram(READ.firstToken, about),
    interToken: read.histogram(READ.interToken, { model }),
    refusals: read.by(READ.refusals, 'reason', { model }),
    cancels: read.by(READ.cancels, 'phase', { model }),
    ended: read.by(READ.modelRequests, 'error_type', about),
    tokens: {
      input: tokens('input'),
      output: tokens('output'),
      cached: read.value(READ.cachedTokens, { model }) ?? 0,
      drafted: read.value(READ.draftedTokens, { model }) ?? 0,
      accepted: read.value(READ.acceptedTokens, { model }) ?? 0,
    },
  };
}

/** POST requests are those that ask for work, on both listeners. */
function errorsOf(read: Reading): Record<string, number> {
  const all = read.by(READ.httpRequests, 'error_type', { http_request_method: 'POST' });
  return Object.fromEntries(Object.entries(all).filter(([code]) => code !== ''));
}

function spoolView(why: string | null, read: Reading): SpoolView {
  const healthy = read.value(READ.spoolHealthy);
  return {
    healthy: healthy === undefined ? null : healthy === 1,
    why,
    bytes: read.value(READ.spoolBytes) ?? null,
    unsynced: read.value(READ.unsynced) ?? null,
    oldestUnsyncedSeconds: read.value(READ.oldestUnsynced) ?? null,
    errors: read.value(READ.spoolErrors) ?? 0,
    lateCloses: read.value(READ.lateCloses) ?? 0,
    backlogBytes: read.value(READ.backlogBytes) ?? 0,
    oldestSeconds: read.value(READ.oldest) ?? 0,
    delivered: read.value(READ.delivered) ?? 0,
    deadLetters: read.value(READ.deadLetters) ?? 0,
    retries: read.value(READ.retries) ?? 0,
    lastSuccess: read.value(READ.lastSuccess) ?? 0,
  };
}

/** Accounts whose batches are listed. */
const LISTED_BATCHES = 20;

function batchesView(batch: BatchServices | undefined): AccountBatchesView[] | null {
  if (!batch) return null;
  const byAccount = new Map<string, AccountBatchesView>();
  for (const record of batch.batches.unfinished()) {
    const { account, lines } = record;
    const { completed, failed } = batch.runner.sumsOf(record);
    const sum = byAccount.get(account) ?? { account, batches: 0, lines: 0, answered: 0 };
    const answered = sum.answered + completed + failed;
    byAccount.set(account, { account, batches: sum.batches + 1, lines: sum.lines + lines, answered });
  }
  return [...byAccount.values()].sort((a, b) => b.lines - a.lines).slice(0, LISTED_BATCHES);
}

/** Accounts whose usage is listed; the others are summed up. */
const LISTED_ACCOUNTS = 20;

async function usageView(totals: Totals | undefined, day: string): Promise<UsageView | null> {
  if (!totals) return null;
  // What cannot be read now is in a later snapshot; the log has the reason.
  await totals.sums.readOn().catch(() => undefined);
  const accounts = [...totals.accounts(day)].sort((a, b) =>
    a.picodollars === b.picodollars ? b.requests - a.requests : a.picodollars < b.picodollars ? 1 : -1,
  );
  const others = accounts.slice(LISTED_ACCOUNTS);
  return {
    day,
    accounts: accounts.slice(0, LISTED_ACCOUNTS).map((each) => ({ account: each.account, ...usageSum([each]) })),
    others: { accounts: others.length, ...usageSum(others) },
  };
}

function usageSum(days: readonly DaySum[]): UsageSumView {
  const sum = (of: (day: DaySum) => number): number => days.reduce((all, day) => all + of(day), 0);
  return {
    requests: sum(({ requests }) => requests),
    input: sum(({ used }) => used.promptTokens),
    cached: sum(({ used }) => used.cachedTokens),
    output: sum(({ used }) => used.completionTokens),
    usd: usdNumber(days.reduce((all, { picodollars }) => all + picodollars, 0n)),
  };
}

/** A request in the display of a model's seats. */
export interface PlacedHolder {
  readonly holder: SeatHolder;
  /** Its number in the display, unique since the display began. */
  readonly id: number;
  /** Numbers of its seats, from 0, lowest first. */
  readonly seats: readonly number[];
}

/** Seat numbers for the display: the engine chooses sequences, so each request gets the lowest free numbers, and keeps them. */
export class SeatPlan {
  /** Weak, so that finished requests are not kept in memory while there are no viewers. */
  #placed = new WeakMap<SeatHolder, { readonly id: number; readonly seats: number[] }>();
  #last = 0;

  /** The current seat holders. Requests that were placed before and are not in the list have ended. */
  place(holders: readonly SeatHolder[]): PlacedHolder[] {
    const stay = new Map<SeatHolder, { readonly id: number; readonly seats: number[] }>();
    const taken = new Set<number>();
    for (const holder of holders) {
      const known = this.#placed.get(holder);
      if (!known) continue;
      // A request that returns seats loses its highest numbers.
      known.seats.length = Math.min(known.seats.length, holder.lease.seats());
      for (const seat of known.seats) taken.add(seat);
      stay.set(holder, known);
    }
    let free = 0;
    const next = (): number => {
      while (taken.has(free)) free += 1;
      taken.add(free);
      return free;
    };
    for (const holder of holders) {
      let entry = stay.get(holder);
      if (!entry) stay.set(holder, (entry = { id: ++this.#last, seats: [] }));
      while (entry.seats.length < holder.lease.seats()) entry.seats.push(next());
    }
    this.#placed = new WeakMap(stay);
    return Array.from(stay, ([holder, { id, seats }]) => ({ holder, id, seats: [...seats] }));
  }
}
