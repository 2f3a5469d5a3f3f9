import { VERSION } from '../lib/version.js';
import { authorizerMetrics, creditMetrics, keysMetrics, storeMetrics } from './access-metrics.js';
import { ENDPOINT, endpointLoad, endpointMetrics, type EndpointLoad, type ModelLoad } from './endpoint-metrics.js';
import { httpMetrics } from './http-metrics.js';
import { Instruments, Reading, type MetricDefinition, type MetricReading } from './instruments.js';
import { modelMetrics } from './model-metrics.js';
import {
  cacheMetrics,
  processMetrics,
  type CacheReading,
  type EngineReading,
  type ReplicaReading,
} from './process-metrics.js';
import { queueMetrics, type QueueReading } from './queue-metrics.js';
import { deliveryMetrics, spoolMetrics } from './usage-metrics.js';

/** What is read of one model: at a scrape, and its load also for load reports. */
export interface ModelSources {
  /** `named`: the number of accounts to name. */
  readonly queue: (named: number) => QueueReading;
  readonly engine: () => EngineReading;
  /** Its processes, always in the same order, as `caches`. */
  readonly replicas: () => readonly ReplicaReading[];
  readonly caches: () => readonly CacheReading[];
  readonly load: () => ModelLoad;
}

/** The metrics of this process, which the operators' listener serves at /metrics. */
export class Metrics {
  /** What is read of each configured model, by id; a model that is not in it has no samples of these. */
  readonly sources = new Map<string, ModelSources>();
  readonly #instruments = new Instruments();
  readonly requests: ReturnType<typeof modelMetrics>;
  readonly queues: ReturnType<typeof queueMetrics>;
  readonly processes: ReturnType<typeof processMetrics>;
  readonly http: ReturnType<typeof httpMetrics>;
  readonly keys: ReturnType<typeof keysMetrics>;
  readonly authorizer: ReturnType<typeof authorizerMetrics>;
  readonly store: ReturnType<typeof storeMetrics>;
  readonly credit: ReturnType<typeof creditMetrics>;
  readonly spool: ReturnType<typeof spoolMetrics>;
  readonly delivery: ReturnType<typeof deliveryMetrics>;
  readonly otlp: ReturnType<typeof otlpMetrics>;

  /** `models`: the configured ids; any other is counted as `other`. */
  constructor(models: readonly string[]) {
    const made = this.#instruments;
    this.requests = modelMetrics(made, models);
    this.queues = queueMetrics(made, models, this.sources);
    endpointMetrics(made, this.sources);
    this.processes = processMetrics(made, models, this.sources);
    cacheMetrics(made, models, this.sources);
    this.http = httpMetrics(made);
    this.keys = keysMetrics(made);
    this.authorizer = authorizerMetrics(made);
    this.store = storeMetrics(made);
    this.credit = creditMetrics(made);
    this.spool = spoolMetrics(made);
    this.delivery = deliveryMetrics(made);
    programMetrics(made);
    this.otlp = otlpMetrics(made);
    made.addProcess();
  }

  /** The load of the whole process. */
  get endpointLoad(): EndpointLoad {
    return endpointLoad(this.sources);
  }

  /** The declarations of all metrics but those of prom-client. */
  get definitions(): readonly MetricDefinition[] {
    return this.#instruments.definitions;
  }

  /** The page, in Prometheus' text format, or only the metrics in `names`; a name that no metric has is ignored. */
  render(names?: readonly string[]): Promise<{ readonly contentType: string; readonly text: string }> {
    return this.#instruments.page(names);
  }

  /** The part of the page without model, account or caller names, for endpoint pickers. Cheap. */
  renderEndpoint(): Promise<{ readonly contentType: string; readonly text: string }> {
    return this.#instruments.page(this.definitions.map(({ name }) => name).filter((name) => name.startsWith(ENDPOINT)));
  }

  /** The page's content as values. */
  readings(): Promise<readonly MetricReading[]> {
    return this.#instruments.readings();
  }

  /** Some metrics of the page as numbers, all of one moment. */
  async read(names: readonly string[]): Promise<Reading> {
    return new Reading(await this.#instruments.readings(names));
  }
}

function programMetrics(instruments: Instruments): void {
  const build = instruments.gauge('ra_sidecar_build_info', '1', {
    labels: ['version'],
    help: 'Its label is the version of the sidecar.',
    advice: 'Several for long: an upgrade has not reached all hosts.',
  });
  build.set({ version: VERSION }, 1);
}

/** Exports to an OTLP endpoint, and traces lost on the way. */
function otlpMetrics(instruments: Instruments) {
  const exports = instruments.counter('ra_sidecar_otlp_exports_total', 'exports', {
    labels: { signal: ['traces', 'metrics'], outcome: ['ok', 'failed'] },
    help: 'Exports to the OTLP endpoint, by outcome.',
    advice: '`failed`: the log’s `otlp export fails` has the reason.',
  });
  const dropped = instruments.counter('ra_sidecar_otlp_traces_dropped_total', 'traces', {
    labels: { reason: ['queue_full', 'export_failed'] },
    help: 'Traces that were not delivered.',
    advice: '`queue_full`: lower `telemetry.otlp.samplePercent`. `export_failed`: see `ra_sidecar_otlp_exports_total`.',
  });
  return {
    exported: (signal: 'traces' | 'metrics', ok: boolean): void =>
      exports.inc({ signal, outcome: ok ? 'ok' : 'failed' }),
    /** Counts traces that will not be delivered: too many waited, or the export that contained them failed. */
    dropped: (reason: 'queue_full' | 'export_failed', traces: number): void => dropped.inc({ reason }, traces),
  };
}
