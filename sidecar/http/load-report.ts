/**
 * ORCA load reports (xds.data.orca.v3.OrcaLoadReport) in a response header, for load balancers. Envoy weighs an
 * endpoint by requests per second over utilization, so both are included and never 0 in an answer: Envoy ignores a
 * report with a 0, and an endpoint that was busy once would keep its low weight when idle.
 */
import type { Clock } from '../lib/clock.js';
import type { EndpointLoad } from '../telemetry/endpoint-metrics.js';
import type { Field } from './fields.js';
import type { RequestHead } from './exchange.js';

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
  readonly #options: LoadReportOptions;
  readonly #requests: Rate;
  readonly #errors: Rate;

  constructor(options: LoadReportOptions) {
    this.#options = options;
    this.#requests = new Rate(options.clock);
    this.#errors = new Rate(options.clock);
  }

  /** The header of one response, whose head is about to be written; undefined if none is requested. Call it once per response. */
  field(head: RequestHead, status: number): Field | undefined {
    const { when, counted } = this.#options;
    if (head.method === 'POST' && counted.has(head.path)) {
      this.#requests.add();
      if (status >= FAILED_FROM) this.#errors.add();
    }
    const format = formatOf(head.header(ASKS)) ?? (when === 'asked' ? undefined : when);
    return format === undefined ? undefined : [FIELD, this.#written(format)];
  }

  #written(format: Format): string {
    const { seats, running, waiting, kvUsage } = this.#options.load();
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

/** Length of the window, and of its steps, ms. */
const WINDOW_MS = 10_000;
const PIECE_MS = 1000;
const PIECES = WINDOW_MS / PIECE_MS;

/** The rate of an event over the last ten seconds, in ten counters, without allocation per event. */
export class Rate {
  readonly #clock: Clock;
  readonly #counts = new Float64Array(PIECES);
  #sum = 0;
  /** Number of the newest piece, from the clock's zero. */
  #piece: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#piece = this.#now;
  }

  add(): void {
    this.#moveOn();
    const at = this.#piece % PIECES;
    this.#counts[at] = (this.#counts[at] ?? 0) + 1;
    this.#sum += 1;
  }

  get perSecond(): number {
    this.#moveOn();
    return (this.#sum * 1000) / WINDOW_MS;
  }

  get #now(): number {
    return Math.floor(this.#clock.now() / PIECE_MS);
  }

  /** Resets counters older than the window. */
  #moveOn(): void {
    const now = this.#now;
    for (let left = Math.min(PIECES, now - this.#piece); left > 0; left--) {
      const at = (now - left + 1) % PIECES;
      this.#sum -= this.#counts[at] ?? 0;
      this.#counts[at] = 0;
    }
    this.#piece = now;
  }
}
