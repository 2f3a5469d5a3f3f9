/**
 * What the operators' listener serves at /metrics. prom-client is known here and in the other `-metrics.ts` alone. Every label
 * has few values: routes, codes and reasons are closed unions, models come from the configuration; no key or user is ever
 * a label, accounts only where queue-metrics.ts says so.
 */
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { ErrorCode } from '../errors.js';
import { DeliveryMetrics } from './delivery-metrics.js';
import { QueueMetrics, WAIT_SECONDS, type QueueReading, type RefusalLabel, type Seating } from './queue-metrics.js';
import { CreditMetrics } from './credit-metrics.js';
import { SpoolMetrics } from './spool-metrics.js';

export type RouteLabel = 'chat' | 'decisions' | 'systemone' | 'models' | 'ops' | 'other';

/** Where a request was when its caller left. */
const PHASES = ['waiting', 'prefilling', 'decoding'] as const;
export type CancelPhase = (typeof PHASES)[number];

/** Why a reader was cut off, as in http/backlog.ts. */
const CUTS = ['stream', 'total'] as const;
export type CutLabel = (typeof CUTS)[number];

/** What an engine can be, as in engine-client/engine.ts. */
const ENGINE_STATES = ['unloaded', 'cold', 'ready', 'lost'] as const;
export type EngineStateLabel = (typeof ENGINE_STATES)[number];

const KINDS = ['prompt', 'cached', 'completion'] as const;

const PREFIX = 'ra_sidecar_';
const DURATION_SECONDS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];

/** The process's metrics: a registry of its own, so that two in one process (tests) do not meet. */
export class Metrics {
  readonly #registry = new Registry();
  readonly #queues: QueueMetrics;
  /** Of the usage that leaves for its sink. */
  readonly delivery = new DeliveryMetrics(this.#registry, PREFIX);
  /** What the usage spool tells. */
  readonly spool: SpoolMetrics;
  /** What prepaid credit tells. */
  readonly credit: CreditMetrics;
  readonly #engines = new Map<string, () => EngineStateLabel>();
  readonly #models: ReadonlySet<string>;

  readonly #requests = this.#counter('requests_total', 'Requests answered.', ['route', 'status', 'code']);
  readonly #durations = this.#histogram(
    'request_duration_seconds',
    'From the head to the last byte.',
    DURATION_SECONDS,
    ['route'],
  );
  readonly #ttfts = this.#histogram('ttft_seconds', 'Last byte received to first token.', WAIT_SECONDS);
  readonly #cancels = this.#counter('cancels_total', 'Requests whose caller left.', ['model', 'phase']);
  readonly #tokens = this.#counter('tokens_total', 'Tokens of finished requests.', ['model', 'kind']);
  readonly #engineRestarts = this.#counter('engine_restarts_total', 'Engine processes started again.', ['model']);
  readonly #engineState = this.#gauge('engine_state', 'What the engine is: 1 for one state, 0 for the others.', [
    'model',
    'state',
  ]);
  readonly #promptRestarts = this.#counter('prompt_host_restarts_total', 'Prompt hosts started again.');
  readonly #keysRefused = this.#counter('keys_reload_failures_total', 'Keys files that could not be taken.');
  readonly #streams = this.#gauge('streams_running', 'Event streams open.');

  readonly #buffered = this.#gauge(
    'stream_buffered_bytes',
    'What open streams may hold for readers who are behind, at most.',
  );
  readonly #cuts = this.#counter('readers_cut_total', 'Readers cut off because too much waited for them.', ['reason']);
  #readBuffered: (() => number) | undefined;

  /** `models`: the configured ids; any other is counted as `other`. */
  constructor(models: readonly string[]) {
    this.#models = new Set(models);
    this.#queues = new QueueMetrics(this.#registry, PREFIX, models);
    this.spool = new SpoolMetrics(this.#registry, PREFIX);
    this.credit = new CreditMetrics(this.#registry, PREFIX);
    collectDefaultMetrics({ register: this.#registry });
    for (const reason of CUTS) this.#cuts.inc({ reason }, 0);
    for (const model of models) {
      for (const phase of PHASES) this.#cancels.inc({ model, phase }, 0);
      this.#engineRestarts.inc({ model }, 0);
    }
  }

  /** A request was answered, or its caller left (499). `code`: of the error that was sent, if one was. */
  answered(route: RouteLabel, status: number, durationMs: number, code?: ErrorCode): void {
    this.#requests.inc({ route, status, code: code ?? 'none' });
    this.#durations.observe({ route }, durationMs / 1000);
  }

  seated(model: string, seating: Seating): void {
    this.#queues.seated(this.#known(model), seating);
  }

  refused(model: string, reason: RefusalLabel): void {
    this.#queues.refused(this.#known(model), reason);
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

  /** A changed keys file was bad or gone; the keys before it hold on. */
  keysRefused(): void {
    this.#keysRefused.inc();
  }

  streamOpened(): void {
    this.#streams.inc();
  }

  streamClosed(): void {
    this.#streams.dec();
  }

  /** `reason`: its own stream's share was used up, or that of all. */
  readerCut(reason: CutLabel): void {
    this.#cuts.inc({ reason });
  }

  /** `read` is asked at each scrape for the bytes that streams hold. */
  watchStreams(read: () => number): void {
    this.#readBuffered = read;
  }

  /** `read` is asked at each scrape, for as long as this object lives, with how many accounts it is to name. */
  watchQueue(model: string, read: (named: number) => QueueReading): void {
    this.#queues.watch(this.#known(model), read);
  }

  /** The same for the state of a model's engine. */
  watchEngine(model: string, read: () => EngineStateLabel): void {
    this.#engines.set(this.#known(model), read);
  }

  /** The page, in Prometheus' text format. */
  async render(): Promise<{ readonly contentType: string; readonly text: string }> {
    this.#queues.read();
    this.delivery.read();
    this.spool.read();
    this.#buffered.set(this.#readBuffered?.() ?? 0);
    this.credit.read();
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
