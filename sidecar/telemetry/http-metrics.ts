/** Metrics of HTTP: every request of both listeners, and streams. */
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

/** Methods with their own label; callers may send any text. */
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/** The conventions' value for all others. */
const OTHER_METHOD = '_OTHER';

/** Why a connection was closed, as in http/backlog.ts. */
const CUTS = ['stream', 'total'] as const;
export type CutLabel = (typeof CUTS)[number];

/** The listeners of this process. */
const LISTENERS = ['public', 'operators'] as const;
export type ListenerLabel = (typeof LISTENERS)[number];

/** The head of a request, as in http/exchange.ts. */
export interface ArrivedRequest {
  readonly method: string;
  /** `https`: this process terminated TLS. */
  readonly scheme: 'http' | 'https';
}

/** How a request ended, as in http/uws-exchange.ts. */
export interface AnsweredRequest extends ArrivedRequest {
  /** From the route table; undefined: no such path, and the label is omitted. */
  readonly route: string | undefined;
  /** 499: the caller disconnected before the response began. */
  readonly status: number;
  readonly durationMs: number;
  /** gone: the caller disconnected before the answer was complete. */
  readonly outcome: 'complete' | 'gone';
  /** The code of the error that was sent, if any. */
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

  /** The head of a request has arrived. */
  began({ method, scheme }: ArrivedRequest): void {
    this.#active.inc({ http_request_method: labelOf(method), url_scheme: scheme });
  }

  /** The same request has ended. */
  ended({ method, scheme, route, status, durationMs, outcome, code }: AnsweredRequest): void {
    const http_request_method = labelOf(method);
    const error = outcome === 'gone' ? 'request_cancelled' : code;
    this.#active.dec({ http_request_method, url_scheme: scheme });
    this.#durations.observe(
      {
        http_request_method,
        url_scheme: scheme,
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

  /** `reason`: the bound of its own stream, or of all streams, was exceeded. */
  readerCut(reason: CutLabel): void {
    this.#cuts.inc({ reason });
  }

  /** `read` is called at each scrape for the bytes that streams buffer. */
  watchStreams(read: () => number): void {
    this.#readBuffered = read;
  }

  /** `read` is called at each scrape for a listener's open connections. */
  watchConnections(listener: ListenerLabel, read: () => number): void {
    this.#readConnections.set(listener, read);
  }

  /** A connection was closed because the limit was reached. */
  connectionRefused(listener: ListenerLabel): void {
    this.#refused.inc({ listener });
  }

  /** Updates the gauges. */
  read(): void {
    for (const listener of LISTENERS) this.#connections.set({ listener }, this.#readConnections.get(listener)?.() ?? 0);
    this.#buffered.set(this.#readBuffered?.() ?? 0);
  }
}

function labelOf(method: string): string {
  return METHODS.has(method) ? method : OTHER_METHOD;
}
