/** One frame of the console's feed. The page's script is checked against these types (page/tsconfig.json), so they import little. */
import type { AdmissionPage } from '../api/admission-page.js';

/** As in telemetry/instruments.ts: cumulative since the start. */
export interface HistogramView {
  readonly bounds: readonly number[];
  /** Number of values up to each bound; the last element counts all values. */
  readonly counts: readonly number[];
  readonly sum: number;
}

/** One lane's prompt host. */
export interface PromptHostView {
  readonly lane: 'short' | 'long' | 'batch';
  /** True if it accepts bodies; false while it starts. */
  readonly up: boolean;
  /** Bodies that it is processing, and that wait for it. */
  readonly running: number;
  readonly queued: number;
  /** Of all hosts of this lane since the start. */
  readonly restarts: number;
  /** Why its last start failed; absent: it did not. */
  readonly problem?: string;
}

/** As /readyz of this listener shows it. */
export interface ReadinessView {
  readonly status: 'ready' | 'starting' | 'unhealthy' | 'draining';
  readonly reasons: readonly string[];
}

/** The phase of a request that holds a seat. `starting`: the engine has not started it yet. */
export type SeatState = 'starting' | 'prefilling' | 'decoding';

/** One request that holds seats. */
export interface HolderView {
  readonly id: number;
  readonly seats: readonly number[];
  readonly account: string;
  readonly class: string;
  /** Its seat is lent: it is stopped when another request needs the seat. */
  readonly lent: boolean;
  readonly state: SeatState;
  /** Time since it got its seats, ms. */
  readonly ageMs: number;
}

/** One engine process of a model. */
export interface ReplicaView {
  readonly state: string;
  /** Why it is not ready, or null. */
  readonly problem: string | null;
  /** Seats that requests may get, and of these those that they hold. */
  readonly seats: number;
  readonly busy: number;
  readonly restarts: number;
  /** The beginning of the hash of its weights; null before it was first loaded. */
  readonly weights: string | null;
}

export interface EngineView {
  readonly state: string;
  /** Why no replica is ready, or null. Of a model with a ready one, its replicas have their own. */
  readonly problem: string | null;
  /** While cold or unloaded: the estimated time until it is ready, ms. */
  readonly readyInMs: number;
  readonly restarts: number;
  /** `CPU`, the backend of its GPU, or the kind of an external server; null before it was first loaded. */
  readonly runsOn: string | null;
  readonly contextPerSeat: number | null;
  /** Tokens of running requests, tokens kept for reuse, and the capacity. */
  readonly runningTokens: number;
  readonly keptTokens: number;
  readonly capacityTokens: number;
  readonly cache: CacheView;
  /** In the order of the configuration. */
  readonly replicas: readonly ReplicaView[];
}

/** Prefixes in host memory, of all processes of a model. All but the bytes are cumulative. */
export interface CacheView {
  readonly bytes: number;
  readonly hits: number;
  readonly restoredTokens: number;
  /** By reason. */
  readonly evictions: Readonly<Record<string, number>>;
}

export interface ModelView {
  readonly model: string;
  readonly kind: 'chat' | 'decision' | 'embedding' | 'rerank';
  readonly engine: EngineView;
  /** As /admission has it, with as many accounts as /metrics names. */
  readonly queue: AdmissionPage;
  readonly holders: readonly HolderView[];
  /** Seconds. */
  readonly firstToken: HistogramView;
  readonly interToken: HistogramView;
  /** Cumulative counts by reason, by phase, and by error code (empty: no error). */
  readonly refusals: Readonly<Record<string, number>>;
  readonly cancels: Readonly<Record<string, number>>;
  readonly ended: Readonly<Record<string, number>>;
  /** Cumulative. `cached` is a part of `input`, `accepted` of `output` and of `drafted`. */
  readonly tokens: Readonly<Record<'input' | 'output' | 'cached' | 'drafted' | 'accepted', number>>;
}

export interface SpoolView {
  /** Null while the spool is being read, or if there is none. */
  readonly healthy: boolean | null;
  /** Why it is not healthy, or null. */
  readonly why: string | null;
  readonly bytes: number | null;
  readonly unsynced: number | null;
  readonly oldestUnsyncedSeconds: number | null;
  readonly errors: number;
  readonly lateCloses: number;
  /** Bytes of usage not yet delivered. */
  readonly backlogBytes: number;
  readonly oldestSeconds: number;
  readonly delivered: number;
  readonly deadLetters: number;
  readonly retries: number;
  /** Seconds since 1970; 0: none since the start. */
  readonly lastSuccess: number;
}

/** What was used in a day. Of the input tokens, `cached` ones were reused. */
export interface UsageSumView {
  readonly requests: number;
  readonly input: number;
  readonly cached: number;
  readonly output: number;
  readonly usd: number;
}

/** The usage of the present UTC day, of requests that have ended. */
export interface UsageView {
  /** `2026-10-03` */
  readonly day: string;
  /** Those that cost most, first. */
  readonly accounts: readonly (UsageSumView & { readonly account: string })[];
  readonly others: UsageSumView & { readonly accounts: number };
}

/** The batches of an account that have not ended. */
export interface AccountBatchesView {
  readonly account: string;
  readonly batches: number;
  /** Lines of all of them, as far as they are counted, and those that have an answer. */
  readonly lines: number;
  readonly answered: number;
}

export interface Snapshot {
  /** Incremented with changes that an older page would misread; such a page then asks to be reloaded. */
  readonly v: 3;
  /** Wall-clock times, ms since 1970: of this snapshot, and of the process's start, which identifies the process. */
  readonly at: number;
  readonly startedAt: number;
  /** How long the process has run, ms, also where the wall clock was set meanwhile. */
  readonly upMs: number;
  /** Time until the next one, ms. */
  readonly intervalMs: number;
  readonly readiness: ReadinessView;
  /** Of a fleet with a store, else null. `lateSeconds`: for how long charges have waited for the store. */
  readonly fleet: { readonly state: string; readonly sidecars: number | null; readonly lateSeconds: number } | null;
  readonly models: readonly ModelView[];
  /** POST requests answered with an error, cumulative, by code: for all models and for none. */
  readonly errors: Readonly<Record<string, number>>;
  readonly promptHosts: readonly PromptHostView[];
  readonly promptHostRestarts: number;
  readonly spool: SpoolView;
  /** Null while earlier usage is being read, or if nothing is summed up. */
  readonly usage: UsageView | null;
  /** Those of the most lines first. Null: files and batches are not served. */
  readonly batches: readonly AccountBatchesView[] | null;
  readonly residentBytes: number;
  readonly streams: number;
  readonly bufferedBytes: number;
}
