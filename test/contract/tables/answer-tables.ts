/** What we may send (spec.md, Chat completion object; contract.md sections 1, 3, 4, 6 and 7). */
import type { AnswerKind } from '../../../sidecar/contracts/answer-schemas.js';
import type { At, Json } from '../../support/bodies.js';
import { constant, filled, list, many, object, oneOf, text, toolName } from './builders.js';
import type { Closed, Rule } from './rule.js';

export interface AnswerTable {
  readonly kind: AnswerKind;
  /** With every field. */
  readonly base: Json;
  readonly rules: readonly Rule[];
  readonly objects: readonly Closed[];
}

const HIGH = Number.MAX_SAFE_INTEGER;

/** A whole number, `high` the largest. */
const count = (at: At, high = HIGH): Rule => ({
  at,
  kinds: ['number'],
  wrong: 'must be an integer',
  good: [0, high],
  bad: [
    [-1, 'must be at least 0'],
    [0.5, 'must be an integer'],
    ...(high === HIGH ? [] : ([[high + 1, `must be at most ${high}`]] as const)),
  ],
});

const probability = (at: At): Rule => ({
  at,
  kinds: ['number'],
  wrong: 'must be a number',
  good: [0, 1, 0.5],
  bad: [
    [-0.001, 'must be at least 0'],
    [1.001, 'must be at most 1'],
  ],
});

/** A number with no upper bound of its own. */
const score = (at: At): Rule => ({ ...probability(at), good: [0, 9], bad: [[-0.001, 'must be at least 0']] });

/** A text whose bound is that of all texts, which the requests' tables try. */
const anyText = (at: At): Rule => ({
  at,
  kinds: ['string'],
  wrong: 'must be a string',
  good: ['', filled(99)],
  bad: [],
});

const anyTextOrNull = (at: At): Rule => ({
  ...anyText(at),
  kinds: ['string', 'null'],
  wrong: 'must be a string or null',
  good: ['', null],
});

const orNull = (rule: Rule, wrong: string): Rule => ({
  ...rule,
  kinds: [...rule.kinds, 'null'],
  wrong,
  good: [...rule.good, null],
});

const nothing = (at: At): Rule => ({ at, kinds: ['null'], wrong: 'must be null', good: [null], bad: [] });

const all = (at: At, fields: readonly string[]): Closed => ({ at, fields, required: fields });

const REASONS = ['stop', 'length', 'tool_calls', 'content_filter', 'function_call'];
const USAGE = ['prompt_tokens', 'completion_tokens', 'total_tokens'];
const COMPLETION_DETAILS = [
  'accepted_prediction_tokens',
  'audio_tokens',
  'reasoning_tokens',
  'rejected_prediction_tokens',
  'text_tokens',
];
const PROMPT_DETAILS = ['audio_tokens', 'cached_tokens', 'text_tokens'];

const usage: Json = {
  prompt_tokens: 3,
  completion_tokens: 4,
  total_tokens: 7,
  reasoning_tokens: 1,
  completion_tokens_details: Object.fromEntries(COMPLETION_DETAILS.map((name) => [name, 1])),
  prompt_tokens_details: Object.fromEntries(PROMPT_DETAILS.map((name) => [name, 1])),
};

const usageRules = [
  object(['usage']),
  ...[...USAGE, 'reasoning_tokens'].map((name) => count(['usage', name])),
  ...(
    [
      ['completion_tokens_details', COMPLETION_DETAILS],
      ['prompt_tokens_details', PROMPT_DETAILS],
    ] as const
  ).flatMap(([name, fields]) => [
    {
      ...orNull(object(['usage', name]), 'must be an object or null'),
      bad: [[{}, 'must have at least 1 entry']] as const,
    },
    ...fields.map((field) => count(['usage', name, field])),
  ]),
];

const usageObjects: readonly Closed[] = [
  {
    at: ['usage'],
    fields: [...USAGE, 'reasoning_tokens', 'completion_tokens_details', 'prompt_tokens_details'],
    required: USAGE,
  },
  { at: ['usage', 'completion_tokens_details'], fields: COMPLETION_DETAILS, required: [] },
  { at: ['usage', 'prompt_tokens_details'], fields: PROMPT_DETAILS, required: [] },
];

const fingerprint: Rule = orNull(text(['system_fingerprint'], 1, 120), 'must be a string or null');

const call: Json = { id: 'c', type: 'function', function: { name: 'f', arguments: '{}' }, index: 0 };
const choice: Json = {
  index: 0,
  message: { role: 'assistant', content: 'x', reasoning_content: 'y', tool_calls: [call] },
  finish_reason: 'stop',
  logprobs: null,
  matched_stop: 'END',
};
const CALL: At = ['choices', 0, 'message', 'tool_calls', 0];
const VERSIONS: At = ['metadata', 'weight_versions'];

const COMPLETION: AnswerTable = {
  kind: 'completion',
  base: {
    id: 'chatcmpl-1',
    object: 'chat.completion',
    created: 1,
    model: 'm',
    choices: [choice],
    system_fingerprint: 'f',
    usage,
    metadata: { weight_version: 'w', weight_versions: [{ version: 'w', start: 0, end: 4 }] },
  },
  rules: [
    object([]),
    text(['id'], 1, 256),
    constant(['object'], 'chat.completion'),
    count(['created']),
    text(['model'], 1, 128),
    list(['choices'], 1, 16, () => choice),
    object(['choices', 0]),
    count(['choices', 0, 'index']),
    object(['choices', 0, 'message']),
    constant(['choices', 0, 'message', 'role'], 'assistant'),
    anyTextOrNull(['choices', 0, 'message', 'content']),
    anyTextOrNull(['choices', 0, 'message', 'reasoning_content']),
    orNull(
      list(['choices', 0, 'message', 'tool_calls'], 1, 128, () => call),
      'must be an array or null',
    ),
    object(CALL),
    text([...CALL, 'id'], 1, 256),
    constant([...CALL, 'type'], 'function'),
    object([...CALL, 'function']),
    toolName([...CALL, 'function', 'name']),
    anyText([...CALL, 'function', 'arguments']),
    count([...CALL, 'index'], 127),
    oneOf(['choices', 0, 'finish_reason'], REASONS),
    nothing(['choices', 0, 'logprobs']),
    {
      ...count(['choices', 0, 'matched_stop'], 2_147_483_647),
      kinds: ['number', 'string', 'null'],
      wrong: 'must be a string or an integer or null',
      bad: [
        [-1, 'must be at least 0'],
        [2_147_483_648, 'must be at most 2147483647'],
        [0.5, 'must be a string or an integer or null'],
      ],
    },
    fingerprint,
    ...usageRules,
    object(['metadata'], [{}]),
    text(['metadata', 'weight_version'], 1, 256),
    {
      ...list(VERSIONS, 0, 64, () => ({ version: 'w', start: 0, end: 0 })),
      bad: [[many(65, () => ({ version: 'w', start: 0, end: 0 })), 'must have at most 64 items']],
    },
    object([...VERSIONS, 0]),
    text([...VERSIONS, 0, 'version'], 1, 256),
    count([...VERSIONS, 0, 'start']),
    count([...VERSIONS, 0, 'end']),
  ],
  objects: [
    {
      at: [],
      fields: ['id', 'object', 'created', 'model', 'choices', 'system_fingerprint', 'usage', 'metadata'],
      required: ['id', 'object', 'created', 'model', 'choices'],
    },
    {
      at: ['choices', 0],
      fields: ['index', 'message', 'finish_reason', 'logprobs', 'matched_stop'],
      required: ['index', 'message', 'finish_reason'],
    },
    {
      at: ['choices', 0, 'message'],
      fields: ['role', 'content', 'reasoning_content', 'tool_calls'],
      required: ['role', 'content'],
    },
    { at: CALL, fields: ['id', 'type', 'function', 'index'], required: ['id', 'type', 'function'] },
    all([...CALL, 'function'], ['name', 'arguments']),
    ...usageObjects,
    { at: ['metadata'], fields: ['weight_version', 'weight_versions'], required: [] },
    all([...VERSIONS, 0], ['version', 'start', 'end']),
  ],
};

const delta: Json = { role: 'assistant', content: 'x', reasoning_content: 'y', tool_calls: [call] };
const frame: Json = { index: 0, delta, finish_reason: null };

const CHUNK: AnswerTable = {
  kind: 'chunk',
  base: {
    id: 'chatcmpl-1',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'm',
    system_fingerprint: 'f',
    choices: [frame],
  },
  rules: [
    object([]),
    text(['id'], 1, 256),
    constant(['object'], 'chat.completion.chunk'),
    count(['created']),
    text(['model'], 1, 128),
    fingerprint,
    {
      ...list(['choices'], 1, 1, () => frame),
      bad: [
        [[], 'must have at least 1 item'],
        [[frame, frame], 'must have at most 1 item'],
      ],
    },
    object(['choices', 0]),
    count(['choices', 0, 'index'], 15),
    object(['choices', 0, 'delta'], [{}]),
    constant(['choices', 0, 'delta', 'role'], 'assistant'),
    anyText(['choices', 0, 'delta', 'content']),
    anyText(['choices', 0, 'delta', 'reasoning_content']),
    list(['choices', 0, 'delta', 'tool_calls'], 1, 128, () => call),
    {
      ...oneOf(['choices', 0, 'finish_reason'], [...REASONS, 'null'], REASONS),
      kinds: ['null'],
      good: [...REASONS, null],
      bad: [['STOP', `must be one of ${REASONS.join(', ')}, null`]],
    },
  ],
  objects: [
    all([], ['id', 'object', 'created', 'model', 'system_fingerprint', 'choices']),
    all(['choices', 0], ['index', 'delta', 'finish_reason']),
    {
      at: ['choices', 0, 'delta'],
      fields: ['role', 'content', 'reasoning_content', 'tool_calls'],
      required: [],
    },
  ],
};

const USAGE_CHUNK: AnswerTable = {
  kind: 'usageChunk',
  base: {
    id: 'chatcmpl-1',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'm',
    system_fingerprint: 'f',
    choices: [],
    usage,
  },
  rules: [
    object([]),
    text(['id'], 1, 256),
    constant(['object'], 'chat.completion.chunk'),
    count(['created']),
    text(['model'], 1, 128),
    fingerprint,
    { ...list(['choices'], 0, 0, () => frame), bad: [[[frame], 'must have at most 0 items']] },
    ...usageRules,
  ],
  objects: [all([], ['id', 'object', 'created', 'model', 'system_fingerprint', 'choices', 'usage']), ...usageObjects],
};

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
  objects: [all([], ['object', 'data']), all(['data', 0], ['id', 'object', 'created', 'owned_by'])],
};

/** Probabilities by name: two at least. */
const spread = (at: At): Rule => ({
  ...object(at, [{ a: 0, b: 1 }]),
  bad: [[{ a: 1 }, 'must have at least 2 entries']],
});

const answer = (id: string, ...rest: At): At => ['answers', id, ...rest];
const answersRule: Rule = { ...object(['answers']), bad: [[{}, 'must have at least 1 entry']] };

const DECISIONS: AnswerTable = {
  kind: 'decisions',
  base: {
    object: 'decisions',
    model: 'm',
    prompt_format_version: 1,
    answers: {
      a: { type: 'yes_no', probabilities: { yes: 0.5, no: 0.5 }, label_mass: 1 },
      b: { type: 'choice', probabilities: { x: 0.5, y: 0.5 }, label_mass: 1, choice: 'x' },
      c: { type: 'score', probabilities: { 0: 0.5, 1: 0.5 }, label_mass: 1, score: 0.5 },
    },
    usage: { prompt_tokens: 3, completion_tokens: 0, total_tokens: 3 },
  },
  rules: [
    object([]),
    constant(['object'], 'decisions'),
    text(['model'], 1, 128),
    { ...constant(['prompt_format_version'], '1'), good: [1] },
    answersRule,
    ...['a', 'b', 'c'].map((id) => object(answer(id))),
    oneOf(answer('a', 'type'), ['yes_no', 'choice', 'score'], ['yes_no']),
    ...['a', 'b', 'c'].map((id) => probability(answer(id, 'label_mass'))),
    object(answer('a', 'probabilities')),
    probability(answer('a', 'probabilities', 'yes')),
    probability(answer('a', 'probabilities', 'no')),
    spread(answer('b', 'probabilities')),
    probability(answer('b', 'probabilities', 'x')),
    anyText(answer('b', 'choice')),
    spread(answer('c', 'probabilities')),
    score(answer('c', 'score')),
    object(['usage']),
    count(['usage', 'prompt_tokens']),
    { ...constant(['usage', 'completion_tokens'], '0'), good: [0] },
    count(['usage', 'total_tokens']),
  ],
  objects: [
    all([], ['object', 'model', 'prompt_format_version', 'answers', 'usage']),
    all(answer('a'), ['type', 'probabilities', 'label_mass']),
    all(answer('a', 'probabilities'), ['yes', 'no']),
    all(answer('b'), ['type', 'probabilities', 'label_mass', 'choice']),
    all(answer('c'), ['type', 'probabilities', 'label_mass', 'score']),
    all(['usage'], USAGE),
  ],
};

const UUID = '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$';

const SYSTEMONE: AnswerTable = {
  kind: 'systemone',
  base: {
    id: '0b6ad1c0-1b7e-4d1f-9c57-0d8f3b5b9a10',
    model: 'm',
    answers: {
      a: { type: 'noul', noul: 0.5 },
      b: { type: 'choice', choice: 'x', confidence: 0, probabilities: { x: 0.5, y: 0.5 } },
      c: { type: 'score', score: 1, confidence: 0, probabilities: { 0: 0.5, 1: 0.5 }, legend: { 0: 'lo', 1: null } },
    },
    usage: { input_tokens: 3, output_tokens: 0 },
  },
  rules: [
    object([]),
    {
      at: ['id'],
      kinds: ['string'],
      wrong: 'must be a string',
      good: ['00000000-0000-0000-0000-000000000000'],
      bad: [
        ['', `must match ${UUID}`],
        ['0B6AD1C0-1b7e-4d1f-9c57-0d8f3b5b9a10', `must match ${UUID}`],
        ['x0b6ad1c0-1b7e-4d1f-9c57-0d8f3b5b9a10', `must match ${UUID}`],
        ['0b6ad1c0-1b7e-4d1f-9c57-0d8f3b5b9a10x', `must match ${UUID}`],
      ],
    },
    text(['model'], 1, 128),
    answersRule,
    ...['a', 'b', 'c'].map((id) => object(answer(id))),
    oneOf(answer('a', 'type'), ['noul', 'choice', 'score'], ['noul']),
    probability(answer('a', 'noul')),
    anyText(answer('b', 'choice')),
    probability(answer('b', 'confidence')),
    spread(answer('b', 'probabilities')),
    score(answer('c', 'score')),
    probability(answer('c', 'confidence')),
    spread(answer('c', 'probabilities')),
    { ...object(answer('c', 'legend')), bad: [[{ 0: 'x' }, 'must have at least 2 entries']] },
    object(['usage']),
    count(['usage', 'input_tokens']),
    { ...constant(['usage', 'output_tokens'], '0'), good: [0] },
  ],
  objects: [
    all([], ['id', 'model', 'answers', 'usage']),
    all(answer('a'), ['type', 'noul']),
    all(answer('b'), ['type', 'choice', 'confidence', 'probabilities']),
    all(answer('c'), ['type', 'score', 'confidence', 'probabilities', 'legend']),
    all(['usage'], ['input_tokens', 'output_tokens']),
  ],
};

const TYPES = [
  ...['invalid_request_error', 'authentication_error', 'permission_error', 'quota', 'rate_limit_error', 'capacity'],
  ...['server_error', 'timeout'],
];

/** Every code of spec.md. */
const CODES = [
  ...['bad_request', 'unsupported_endpoint', 'not_found', 'payload_too_large', 'unprocessable', 'proxy_retired'],
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
    {
      ...text(['error', 'message'], 1, 2048),
    },
    oneOf(['error', 'type'], TYPES),
    oneOf(['error', 'code'], CODES),
    orNull(text(['error', 'param'], 1, 256), 'must be a string or null'),
  ],
  objects: [all([], ['error']), all(['error'], ['message', 'type', 'code', 'param'])],
};

export const ANSWER_TABLES: readonly AnswerTable[] = [
  COMPLETION,
  CHUNK,
  USAGE_CHUNK,
  MODELS,
  DECISIONS,
  SYSTEMONE,
  ERROR,
];
