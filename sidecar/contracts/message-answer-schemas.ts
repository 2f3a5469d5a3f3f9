/** Schemas of what POST /messages and POST /messages/count_tokens answer. */
import { CATALOGUE } from '../domain/errors.js';
import { CALL_ID, COUNT, MAX_TEXT, MODEL, TEXT, WIDE_TOOL_NAME, closed, exactly, oneOfBy } from './common-schema.js';
import { MESSAGE_ERRORS, MESSAGE_TIERS, THREAD_CODE } from './message-answers.js';

const MESSAGE_USAGE = {
  input_tokens: COUNT,
  cache_creation_input_tokens: { const: 0 },
  cache_read_input_tokens: COUNT,
  output_tokens: COUNT,
  output_tokens_details: exactly({ thinking_tokens: COUNT }),
} as const;

const BLOCK = oneOfBy('type', [
  exactly({ type: { const: 'text' }, text: TEXT }),
  exactly({ type: { const: 'thinking' }, thinking: TEXT, signature: TEXT }),
  exactly({
    type: { const: 'tool_use' },
    id: CALL_ID,
    name: WIDE_TOOL_NAME,
    input: { type: 'object' },
  }),
]);

const STOP_REASON = {
  enum: ['end_turn', 'max_tokens', 'stop_sequence', 'tool_use', 'model_context_window_exceeded', null],
} as const;

export const MESSAGE = exactly({
  id: { type: 'string', pattern: '^msg_[0-9a-f]{32}$' },
  type: { const: 'message' },
  role: { const: 'assistant' },
  model: MODEL,
  content: { type: 'array', items: BLOCK },
  stop_reason: STOP_REASON,
  stop_sequence: { type: ['string', 'null'], maxLength: MAX_TEXT },
  usage: closed(Object.keys(MESSAGE_USAGE), { ...MESSAGE_USAGE, service_tier: { enum: Object.values(MESSAGE_TIERS) } }),
});

/** One event of a stream: which fields it has besides depends on its type. */
export const MESSAGE_EVENT = closed(['type'], {
  type: {
    enum: [
      'message_start',
      'content_block_start',
      'content_block_delta',
      'content_block_stop',
      'message_delta',
      'message_stop',
      'ping',
    ],
  },
  message: MESSAGE,
  index: COUNT,
  content_block: BLOCK,
  delta: { type: 'object' },
  usage: closed([], MESSAGE_USAGE),
});

export const MESSAGE_ERROR = exactly({
  type: { const: 'error' },
  error: exactly({
    type: { enum: [...new Set(Object.values(MESSAGE_ERRORS).map(([type]) => type))] },
    message: { type: 'string', minLength: 1, maxLength: 2048 },
    details: exactly({
      error_code: { enum: [...Object.keys(CATALOGUE), THREAD_CODE] },
      param: { type: ['string', 'null'], minLength: 1, maxLength: 256 },
    }),
  }),
  request_id: { type: 'string', minLength: 1, maxLength: 256 },
});

export const TOKEN_COUNT = exactly({ input_tokens: COUNT });
