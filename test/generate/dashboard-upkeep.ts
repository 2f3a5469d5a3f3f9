/** The dashboard's second half: what keeps the service honest and alive. */
import { gauge, HERE, one, quantiles, rate, WINDOW, type Row } from './dashboard-queries.js';

export const UPKEEP_ROWS: readonly Row[] = [
  {
    title: 'Usage',
    panels: [
      {
        title: 'Spool sync',
        description: 'Every reply waits for one.',
        unit: 's',
        queries: quantiles('ra_sidecar_spool_sync_seconds', HERE, '', [0.5, 0.99]),
      },
      {
        title: 'Spool health',
        description: '1: new billable work is taken.',
        unit: 'short',
        max: 1,
        queries: one(`min by (instance) (ra_sidecar_spool_healthy{${HERE}})`, '{{instance}}'),
      },
      {
        title: 'Oldest record that is not durable',
        description: 'And below it the records that are not.',
        unit: 's',
        queries: one(`max by (instance) (ra_sidecar_spool_oldest_unsynced_seconds{${HERE}})`, '{{instance}}'),
      },
      {
        title: 'Undelivered usage',
        description: 'What waits for the sink, and all that the spool holds.',
        unit: 'bytes',
        queries: [
          { expr: gauge('ra_sidecar_usage_backlog_bytes', HERE, 'instance'), legend: '{{instance}} waits' },
          { expr: gauge('ra_sidecar_spool_bytes', HERE, 'instance'), legend: '{{instance}} held' },
        ],
      },
      {
        title: 'Delivery lag',
        description: 'How long the oldest undelivered event waits.',
        unit: 's',
        queries: one(`max by (instance) (ra_sidecar_usage_oldest_seconds{${HERE}})`, '{{instance}}'),
      },
      {
        title: 'Events delivered, refused, batches tried again',
        description: 'Refused ones are dead letters.',
        unit: 'cps',
        queries: [
          { expr: `sum (rate(ra_sidecar_usage_delivered_total{${HERE}}${WINDOW}))`, legend: 'delivered' },
          { expr: `sum (rate(ra_sidecar_usage_dead_letters_total{${HERE}}${WINDOW}))`, legend: 'dead letters' },
          { expr: `sum (rate(ra_sidecar_usage_delivery_retries_total{${HERE}}${WINDOW}))`, legend: 'tried again' },
        ],
      },
    ],
  },
  {
    title: 'Keys, authorizer, credit',
    panels: [
      {
        title: 'How callers were found',
        description: 'Where an authorizer says who calls.',
        unit: 'reqps',
        queries: one(rate('ra_sidecar_authorizer_lookups_total', HERE, 'result'), '{{result}}'),
      },
      {
        title: 'Authorizer',
        description: 'Time of a question, by what came of it.',
        unit: 's',
        queries: quantiles('ra_sidecar_authorizer_request_duration_seconds', HERE, 'outcome', [0.95]),
      },
      {
        title: 'Refused for credit',
        description: 'insufficient: the account’s own; unavailable: balances are not known.',
        unit: 'reqps',
        queries: one(rate('ra_sidecar_credit_refusals_total', HERE, 'reason'), '{{reason}}'),
      },
    ],
  },
  {
    title: 'HTTP and the process',
    panels: [
      {
        title: 'HTTP answers',
        description: 'All requests of both listeners, by route and status.',
        unit: 'reqps',
        queries: one(
          rate('http_server_request_duration_seconds_count', HERE, 'http_route, http_response_status_code'),
          '{{http_route}} {{http_response_status_code}}',
        ),
      },
      {
        title: 'Open requests and streams',
        description: 'Whose answers are not complete.',
        unit: 'short',
        queries: [
          { expr: gauge('http_server_active_requests', HERE, 'instance'), legend: '{{instance}} requests' },
          { expr: gauge('ra_sidecar_streams_running', HERE, 'instance'), legend: '{{instance}} streams' },
        ],
      },
      {
        title: 'Open connections',
        description: 'Idle ones included. As many as listen.maxConnections: one more is closed at once.',
        unit: 'short',
        queries: one(gauge('ra_sidecar_connections', HERE, 'listener'), '{{listener}}'),
      },
      {
        title: 'Held for readers who are behind',
        description: 'At stream.totalBufferedBytes readers are cut off.',
        unit: 'bytes',
        queries: one(gauge('ra_sidecar_stream_buffered_bytes', HERE, 'instance'), '{{instance}}'),
      },
      {
        title: 'Event loop lag',
        description: '99th percentile: every request waits for it.',
        unit: 's',
        queries: one(`max by (instance) (nodejs_eventloop_lag_p99_seconds{${HERE}})`, '{{instance}}'),
      },
      {
        title: 'Memory and file descriptors',
        description: 'Resident bytes of the sidecar itself, without its engines.',
        unit: 'bytes',
        queries: one(gauge('process_resident_memory_bytes', HERE, 'instance'), '{{instance}}'),
      },
      {
        title: 'Processor',
        description: 'Cores that the sidecar itself uses.',
        unit: 'short',
        queries: one(rate('process_cpu_seconds_total', HERE, 'instance'), '{{instance}}'),
      },
      {
        title: 'Lost on the way to the OTLP endpoint',
        description: 'Exports that failed, and traces that were dropped.',
        unit: 'cps',
        queries: [
          {
            expr: `sum by (signal) (rate(ra_sidecar_otlp_exports_total{${HERE},outcome="failed"}${WINDOW}))`,
            legend: '{{signal}}',
          },
          { expr: rate('ra_sidecar_otlp_traces_dropped_total', HERE, 'reason'), legend: 'dropped: {{reason}}' },
        ],
      },
    ],
  },
];
