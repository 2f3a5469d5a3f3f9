/** HTTP, by OpenTelemetry's semantic conventions for servers, and the buffers of streams. */
import { PREFIX, type CounterDefinition, type GaugeDefinition, type HistogramDefinition } from '../instruments.js';

/**
 * The conventions' bounds for http.server.request.duration, in seconds, and longer ones, since a streamed reply runs
 * for minutes.
 */
const HTTP_SECONDS = [
  0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 120, 300, 600,
] as const;

export const REQUEST_DURATION: HistogramDefinition<
  'http_request_method' | 'url_scheme' | 'http_route' | 'http_response_status_code' | 'error_type'
> = {
  name: 'http_server_request_duration_seconds',
  convention: { name: 'http.server.request.duration', unit: 's' },
  type: 'histogram',
  unit: 'seconds',
  labels: ['http_request_method', 'url_scheme', 'http_route', 'http_response_status_code', 'error_type'],
  help: 'Time from the head of an HTTP request to the last byte of its response, on both listeners.',
  advice:
    'If it is higher than `gen_ai_server_request_duration_seconds`, time is spent on slow readers or on requests that never reach a model. errors.md has advice for each `error_type`.',
  buckets: HTTP_SECONDS,
};

export const ACTIVE_REQUESTS: GaugeDefinition<'http_request_method' | 'url_scheme'> = {
  name: 'http_server_active_requests',
  convention: { name: 'http.server.active_requests', unit: '{request}' },
  type: 'gauge',
  unit: 'requests',
  labels: ['http_request_method', 'url_scheme'],
  help: 'HTTP requests whose response is not complete.',
  advice: 'If it is more than seats and queue together, callers send bodies or read replies slowly.',
};

export const STREAMS_RUNNING: GaugeDefinition = {
  name: `${PREFIX}streams_running`,
  type: 'gauge',
  unit: 'streams',
  labels: [],
  help: 'Open event streams.',
  advice: 'No action; a drain waits for these.',
};

export const STREAM_BUFFERED: GaugeDefinition = {
  name: `${PREFIX}stream_buffered_bytes`,
  type: 'gauge',
  unit: 'bytes',
  labels: [],
  help: 'Upper bound of the bytes that wait for slow readers of streams and whole replies.',
  advice:
    'At `stream.totalBufferedBytes` the connection with the most unread bytes is closed: look for a slow network or proxy.',
};

export const READERS_CUT: CounterDefinition<'reason'> = {
  name: `${PREFIX}readers_cut_total`,
  type: 'counter',
  unit: 'readers',
  labels: ['reason'],
  help: 'Connections closed because too many bytes waited for their readers.',
  advice:
    '`stream`: that caller reads too slowly. `total`: the sum over all callers; raise `stream.totalBufferedBytes`.',
};

export const CONNECTIONS: GaugeDefinition<'listener'> = {
  name: `${PREFIX}connections`,
  type: 'gauge',
  unit: 'connections',
  labels: ['listener'],
  help: 'Open connections, idle ones included.',
  advice:
    'Near `listen.maxConnections` on the `public` listener: see operating.md, “Open files”. `operators`: scrapers, probes and consoles.',
};

export const CONNECTIONS_REFUSED: CounterDefinition<'listener'> = {
  name: `${PREFIX}connections_refused_total`,
  type: 'counter',
  unit: 'connections',
  labels: ['listener'],
  help: 'Connections closed at once because the limit was reached.',
  advice: 'Callers keep idle connections, or there are more callers than descriptors: raise the limit of open files.',
};

export const HTTP_METRICS = [
  REQUEST_DURATION,
  ACTIVE_REQUESTS,
  STREAMS_RUNNING,
  STREAM_BUFFERED,
  READERS_CUT,
  CONNECTIONS,
  CONNECTIONS_REFUSED,
] as const;
