/** The frames of a stream (docs/contract.md#stream-frames). */
import { type Json, withAt } from '../../support/bodies.js';
import { type AnswerTable, all, count } from './answer-builders.js';
import { TOO_LONG, constant, filled, list, longText, object, oneOf, text } from './builders.js';
import { REASONS, call, fingerprint, usage, usageObjects, usageRules } from './completion-table.js';

type JsonObject = Readonly<Record<string, Json>>;

const delta: Json = { role: 'assistant', content: 'x', reasoning_content: 'y', tool_calls: [call] };
const frame: Json = { index: 0, delta, finish_reason: null };

export const CHUNK: AnswerTable = {
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
    longText(['choices', 0, 'delta', 'content'], 0),
    longText(['choices', 0, 'delta', 'reasoning_content'], 0),
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

export const USAGE_CHUNK: AnswerTable = {
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

const first: JsonObject = { index: 0, id: 'c', type: 'function', function: { name: 'f', arguments: '' } };
const later: JsonObject = { index: 127, function: { arguments: '{' } };
const named = (fields: JsonObject): JsonObject => ({ ...first, function: { name: 'f', arguments: '', ...fields } });
const without = (piece: JsonObject, gone: string): JsonObject =>
  Object.fromEntries(Object.entries(piece).filter(([name]) => name !== gone));

/** Pieces of a tool call in chunks: the first with id, type and name, later ones without. */
export const PIECES: { readonly good: readonly Json[]; readonly bad: readonly Json[] } = {
  good: [
    first,
    { ...first, index: 127 },
    { ...first, id: filled(256) },
    named({ name: 'A-_.'.repeat(32) }),
    later,
    { ...later, index: 0 },
  ],
  bad: [
    'x',
    7,
    null,
    ...['index', 'id', 'type', 'function'].map((name) => without(first, name)),
    ...['index', 'function'].map((name) => without(later, name)),
    { ...first, extra: 1 },
    { ...first, index: 128 },
    { ...first, index: -1 },
    { ...first, index: 0.5 },
    { ...first, id: '' },
    { ...first, id: 1 },
    { ...first, id: filled(257) },
    { ...first, type: 'tool' },
    { ...first, function: 'f' },
    { ...first, function: { name: 'f' } },
    { ...first, function: { arguments: '' } },
    named({ name: '' }),
    named({ name: 1 }),
    named({ name: 'a b' }),
    named({ name: filled(129) }),
    named({ arguments: 1 }),
    named({ arguments: TOO_LONG }),
    named({ extra: 1 }),
    { ...later, extra: 1 },
    { ...later, id: 'c' },
    { ...later, index: 128 },
    { ...later, index: -1 },
    { ...later, index: 0.5 },
    { ...later, function: 'f' },
    { ...later, function: {} },
    { ...later, function: { arguments: 1 } },
    { ...later, function: { arguments: TOO_LONG } },
    { ...later, function: { arguments: '', name: 'f' } },
  ],
};

/** A chunk with one piece of a tool call. */
export function chunkWith(piece: Json): Json {
  return withAt(CHUNK.base, ['choices', 0, 'delta', 'tool_calls'], [piece]);
}
