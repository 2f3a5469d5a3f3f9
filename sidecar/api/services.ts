import type { Credit } from '../access/credit.js';
import type { IdempotencyClaims } from '../access/idempotency.js';
import type { Identity } from '../access/identity.js';
import type { KeyLimiter } from '../access/limits.js';
import type { TokenQuotas } from '../access/quotas.js';
import type { SeatQueue } from '../admission/queue.js';
import type { Lease } from '../admission/types.js';
import type { BatchSums } from '../batch/answers.js';
import type { BatchProblem, BatchRecord, BatchStore } from '../batch/batch-store.js';
import type { FileStore } from '../batch/file-store.js';
import type { ServiceClass } from '../domain/service-class.js';
import type { CacheScope, Engine, ModelKind } from '../engine-client/engine.js';
import type { Clock } from '../lib/clock.js';
import type { PromptHostState } from '../prompts/lanes.js';
import type { ModelReport } from '../prompts/messages.js';
import type { PromptMaker } from '../prompts/prompt-maker.js';
import type { Log } from '../telemetry/logger.js';
import type { Metrics } from '../telemetry/metrics.js';
import type { RequestPhase } from '../telemetry/model-metrics.js';
import type { Tracing } from '../telemetry/tracing.js';
import type { PriceList } from '../usage/prices.js';
import type { Position } from '../usage/spool-format.js';
import type { UsageRecorder } from '../usage/spool.js';
import type { FleetUsage, Totals } from '../usage/totals.js';
import type { Vision } from '../vision/client.js';

/** One hosted model: an engine and the queue for its seats. */
export interface HostedModel {
  readonly id: string;
  readonly kind: ModelKind;
  readonly ownedBy: string;
  /** Only keys of this cohort may call it; absent: open to all. */
  readonly cohort?: string;
  /** When this sidecar began to host it, Unix seconds. */
  readonly created: number;
  readonly engine: Engine;
  /** The scope within which requests of an account reuse prefixes. */
  readonly scopeOf: (account: string) => CacheScope;
  readonly queue: SeatQueue;
  /** Requests wait in the queue while the model loads, if that is estimated to take no longer than this, ms. Absent: they do not wait. */
  readonly loadWaitMs?: number;
  /** The fewest numbers that its vectors may be cut to; absent: they may not be cut. */
  readonly leastDimensions?: number;
  /** Encodes its images; absent: it takes none. */
  readonly vision?: Vision;
}

/** What others use of what runs batches. */
export interface BatchControl {
  /** Runs what has not ended. Call it once work is accepted, and after a batch was created. */
  runAll(): void;
  /** A batch that has not ended is to end. Returns its changed record. */
  cancel(record: BatchRecord): Promise<BatchRecord>;
  /** The sums of a batch: present ones while it runs, otherwise those of its record. */
  sumsOf(record: BatchRecord): BatchSums | NonNullable<BatchRecord['sums']>;
  /** Why a batch does not go on at present; undefined if it does. */
  pauseOf(id: string): BatchProblem | undefined;
  /** Stops all lines, which cost nothing and run again after the next start. Resolves once all batches have stopped. */
  close(): Promise<void>;
}

/** The stored files and batches of callers. */
export interface BatchServices {
  readonly files: FileStore;
  /** Uploads that have not ended, by account. */
  readonly uploads: Map<string, number>;
  readonly batches: BatchStore;
  readonly runner: BatchControl;
  /** Of the spool: usage of a batch that begins now comes after it. */
  readonly position: () => Position;
}

/** The dependencies of handlers; created once, in app.ts. */
export interface Services {
  readonly clock: Clock;
  /** Wall-clock time. */
  readonly date: () => Date;
  /** From 0 to 1. */
  readonly random: () => number;
  /** The contract by which chat bodies are validated. */
  readonly contract: 'strict' | 'compatible';
  /** What becomes of the line that Claude Code begins its system text with. */
  readonly billingLine: 'drop' | 'keep';
  readonly identity: Identity;
  readonly prompts: PromptMaker;
  readonly models: ReadonlyMap<string, HostedModel>;
  readonly spool: UsageRecorder;
  readonly pricing: PriceList;
  /** Undefined if credit is not checked. */
  readonly credit: Credit | undefined;
  /** Credit is reserved in parts, as a reply grows. Absent: the most that a request can cost, before its dispatch. */
  readonly creditInParts?: true;
  readonly metrics: Metrics;
  /** The requests that hold seats. */
  readonly board: SeatBoard;
  readonly log: Log;
  /** Absent: tracing is off. */
  readonly tracing?: Tracing;
  readonly idempotency: IdempotencyClaims;
  /** What each key has used; undefined if earlier usage is not known yet. Absent: nothing is summed up. */
  readonly totals?: () => Totals | undefined;
  /** What the other sidecars of a fleet have counted; absent: there is no store. */
  readonly fleetUsage?: FleetUsage;
  /** Requests, by key. */
  readonly keyLimits: KeyLimiter;
  /** Whether another process has this one's place in the fleet; absent: there is no store. */
  readonly fenced?: () => boolean;
  /** Whether the store has not confirmed its keys for too long, so that no caller is served; absent: keys are not in a store. */
  readonly staleKeys?: () => boolean;
  /** Tokens, by key and by account. */
  readonly quotas: TokenQuotas;
  readonly limits: {
    readonly chatBytes: number;
    /** The longest body that may be parsed on this event loop. */
    readonly inlineBytes: number;
    readonly keepAliveMs: number;
    /** From a body's last byte to the end of its answer, ms; 0: none. */
    readonly timeoutMs: number;
  };
  /** Whether each question of a decision is decoded alone. */
  readonly isolateDecisions: boolean;
  /** Absent: `batch.store` is off. */
  readonly batch?: BatchServices;
  /** The processes behind `prompts`; absent: there are none. */
  readonly promptHosts?: () => readonly PromptHostState[];
  /** What they found of the models' templates, those of models that are known by now; absent: nothing is known. */
  readonly templates?: () => readonly Pick<ModelReport, 'id' | 'tools' | 'thoughts'>[];
  /** Whether they have started and prepared a first prompt each; absent: there are none to wait for. */
  readonly promptsReady?: () => boolean;
  /** True from SIGTERM on, so that proxies send no more requests. */
  readonly leaving: () => boolean;
  /** True once new work is refused: from SIGTERM on, or `drain.noticeMs` later. */
  readonly draining: () => boolean;
}

/** A request that holds seats. Its fields are read when the console needs them, so that a token causes no update. */
export interface SeatHolder {
  readonly model: string;
  readonly account: string;
  readonly class: ServiceClass;
  /** Clock reading when it was given its seats, ms. */
  readonly since: number;
  /** Has the present number of its seats, and whether they are lent. */
  readonly lease: Pick<Lease, 'seats' | 'lent'>;
  /** Has the request's phase; `waiting`: its engine has not started it yet. */
  readonly context: { readonly phase: RequestPhase };
}

/** The running requests that hold seats, with account and phase and without content, for the operators' console. */
export class SeatBoard {
  readonly #holders = new Set<SeatHolder>();

  enter(holder: SeatHolder): void {
    this.#holders.add(holder);
  }

  /** Its request ended. Idempotent. */
  leave(holder: SeatHolder): void {
    this.#holders.delete(holder);
  }

  /** The requests that hold seats of a model, in the order of their grants. A request is the same object until it ends. */
  holders(model: string): SeatHolder[] {
    return [...this.#holders].filter((holder) => holder.model === model && holder.lease.seats() > 0);
  }
}
