/** POST /chat/completions without its tools (docs/contract.md#chat-completion-request). */
import { type At, FULL_CHAT, type Json, withAt } from '../../support/bodies.js';
import {
  LONGEST,
  TOO_LONG,
  boolean,
  constant,
  integer,
  list,
  longText,
  longTextOrNull,
  many,
  modelId,
  number,
  object,
  oneOf,
  text,
  toolName,
} from './builders.js';
import { CANARY, type Closed, type ContractCase, MAX_TEXT, type Rule, type Surface, changed } from './rule.js';
import { chatPlace } from './tool-tables.js';

export const CHAT: Surface = { route: 'chat', base: FULL_CHAT, place: chatPlace };

const user = (): Json => ({ role: 'user', content: 'x' });
const part = (): Json => ({ type: 'text', text: 'x' });
const call = (): Json => ({ id: 'c', type: 'function', function: { name: 'f', arguments: '' } });

const ROLES = ['system', 'user', 'assistant', 'tool'];
const URL: At = ['messages', 1, 'content', 1, 'image_url', 'url'];
const STRING_OR_ARRAY = 'must be a string or an array';

export const CHAT_RULES: readonly Rule[] = [
  object([]),
  modelId(),
  list(['messages'], 1, 4096, user),
  object(['messages', 0], [user()]),
  oneOf(['messages', 0, 'role'], ROLES, ['system', 'user', 'assistant']),
  longText(['messages', 0, 'content'], 1),
  toolName(['messages', 0, 'name']),
  {
    at: ['messages', 1, 'content'],
    kinds: ['string', 'array'],
    wrong: STRING_OR_ARRAY,
    good: ['a', LONGEST, many(1, part), many(4096, part)],
    bad: [
      ['', 'must not be empty'],
      [TOO_LONG, `must have at most ${MAX_TEXT} characters`],
      [[], 'must have at least 1 item'],
      [many(4097, part), 'must have at most 4096 items'],
    ],
  },
  toolName(['messages', 1, 'name']),
  object(['messages', 1, 'content', 0], [part()]),
  oneOf(['messages', 1, 'content', 0, 'type'], ['text', 'image_url'], ['text']),
  longText(['messages', 1, 'content', 0, 'text'], 1),
  object(['messages', 1, 'content', 1, 'image_url']),
  {
    ...longText(URL, 1),
    good: ['https://a/', 'data:image/png;base64,AAAA', `data:,${'A'.repeat(MAX_TEXT - 6)}`],
    bad: [
      ['', 'must not be empty'],
      [`https://a/${LONGEST}`, `must have at most ${MAX_TEXT} characters`],
      // formats.test.ts has more.
      ...[`http://${CANARY}/`, `data:${CANARY}`].map((url) => [url, 'must be an https or data URL'] as const),
    ],
  },
  oneOf(['messages', 1, 'content', 1, 'image_url', 'detail'], ['auto', 'low', 'high']),
  longTextOrNull(['messages', 2, 'content']),
  longTextOrNull(['messages', 2, 'reasoning_content']),
  toolName(['messages', 2, 'name']),
  list(['messages', 2, 'tool_calls'], 1, 128, call),
  object(['messages', 2, 'tool_calls', 0], [call()]),
  text(['messages', 2, 'tool_calls', 0, 'id'], 1, 256),
  constant(['messages', 2, 'tool_calls', 0, 'type'], 'function'),
  object(['messages', 2, 'tool_calls', 0, 'function']),
  toolName(['messages', 2, 'tool_calls', 0, 'function', 'name']),
  longText(['messages', 2, 'tool_calls', 0, 'function', 'arguments'], 0),
  integer(['messages', 2, 'tool_calls', 0, 'index'], 0, 127),
  longText(['messages', 3, 'content'], 0),
  text(['messages', 3, 'tool_call_id'], 1, 256),
  number(['frequency_penalty'], -2, 2),
  number(['presence_penalty'], -2, 2),
  integer(['max_tokens'], 1, 1_048_576),
  integer(['max_completion_tokens'], 1, 1_048_576),
  integer(['n'], 1, 16),
  boolean(['parallel_tool_calls']),
  oneOf(['reasoning_effort'], ['none', 'minimal', 'low', 'medium', 'high']),
  object(['response_format']),
  oneOf(['response_format', 'type'], ['text', 'json_object']),
  {
    ...integer(['seed'], -9_223_372_036_854_776_000, 9_223_372_036_854_776_000),
    // The neighbouring doubles of the bounds are 2,048 away.
    bad: [
      [-9_223_372_036_854_778_000, 'must be at least -9223372036854776000'],
      [9_223_372_036_854_778_000, 'must be at most 9223372036854776000'],
      [0.5, 'must be an integer'],
    ],
  },
  {
    at: ['stop'],
    kinds: ['string', 'array'],
    wrong: STRING_OR_ARRAY,
    good: ['a', 'a'.repeat(4096), ['a'], ['a', 'b', 'c', 'd']],
    bad: [
      ['', 'must not be empty'],
      ['a'.repeat(4097), 'must have at most 4096 characters'],
      [[], 'must have at least 1 item'],
      [many(5, () => CANARY), 'must have at most 4 items'],
    ],
  },
  text(['stop', 0], 1, 4096),
  boolean(['store']),
  boolean(['stream']),
  object(['stream_options']),
  boolean(['stream_options', 'include_usage']),
  number(['temperature'], 0, 2),
  number(['top_p'], 0, 1),
  text(['user'], 1, 256),
];

export const CHAT_OBJECTS: readonly Closed[] = [
  {
    at: [],
    fields: [
      ...['model', 'messages', 'frequency_penalty', 'presence_penalty', 'max_tokens', 'max_completion_tokens', 'n'],
      ...['parallel_tool_calls', 'reasoning_effort', 'response_format', 'seed', 'stop', 'store', 'stream'],
      ...['stream_options', 'temperature', 'top_p', 'tool_choice', 'tools', 'user'],
    ],
    required: ['model', 'messages'],
  },
  { at: ['messages', 0], fields: ['role', 'content', 'name'], required: ['role', 'content'] },
  { at: ['messages', 1], fields: ['role', 'content', 'name'], required: ['role', 'content'] },
  { at: ['messages', 1, 'content', 0], fields: ['type', 'text'], required: ['type', 'text'] },
  { at: ['messages', 1, 'content', 1], fields: ['type', 'image_url'], required: ['type', 'image_url'] },
  { at: ['messages', 1, 'content', 1, 'image_url'], fields: ['url', 'detail'], required: ['url'] },
  { at: ['messages', 2], fields: ['role', 'content', 'name', 'reasoning_content', 'tool_calls'], required: ['role'] },
  {
    at: ['messages', 2, 'tool_calls', 0],
    fields: ['id', 'type', 'function', 'index'],
    required: ['id', 'type', 'function'],
  },
  { at: ['messages', 2, 'tool_calls', 0, 'function'], fields: ['name', 'arguments'], required: ['name', 'arguments'] },
  { at: ['messages', 3], fields: ['role', 'content', 'tool_call_id'], required: ['role', 'content', 'tool_call_id'] },
  { at: ['response_format'], fields: ['type'], required: ['type'] },
  { at: ['stream_options'], fields: ['include_usage'], required: ['include_usage'] },
];

/** A field of another kind of message or part: a well-known name, which the error repeats. */
const outside = (at: At, name: string, fields: string): ContractCase => {
  const { subject, param } = chatPlace(at);
  const message = `${subject} has \`${name}\`, which is outside the contract; its fields are ${fields}`;
  return changed(CHAT, [...at, name], CANARY, { message, param });
};

/** Rules between fields, and which of several problems is reported. */
export const CHAT_CASES: readonly ContractCase[] = [
  outside(['messages', 0], 'tool_calls', 'role, content, name'),
  outside(['messages', 0], 'reasoning_content', 'role, content, name'),
  outside(['messages', 0], 'tool_call_id', 'role, content, name'),
  outside(['messages', 1], 'tool_calls', 'role, content, name'),
  outside(['messages', 1], 'reasoning_content', 'role, content, name'),
  outside(['messages', 2], 'tool_call_id', 'role, content, name, reasoning_content, tool_calls'),
  outside(['messages', 3], 'name', 'role, content, tool_call_id'),
  outside(['messages', 1, 'content', 0], 'image_url', 'type, text'),
  outside(['messages', 1, 'content', 1], 'text', 'type, image_url'),
  outside(['messages', 1, 'content', 1], 'detail', 'type, image_url'),
  changed(CHAT, ['messages', 2], { role: 'assistant', tool_calls: [call()] }),
  changed(CHAT, ['messages', 2], { role: 'assistant', content: '' }),
  changed(CHAT, ['messages', 2], { role: 'assistant', content: null }),
  ...(
    [
      [['messages', 2], { role: 'assistant', name: CANARY }, 'messages[2]', 'must have content or tool_calls'],
      [
        ['messages', 0],
        { role: 'developer', content: CANARY },
        'messages[0].role',
        'must be one of system, user, assistant, tool',
      ],
      [
        ['messages', 1, 'content', 1],
        { type: 'input_audio', input_audio: CANARY },
        'messages[1].content[1].type',
        'must be one of text, image_url',
      ],
    ] as const
  ).map(([at, value, param, predicate]) => changed(CHAT, at, value, { message: `${param} ${predicate}`, param })),
  // A missing field is reported before an unknown one, that before an invalid value, and the first item before the
  // second.
  changed(CHAT, [], { zcanary: 1, temperature: 9 }, { message: 'model is required', param: 'model' }),
  changed(CHAT, [], withAt(withAt(FULL_CHAT, ['temperature'], 9), [CANARY], 1), {
    message: `the body has a field outside the contract; its fields are ${CHAT_OBJECTS[0]?.fields.join(', ') ?? ''}`,
    param: null,
  }),
  changed(CHAT, ['messages'], [user(), { role: 'user', content: '' }, { role: CANARY }], {
    message: 'messages[1].content must not be empty',
    param: 'messages[1].content',
  }),
  changed(CHAT, [], withAt(withAt(FULL_CHAT, ['temperature'], 9), ['model'], ''), {
    message: 'model must not be empty',
    param: 'model',
  }),
];
