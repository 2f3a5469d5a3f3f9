/**
 * What the operators' listener serves at /metrics. prom-client is known here alone. Every label has few values: routes,
 * codes and reasons are closed unions, models come from the configuration; no account, key or user is ever a label.
 */
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { ErrorCode } from '../errors.js';
import type { UsageRecord } from '../ledger.js';

export type RouteLabel = 'chat' | 'decisions' | 'systemone' | 'models' | 'ops' | 'other';

/** Why the seat queue refused, as in admission/seat-queue.ts. */
const REASONS = ['full', 'bytes', 'wait', 'deadline', 'drain', 'engine-lost'] as const;
export type RefusalLabel = (typeof REASONS)[number];

/** Where a request was when its caller left. */
const PHASES = ['waiting', 'prefilling', 'decoding'] as const;
export type CancelPhase = (typeof PHASES)[number];

/** What an engine can be, as in engine-client/engine.ts. */
const ENGINE_STATES = ['unloaded', 'cold', 'ready', 'lost'] as const;
export type EngineStateLabel = (typeof ENGINE_STATES)[number];

const KINDS = ['prompt', 'cached', 'completion'] as const;

/** One model's queue at the moment of a scrape. */
export interface QueueReading {
  readonly seats: number;
  readonly busy: number;
  readonly waiting: number;
  readonly waitingBytes: number;
}

const PREFIX = 'ra_sidecar_';
const WAIT_SECONDS = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const DURATION_SECONDS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];

/** The process's metrics: a registry of its own, so that two in one process (tests) do not meet. */
export class Metrics {
  readonly #registry = new Registry();
  readonly #queues = new Map<string, () => QueueReading>();
  readonly #engines = new Map<string, () => EngineStateLabel>();
  readonly #models: ReadonlySet<string>;

  readonly #requests = this.#counter('requests_total', 'Requests answered.', ['route', 'status', 'code']);
  readonly #durations = this.#histogram(
    'request_duration_seconds',
    'From the head to the last byte.',
    DURATION_SECONDS,
    ['route'],
  );
  readonly #queueWaits = this.#histogram('queue_wait_seconds', 'Wait for a seat, seated requests.', WAIT_SECONDS);
  readonly #ttfts = this.#histogram('ttft_seconds', 'Last byte received to first token.', WAIT_SECONDS);
  readonly #refusals = this.#counter('refusals_total', 'Requests the seat queue refused.', ['model', 'reason']);
  readonly #cancels = this.#counter('cancels_total', 'Requests whose caller left.', ['model', 'phase']);
  readonly #tokens = this.#counter('tokens_total', 'Tokens of finished requests.', ['model', 'kind']);
  readonly #engineRestarts = this.#counter('engine_restarts_total', 'Engine processes started again.', ['model']);
  readonly #engineState = this.#gauge('engine_state', 'What the engine is: 1 for one state, 0 for the others.', [
    'model',
    'state',
  ]);
  readonly #promptRestarts = this.#counter('prompt_host_restarts_total', 'Prompt hosts started again.');
  readonly #usage = this.#counter('usage_records_total', 'Usage records, by kind.', ['kind']);
  readonly #streams = this.#gauge('streams_running', 'Event streams open.');
  readonly #seats = this.#gauge('seats', 'Seats of the engine.', ['model']);
  readonly #busy = this.#gauge('seats_busy', 'Seats that requests hold.', ['model']);
  readonly #waiting = this.#gauge('waiting_requests', 'Requests in the queue.', ['model']);
  readonly #waitingBytes = this.#gauge('waiting_bytes', 'Body bytes that waiting requests hold.', ['model']);

  /** `models`: the configured ids; any other is counted as `other`. */
  constructor(models: readonly string[]) {
    this.#models = new Set(models);
    collectDefaultMetrics({ register: this.#registry });
    for (const model of models) {
      for (const reason of REASONS) this.#refusals.inc({ model, reason }, 0);
      for (const phase of PHASES) this.#cancels.inc({ model, phase }, 0);
      this.#engineRestarts.inc({ model }, 0);
    }
  }

  /** A request was answered, or its caller left (499). `code`: of the error that was sent, if one was. */
  answered(route: RouteLabel, status: number, durationMs: number, code?: ErrorCode): void {
    this.#requests.inc({ route, status, code: code ?? 'none' });
    this.#durations.observe({ route }, durationMs / 1000);
  }

  seated(model: string, waitedMs: number): void {
    this.#queueWaits.observe({ model: this.#known(model) }, waitedMs / 1000);
  }

  refused(model: string, reason: RefusalLabel): void {
    this.#refusals.inc({ model: this.#known(model), reason });
  }

  cancelled(model: string, phase: CancelPhase): void {
    this.#cancels.inc({ model: this.#known(model), phase });
  }

  firstToken(model: string, afterMs: number): void {
    this.#ttfts.observe({ model: this.#known(model) }, afterMs / 1000);
  }

  /** `cached` is a part of `prompt`. */
  tokens(model: string, used: Readonly<Record<(typeof KINDS)[number], number>>): void {
    for (const kind of KINDS) this.#tokens.inc({ model: this.#known(model), kind }, used[kind]);
  }

  engineRestarted(model: string): void {
    this.#engineRestarts.inc({ model: this.#known(model) });
  }

  promptHostRestarted(): void {
    this.#promptRestarts.inc();
  }

  usageRecorded(kind: UsageRecord['kind']): void {
    this.#usage.inc({ kind });
  }

  streamOpened(): void {
    this.#streams.inc();
  }

  streamClosed(): void {
    this.#streams.dec();
  }

  /** `read` is asked at each scrape, for as long as this object lives. */
  watchQueue(model: string, read: () => QueueReading): void {
    this.#queues.set(this.#known(model), read);
  }

  /** The same for the state of a model's engine. */
  watchEngine(model: string, read: () => EngineStateLabel): void {
    this.#engines.set(this.#known(model), read);
  }

  /** The page, in Prometheus' text format. */
  async render(): Promise<{ readonly contentType: string; readonly text: string }> {
    for (const [model, read] of this.#queues) {
      const { seats, busy, waiting, waitingBytes } = read();
      this.#seats.set({ model }, seats);
      this.#busy.set({ model }, busy);
      this.#waiting.set({ model }, waiting);
      this.#waitingBytes.set({ model }, waitingBytes);
    }
    for (const [model, read] of this.#engines) {
      const now = read();
      for (const state of ENGINE_STATES) this.#engineState.set({ model, state }, state === now ? 1 : 0);
    }
    return { contentType: this.#registry.contentType, text: await this.#registry.metrics() };
  }

  #known(model: string): string {
    return this.#models.has(model) ? model : 'other';
  }

  #counter<L extends string>(name: string, help: string, labelNames: readonly L[] = []): Counter<L> {
    return new Counter({ name: PREFIX + name, help, labelNames, registers: [this.#registry] });
  }

  #gauge<L extends string>(name: string, help: string, labelNames: readonly L[] = []): Gauge<L> {
    return new Gauge({ name: PREFIX + name, help, labelNames, registers: [this.#registry] });
  }

  #histogram(name: string, help: string, buckets: number[], labelNames = ['model']): Histogram {
    return new Histogram({ name: PREFIX + name, help, buckets, labelNames, registers: [this.#registry] });
  }
}
