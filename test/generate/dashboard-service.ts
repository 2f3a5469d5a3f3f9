/** The dashboard’s first half: what callers get, and the seats, queue and engines that serve them. */
import { gauge, HERE, largest, one, OTEL, OURS, quantiles, rate, WINDOW, WORK, type Row } from './dashboard-queries.js';

const requests = (more = ''): string =>
  rate('gen_ai_server_request_duration_seconds_count', `${OTEL}${more}`, 'gen_ai_request_model');

export const SERVICE_ROWS: readonly Row[] = [
  {
    title: 'Requests',
    panels: [
      {
        title: 'Requests',
        description: 'Requests for a model, refused ones included, from the check of the model on.',
        unit: 'reqps',
        queries: one(requests(), '{{gen_ai_request_model}}'),
      },
      {
        title: 'Share that failed, by error',
        description:
          'Of all requests on routes that use a model. Refusals for overload are capacity_exceeded. docs/errors.md says what to do for each.',
        unit: 'percentunit',
        queries: one(
          `${rate('http_server_request_duration_seconds_count', `${WORK},error_type!=""`, 'error_type')} / ignoring (error_type) group_left () sum (rate(http_server_request_duration_seconds_count{${WORK}}${WINDOW}))`,
          '{{error_type}}',
        ),
      },
      {
        title: 'Request duration',
        description: 'From a request’s head to the end of its answer; requests without an error.',
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
        description: 'Of finished replies, without the first token.',
        unit: 's',
        queries: quantiles('gen_ai_server_time_per_output_token_seconds', OTEL, 'gen_ai_request_model', [0.5, 0.95]),
      },
      {
        title: 'Pauses within replies',
        description: 'Between two pieces of one reply, as the engine delivers them.',
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
        description: 'Prompt tokens whose state was reused.',
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
    title: 'Prefixes in host memory',
    panels: [
      {
        title: 'Prompt tokens restored',
        description: 'A part of the reused ones: their state was saved when another request took their sequence.',
        unit: 'cps',
        queries: one(rate('ra_sidecar_prefix_cache_restored_tokens_total', OURS, 'model'), '{{model}}'),
      },
      {
        title: 'Memory of saved prefixes',
        description: 'At prefixCache.bytes, or at what /dev/shm has, they make room for each other.',
        unit: 'bytes',
        queries: one(gauge('ra_sidecar_prefix_cache_bytes', OURS, 'model'), '{{model}}'),
      },
      {
        title: 'Requests that went on from one, and those dropped',
        description: 'Many dropped for room beside few hits: conversations come back later than that.',
        unit: 'reqps',
        queries: [
          { expr: rate('ra_sidecar_prefix_cache_hits_total', OURS, 'model'), legend: '{{model}} hits' },
          { expr: rate('ra_sidecar_prefix_cache_evictions_total', OURS, 'reason'), legend: 'dropped: {{reason}}' },
        ],
      },
    ],
  },
  {
    title: 'Seats and the queue',
    panels: [
      {
        title: 'Seats',
        description: 'Seats in use, and all seats.',
        unit: 'short',
        queries: [
          { expr: gauge('ra_sidecar_seats_busy', OURS, 'model'), legend: '{{model}} busy' },
          { expr: gauge('ra_sidecar_seats', OURS, 'model'), legend: '{{model}} seats' },
        ],
      },
      {
        title: 'Waiting requests',
        description: 'In the queue now, by class.',
        unit: 'short',
        queries: one(gauge('ra_sidecar_waiting_requests', OURS, 'model, class'), '{{model}} {{class}}'),
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
        description: 'By the phase of their request; not those who left before its model was known.',
        unit: 'reqps',
        queries: one(rate('ra_sidecar_cancels_total', OURS, 'phase'), '{{phase}}'),
      },
      {
        title: 'Overload',
        description: '1: requests wait, and for some time more arrive than the seats can serve (docs/admission.md).',
        unit: 'short',
        queries: one(largest('ra_sidecar_queue_standing', OURS, 'model'), '{{model}}'),
      },
      {
        title: 'Patience of callers',
        description: 'The time by which this share of callers has disconnected; the mean over the sidecars.',
        unit: 's',
        queries: one(
          `avg by (model, awaits, quantile) (ra_sidecar_patience_seconds{${OURS}})`,
          '{{model}} {{awaits}} {{quantile}}',
        ),
      },
      {
        title: 'Seat time of callers who disconnected',
        description: 'Seat time so far of requests whose callers disconnected before they had what they waited for.',
        unit: 's',
        queries: one(gauge('ra_sidecar_left_seat_seconds', OURS, 'model'), '{{model}}'),
      },
      {
        title: 'Retry-After of refusals',
        description:
          'By its source: the predicted wait, a reserved time, or a long time because none could be reserved.',
        unit: 'reqps',
        queries: one(rate('ra_sidecar_retry_times_total', OURS, 'time'), '{{time}}'),
      },
      {
        title: 'Seats by account',
        description: 'The accounts with the most seat time; all others are added up without a name.',
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
        description: 'Jain index of seat time over accounts with a backlog; 1 is equal.',
        unit: 'percentunit',
        max: 1,
        queries: one(`min by (model) (ra_sidecar_fairness_index{${OURS}})`, '{{model}}'),
      },
      {
        title: 'Body bytes of waiting requests',
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
        description: '1 for each sidecar whose engine of that model is ready.',
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
        description: 'Tokens of running requests, and tokens kept for reuse, as shares of the capacity.',
        unit: 'percentunit',
        max: 1,
        queries: one(
          `${gauge('ra_sidecar_kv_tokens', OURS, 'model, use')} / on (model) group_left () ${gauge('ra_sidecar_kv_capacity_tokens', OURS, 'model')}`,
          '{{model}} {{use}}',
        ),
      },
    ],
  },
];
