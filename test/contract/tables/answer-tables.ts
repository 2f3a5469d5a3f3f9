/** What the server may send, by kind of answer. */
import { type AnswerTable, all, anyText, count, orNull } from './answer-builders.js';
import { constant, object, oneOf, text } from './builders.js';
import { CHUNK, USAGE_CHUNK } from './chunk-tables.js';
import { COMPLETION } from './completion-table.js';
import { DECISIONS, SYSTEMONE } from './decision-answer-tables.js';

const MODEL = ['id', 'object', 'created', 'owned_by'];

const MODELS: AnswerTable = {
  kind: 'models',
  base: { object: 'list', data: [{ id: 'm', object: 'model', created: 1, owned_by: 'us' }] },
  rules: [
    object([]),
    constant(['object'], 'list'),
    { at: ['data'], kinds: ['array'], wrong: 'must be an array', good: [[]], bad: [] },
    object(['data', 0]),
    text(['data', 0, 'id'], 1, 128),
    constant(['data', 0, 'object'], 'model'),
    count(['data', 0, 'created']),
    anyText(['data', 0, 'owned_by']),
  ],
  objects: [all([], ['object', 'data']), { at: ['data', 0], fields: MODEL, required: MODEL }],
};

const TYPES = [
  ...['invalid_request_error', 'authentication_error', 'permission_error', 'quota', 'rate_limit_error', 'capacity'],
  ...['server_error', 'timeout'],
];

/** Every code of docs/errors.md. */
const CODES = [
  ...[
    'bad_request',
    'context_length_exceeded',
    'unsupported_endpoint',
    'not_found',
    'payload_too_large',
    'unprocessable',
    'proxy_retired',
  ],
  ...['invalid_api_key', 'expired_api_key', 'revoked_api_key', 'model_not_entitled', 'not_in_cohort', 'account_frozen'],
  ...['unattributed_key', 'insufficient_credit', 'user_rate_limited', 'quota_exceeded', 'capacity_exceeded'],
  ...['request_cancelled', 'idempotency_key_reused', 'internal', 'bad_gateway', 'upstream_contract_violation', 'cold'],
  ...['draining', 'spool_unhealthy', 'gateway_unavailable', 'control_plane_overloaded', 'credit_gate_unavailable'],
  'timeout',
];

const ERROR: AnswerTable = {
  kind: 'error',
  base: { error: { message: 'x', type: 'quota', code: 'cold', param: null } },
  rules: [
    object([]),
    object(['error']),
    text(['error', 'message'], 1, 2048),
    oneOf(['error', 'type'], TYPES),
    oneOf(['error', 'code'], CODES),
    orNull(text(['error', 'param'], 1, 256), 'must be a string or null'),
  ],
  objects: [all([], ['error']), all(['error'], ['message', 'type', 'code', 'param'])],
};

const HEALTH: AnswerTable = {
  kind: 'health',
  base: { status: 'ok' },
  rules: [object([]), constant(['status'], 'ok')],
  objects: [all([], ['status'])],
};

const PART_STATES = ['ready', 'starting', 'unhealthy'];

const PARTS = ['models', 'usage', 'credit', 'prompts', 'store', 'keys'];

const READINESS: AnswerTable = {
  kind: 'readiness',
  base: { status: 'draining', parts: { models: 'ready', usage: 'unhealthy', credit: 'starting' } },
  rules: [
    object([]),
    object(['parts']),
    oneOf(['status'], [...PART_STATES, 'draining']),
    ...PARTS.map((part) => oneOf(['parts', part], PART_STATES)),
  ],
  objects: [all([], ['status', 'parts']), { at: ['parts'], fields: PARTS, required: ['models', 'usage'] }],
};

export const ANSWER_TABLES: readonly AnswerTable[] = [
  COMPLETION,
  CHUNK,
  USAGE_CHUNK,
  MODELS,
  DECISIONS,
  SYSTEMONE,
  ERROR,
  HEALTH,
  READINESS,
];
