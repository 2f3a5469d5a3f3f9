/** The dashboard’s second half: usage records, delivery, credit, and the process. */
import { gauge, HERE, largest, one, quantiles, rate, SHARED, WINDOW, type Row } from './dashboard-queries.js';

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
        description: '1: new billable requests are accepted.',
        unit: 'short',
        max: 1,
        queries: one(`min by (instance) (ra_sidecar_spool_healthy{${HERE}})`, '{{instance}}'),
      },
      {
        title: 'Oldest record that is not durable',
        description: 'Past usage.maxUnsyncedMs new requests are refused.',
        unit: 's',
        queries: one(largest('ra_sidecar_spool_oldest_unsynced_seconds', HERE, 'instance'), '{{instance}}'),
      },
      {
        title: 'Records that are not durable',
        description: 'They wait for the next sync of the spool.',
        unit: 'short',
        queries: one(gauge('ra_sidecar_spool_unsynced_records', HERE, 'instance'), '{{instance}}'),
      },
      {
        title: 'Undelivered usage',
        description: 'What waits for the sink, and everything in the spool.',
        unit: 'bytes',
        queries: [
          { expr: gauge('ra_sidecar_usage_backlog_bytes', HERE, 'instance'), legend: '{{instance}} waits' },
          { expr: gauge('ra_sidecar_spool_bytes', HERE, 'instance'), legend: '{{instance}} held' },
        ],
      },
      {
        title: 'Delivery lag',
        description: 'The age of the oldest undelivered event.',
        unit: 's',
        queries: one(largest('ra_sidecar_usage_oldest_seconds', HERE, 'instance'), '{{instance}}'),
      },
      {
        title: 'Events delivered and refused, batches retried',
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
    title: 'Keys, authorizer, store, credit',
    panels: [
      {
        title: 'How callers were identified',
        description: 'With an authorizer.',
        unit: 'reqps',
        queries: one(rate('ra_sidecar_authorizer_lookups_total', HERE, 'result'), '{{result}}'),
      },
      {
        title: 'Authorizer',
        description: 'Duration of a request to the authorizer, by its outcome.',
        unit: 's',
        queries: quantiles('ra_sidecar_authorizer_request_duration_seconds', HERE, 'outcome', [0.95]),
      },
      {
        title: 'Store',
        description: 'With a store: duration of a call, by its function.',
        unit: 's',
        queries: quantiles('ra_sidecar_store_call_duration_seconds', HERE, 'function', [0.99]),
      },
      {
        title: 'Fleet',
        description: 'With a store: the sidecars that it counts, and the requests for which it holds something.',
        unit: 'short',
        queries: [
          { expr: gauge('ra_sidecar_store_replicas', HERE, 'instance'), legend: '{{instance}} sees sidecars' },
          { expr: gauge('ra_sidecar_store_held', HERE, 'instance, what'), legend: '{{instance}} {{what}}' },
        ],
      },
      {
        title: 'Refused for credit',
        description: 'insufficient: the account’s balance; unavailable: balances are not known.',
        unit: 'reqps',
        queries: one(rate('ra_sidecar_credit_refusals_total', HERE, 'reason'), '{{reason}}'),
      },
      {
        title: 'Credit in the store',
        description: 'Accounts of which a sidecar holds credit, and waits for others to return what they hold.',
        unit: 'short',
        queries: [
          { expr: gauge('ra_sidecar_credit_escrow_accounts', HERE, 'instance'), legend: '{{instance}} accounts' },
          { expr: rate('ra_sidecar_credit_recalls_total', HERE, 'instance'), legend: '{{instance}} recalls a second' },
        ],
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
          rate('http_server_request_duration_seconds_count', SHARED, 'http_route, http_response_status_code'),
          '{{http_route}} {{http_response_status_code}}',
        ),
      },
      {
        title: 'Open requests and streams',
        description: 'Requests whose answers are not complete.',
        unit: 'short',
        queries: [
          { expr: gauge('http_server_active_requests', SHARED, 'instance'), legend: '{{instance}} requests' },
          { expr: gauge('ra_sidecar_streams_running', HERE, 'instance'), legend: '{{instance}} streams' },
        ],
      },
      {
        title: 'Open connections',
        description: 'Idle ones included. Above listen.maxConnections new ones are closed at once.',
        unit: 'short',
        queries: one(gauge('ra_sidecar_connections', HERE, 'listener'), '{{listener}}'),
      },
      {
        title: 'Buffered for slow readers',
        description: 'At stream.totalBufferedBytes slow readers are cut off.',
        unit: 'bytes',
        queries: one(gauge('ra_sidecar_stream_buffered_bytes', HERE, 'instance'), '{{instance}}'),
      },
      {
        title: 'Event loop lag',
        description: '99th percentile: every request is delayed by it.',
        unit: 's',
        queries: one(largest('nodejs_eventloop_lag_p99_seconds', SHARED, 'instance'), '{{instance}}'),
      },
      {
        title: 'Memory',
        description: 'Resident bytes of the sidecar process, without its engines.',
        unit: 'bytes',
        queries: one(gauge('process_resident_memory_bytes', SHARED, 'instance'), '{{instance}}'),
      },
      {
        title: 'File descriptors',
        description: 'Open ones of the sidecar process: mostly connections.',
        unit: 'short',
        queries: one(gauge('process_open_fds', SHARED, 'instance'), '{{instance}}'),
      },
      {
        title: 'Processor',
        description: 'Processor time of the sidecar process, in cores.',
        unit: 'short',
        queries: one(rate('process_cpu_seconds_total', SHARED, 'instance'), '{{instance}}'),
      },
      {
        title: 'Not delivered to the OTLP endpoint',
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
