/** What the metrics page says of HTTP: every request of both listeners, and streams. */
import type { ErrorCode } from '../domain/errors.js';
import {
  ACTIVE_REQUESTS,
  CONNECTIONS,
  CONNECTIONS_REFUSED,
  READERS_CUT,
  REQUEST_DURATION,
  STREAM_BUFFERED,
  STREAMS_RUNNING,
} from './definitions/http.js';
import type { Counter, Gauge, Histogram, Instruments } from './instruments.js';

/** Methods with a label of their own; a caller may write any. */
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/** The conventions' word for all others. */
const OTHER_METHOD = '_OTHER';

/** TLS ends in front of this process. */
const SCHEME = { url_scheme: 'http' } as const;

/** Why a reader was cut off, as in http/backlog.ts. */
const CUTS = ['stream', 'total'] as const;
export type CutLabel = (typeof CUTS)[number];

/** The listeners of this process. */
const LISTENERS = ['public', 'operators'] as const;
export type ListenerLabel = (typeof LISTENERS)[number];

/** How a request ended, as in http/uws-exchange.ts. */
export interface AnsweredRequest {
  readonly method: string;
  /** Of the route table; undefined: no such path, and the label is left out. */
  readonly route: string | undefined;
  /** 499: the caller left before anything was answered. */
  readonly status: number;
  readonly durationMs: number;
  /** gone: the caller left before the answer was complete. */
  readonly outcome: 'complete' | 'gone';
  /** Of the error that was sent, if one was. */
  readonly code?: ErrorCode | undefined;
}

export class HttpMetrics {
  readonly #durations: Histogram<(typeof REQUEST_DURATION.labels)[number]>;
  readonly #active: Gauge<(typeof ACTIVE_REQUESTS.labels)[number]>;
  readonly #streams: Gauge;
  readonly #buffered: Gauge;
  readonly #cuts: Counter<'reason'>;
  readonly #connections: Gauge<'listener'>;
  readonly #refused: Counter<'listener'>;
  readonly #readConnections = new Map<ListenerLabel, () => number>();
  #readBuffered: (() => number) | undefined;

  constructor(instruments: Instruments) {
    this.#durations = instruments.histogram(REQUEST_DURATION);
    this.#active = instruments.gauge(ACTIVE_REQUESTS);
    this.#streams = instruments.gauge(STREAMS_RUNNING);
    this.#buffered = instruments.gauge(STREAM_BUFFERED);
    this.#cuts = instruments.counter(READERS_CUT);
    this.#connections = instruments.gauge(CONNECTIONS);
    this.#refused = instruments.counter(CONNECTIONS_REFUSED);
    for (const reason of CUTS) this.#cuts.inc({ reason }, 0);
    for (const listener of LISTENERS) this.#refused.inc({ listener }, 0);
  }

  /** The head of a request is there. */
  began(method: string): void {
    this.#active.inc({ http_request_method: labelOf(method), ...SCHEME });
  }

  /** The same request is over. */
  ended({ method, route, status, durationMs, outcome, code }: AnsweredRequest): void {
    const http_request_method = labelOf(method);
    const error = outcome === 'gone' ? 'request_cancelled' : code;
    this.#active.dec({ http_request_method, ...SCHEME });
    this.#durations.observe(
      {
        http_request_method,
        ...SCHEME,
        ...(route !== undefined && { http_route: route }),
        http_response_status_code: status,
        ...(error !== undefined && { error_type: error }),
      },
      durationMs / 1000,
    );
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

  /** `read` is called at each scrape for a listener's open connections. */
  watchConnections(listener: ListenerLabel, read: () => number): void {
    this.#readConnections.set(listener, read);
  }

  /** A connection was closed because as many as allowed were open. */
  connectionRefused(listener: ListenerLabel): void {
    this.#refused.inc({ listener });
  }

  /** Brings the gauges up to date. */
  read(): void {
    for (const listener of LISTENERS) this.#connections.set({ listener }, this.#readConnections.get(listener)?.() ?? 0);
    this.#buffered.set(this.#readBuffered?.() ?? 0);
  }
}

function labelOf(method: string): string {
  return METHODS.has(method) ? method : OTHER_METHOD;
}
