/** HTTP: every request of both listeners, by OpenTelemetry's semantic conventions for servers, and the buffers of streams. */
import type { ErrorCode } from '../domain/errors.js';
import type { Instruments } from './instruments.js';

/** The conventions' bounds for http.server.request.duration, in seconds, and longer ones, since a streamed reply runs for minutes. */
const HTTP_SECONDS = [
  0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 120, 300, 600,
] as const;

/** Methods with their own label; callers may send any text. */
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/** The conventions' value for all others. */
const OTHER_METHOD = '_OTHER';

const LISTENERS = ['public', 'operators'] as const;
export type ListenerLabel = (typeof LISTENERS)[number];

/** The head of a request, as in http/exchange.ts. */
export interface ArrivedRequest {
  readonly method: string;
  /** `https`: this process terminated TLS. */
  readonly scheme: 'http' | 'https';
}

export interface AnsweredRequest extends ArrivedRequest {
  /** The matched path of the route table; undefined, and the label is omitted, for an unknown path, whose text is the caller's. */
  readonly route: string | undefined;
  /** 499: the caller disconnected before the response began. */
  readonly status: number;
  readonly durationMs: number;
  /** gone: the caller disconnected before the answer was complete. */
  readonly outcome: 'complete' | 'gone';
  /** The code of the error that was sent, or that ended its stream; absent: none. */
  readonly code?: ErrorCode;
}

export function httpMetrics(instruments: Instruments) {
  const durations = instruments.histogram('http_server_request_duration_seconds', 'seconds', {
    convention: { name: 'http.server.request.duration', unit: 's' },
    labels: ['http_request_method', 'url_scheme', 'http_route', 'http_response_status_code', 'error_type'],
    help: 'Time from the head of a request to the last byte of its response, on both listeners.',
    advice: 'Above `gen_ai_server_request_duration_seconds`: slow readers. docs/incidents.md has each `error_type`.',
    buckets: HTTP_SECONDS,
  });
  const active = instruments.gauge('http_server_active_requests', 'requests', {
    convention: { name: 'http.server.active_requests', unit: '{request}' },
    labels: ['http_request_method', 'url_scheme'],
    help: 'HTTP requests whose response is not complete.',
    advice: 'More than seats and queue together: callers send or read slowly.',
  });
  const streams = instruments.gauge('ra_sidecar_streams_running', 'streams', {
    help: 'Open event streams.',
    advice: 'No action; a drain waits for these.',
  });
  instruments.gauge('ra_sidecar_stream_buffered_bytes', 'bytes', {
    help: 'Bytes that wait for slow readers, at most.',
    advice: 'Near `stream.totalBufferedBytes`: look for a slow network or proxy.',
    collect: () => http.bufferedBytes(),
  });
  const cuts = instruments.counter('ra_sidecar_readers_cut_total', 'readers', {
    labels: { reason: ['stream', 'total'] },
    help: 'Connections closed because too many bytes waited.',
    advice: '`stream`: that caller reads too slowly. `total`: raise `stream.totalBufferedBytes`.',
  });
  instruments.gauge('ra_sidecar_connections', 'connections', {
    labels: { listener: LISTENERS },
    help: 'Open connections, idle ones included.',
    advice: 'Near `listen.maxConnections`: docs/operating.md#open-files.',
    collect: () => Array.from(http.connections, ([listener, open]) => [{ listener }, open()]),
  });
  const refused = instruments.counter('ra_sidecar_connections_refused_total', 'connections', {
    labels: { listener: LISTENERS },
    help: 'Connections closed at once at that limit.',
    advice: 'Raise the limit of open files.',
  });
  const http = {
    /** Bytes that wait for slow readers: read at each scrape. */
    bufferedBytes: (): number => 0,
    /** Open connections of each listener: read at each scrape. */
    connections: new Map<ListenerLabel, () => number>(),

    began({ method, scheme }: ArrivedRequest): void {
      active.inc({ http_request_method: labelOf(method), url_scheme: scheme });
    },

    /** The same request has ended. */
    ended({ method, scheme, route, status, durationMs, outcome, code }: AnsweredRequest): void {
      const http_request_method = labelOf(method);
      const error = outcome === 'gone' ? 'request_cancelled' : code;
      active.dec({ http_request_method, url_scheme: scheme });
      durations.observe(
        {
          http_request_method,
          url_scheme: scheme,
          ...(route !== undefined && { http_route: route }),
          http_response_status_code: status,
          ...(error !== undefined && { error_type: error }),
        },
        durationMs / 1000,
      );
    },

    streamOpened: (): void => streams.inc(),
    streamClosed: (): void => streams.dec(),

    /** `reason`: the bound of its own stream, or of all streams, was exceeded; as in http/backlog.ts. */
    readerCut: (reason: 'stream' | 'total'): void => cuts.inc({ reason }),

    /** A connection was closed because the limit was reached. */
    connectionRefused: (listener: ListenerLabel): void => refused.inc({ listener }),
  };
  return http;
}

function labelOf(method: string): string {
  return METHODS.has(method) ? method : OTHER_METHOD;
}
