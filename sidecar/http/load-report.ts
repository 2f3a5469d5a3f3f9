/**
 * ORCA load reports (xds.data.orca.v3.OrcaLoadReport) in a field of responses, for whoever spreads requests by them. Envoy
 * weighs an endpoint by requests a second over utilization, so both are in it, and never 0 where a request was answered: a
 * report with a 0 is thrown away there, and an endpoint that was once busy would keep its low weight when it is idle.
 */
import type { Clock } from '../lib/clock.js';
import type { EndpointLoad } from '../telemetry/endpoint-metrics.js';
import type { Field } from './cors.js';
import type { RequestHead } from './exchange.js';
import { Rate } from './rate.js';

type Format = 'text' | 'json';

/** The request's field that asks for a format, and the response's with the report. */
const ASKS = 'endpoint-load-metrics-format';
const FIELD = 'endpoint-load-metrics';

/** From here on a response counts among the errors: the endpoint failed, not the caller. */
const FAILED_FROM = 500;

export interface LoadReportOptions {
  readonly clock: Clock;
  /** asked: for requests that name a format; the others: for all, in that format unless they name the other. */
  readonly when: 'asked' | Format;
  /** Paths whose requests count as requests: those that a model works for, not probes. */
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

  /** The field of one response, whose head is about to be written; undefined: none is wanted. Call once a response. */
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
    // The request that is answered may have given its seat back already.
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

/** Four decimals at most, and never an exponent. */
function decimal(value: number): string {
  return String(Math.round(value * 10_000) / 10_000);
}
