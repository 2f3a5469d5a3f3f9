/** Schemas of bodies, lines and answers of /files and /batches (docs/batches.md). */
import { closed, COUNT, exactly } from './common-schema.js';

/** Where lines of a batch may go. */
export const BATCH_ENDPOINTS = ['/v1/chat/completions', '/v1/responses', '/v1/decisions', '/v1/embeddings'] as const;
export type BatchEndpoint = (typeof BATCH_ENDPOINTS)[number];

/** As OpenAI's. */
export const BATCH_STATUSES = [
  'validating',
  'failed',
  'in_progress',
  'finalizing',
  'completed',
  'expired',
  'cancelling',
  'cancelled',
] as const;
export type BatchStatus = (typeof BATCH_STATUSES)[number];

/** Bounds of the time that a caller may choose for a file, s. */
export const LEAST_LIFE_S = 3600;
export const MOST_LIFE_S = 2_592_000;

const FILE_ID = { type: 'string', minLength: 1, maxLength: 64 } as const;
const FILE_ID_OR_NULL = { ...FILE_ID, type: ['string', 'null'] } as const;
const TIME_OR_NULL = { type: ['integer', 'null'], minimum: 0 } as const;

export const EXPIRES_AFTER = exactly({
  anchor: { const: 'created_at' },
  seconds: { type: 'integer', minimum: LEAST_LIFE_S, maximum: MOST_LIFE_S },
});

const METADATA = {
  type: ['object', 'null'],
  maxProperties: 16,
  propertyNames: { maxLength: 64 },
  additionalProperties: { type: 'string', maxLength: 512 },
} as const;

/** The body of POST /batches. */
export const BATCH_REQUEST = closed(['input_file_id', 'endpoint', 'completion_window'], {
  input_file_id: FILE_ID,
  endpoint: { enum: BATCH_ENDPOINTS },
  completion_window: { const: '24h' },
  metadata: METADATA,
  output_expires_after: EXPIRES_AFTER,
});

/** One line of an input file, but for its body. */
export const BATCH_LINE = exactly({
  custom_id: { type: 'string', minLength: 1, maxLength: 512 },
  method: { const: 'POST' },
  url: { enum: BATCH_ENDPOINTS },
  body: { type: 'object' },
});

export const FILE = exactly({
  id: FILE_ID,
  object: { const: 'file' },
  bytes: COUNT,
  created_at: COUNT,
  expires_at: COUNT,
  filename: { type: 'string', maxLength: 512 },
  purpose: { enum: ['batch', 'batch_output'] },
  status: { const: 'processed' },
});

function pageOf(items: object): object {
  return exactly({
    object: { const: 'list' },
    data: { type: 'array', items },
    first_id: FILE_ID_OR_NULL,
    last_id: FILE_ID_OR_NULL,
    has_more: { type: 'boolean' },
  });
}

export const FILE_LIST = pageOf(FILE);

export const FILE_DELETED = exactly({ id: FILE_ID, object: { const: 'file' }, deleted: { const: true } });

export const BATCH_PROBLEM = exactly({
  code: { type: 'string' },
  message: { type: 'string', minLength: 1 },
  param: { type: ['string', 'null'] },
  line: { type: ['integer', 'null'], minimum: 1 },
});

export const BATCH = exactly({
  id: FILE_ID,
  object: { const: 'batch' },
  endpoint: { enum: BATCH_ENDPOINTS },
  errors: {
    type: ['object', 'null'],
    if: { type: 'object' },
    then: exactly({ object: { const: 'list' }, data: { type: 'array', items: BATCH_PROBLEM } }),
  },
  input_file_id: FILE_ID,
  completion_window: { const: '24h' },
  status: { enum: BATCH_STATUSES },
  output_file_id: FILE_ID_OR_NULL,
  error_file_id: FILE_ID_OR_NULL,
  created_at: COUNT,
  in_progress_at: TIME_OR_NULL,
  expires_at: COUNT,
  finalizing_at: TIME_OR_NULL,
  completed_at: TIME_OR_NULL,
  failed_at: TIME_OR_NULL,
  expired_at: TIME_OR_NULL,
  cancelling_at: TIME_OR_NULL,
  cancelled_at: TIME_OR_NULL,
  request_counts: exactly({ total: COUNT, completed: COUNT, failed: COUNT }),
  usage: exactly({
    input_tokens: COUNT,
    input_tokens_details: exactly({ cached_tokens: COUNT }),
    output_tokens: COUNT,
    total_tokens: COUNT,
  }),
  cost: exactly({
    value: { type: 'string', maxLength: 48, pattern: '^\\d+(\\.\\d{1,12})?$' },
    currency: { const: 'usd' },
  }),
  metadata: METADATA,
});

export const BATCH_LIST = pageOf(BATCH);
