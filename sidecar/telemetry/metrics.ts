import { VERSION } from '../lib/version.js';
import { AuthorizerMetrics } from './authorizer-metrics.js';
import { CacheMetrics } from './cache-metrics.js';
import { CreditMetrics } from './credit-metrics.js';
import { DeliveryMetrics } from './delivery-metrics.js';
import { KEYS_REFUSED, KEYS_VALID } from './definitions/access.js';
import { ENDPOINT_METRICS } from './definitions/endpoint.js';
import { BUILD_INFO } from './definitions/program.js';
import { EndpointMetrics } from './endpoint-metrics.js';
import { EngineMetrics, type EngineReading } from './engine-metrics.js';
import { HttpMetrics } from './http-metrics.js';
import { Instruments } from './instruments.js';
import { ModelMetrics, type RequestPhase, type ModelMeter, type Operation } from './model-metrics.js';
import { OtlpMetrics } from './otlp-metrics.js';
import { QueueMetrics, type QueueReading, type RefusalLabel, type RetryLabel, type Seating } from './queue-metrics.js';
import type { MetricReading } from './exported-metrics.js';
import { ReplicaMetrics, type ReplicaReading } from './replica-metrics.js';
import { Reading } from './reading.js';
import { SpoolMetrics } from './spool-metrics.js';

/** The label of models that are not configured. */
const OTHER = 'other';

/** The metrics for endpoint pickers. */
const ENDPOINT_NAMES = ENDPOINT_METRICS.map(({ name }) => name);

/** The metrics of this process, which the operators' listener serves at /metrics, grouped by subject. */
export class Metrics {
  readonly #instruments = new Instruments();
  readonly #known: ReadonlySet<string>;
  readonly #models: ModelMetrics;
  readonly #queues: QueueMetrics;
  readonly #engines: EngineMetrics;
  /** The prefix caches in host memory. */
  readonly caches: CacheMetrics;
  readonly #replicas = new ReplicaMetrics(this.#instruments);
  /** The load of the whole process. */
  readonly endpoint = new EndpointMetrics(this.#instruments);
  /** Both listeners, and streams. */
  readonly http = new HttpMetrics(this.#instruments);
  readonly authorizer = new AuthorizerMetrics(this.#instruments);
  readonly #keysRefused = this.#instruments.counter(KEYS_REFUSED);
  readonly #keysValid = this.#instruments.gauge(KEYS_VALID);
  /** Prepaid credit. */
  readonly credit = new CreditMetrics(this.#instruments);
  /** The usage spool. */
  readonly spool = new SpoolMetrics(this.#instruments);
  /** Delivery of usage to its sink. */
  readonly delivery = new DeliveryMetrics(this.#instruments);
  /** Exports to an OTLP endpoint. */
  readonly otlp = new OtlpMetrics(this.#instruments);

  /** `models`: the configured ids; any other is counted as `other`. */
  constructor(models: readonly string[]) {
    this.#known = new Set(models);
    this.#models = new ModelMetrics(this.#instruments, models);
    this.#queues = new QueueMetrics(this.#instruments, models);
    this.#engines = new EngineMetrics(this.#instruments, models);
    this.caches = new CacheMetrics(this.#instruments, models);
    this.#keysValid.set(1);
    this.#instruments.gauge(BUILD_INFO).set({ version: VERSION }, 1);
    this.#instruments.withProcess();
  }

  /** The meter of requests of one kind to one model; the same object each time. */
  meter(operation: Operation, model: string): ModelMeter {
    return this.#models.meter(operation, this.#label(model));
  }

  /** The caller disconnected. */
  cancelled(model: string, phase: RequestPhase): void {
    this.#models.cancelled(this.#label(model), phase);
  }

  seated(model: string, seating: Seating): void {
    this.#queues.seated(this.#label(model), seating);
  }

  /** The seat queue refused. `time`: where Retry-After came from; undefined: from none of these. */
  refused(model: string, reason: RefusalLabel, time?: RetryLabel): void {
    this.#queues.refused(this.#label(model), reason, time);
  }

  engineRestarted(model: string, replica: number): void {
    this.#engines.restarted(this.#label(model));
    this.#replicas.restarted(this.#label(model), replica);
  }

  unconfirmedCancels(model: string, count: number): void {
    this.#engines.unconfirmed(this.#label(model), count);
  }

  promptHostRestarted(): void {
    this.#engines.promptHostRestarted();
  }

  /** A changed keys file was invalid or missing; the previous keys stay in force. */
  keysRefused(): void {
    this.#keysRefused.inc();
    this.#keysValid.set(0);
  }

  /** Keys were loaded from the file, which is in force as it is. */
  keysLoaded(): void {
    this.#keysValid.set(1);
  }

  /** `read` is called at each scrape, for as long as this object lives, with the number of accounts to name. */
  watchQueue(model: string, read: (named: number) => QueueReading): void {
    this.#queues.watch(this.#label(model), read);
  }

  /** The same for a model's engine. */
  watchEngine(model: string, read: () => EngineReading): void {
    this.#engines.watch(this.#label(model), read);
  }

  /** The same for each of its processes. */
  watchReplicas(model: string, read: () => readonly ReplicaReading[]): void {
    this.#replicas.watch(this.#label(model), read);
  }

  /** The page, in Prometheus' text format. */
  render(): Promise<{ readonly contentType: string; readonly text: string }> {
    this.#refresh();
    return this.#instruments.page();
  }

  /** The page's content as values. */
  readings(): Promise<readonly MetricReading[]> {
    this.#refresh();
    return this.#instruments.readings();
  }

  /** Some metrics of the page as numbers, all of one moment. */
  async read(names: readonly string[]): Promise<Reading> {
    this.#refresh();
    return new Reading(await Promise.all(names.map((name) => this.#instruments.samples(name))));
  }

  /** Updates the gauges that are read only at a scrape. */
  #refresh(): void {
    for (const part of [
      this.#queues,
      this.#engines,
      this.caches,
      this.#replicas,
      this.endpoint,
      this.http,
      this.authorizer,
      this.credit,
      this.spool,
      this.delivery,
    ])
      part.read();
  }

  /** The part of the page without model, account or caller names, for endpoint pickers. Cheap. */
  renderEndpoint(): Promise<{ readonly contentType: string; readonly text: string }> {
    this.endpoint.read();
    return this.#instruments.page(ENDPOINT_NAMES);
  }

  #label(model: string): string {
    return this.#known.has(model) ? model : OTHER;
  }
}
