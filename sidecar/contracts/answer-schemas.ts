/** A schema for everything we send. Tests, and a switch in development, hold every answer to its own. */
import { CATALOGUE } from '../domain/errors.js';
import { SERVED_TIERS } from '../domain/service-class.js';
import { ACCOUNT, DESCRIBED_MODEL, listOf, USAGE_PAGE } from './account-schemas.js';
import { BATCH, BATCH_LIST, FILE, FILE_DELETED, FILE_LIST } from './batch-schemas.js';
import {
  CALL_ID,
  CALL_INDEX,
  COUNT,
  MAX_TEXT,
  MODEL,
  TEXT,
  TEXT_OR_NULL,
  WIDE_TOOL_NAME,
  closed,
  oneOfBy,
  PROMPT_FORMAT_VERSION,
  exactly,
} from './common-schema.js';
import { MESSAGE, MESSAGE_ERROR, MESSAGE_EVENT, TOKEN_COUNT } from './message-answer-schemas.js';
import { type Check, type Outcome, compile } from './validator.js';

const PROBABILITY = { type: 'number', minimum: 0, maximum: 1 } as const;
const PROBABILITIES = { type: 'object', minProperties: 2, additionalProperties: PROBABILITY } as const;
const FINGERPRINT = { type: ['string', 'null'], minLength: 1, maxLength: 120 } as const;
const FINISH_REASON = { enum: ['stop', 'length', 'tool_calls', 'content_filter', 'function_call'] } as const;
const TIER = { enum: SERVED_TIERS } as const;
const VERSION = { type: 'string', minLength: 1, maxLength: 256 } as const;

function details(names: readonly string[]): object {
  return {
    type: ['object', 'null'],
    minProperties: 1,
    additionalProperties: false,
    properties: Object.fromEntries(names.map((name) => [name, COUNT])),
  };
}

const USAGE_FIELDS = {
  prompt_tokens: COUNT,
  completion_tokens: COUNT,
  total_tokens: COUNT,
  reasoning_tokens: COUNT,
  completion_tokens_details: details([
    'accepted_prediction_tokens',
    'audio_tokens',
    'reasoning_tokens',
    'rejected_prediction_tokens',
    'text_tokens',
  ]),
  prompt_tokens_details: details(['audio_tokens', 'cached_tokens', 'text_tokens']),
} as const;

const USAGE_NEEDS = ['prompt_tokens', 'completion_tokens', 'total_tokens'];
const USAGE = closed(USAGE_NEEDS, USAGE_FIELDS);

const USD = { type: 'number', minimum: 0 } as const;

/** `kinds`: what the API calls input and output. */
function costFields(kinds: readonly [string, string]): Readonly<Record<'cost' | 'cost_details', object>> {
  const details = kinds.map((kind) => `upstream_inference_${kind}_cost`);
  return { cost: USD, cost_details: closed(details, Object.fromEntries(details.map((name) => [name, USD]))) };
}

/** Under `contract: compatible`. */
const PRICED_USAGE = closed([...USAGE_NEEDS, 'cost', 'cost_details'], {
  ...USAGE_FIELDS,
  ...costFields(['prompt', 'completions']),
});

const COMPLETION_TOOL_CALL = closed(['id', 'type', 'function'], {
  id: CALL_ID,
  type: { const: 'function' },
  function: exactly({ name: WIDE_TOOL_NAME, arguments: TEXT }),
  index: CALL_INDEX,
});

const COMPLETION_CHOICE = closed(['index', 'message', 'finish_reason'], {
  index: COUNT,
  message: closed(['role', 'content'], {
    role: { const: 'assistant' },
    content: TEXT_OR_NULL,
    reasoning_content: TEXT_OR_NULL,
    tool_calls: { type: ['array', 'null'], minItems: 1, maxItems: 128, items: COMPLETION_TOOL_CALL },
  }),
  finish_reason: FINISH_REASON,
  logprobs: { type: 'null' },
  matched_stop: {
    type: ['string', 'integer', 'null'],
    maxLength: MAX_TEXT,
    minimum: 0,
    maximum: 2_147_483_647,
  },
});

const COMPLETION_NEEDS = ['id', 'object', 'created', 'model', 'choices'];
const COMPLETION_FIELDS = {
  id: { type: 'string', minLength: 1, maxLength: 256 },
  object: { const: 'chat.completion' },
  created: COUNT,
  model: MODEL,
  choices: { type: 'array', minItems: 1, maxItems: 16, items: COMPLETION_CHOICE },
  system_fingerprint: FINGERPRINT,
  usage: USAGE,
  metadata: closed([], {
    weight_version: VERSION,
    weight_versions: { type: 'array', maxItems: 64, items: exactly({ version: VERSION, start: COUNT, end: COUNT }) },
  }),
} as const;

const COMPLETION = closed(COMPLETION_NEEDS, COMPLETION_FIELDS);

/** Under `contract: compatible`. */
const PRICED_COMPLETION = closed(COMPLETION_NEEDS, { ...COMPLETION_FIELDS, service_tier: TIER, usage: PRICED_USAGE });

/** id, type and name come together, on a call's first piece alone. */
const CALL_PIECE = {
  anyOf: [
    exactly({
      index: CALL_INDEX,
      id: CALL_ID,
      type: { const: 'function' },
      function: exactly({ name: WIDE_TOOL_NAME, arguments: TEXT }),
    }),
    exactly({ index: CALL_INDEX, function: exactly({ arguments: TEXT }) }),
  ],
} as const;

/** What every frame of one stream has, chunks and the usage chunk alike. */
const CHUNK_HEAD = {
  id: { type: 'string', minLength: 1, maxLength: 256 },
  object: { const: 'chat.completion.chunk' },
  created: COUNT,
  model: MODEL,
  system_fingerprint: FINGERPRINT,
} as const;

const CHUNK_FIELDS = {
  ...CHUNK_HEAD,
  choices: {
    type: 'array',
    minItems: 1,
    maxItems: 1,
    items: exactly({
      index: { type: 'integer', minimum: 0, maximum: 15 },
      delta: closed([], {
        role: { const: 'assistant' },
        content: TEXT,
        reasoning_content: TEXT,
        tool_calls: { type: 'array', minItems: 1, maxItems: 128, items: CALL_PIECE },
      }),
      finish_reason: { enum: [...FINISH_REASON.enum, null] },
    }),
  },
} as const;

const CHUNK = exactly(CHUNK_FIELDS);

/** Under `contract: compatible`, where each chunk is to have the usage so far. */
const COUNTED_CHUNK = exactly({ ...CHUNK_FIELDS, usage: USAGE });

/** The same of a request that asks for a tier. */
const TIERED_CHUNK = closed([...Object.keys(CHUNK_FIELDS), 'service_tier'], {
  ...CHUNK_FIELDS,
  service_tier: TIER,
  usage: USAGE,
});

/** Sent once, before the stream's end, when asked for. */
function lastChunk(usage: object, further = {}): object {
  return closed([...Object.keys(CHUNK_HEAD), 'choices', 'usage'], {
    ...CHUNK_HEAD,
    ...further,
    choices: { type: 'array', maxItems: 0 },
    usage,
  });
}

const MODEL_OBJECT = exactly({
  id: MODEL,
  object: { const: 'model' },
  created: COUNT,
  owned_by: { type: 'string' },
});

function tagged(type: string, fields: Readonly<Record<string, object>>): object {
  return exactly({ type: { const: type }, ...fields });
}

function answersBy(branches: readonly object[]): object {
  return { type: 'object', minProperties: 1, additionalProperties: oneOfBy('type', branches) };
}

const DECISIONS = exactly({
  object: { const: 'decisions' },
  model: MODEL,
  prompt_format_version: { const: PROMPT_FORMAT_VERSION },
  answers: answersBy([
    tagged('yes_no', { probabilities: exactly({ yes: PROBABILITY, no: PROBABILITY }), label_mass: PROBABILITY }),
    tagged('choice', { probabilities: PROBABILITIES, label_mass: PROBABILITY, choice: { type: 'string' } }),
    tagged('score', { probabilities: PROBABILITIES, label_mass: PROBABILITY, score: { type: 'number', minimum: 0 } }),
  ]),
  usage: exactly({ prompt_tokens: COUNT, completion_tokens: { const: 0 }, total_tokens: COUNT }),
});

const SYSTEMONE = exactly({
  id: { type: 'string', pattern: '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' },
  model: MODEL,
  answers: answersBy([
    tagged('noul', { noul: PROBABILITY }),
    tagged('choice', { choice: { type: 'string' }, confidence: PROBABILITY, probabilities: PROBABILITIES }),
    tagged('score', {
      score: { type: 'number', minimum: 0 },
      confidence: PROBABILITY,
      probabilities: PROBABILITIES,
      legend: { type: 'object', minProperties: 2 },
    }),
  ]),
  usage: exactly({ input_tokens: COUNT, output_tokens: { const: 0 } }),
});

const INPUTS_USAGE = exactly({ prompt_tokens: COUNT, total_tokens: COUNT });

/** Indexes of inputs. */
const TRUNCATED = { type: 'array', minItems: 1, items: COUNT } as const;

const EMBEDDINGS = closed(['object', 'data', 'model', 'usage'], {
  object: { const: 'list' },
  data: {
    type: 'array',
    minItems: 1,
    items: exactly({
      object: { const: 'embedding' },
      index: COUNT,
      embedding: { type: ['array', 'string'], minItems: 1, items: { type: 'number', minimum: -1, maximum: 1 } },
    }),
  },
  model: MODEL,
  truncated: TRUNCATED,
  usage: INPUTS_USAGE,
});

const RANKING = closed(['object', 'model', 'score_type', 'results', 'usage', 'meta'], {
  object: { const: 'list' },
  model: MODEL,
  score_type: { enum: ['logit', 'probability'] },
  results: {
    type: 'array',
    minItems: 1,
    items: closed(['index', 'relevance_score'], {
      index: COUNT,
      relevance_score: { type: 'number' },
      document: exactly({ text: TEXT }),
    }),
  },
  truncated: TRUNCATED,
  usage: INPUTS_USAGE,
  meta: exactly({ tokens: exactly({ input_tokens: COUNT }) }),
});

const ERROR = exactly({
  error: exactly({
    message: { type: 'string', minLength: 1, maxLength: 2048 },
    type: { enum: [...new Set(Object.values(CATALOGUE).map(({ type }) => type))] },
    code: { enum: Object.keys(CATALOGUE) },
    param: { type: ['string', 'null'], minLength: 1, maxLength: 256 },
  }),
});

const HEALTH = exactly({ status: { const: 'ok' } });

const PART_STATE = { enum: ['ready', 'starting', 'unhealthy', 'draining'] } as const;

const HEALTH_STATE = exactly({ status: { enum: ['ok', 'starting', 'unhealthy', 'draining'] } });

const READINESS = exactly({
  status: PART_STATE,
  parts: closed(['models', 'usage'], {
    models: PART_STATE,
    usage: PART_STATE,
    credit: PART_STATE,
    prompts: PART_STATE,
    store: PART_STATE,
    keys: PART_STATE,
  }),
});

const RESPONSE_ID = { type: 'string', minLength: 1, maxLength: 256 } as const;
const STATUS = { enum: ['in_progress', 'completed', 'incomplete', 'failed'] } as const;
const NONE = { type: 'array', maxItems: 0 } as const;

function parts(part: object): object {
  return { type: 'array', maxItems: 1, items: part };
}

const TEXT_PART = closed(['type', 'text', 'annotations'], {
  type: { const: 'output_text' },
  text: TEXT,
  annotations: NONE,
  logprobs: NONE,
});

const RESPONSE_ITEM = oneOfBy('type', [
  exactly({
    id: RESPONSE_ID,
    type: { const: 'reasoning' },
    summary: NONE,
    content: parts(exactly({ type: { const: 'reasoning_text' }, text: TEXT })),
    status: STATUS,
  }),
  exactly({
    id: RESPONSE_ID,
    type: { const: 'message' },
    status: STATUS,
    role: { const: 'assistant' },
    content: parts(TEXT_PART),
  }),
  closed(['id', 'type', 'status', 'call_id', 'name', 'arguments'], {
    id: RESPONSE_ID,
    type: { const: 'function_call' },
    status: STATUS,
    call_id: CALL_ID,
    name: WIDE_TOOL_NAME,
    namespace: WIDE_TOOL_NAME,
    arguments: TEXT,
  }),
]);

const RESPONSE_FIELDS = {
  id: RESPONSE_ID,
  object: { const: 'response' },
  created_at: COUNT,
  completed_at: { type: ['integer', 'null'], minimum: 0 },
  status: STATUS,
  background: { const: false },
  frequency_penalty: { const: 0 },
  error: {
    type: ['object', 'null'],
    if: { type: 'object' },
    then: exactly({ code: { type: 'string' }, message: { type: 'string', minLength: 1 } }),
  },
  incomplete_details: { type: ['object', 'null'] },
  instructions: { type: 'null' },
  max_output_tokens: { type: ['integer', 'null'] },
  model: { type: 'string' },
  output: { type: 'array', items: RESPONSE_ITEM },
  parallel_tool_calls: { type: 'boolean' },
  presence_penalty: { const: 0 },
  previous_response_id: { type: 'null' },
  reasoning: exactly({ effort: { type: ['string', 'null'] }, summary: { type: 'null' } }),
  store: { const: false },
  temperature: { type: 'number' },
  text: { type: 'object' },
  tool_choice: { enum: ['auto', 'required'] },
  tools: NONE,
  top_p: { type: 'number' },
  truncation: { const: 'disabled' },
  usage: {
    type: ['object', 'null'],
    if: { type: 'object' },
    then: closed(['input_tokens', 'input_tokens_details', 'output_tokens', 'output_tokens_details', 'total_tokens'], {
      input_tokens: COUNT,
      input_tokens_details: exactly({ cached_tokens: COUNT }),
      output_tokens: COUNT,
      output_tokens_details: exactly({ reasoning_tokens: COUNT }),
      total_tokens: COUNT,
      ...costFields(['input', 'output']),
    }),
  },
  user: { type: 'null' },
  metadata: { type: 'object', maxProperties: 0 },
} as const;

const RESPONSE = closed(Object.keys(RESPONSE_FIELDS), { ...RESPONSE_FIELDS, service_tier: TIER });

/** One event of a stream: which fields it has beside these two depends on its type. */
const RESPONSE_EVENT = {
  type: 'object',
  required: ['type', 'sequence_number'],
  properties: {
    type: { type: 'string', pattern: '^(?:response\\.|keepalive$)' },
    sequence_number: COUNT,
    response: RESPONSE,
    item: RESPONSE_ITEM,
    delta: TEXT,
  },
} as const;

export const ANSWER_SCHEMAS = {
  ChatCompletion: COMPLETION,
  ChatCompletionChunk: CHUNK,
  CountedChunk: COUNTED_CHUNK,
  TieredChunk: TIERED_CHUNK,
  UsageChunk: lastChunk(USAGE),
  PricedCompletion: PRICED_COMPLETION,
  PricedUsageChunk: lastChunk(PRICED_USAGE, { service_tier: TIER }),
  ModelList: listOf(MODEL_OBJECT),
  DescribedModelList: listOf(DESCRIBED_MODEL),
  DescribedModel: DESCRIBED_MODEL,
  UsagePage: USAGE_PAGE,
  Account: ACCOUNT,
  Response: RESPONSE,
  ResponseEvent: RESPONSE_EVENT,
  MessageObject: MESSAGE,
  MessageEvent: MESSAGE_EVENT,
  MessageError: MESSAGE_ERROR,
  TokenCount: TOKEN_COUNT,
  Decisions: DECISIONS,
  SystemOne: SYSTEMONE,
  Embeddings: EMBEDDINGS,
  Ranking: RANKING,
  File: FILE,
  FileList: FILE_LIST,
  DeletedFile: FILE_DELETED,
  Batch: BATCH,
  BatchList: BATCH_LIST,
  Error: ERROR,
  Health: HEALTH,
  HealthState: HEALTH_STATE,
  Readiness: READINESS,
} as const;

export type AnswerKind = keyof typeof ANSWER_SCHEMAS;

const checks = new Map<AnswerKind, Check<unknown>>();

/** Reads what {@link validateAnswer} needs, so that it opens no file while a request is answered. */
export function prepareAnswers(): void {
  for (const kind of Object.keys(ANSWER_SCHEMAS) as AnswerKind[]) checkOf(kind);
}

/** Checks a parsed answer against its schema, compiled on first use: a sidecar that does not check never pays. */
export function validateAnswer(kind: AnswerKind, value: unknown): Outcome<unknown> {
  return checkOf(kind)(value);
}

function checkOf(kind: AnswerKind): Check<unknown> {
  let check = checks.get(kind);
  if (check === undefined) checks.set(kind, (check = compile(ANSWER_SCHEMAS[kind], { written: `answer-${kind}` })));
  return check;
}
