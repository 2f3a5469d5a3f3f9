/**
 * What one frame of the console's feed holds. The page's script is checked against these types (page/tsconfig.json), so
 * they lean on as little of the sidecar as they can.
 */
import type { AdmissionPage } from '../api/admission-page.js';

/** As telemetry/reading.ts has it: cumulative since the start. */
export interface HistogramView {
  /** Upper bounds. */
  readonly bounds: readonly number[];
  /** Values up to each bound, and last of all of them. */
  readonly counts: readonly number[];
  readonly sum: number;
}

/** One lane's prompt host. */
export interface PromptHostView {
  readonly lane: 'short' | 'long';
  /** It takes bodies; false: it starts. */
  readonly up: boolean;
  /** Bodies that it reads, and that wait for it. */
  readonly running: number;
  readonly queued: number;
  readonly restarts: number;
}

/** As /readyz on this listener has it. */
export interface ReadinessView {
  readonly status: 'ready' | 'starting' | 'unhealthy' | 'draining';
  readonly reasons: readonly string[];
}

/** Where a request is that holds a seat. `handed`: the engine has not taken it up yet. */
export type SeatState = 'handed' | 'prefilling' | 'decoding';

/** One request that holds seats. */
export interface HolderView {
  readonly id: number;
  readonly seats: readonly number[];
  readonly account: string;
  readonly class: string;
  readonly state: SeatState;
  /** Since it was given its seats, ms. */
  readonly ageMs: number;
}

export interface EngineView {
  readonly state: string;
  /** Why it was given up; null otherwise. */
  readonly problem: string | null;
  /** While cold or unloaded: a guess of when it will be ready, ms. */
  readonly readyInMs: number;
  readonly restarts: number;
  /** `GPU` or `CPU`; null before it was loaded once. */
  readonly runsOn: string | null;
  readonly contextPerSeat: number | null;
  /** Tokens held for running requests, kept to be reused, and all that it can hold. */
  readonly runningTokens: number;
  readonly keptTokens: number;
  readonly capacityTokens: number;
}

export interface ModelView {
  readonly model: string;
  readonly kind: 'chat' | 'decision';
  readonly engine: EngineView;
  /** As /admission has it, with as many accounts as /metrics names. */
  readonly queue: AdmissionPage;
  readonly holders: readonly HolderView[];
  /** Seconds. */
  readonly firstToken: HistogramView;
  readonly interToken: HistogramView;
  /** Cumulative, by reason, by the phase they were in, and by error code (empty: all went well). */
  readonly refusals: Readonly<Record<string, number>>;
  readonly cancels: Readonly<Record<string, number>>;
  readonly ended: Readonly<Record<string, number>>;
  /** Cumulative. `cached` is a part of `input`. */
  readonly tokens: { readonly input: number; readonly output: number; readonly cached: number };
}

export interface SpoolView {
  /** Null where the spool is still read, or is no spool of ours. */
  readonly healthy: boolean | null;
  /** Why it is not healthy; null when it is. */
  readonly why: string | null;
  readonly bytes: number | null;
  readonly unsynced: number | null;
  readonly oldestUnsyncedSeconds: number | null;
  readonly errors: number;
  readonly lateCloses: number;
  /** Usage on its way to its sink. */
  readonly backlogBytes: number;
  readonly oldestSeconds: number;
  readonly delivered: number;
  readonly deadLetters: number;
  readonly retries: number;
  /** Seconds since 1970; 0: not since the start. */
  readonly lastSuccess: number;
}

export interface Snapshot {
  /** Raised with what a page of the version before would misread: such a page, still open, then asks to be loaded anew. */
  readonly v: 2;
  /** Wall-clock times, ms since 1970: of this snapshot, and of the process's start, which tells one life from the next. */
  readonly at: number;
  readonly startedAt: number;
  /** When the next one comes, ms from this one. */
  readonly intervalMs: number;
  readonly readiness: ReadinessView;
  readonly models: readonly ModelView[];
  /** What was posted and answered with an error, cumulative, by its code: of all models, and of none. */
  readonly errors: Readonly<Record<string, number>>;
  readonly promptHosts: readonly PromptHostView[];
  readonly promptHostRestarts: number;
  readonly spool: SpoolView;
  readonly residentBytes: number;
  readonly streams: number;
  readonly bufferedBytes: number;
}
