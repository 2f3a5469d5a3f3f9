/** Schemas of what a key can ask about itself: the models that it may call, what it has used, its limits and its account's balance. */
import { SERVED_TIERS } from '../domain/service-class.js';
import { closed, COUNT, exactly } from './common-schema.js';

const ID = { type: 'string', minLength: 1, maxLength: 256 } as const;
const ID_OR_NULL = { type: ['string', 'null'], minLength: 1, maxLength: 256 } as const;
/** A list as GET /models has it. */
export function listOf(items: object): object {
  return exactly({ object: { const: 'list' }, data: { type: 'array', items } });
}

/** USD a token, exact. */
const TOKEN_PRICE = { type: 'string', maxLength: 32, pattern: '^\\d+(\\.\\d{1,12})?$' } as const;

const DESCRIPTION_FIELDS = {
  id: ID,
  object: { const: 'model' },
  created: COUNT,
  owned_by: { type: 'string' },
  name: ID,
  context_length: COUNT,
  context_window: COUNT,
  max_model_len: COUNT,
  max_input_tokens: COUNT,
  max_output_tokens: COUNT,
  max_tokens: COUNT,
  meta: exactly({ n_ctx: COUNT }),
  architecture: exactly({
    input_modalities: { type: 'array', items: { enum: ['text', 'image'] } },
    output_modalities: { type: 'array', items: { enum: ['text', 'embeddings', 'rerank'] } },
  }),
  pricing: exactly({ prompt: TOKEN_PRICE, completion: TOKEN_PRICE, input_cache_read: TOKEN_PRICE }),
} as const;

/** One model under `contract: compatible`. */
export const DESCRIBED_MODEL = closed(Object.keys(DESCRIPTION_FIELDS), {
  ...DESCRIPTION_FIELDS,
  supported_parameters: { type: 'array', items: { type: 'string' } },
});

/** USD, exact, with a sign if it is below 0. */
const USD_TEXT = { type: 'string', maxLength: 48, pattern: '^-?\\d+(\\.\\d{1,12})?$' } as const;
const USD_TEXT_OR_NULL = { ...USD_TEXT, type: ['string', 'null'] } as const;
const CURRENCY = { const: 'usd' } as const;

export const USAGE_RESULT = exactly({
  object: { const: 'usage.result' },
  input_tokens: COUNT,
  input_cached_tokens: COUNT,
  output_tokens: COUNT,
  num_model_requests: COUNT,
  model: ID_OR_NULL,
  api_key_id: ID_OR_NULL,
  service_tier: { enum: [...SERVED_TIERS, null] },
  batch: { type: ['boolean', 'null'] },
  cost: exactly({
    value: USD_TEXT,
    currency: CURRENCY,
    input: USD_TEXT_OR_NULL,
    cached_input: USD_TEXT_OR_NULL,
    output: USD_TEXT_OR_NULL,
  }),
});

export const USAGE_BUCKET = exactly({
  object: { const: 'bucket' },
  start_time: COUNT,
  end_time: COUNT,
  results: { type: 'array', items: USAGE_RESULT },
});

export const USAGE_PAGE = exactly({
  object: { const: 'page' },
  data: { type: 'array', items: USAGE_BUCKET },
  has_more: { type: 'boolean' },
  next_page: { type: ['string', 'null'], maxLength: 20 },
  as_of: COUNT,
});

export const ACCOUNT_LIMIT = exactly({
  name: {
    enum: ['requests_in_flight', 'requests_per_minute', 'tokens_per_minute', 'tokens_per_day', 'tokens_per_month'],
  },
  scope: { enum: ['key', 'account'] },
  routes: { enum: ['decisions', 'chat', 'embeddings', 'models', null] },
  limit: COUNT,
  remaining: COUNT,
  reset_at: { type: ['integer', 'null'], minimum: 0 },
});

const BALANCE_FIELDS = {
  currency: CURRENCY,
  granted: USD_TEXT,
  settled: USD_TEXT,
  reserved: USD_TEXT,
  available: USD_TEXT,
} as const;

export const ACCOUNT_BALANCE = closed(Object.keys(BALANCE_FIELDS), { ...BALANCE_FIELDS, age_ms: COUNT });

const ACCOUNT_NEEDS = {
  object: { const: 'account' },
  id: ID,
  api_key_id: ID,
  limits: { type: 'array', items: ACCOUNT_LIMIT },
} as const;

export const ACCOUNT = closed(Object.keys(ACCOUNT_NEEDS), { ...ACCOUNT_NEEDS, balance: ACCOUNT_BALANCE });
