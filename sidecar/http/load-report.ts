/**
 * ORCA load reports (xds.data.orca.v3.OrcaLoadReport) in a response header, for load balancers. Envoy weighs an
 * endpoint by requests per second over utilization, so both are included and never 0 in an answer: Envoy ignores a
 * report with a 0, and an endpoint that was busy once would keep its low weight when idle.
 */
import type { Clock } from '../lib/clock.js';
import type { EndpointLoad } from '../telemetry/endpoint-metrics.js';
import type { Field } from './cors.js';
import type { RequestHead } from './exchange.js';
import { Rate } from './rate.js';

type Format = 'text' | 'json';

/** The request header that names a format, and the response header with the report. */
const ASKS = 'endpoint-load-metrics-format';
const FIELD = 'endpoint-load-metrics';

/** From this status on a response counts as an error of the endpoint, not of the caller. */
const FAILED_FROM = 500;

export interface LoadReportOptions {
  readonly clock: Clock;
  /** asked: for requests that name a format; the others: for all, in that format unless the request names the other. */
  readonly when: 'asked' | Format;
  /** Paths whose requests are counted: those that use a model, not probes. */
  readonly counted: ReadonlySet<string>;
  readonly load: () => EndpointLoad;
}

export class LoadReport {
  readonly #when: LoadReportOptions['when'];
  readonly #counted: ReadonlySet<string>;
  readonly #load: () => EndpointLoad;
  readonly #requests: Rate;
  readonly #errors: Rate;

  constructor({ clock, when, counted, load }: LoadReportOptions) {
    this.#when = when;
    this.#counted = counted;
    this.#load = load;
    this.#requests = new Rate(clock);
    this.#errors = new Rate(clock);
  }

  /**
   * The header of one response, whose head is about to be written; undefined if none is requested. Call it once per
   * response.
   */
  field(head: RequestHead, status: number): Field | undefined {
    if (head.method === 'POST' && this.#counted.has(head.path)) {
      this.#requests.add();
      if (status >= FAILED_FROM) this.#errors.add();
    }
    const format = formatOf(head.header(ASKS)) ?? (this.#when === 'asked' ? undefined : this.#when);
    return format === undefined ? undefined : [FIELD, this.#written(format)];
  }

  #written(format: Format): string {
    const { seats, running, waiting, kvUsage } = this.#load();
    // The answered request may have returned its seat already.
    const utilization = seats > 0 ? Math.max(1, running + waiting) / seats : 1;
    const [used, eps, rps, kv] = [utilization, this.#errors.perSecond, this.#requests.perSecond, kvUsage].map(decimal);
    return format === 'json'
      ? `JSON {"application_utilization":${used},"eps":${eps},"rps_fractional":${rps},"named_metrics":{"kv_cache_utilization":${kv},"num_requests_running":${running},"num_requests_waiting":${waiting}}}`
      : `TEXT application_utilization=${used}, eps=${eps}, rps_fractional=${rps}, named_metrics.kv_cache_utilization=${kv}, named_metrics.num_requests_running=${running}, named_metrics.num_requests_waiting=${waiting}`;
  }
}

function formatOf(asked: string | undefined): Format | undefined {
  const format = asked?.toLowerCase();
  return format === 'text' || format === 'json' ? format : undefined;
}

/** At most four decimals, and never an exponent. */
function decimal(value: number): string {
  return String(Math.round(value * 10_000) / 10_000);
}
