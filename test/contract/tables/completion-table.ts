/** The chat completion (docs/contract.md#chat-completion-object). */
import type { At, Json } from '../../support/bodies.js';
import { type AnswerTable, all, count, nothing, orNull } from './answer-builders.js';
import {
  TOO_LONG,
  constant,
  list,
  longText,
  longTextOrNull,
  many,
  object,
  oneOf,
  text,
  calledName,
} from './builders.js';
import { type Closed, MAX_TEXT, type Rule } from './rule.js';

export const REASONS = ['stop', 'length', 'tool_calls', 'content_filter', 'function_call'];
export const USAGE = ['prompt_tokens', 'completion_tokens', 'total_tokens'];
const COMPLETION_DETAILS = [
  'accepted_prediction_tokens',
  'audio_tokens',
  'reasoning_tokens',
  'rejected_prediction_tokens',
  'text_tokens',
];
const PROMPT_DETAILS = ['audio_tokens', 'cached_tokens', 'text_tokens'];

export const usage: Json = {
  prompt_tokens: 3,
  completion_tokens: 4,
  total_tokens: 7,
  reasoning_tokens: 1,
  completion_tokens_details: Object.fromEntries(COMPLETION_DETAILS.map((name) => [name, 1])),
  prompt_tokens_details: Object.fromEntries(PROMPT_DETAILS.map((name) => [name, 1])),
};

export const usageRules = [
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

export const usageObjects: readonly Closed[] = [
  {
    at: ['usage'],
    fields: [...USAGE, 'reasoning_tokens', 'completion_tokens_details', 'prompt_tokens_details'],
    required: USAGE,
  },
  { at: ['usage', 'completion_tokens_details'], fields: COMPLETION_DETAILS, required: [] },
  { at: ['usage', 'prompt_tokens_details'], fields: PROMPT_DETAILS, required: [] },
];

export const fingerprint: Rule = orNull(text(['system_fingerprint'], 1, 120), 'must be a string or null');

export const call: Json = { id: 'c', type: 'function', function: { name: 'f', arguments: '{}' }, index: 0 };
const choice: Json = {
  index: 0,
  message: { role: 'assistant', content: 'x', reasoning_content: 'y', tool_calls: [call] },
  finish_reason: 'stop',
  logprobs: null,
  matched_stop: 'END',
};
const CALL: At = ['choices', 0, 'message', 'tool_calls', 0];
const VERSIONS: At = ['metadata', 'weight_versions'];

export const COMPLETION: AnswerTable = {
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
    longTextOrNull(['choices', 0, 'message', 'content']),
    longTextOrNull(['choices', 0, 'message', 'reasoning_content']),
    orNull(
      list(['choices', 0, 'message', 'tool_calls'], 1, 128, () => call),
      'must be an array or null',
    ),
    object(CALL),
    text([...CALL, 'id'], 1, 256),
    constant([...CALL, 'type'], 'function'),
    object([...CALL, 'function']),
    calledName([...CALL, 'function', 'name']),
    longText([...CALL, 'function', 'arguments'], 0),
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
        [TOO_LONG, `must have at most ${MAX_TEXT} characters`],
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
