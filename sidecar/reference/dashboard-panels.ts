/** What is on the dashboard: rows of panels, each one question to Prometheus and how its answer is shown. */

export interface Panel {
  readonly title: string;
  readonly description: string;
  /** A unit of Grafana's. */
  readonly unit: 's' | 'bytes' | 'percentunit' | 'reqps' | 'short' | 'cps';
  readonly queries: readonly { readonly expr: string; readonly legend: string }[];
  /** The axis' end; absent: as far as the values go. */
  readonly max?: number;
}

interface Row {
  readonly title: string;
  readonly panels: readonly Panel[];
}

/** Of the chosen sidecars and models. Metrics of ours and OpenTelemetry's call a model differently. */
const OURS = 'instance=~"$instance",model=~"$model"';
const OTEL = 'instance=~"$instance",gen_ai_request_model=~"$model"';
const HERE = 'instance=~"$instance"';

/** Grafana's own choice for a counter's window: at least four scrapes. */
const WINDOW = '[$__rate_interval]';

const rate = (name: string, where: string, by: string): string => `sum by (${by}) (rate(${name}{${where}}${WINDOW}))`;

const gauge = (name: string, where: string, by: string): string => `sum by (${by}) (${name}{${where}})`;

/** Lines for quantiles of a histogram. */
function quantiles(name: string, where: string, by: string, which: readonly number[]): Panel['queries'] {
  const labels = by === '' ? '' : `{{${by}}} `;
  return which.map((q) => ({
    expr: `histogram_quantile(${q}, ${rate(`${name}_bucket`, where, by === '' ? 'le' : `${by}, le`)})`,
    legend: `${labels}p${q * 100}`,
  }));
}

const one = (expr: string, legend: string): Panel['queries'] => [{ expr, legend }];

const requests = (more = ''): string =>
  rate('gen_ai_server_request_duration_seconds_count', `${OTEL}${more}`, 'gen_ai_request_model');

export const DASHBOARD_ROWS: readonly Row[] = [
  {
    title: 'Requests',
    panels: [
      {
        title: 'Requests',
        description: 'Requests for a model, refused ones included.',
        unit: 'reqps',
        queries: one(requests(), '{{gen_ai_request_model}}'),
      },
      {
        title: 'Share that failed, by error',
        description: 'Refusals for overload are capacity_exceeded. docs/errors.md says what to do for each.',
        unit: 'percentunit',
        queries: one(
          `${rate('gen_ai_server_request_duration_seconds_count', `${OTEL},error_type!=""`, 'error_type')} / ignoring (error_type) group_left () sum (rate(gen_ai_server_request_duration_seconds_count{${OTEL}}${WINDOW}))`,
          '{{error_type}}',
        ),
      },
      {
        title: 'Request duration',
        description: 'From the head of a request to the end of its answer; requests that went well.',
        unit: 's',
        queries: quantiles('gen_ai_server_request_duration_seconds', `${OTEL},error_type=""`, '', [0.5, 0.95, 0.99]),
      },
      {
        title: 'Time to first token',
        description: 'From the last byte of a request: checks, queue, prefill.',
        unit: 's',
        queries: quantiles('gen_ai_server_time_to_first_token_seconds', OTEL, 'gen_ai_request_model', [0.5, 0.95]),
      },
      {
        title: 'Time per output token',
        description: 'Of finished replies, the first token left out.',
        unit: 's',
        queries: quantiles('gen_ai_server_time_per_output_token_seconds', OTEL, 'gen_ai_request_model', [0.5, 0.95]),
      },
      {
        title: 'Pauses within replies',
        description: 'Between two pieces of one reply: what a reader sees.',
        unit: 's',
        queries: quantiles('ra_sidecar_inter_token_seconds', OURS, 'model', [0.5, 0.99]),
      },
    ],
  },
  {
    title: 'Tokens',
    panels: [
      {
        title: 'Tokens',
        description: 'Input: prompts. Output: replies.',
        unit: 'cps',
        queries: one(
          rate('gen_ai_client_token_usage_sum', OTEL, 'gen_ai_request_model, gen_ai_token_type'),
          '{{gen_ai_request_model}} {{gen_ai_token_type}}',
        ),
      },
      {
        title: 'Share of prompts reused',
        description: 'Prompt tokens whose state was still held.',
        unit: 'percentunit',
        max: 1,
        queries: one(
          `sum (rate(ra_sidecar_cached_tokens_total{${OURS}}${WINDOW})) / sum (rate(gen_ai_client_token_usage_sum{${OTEL},gen_ai_token_type="input"}${WINDOW}))`,
          'reused',
        ),
      },
      {
        title: 'Length of prompts and replies',
        description: 'Medians and 95th percentiles, tokens.',
        unit: 'short',
        queries: quantiles('gen_ai_client_token_usage', OTEL, 'gen_ai_token_type', [0.5, 0.95]),
      },
    ],
  },
  {
    title: 'Seats and the queue',
    panels: [
      {
        title: 'Seats',
        description: 'Busy ones of those there are.',
        unit: 'short',
        queries: [
          { expr: gauge('ra_sidecar_seats_busy', OURS, 'model'), legend: '{{model}} busy' },
          { expr: gauge('ra_sidecar_seats', OURS, 'model'), legend: '{{model}} seats' },
        ],
      },
      {
        title: 'Waiting requests',
        description: 'In the queue now.',
        unit: 'short',
        queries: one(gauge('ra_sidecar_waiting_requests', OURS, 'model'), '{{model}}'),
      },
      {
        title: 'Wait for a seat',
        description: 'Of seated requests, by class.',
        unit: 's',
        queries: quantiles('ra_sidecar_queue_wait_seconds', OURS, 'class', [0.5, 0.99]),
      },
      {
        title: 'Refusals of the queue',
        description: 'docs/admission.md says what each reason means.',
        unit: 'reqps',
        queries: one(rate('ra_sidecar_refusals_total', OURS, 'reason'), '{{reason}}'),
      },
      {
        title: 'Callers who left',
        description: 'By where their request was.',
        unit: 'reqps',
        queries: one(rate('ra_sidecar_cancels_total', OURS, 'phase'), '{{phase}}'),
      },
      {
        title: 'Seats by account',
        description: 'The accounts with the most seat time; all others together have no name.',
        unit: 'short',
        queries: one(`topk(10, ${gauge('ra_sidecar_account_seats_busy', OURS, 'account')})`, '{{account}}'),
      },
      {
        title: 'Waiting by account',
        description: 'As above.',
        unit: 'short',
        queries: one(`topk(10, ${gauge('ra_sidecar_account_waiting_requests', OURS, 'account')})`, '{{account}}'),
      },
      {
        title: 'Fairness',
        description: 'Jain index of seat time over accounts with a backlog; 1 is even.',
        unit: 'percentunit',
        max: 1,
        queries: one(`min by (model) (ra_sidecar_fairness_index{${OURS}})`, '{{model}}'),
      },
      {
        title: 'Body bytes that wait',
        description: 'Of waiting requests.',
        unit: 'bytes',
        queries: one(gauge('ra_sidecar_waiting_bytes', OURS, 'model'), '{{model}}'),
      },
    ],
  },
  {
    title: 'Engines',
    panels: [
      {
        title: 'Ready engines',
        description: '1 for each sidecar whose engine of that model takes work.',
        unit: 'short',
        queries: one(gauge('ra_sidecar_engine_state', `${OURS},state="ready"`, 'model'), '{{model}}'),
      },
      {
        title: 'Restarts',
        description: 'Of engines and prompt hosts, in the last hour.',
        unit: 'short',
        queries: [
          { expr: `sum by (model) (increase(ra_sidecar_engine_restarts_total{${OURS}}[1h]))`, legend: '{{model}}' },
          { expr: `sum (increase(ra_sidecar_prompt_host_restarts_total{${HERE}}[1h]))`, legend: 'prompt host' },
        ],
      },
      {
        title: 'KV memory in use',
        description: 'Tokens of running requests, and tokens kept to be reused, of those that there is room for.',
        unit: 'percentunit',
        max: 1,
        queries: one(
          `${gauge('ra_sidecar_kv_tokens', OURS, 'model, use')} / on (model) group_left () ${gauge('ra_sidecar_kv_capacity_tokens', OURS, 'model')}`,
          '{{model}} {{use}}',
        ),
      },
    ],
  },
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
    ],
  },
];
